//! Owns what the replies of a shard's primary wait for besides the journal: the copies that must have what a reply depends on, and the
//! serving lease that they grant. Never knows a connection or a record; `cluster::failover` has the rules.
//!
//! Replies read atomic numbers only. Whoever moves the state machine publishes them under its lock.

use super::{BootClock, Stream};
use cluster::failover::{Acknowledgement, Handover, Heartbeat, Hindrance, Primary};
use cluster::ids::{CopyNumber, Epoch};
use cluster::records::Member;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// No reply waits for this.
const NEVER: u64 = u64::MAX;
/// The output of a connection shows the dataset as it was in several terms: it is not sent.
const SEVERAL_TERMS: u64 = u64::MAX - 1;

/// What the output of a connection depends on. All zero: on nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The position of the journal.
    pub journal: u64,
    /// The offset of the stream.
    pub offset: u64,
    /// See [`Serving::term`].
    pub term: u64,
}

impl Seen {
    /// What of it the journal has.
    pub fn of_journal(self) -> Seen {
        Seen { journal: self.journal, ..Seen::default() }
    }

    /// The output shows this too, behind what it showed before. `from`, `to`: before and after the commands ran.
    #[inline]
    pub fn add(&mut self, from: Seen, to: Seen) {
        // What runs while no stripe is owned shows nothing of the dataset. So if the copy has opened or closed meanwhile, what is shown is of
        // the term in which it owned them.
        let ran_in = match from.term {
            term if term == to.term => term,
            owner if is_of_owner(owner) && to.term == owner + 1 => owner,
            closed if !is_of_owner(closed) && to.term == closed + 1 => to.term,
            _ => SEVERAL_TERMS,
        };
        let term = match self.term {
            before if before == ran_in || before == 0 || !is_of_owner(before) => ran_in,
            owner if ran_in == owner + 1 => owner,
            _ => SEVERAL_TERMS,
        };
        *self = Seen { term, ..to };
    }
}

