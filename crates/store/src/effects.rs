//! Owns effects: the commands that repeat what was changed, in the order in which it was changed.
//! Never knows what a command means, nor who keeps effects.
//!
//! Effects are stated while the stripes of their keys are locked, and told once for each outermost command (an EXEC or
//! a script with all its inner commands), before those stripes are unlocked. So the effects that concern one key are
//! told in the order of its changes. A group of several is to be repeated as one: as MULTI … EXEC.
//!
//! An effect holds no time that depends on when it is repeated, but for what it finds expired: it is to be repeated with
//! the clock at [`Effect::now_ms`].

use std::ops::Range;

/// Why the dataset was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Why {
    #[default]
    Command,
    /// A command that a script or function has called.
    Script,
    /// The key was past its time.
    Expired,
    /// Fields of the hash were past theirs.
    FieldExpired,
    Evicted,
    /// The contents of whole logical databases went.
    Flushed,
    /// Two logical databases were exchanged.
    Swapped,
    /// Read from a file.
    Loaded,
    /// A primary or a journal said so.
    Replicated,
}

/// The effects of one outermost command.
#[derive(Clone, Default)]
pub struct Effects {
    bytes: Vec<u8>,
    /// Where each word ends in `bytes`.
    ends: Vec<usize>,
    heads: Vec<Head>,
}

#[derive(Clone, Copy)]
struct Head {
    why: Why,
    db: usize,
    now_ms: u64,
    /// Where its words end in `ends`.
    end: usize,
}

/// One command to repeat.
#[derive(Clone, Copy)]
pub struct Effect<'e> {
    pub why: Why,
    /// The logical database it is meant for.
    pub db: usize,
    /// The wall clock that the change saw, milliseconds since 1970.
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

    /// Memory is kept, within bounds: one command with a value of many megabytes does not keep as much for ever.
    pub fn clear(&mut self) {
        const KEPT_BYTES: usize = 64 << 10;
        if self.bytes.capacity() > KEPT_BYTES {
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
            "an effect is a command: a handler that changes something says how to repeat it"
        );
        self.heads.push(Head { why, db, now_ms, end: self.ends.len() });
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = Effect<'_>> {
        self.heads.iter().enumerate().map(|(at, head)| {
            let from = at.checked_sub(1).map_or(0, |before| self.heads[before].end);
            let Head { why, db, now_ms, end } = *head;
            Effect { why, db, now_ms, effects: self, words: (from, end) }
        })
    }

    fn word(&self, at: usize) -> &[u8] {
        let from = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[from..self.ends[at]]
    }
}

impl<'e> Effect<'e> {
    /// The command's name and its arguments.
    pub fn words(self) -> impl ExactSizeIterator<Item = &'e [u8]> {
        let words: Range<usize> = self.words.0..self.words.1;
        words.map(move |at| self.effects.word(at))
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
}
