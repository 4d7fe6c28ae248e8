//! Owns effects: the commands that repeat the changes, in the order of the changes.
//! Never knows what a command means, nor where effects are stored.
//!
//! A handler states effects while the stripes of their keys are locked. The store publishes them once for each outermost
//! command (an EXEC or a script with all its inner commands), before these stripes are unlocked. So the effects on one key are
//! published in the order of the key's changes. A group of several effects must be repeated as one: as MULTI … EXEC.
//!
//! Notifications about a change wait here too, until the effects are in the journal. Otherwise a client on another
//! worker could learn of the change, and act on it, before the journal contains the change.
//!
//! An effect contains no relative times. But which keys have expired depends on the clock, so an effect must be repeated with
//! the clock at [`Effect::now_ms`].

use base::events::Class;

/// Why the dataset was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Why {
    #[default]
    Command,
    /// A command that a script or function called.
    Script,
    /// The key has expired.
    Expired,
    /// Fields of the hash have expired.
    FieldExpired,
    Evicted,
    /// Whole logical databases were emptied.
    Flushed,
    /// Two logical databases were exchanged.
    Swapped,
    /// The change was read from a file.
    Loaded,
    /// The change came from a primary or a journal.
    Replicated,
}

/// The effects of one outermost command.
#[derive(Clone, Default)]
pub struct Effects {
    bytes: Vec<u8>,
    /// The offset in `bytes` where each word ends.
    ends: Vec<usize>,
    heads: Vec<Head>,
    news: Vec<News>,
    /// Memory that the store has lent for the messages in `news`.
    lent_bytes: usize,
    /// Memory that the store has lent for `bytes`.
    lent_buffer: usize,
}

/// A notification for the listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Changed {
        key: Box<[u8]>,
        client: u64,
    },
    Flushed,
    Event {
        class: Class,
        name: &'static str,
        db: usize,
        key: Box<[u8]>,
    },
    /// A message that the command publishes.
    Message {
        is_sharded: bool,
        channel: Box<[u8]>,
        text: Box<[u8]>,
    },
}

/// The capacity that the buffers keep when they are cleared. Larger buffers are freed.
const KEPT_BYTES: usize = 64 << 10;

impl News {
    /// How much memory the store lends for this notification while it waits. The vector's capacity may be twice its
    /// length, hence the factor 2.
    pub fn lent_bytes(&self) -> usize {
        match self {
            News::Message { channel, text, .. } => 2 * size_of::<News>() + channel.len() + text.len(),
            // Nothing is lent for these: they come with effects and objects, whose memory is bounded.
            News::Changed { .. } | News::Flushed | News::Event { .. } => 0,
        }
    }
}

#[derive(Clone, Copy)]
struct Head {
    why: Why,
    db: usize,
    now_ms: u64,
    /// The index in `ends` where the command's words end.
    end: usize,
}

/// Where the changes of a store go: the journal, and the stream for replicas. Called while the stripes of the outermost command are locked,
/// so that the changes of a key are appended in their order. It must not call the store.
pub trait ChangeLog: Send + Sync {
    /// Appends the effects of an outermost command.
    fn append(&self, effects: &Effects);

    /// Appends a command whose effect is the bytes that its client sent, which saves a copy. False: it takes effects only.
    fn append_sent(&self, sent: &Sent<'_>) -> bool {
        let _ = sent;
        false
    }
}

impl<F: Fn(&Effects) + Send + Sync> ChangeLog for F {
    fn append(&self, effects: &Effects) {
        self(effects);
    }
}

/// A command to repeat, as the bytes that its client sent. It is the only effect of its outermost command.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'b> {
    /// The logical database in which the command must run.
    pub db: usize,
    /// The wall-clock time of the change, in milliseconds since 1970.
    pub now_ms: u64,
    pub bytes: &'b [u8],
}

/// One command to repeat.
#[derive(Clone, Copy)]
pub struct Effect<'e> {
    pub why: Why,
    /// The logical database in which the command must run.
    pub db: usize,
    /// The wall-clock time of the change, in milliseconds since 1970.
    pub now_ms: u64,
    effects: &'e Effects,
    words: (usize, usize),
}

impl Effects {
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// The memory of `count` effects with `words` words, which have `bytes` bytes together.
    pub fn mem_bytes(count: usize, words: usize, bytes: usize) -> usize {
        count * size_of::<Head>() + words * size_of::<usize>() + bytes
    }

    /// Reserves room for `bytes` bytes of words, so that the buffer grows once and not by doubling.
    pub(crate) fn expect(&mut self, bytes: usize) {
        if self.bytes.capacity() - self.bytes.len() < bytes {
            self.bytes.reserve_exact(bytes);
        }
    }

    /// The bytes of all words of all effects together.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The number of words of all effects together.
    pub fn word_count(&self) -> usize {
        self.ends.len()
    }