#[derive(Default)]
pub struct Serving {
    /// The dataset is a copy in a shard with replicas.
    is_on: AtomicBool,
    clock: OnceLock<BootClock>,
    /// Odd: the copy owns no stripe, so replies show nothing of its dataset, and leave at once. Even: they wait, and if the number is not the
    /// same any more, they never leave.
    term: AtomicU64,
    /// The last term whose replies may leave whenever they can: see [`Serving::settle`].
    settled: AtomicU64,
    /// Every required copy has the stream up to here.
    acknowledged: AtomicU64,
    lease_until_ms: AtomicU64,
    /// Replies wait for acknowledgements.
    is_sync: AtomicBool,
    /// The in-sync set is smaller than writes need.
    lacks_members: AtomicBool,
    state: Mutex<Option<ServingState>>,
    /// Called when what [`Serving::wanted`] or [`Serving::has_lease`] answers may have changed.
    on_change: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// Whether the copy owns stripes in this term.
fn is_of_owner(term: u64) -> bool {
    term.is_multiple_of(2)
}

struct ServingState {
    primary: Primary,
    in_sync_min: usize,
    is_sync: bool,
    heartbeat: Option<Heartbeat>,
}

impl Serving {
    /// From now on, replies wait for it. It begins with no stripe owned.
    pub fn turn_on(&self, clock: BootClock, on_change: Box<dyn Fn() + Send + Sync>) {
        assert!(self.clock.set(clock).is_ok() && self.on_change.set(on_change).is_ok(), "a copy begins once");
        self.term.store(1, SeqCst);
        self.is_on.store(true, SeqCst);
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    fn now_ms(&self) -> u64 {
        self.clock.get().map_or(0, BootClock::now_ms)
    }

    fn has_changed(&self) {
        if let Some(on_change) = self.on_change.get() {
            on_change();
        }
    }

    // --- what replies ask ---

    /// The times in which the copy has owned stripes, and those between them, are counted.
    #[inline]
    pub fn term(&self) -> u64 {
        self.term.load(SeqCst)
    }

    /// Whether a reply that has seen this may leave now.
    #[inline]
    pub fn allows(&self, seen: Seen) -> bool {
        if !is_of_owner(seen.term) || seen.term == 0 {
            return true;
        }
        // The lease is read last: what is read after the command ran is what counts.
        seen.term == self.term()
            && seen.offset <= self.acknowledged.load(SeqCst)
            && self.now_ms() < self.lease_until_ms.load(SeqCst)
            || seen.term == self.settled.load(SeqCst)
    }

    /// Whether replies that show the dataset of this moment wait: for acknowledgements, or for a lease. `now`: what they have seen.
    #[inline]
    pub fn holds_replies(&self, now: Seen) -> bool {
        self.is_on() && (self.is_sync() || !is_of_owner(now.term) || !self.allows(now))
    }

    /// Whether a reply that has seen this must never leave: the copy has closed since, so another one may serve.
    #[inline]
    pub fn has_ended(&self, seen: Seen) -> bool {
        is_of_owner(seen.term) && ![0, self.term(), self.settled.load(SeqCst)].contains(&seen.term)
    }

    /// Whether the stream must be sent at once: a reply waits for each part of it.
    pub fn is_sync(&self) -> bool {
        self.is_sync.load(Relaxed)
    }

    /// Whether writes are refused, because the in-sync set is too small.
    pub fn lacks_members(&self) -> bool {
        self.lacks_members.load(Relaxed)
    }

    // --- the copy's role ---

    /// Begins an epoch. No reply leaves before [`Serving::open`].
    pub fn begin(&self, epoch: Epoch, me: Member, in_sync: &[Member], is_sync: bool, in_sync_min: usize) {
        let mut state = self.state.lock();
        let primary = Primary::begin(epoch, me, in_sync, self.now_ms());
        *state = Some(ServingState { primary, in_sync_min, is_sync, heartbeat: None });
        self.publish(state.as_ref());
    }

    pub fn set_requirements(&self, is_sync: bool, in_sync_min: usize) {
        let mut state = self.state.lock();
        if let Some(state) = &mut *state {
            (state.is_sync, state.in_sync_min) = (is_sync, in_sync_min);
        }
        self.publish(state.as_ref());
    }

    /// No reply leaves any more that has seen the dataset. The stripes are still owned: [`Serving::close`] comes when they are not.
    pub fn end(&self) {
        let mut state = self.state.lock();
        *state = None;
        self.publish(None);
    }

    /// Stripes are owned from now on.
    pub fn open(&self) {
        let term = self.term();
        assert!(!is_of_owner(term), "it is closed");
        self.term.store(term + 1, SeqCst);
    }

    /// No stripe is owned any more, and no command runs in one. The replies that wait never leave.
    pub fn close(&self) {
        let term = self.term();
        assert!(is_of_owner(term), "it is open");
        self.term.store(term + 1, SeqCst);
    }

    /// No stripe is owned any more, and every reply so far may leave, however long it takes until it does: another copy serves only after
    /// this, and has what they show.
    fn settle(&self) {
        let term = self.term();
        assert!(is_of_owner(term), "it is open");
        self.settled.store(term, SeqCst);
        self.term.store(term + 1, SeqCst);
    }

    pub fn is_open(&self) -> bool {
        is_of_owner(self.term())
    }

    /// In which it serves.
    pub fn epoch(&self) -> Option<Epoch> {
        self.state.lock().as_ref().map(|state| state.primary.epoch())
    }

    pub fn has_lease(&self) -> bool {
        self.state.lock().as_ref().is_some_and(|state| state.primary.has_lease(self.now_ms()))
    }

    // --- its replicas ---

    /// The offset before which every required copy has everything. `end`: that of the stream, as it was read before. `None`: the copy
    /// does not serve.
    pub fn shared(&self, end: u64) -> Option<u64> {
        self.state.lock().as_ref().map(|state| state.primary.acknowledged().unwrap_or(end))
    }

    /// The newest heartbeat, if it is newer than `sent`.
    pub fn heartbeat(&self, sent: Option<u64>) -> Option<Heartbeat> {
        let mut state = self.state.lock();
        let ServingState { primary, heartbeat, .. } = state.as_mut()?;
        if let Some(due) = primary.heartbeat(self.now_ms()) {
            *heartbeat = Some(due);
        }
        heartbeat.filter(|newest| sent.is_none_or(|sent| sent < newest.number))
    }

    /// Whether a copy may be given a whole dataset. If not, it leaves the set first.
    pub fn may_be_refilled(&self, copy: CopyNumber) -> bool {
        let may = self.state.lock().as_mut().is_some_and(|state| state.primary.may_be_refilled(copy));
        if !may {
            self.has_changed();
        }
        may
    }

    /// A replica follows, and has everything before this offset. Returns whether replies may leave that waited.
    #[must_use]
    pub fn follows(&self, replica: &Member, received: u64) -> bool {
        let may_leave = self.learn(|primary, now_ms| primary.follows(replica, received, now_ms));
        self.has_changed();
        may_leave
    }

    /// Returns whether replies may leave that waited.
    #[must_use]
    pub fn hear(&self, replica: &Member, message: &Acknowledgement) -> bool {
        self.learn(|primary, now_ms| primary.hear(replica, message, now_ms))
    }

    /// Something is learnt of a replica.
    fn learn(&self, learns: impl FnOnce(&mut Primary, u64)) -> bool {
        let now_ms = self.now_ms();
        let mut guard = self.state.lock();
        let Some(state) = &mut *guard else { return false };
        let before = (state.primary.acknowledged(), state.primary.lease_until_ms());
        learns(&mut state.primary, now_ms);
        let now = (state.primary.acknowledged(), state.primary.lease_until_ms());
        if before == now {
            return false;
        }
        let hands_over = state.primary.hands_over();
        self.publish(guard.as_ref());
        drop(guard);
        let had_lease = before.1.is_none_or(|until_ms| now_ms < until_ms);
        if !had_lease || hands_over {
            self.has_changed();
        }
        !had_lease || self.is_sync() && before.0 != now.0
    }

    /// The epoch that is served, and the in-sync set to record for it, if it is to be changed: see [`Primary::wanted`]. `end` is the end of
    /// the stream. Returns also whether a reply may have been held up by the question.
    pub fn wanted(&self, end: impl Fn() -> u64) -> (Option<(Epoch, Vec<Member>)>, bool) {
        let now_ms = self.now_ms();
        let mut guard = self.state.lock();
        let Some(state) = &mut *guard else { return (None, false) };
        let holds_up = state.primary.may_add(now_ms);
        if holds_up {
            // A reply that leaves now without the new copy must lie before the end that is read: so none leaves meanwhile.
            self.acknowledged.store(0, SeqCst);
        }
        let wanted = state.primary.wanted(end(), now_ms);
        let wanted = wanted.map(|in_sync| (state.primary.epoch(), in_sync));
        self.publish(guard.as_ref());
        (wanted, holds_up)
    }

    /// See [`Primary::assigned`].
    pub fn assigned(&self, staying: BTreeSet<CopyNumber>) {
        if let Some(state) = &mut *self.state.lock() {
            state.primary.assigned(staying);
        }
    }

    /// See [`Primary::hand_over`].
    pub fn hand_over(&self, to: CopyNumber) -> Result<(), Hindrance> {
        let mut guard = self.state.lock();
        let state = guard.as_mut().ok_or(Hindrance::NoLease)?;
        let begun = state.primary.hand_over(to, self.now_ms());
        self.publish(guard.as_ref());
        begun
    }

    /// See [`Primary::handover`]. If the other copy has everything, this one is settled before a message for replicas is added to the
    /// stream: it would be ahead of the other one.
    pub fn handover(&self, stream: &Stream) -> Handover {
        let mut state = self.state.lock();
        let Some(ServingState { primary, .. }) = state.as_mut() else { return Handover::None };
        stream.with_mark(|mark| {
            let handover = primary.handover(mark.map_or(0, |mark| mark.offset), self.now_ms());
            if matches!(handover, Handover::Ready(_)) && self.is_open() {
                self.settle();
            }
            handover
        })
    }

    /// What is recorded for this epoch.
    pub fn recorded(&self, epoch: Epoch, in_sync: &[Member]) {
        let mut guard = self.state.lock();
        if let Some(state) = guard.as_mut().filter(|state| state.primary.epoch() == epoch) {
            state.primary.recorded(in_sync);
        }
        self.publish(guard.as_ref());
    }

    /// Called under the lock of the state. Without one, nothing leaves.
    fn publish(&self, state: Option<&ServingState>) {
        let Some(ServingState { primary, in_sync_min, is_sync, .. }) = state else {
            self.lease_until_ms.store(0, SeqCst);
            return self.lacks_members.store(false, Relaxed);
        };
        let acknowledged = if *is_sync { primary.acknowledged().unwrap_or(NEVER) } else { NEVER };
        self.acknowledged.store(acknowledged, SeqCst);
        self.lease_until_ms.store(primary.lease_until_ms().unwrap_or(NEVER), SeqCst);
        self.is_sync.store(*is_sync, Relaxed);
        self.lacks_members.store(primary.in_sync_count() < *in_sync_min, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Journaling;
    use crate::replication::new_id;
    use cluster::ids::Incarnation;
    use cluster::records::Unknown;
    use journal::Mark;
    use std::sync::Arc;

    fn member(copy: u32) -> Member {
        Member { copy: CopyNumber(copy), incarnation: Incarnation([copy as u8; 8]), unknown: Unknown::new() }
    }

    fn says(received: u64, heartbeat: u64) -> Acknowledgement {
        Acknowledgement { epoch: Epoch::FIRST, received, heartbeat: Some(heartbeat) }
    }

    fn seen(serving: &Serving, offset: u64) -> Seen {
        Seen { journal: 0, offset, term: serving.term() }
    }

    /// An open primary with one replica, and its clock.
    fn pair(is_sync: bool) -> (Serving, Arc<AtomicU64>) {
        let (serving, clock) = (Serving::default(), Arc::new(AtomicU64::new(1_000)));
        serving.turn_on(BootClock::Set(Arc::clone(&clock)), Box::new(|| ()));
        assert!(serving.allows(seen(&serving, 7)), "it owns nothing, so a reply shows nothing");
        serving.begin(Epoch::FIRST, member(0), &[member(0), member(1)], is_sync, 1);
        serving.open();
        assert!(!serving.allows(seen(&serving, 0)), "it has no lease yet");
        let heartbeat = serving.heartbeat(None).unwrap();
        assert_eq!(serving.heartbeat(Some(heartbeat.number)), None);
        assert!(serving.hear(&member(1), &says(100, heartbeat.number)), "who waited may go on");
        (serving, clock)
    }

    #[test]
    fn a_reply_leaves_when_the_replica_has_what_it_shows_while_the_lease_is_valid() {
        for is_sync in [true, false] {
            let (serving, clock) = pair(is_sync);
            let has_not = seen(&serving, 101);
            assert!(serving.allows(seen(&serving, 100)));
            assert_eq!(serving.allows(has_not), !is_sync);
            assert_eq!(serving.hear(&member(1), &says(101, 0)), is_sync);
            assert!(serving.allows(has_not));
            clock.fetch_add(1_299, Relaxed);
            assert!(serving.allows(has_not));
            clock.fetch_add(1, Relaxed);
            assert!(!serving.allows(has_not) && !serving.has_ended(has_not), "it may get its lease again");
        }
    }

    #[test]
    fn what_an_earlier_term_has_made_never_leaves() {
        let (serving, _clock) = pair(true);
        let before = seen(&serving, 50);
        assert!(serving.allows(before));
        serving.end();
        assert!(!serving.allows(before) && !serving.has_ended(before), "its stripes are still owned");
        serving.close();
        assert!(serving.has_ended(before) && serving.allows(seen(&serving, 500)));
        let closed = seen(&serving, 50);
        serving.begin(Epoch::FIRST, member(0), &[member(0)], true, 1);
        serving.open();
        assert!(serving.has_ended(before) && serving.allows(seen(&serving, u64::MAX)), "it is alone");
        let mut output = Seen::default();
        output.add(seen(&serving, 60), seen(&serving, 61));
        output.add(seen(&serving, 61), seen(&serving, 70));
        assert_eq!(output, seen(&serving, 70));
        output.add(closed, closed);
        assert!(serving.has_ended(output));
    }

    /// Such a reply was never sent once: the clients of a session whose commands came just when a named copy began to serve got UNCERTAIN.
    #[test]
    fn what_runs_while_the_copy_opens_is_shown_by_the_term_that_begins() {
        let (serving, _clock) = pair(true);
        let earlier = seen(&serving, 100);
        serving.close();
        let closed = seen(&serving, 100);
        serving.open();
        let open = seen(&serving, 100);
        let mut output = Seen::default();
        output.add(closed, open);
        assert!(output == open && serving.allows(output));
        // Rejections were not sent yet.
        let mut output = Seen::default();
        output.add(closed, closed);
        output.add(open, open);
        assert!(output == open && serving.allows(output));
        // What an earlier term has shown never leaves.
        for ran in [[earlier, open], [earlier, closed]] {
            let mut output = Seen::default();
            output.add(ran[0], ran[1]);
            output.add(closed, open);
            assert!(!serving.allows(output) && serving.has_ended(output), "{ran:?}");
        }
        serving.close();
        assert!(serving.has_ended(open));
    }

    /// Replies that only this made free waited for the next change, up to half a second, once in a thousand handovers.
    #[test]
    fn a_replica_that_follows_anew_has_what_it_says_at_once() {
        let (serving, _clock) = pair(true);
        let waits = seen(&serving, 150);
        assert!(!serving.allows(waits));
        assert!(serving.follows(&member(1), 150), "who waited may go on");
        assert!(serving.allows(waits));
        assert!(!serving.hear(&member(1), &says(150, 0)), "nothing is new");
    }

    #[test]
    fn what_was_settled_leaves_whenever_it_can() {
        let (serving, clock) = pair(true);
        let (before, ahead) = (seen(&serving, 100), seen(&serving, 101));
        serving.hand_over(CopyNumber(1)).unwrap();
        let stream = Stream::default();
        stream.prepare(Mark { id: new_id(), second: None, offset: 101, db: None }, 0, None);
        assert_eq!(serving.handover(&stream), Handover::Waits);
        assert!(serving.hear(&member(1), &says(101, 0)));
        assert_eq!(serving.handover(&stream), Handover::Ready(CopyNumber(1)));
        assert!(!serving.is_open());
        // A batch that was running then, and one behind it.
        let (mut output, closed) = (Seen::default(), seen(&serving, 101));
        output.add(before, closed);
        output.add(closed, closed);
        serving.end();
        clock.fetch_add(10_000, Relaxed);
        for seen in [before, ahead, output] {
            assert!(serving.allows(seen) && !serving.has_ended(seen));
        }
        serving.begin(Epoch::FIRST, member(0), &[member(0)], true, 1);
        serving.open();
        assert!(serving.allows(ahead));
        let next = seen(&serving, 7);
        serving.close();
        assert!(serving.has_ended(next) && !serving.allows(next), "this term was not settled");
    }

    /// The digests of a comparison, and a PING, made a primary that had just handed over one that was ahead of the next primary.
    #[test]
    fn no_message_is_added_behind_the_offset_at_which_a_copy_has_handed_over() {
        for _ in 0..200 {
            let journaling = Journaling::default();
            let (serving, stream) = (&journaling.serving, &journaling.stream);
            stream.prepare(Mark { id: new_id(), second: None, offset: 100, db: None }, 0, None);
            stream.turn_on();
            serving.turn_on(BootClock::Set(Arc::new(AtomicU64::new(1_000))), Box::new(|| ()));
            serving.begin(Epoch::FIRST, member(0), &[member(0), member(1)], true, 1);
            serving.open();
            let heartbeat = serving.heartbeat(None).unwrap();
            journaling.keep_for_replicas(&[b"PING"], 0);
            assert!(stream.offset() > 100);
            let _ = serving.hear(&member(1), &says(100, heartbeat.number));
            serving.hand_over(CopyNumber(1)).unwrap();
            let has_handed_over = AtomicBool::new(false);
            let acknowledged = std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !has_handed_over.load(Relaxed) {
                        journaling.keep_for_replicas(&[b"PING"], 0);
                    }
                    journaling.keep_for_replicas(&[b"PING"], 0);
                });
                loop {
                    let received = stream.offset();
                    let _ = serving.hear(&member(1), &says(received, heartbeat.number));
                    if serving.handover(stream) != Handover::Waits {
                        has_handed_over.store(true, Relaxed);
                        break received;
                    }
                }
            });
            assert!(!serving.is_open());
            assert_eq!(stream.offset(), acknowledged);
        }
    }

    /// What is acknowledged without the new copy lies before the end that is read.
    #[test]
    fn nothing_leaves_while_a_copy_begins_to_be_required() {
        let (serving, _clock) = pair(true);
        assert!(!serving.follows(&member(2), 10), "no reply waits for it");
        assert!(!serving.hear(&member(2), &says(10, 0)), "no reply waits for it yet");
        let (wanted, holds_up) = serving.wanted(|| {
            assert!(!serving.allows(seen(&serving, 100)));
            100
        });
        assert!(wanted.is_none() && holds_up, "it has not everything yet");
        assert!(!serving.allows(seen(&serving, 11)) && serving.allows(seen(&serving, 10)));
        assert!(serving.hear(&member(2), &says(100, 0)));
        let (wanted, holds_up) = serving.wanted(|| 100);
        assert_eq!(wanted, Some((Epoch::FIRST, vec![member(0), member(1), member(2)])));
        assert!(!holds_up && serving.allows(seen(&serving, 100)));
    }
}