    /// Queues a notification. It is sent to the listeners after the effects are in the journal.
    pub(crate) fn say(&mut self, news: News) {
        self.lent_bytes += news.lent_bytes();
        self.news.push(news);
    }

    /// Whether there are effects or notifications to publish.
    #[inline]
    pub(crate) fn must_be_told(&self) -> bool {
        !self.heads.is_empty() | !self.news.is_empty()
    }

    /// Memory that the store has lent for the waiting messages.
    pub(crate) fn lent_bytes(&self) -> usize {
        self.lent_bytes
    }

    /// Takes the notifications, in order.
    pub(crate) fn take_news(&mut self) -> impl Iterator<Item = News> + '_ {
        self.lent_bytes = 0;
        self.news.drain(..)
    }

    /// How much the effects' buffer has grown since the last call, beyond the capacity that it always keeps. The store
    /// lends this memory.
    pub(crate) fn take_growth(&mut self) -> usize {
        let held = self.bytes.capacity().saturating_sub(KEPT_BYTES);
        held - std::mem::replace(&mut self.lent_buffer, held).min(held)
    }

    /// What the store has lent for the effects themselves.
    pub(crate) fn lent_buffer(&self) -> usize {
        self.lent_buffer
    }

    /// Removes all effects. The notifications must have been taken before. The memory is kept within bounds, so that
    /// one command with a huge value, or a script with many messages, does not occupy memory for ever.
    pub fn clear(&mut self) {
        assert!(self.news.is_empty(), "a notification must be delivered, not dropped");
        if self.bytes.capacity() > KEPT_BYTES || self.news.capacity() * size_of::<News>() > KEPT_BYTES {
            *self = Effects::default();
        }
        self.bytes.clear();
        self.ends.clear();
        self.heads.clear();
    }

    pub fn push<'w>(&mut self, why: Why, db: usize, now_ms: u64, words: impl IntoIterator<Item = &'w [u8]>) {
        for word in words {
            self.bytes.extend_from_slice(word);
            self.ends.push(self.bytes.len());
        }
        let before = self.heads.last().map_or(0, |head| head.end);
        assert!(
            self.ends.len() > before,
            "an effect is a command: a handler that changes something must state the command that repeats the change"
        );
        self.heads.push(Head { why, db, now_ms, end: self.ends.len() });
    }

    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Effect<'_>> {
        self.heads.iter().enumerate().map(|(at, head)| {
            let from = at.checked_sub(1).map_or(0, |before| self.heads[before].end);
            let Head { why, db, now_ms, end } = *head;
            Effect { why, db, now_ms, effects: self, words: (from, end) }
        })
    }
}

impl<'e> Effect<'e> {
    /// The command's name and its arguments.
    #[inline]
    pub fn words(self) -> impl ExactSizeIterator<Item = &'e [u8]> {
        let Effects { bytes, ends, .. } = self.effects;
        let (first, end) = self.words;
        let mut from = first.checked_sub(1).map_or(0, |before| ends[before]);
        ends[first..end].iter().map(move |&end| &bytes[std::mem::replace(&mut from, end)..end])
    }
}

impl std::fmt::Debug for Effect<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} db{} {}:", self.why, self.db, self.now_ms)?;
        self.words().try_for_each(|word| write!(f, " {}", word.escape_ascii()))
    }
}

impl std::fmt::Debug for Effects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_come_out_as_they_went_in() {
        let mut effects = Effects::default();
        let set: [&[u8]; 3] = [b"SET", b"", b"value"];
        effects.push(Why::Command, 3, 17, set);
        effects.push(Why::Expired, 0, 18, [&b"DEL"[..], b"k"]);
        let found: Vec<_> = effects.iter().map(|effect| (effect.why, effect.db, effect.words().collect())).collect();
        let del: Vec<&[u8]> = vec![b"DEL", b"k"];
        assert_eq!(found, [(Why::Command, 3, set.to_vec()), (Why::Expired, 0, del)]);
        assert_eq!(format!("{effects:?}"), "[Command db3 17: SET  value, Expired db0 18: DEL k]");
        effects.clear();
        assert!(effects.is_empty() && effects.iter().next().is_none());
    }

    #[test]
    fn many_messages_leave_no_large_list() {
        let mut effects = Effects::default();
        for _ in 0..10_000 {
            effects.say(News::Message { is_sharded: false, channel: (*b"c").into(), text: (*b"text").into() });
        }
        let lent_bytes = effects.lent_bytes();
        assert!(lent_bytes >= 10_000 * (size_of::<News>() + 5), "{lent_bytes}");
        assert_eq!(effects.take_news().map(|news| news.lent_bytes()).sum::<usize>(), lent_bytes);
        effects.clear();
        assert_eq!((effects.lent_bytes(), effects.must_be_told()), (0, false));
        assert!(effects.news.capacity() * size_of::<News>() <= 64 << 10, "{}", effects.news.capacity());
    }
}
