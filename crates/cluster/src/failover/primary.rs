//! Owns what a primary knows of its replicas: what they have acknowledged, until when it may serve, and which change of the recorded set is
//! due. Never sends a message or a transaction.

use super::{Acknowledgement, HANDOVER_MS, HEARTBEAT_MS, Heartbeat, LEASE_COUNTED_MS, Offset, SILENCE_MS};
use crate::ids::{CopyNumber, Epoch, Incarnation};
use crate::records::{Member, Unknown};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// Older heartbeats grant nothing any more when they are acknowledged.
const HEARTBEATS_KEPT: usize = LEASE_COUNTED_MS.div_ceil(HEARTBEAT_MS) as usize + 1;

#[derive(Clone, Debug)]
pub struct Primary {
    me: Member,
    epoch: Epoch,
    /// The set that is certain to be recorded, without this copy, and one that is being added.
    required: BTreeMap<CopyNumber, Known>,
    /// Replicas that no reply waits for.
    others: BTreeMap<CopyNumber, Known>,
    change: Option<Change>,
    /// Copies that must leave the set before they may be given a whole dataset.
    diverged: BTreeSet<CopyNumber>,
    /// The copies that may be in the set. `None`: all.
    staying: Option<BTreeSet<CopyNumber>>,
    /// Numbers, and when they were sent.
    heartbeats: VecDeque<(u64, u64)>,
    hands_over: Option<HandsOver>,
}

#[derive(Clone, Copy, Debug)]
struct HandsOver {
    to: CopyNumber,
    until_ms: u64,
    /// The transaction may have been sent.
    is_ready: bool,
}

/// How far a handover is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// None is under way. If one was: the copy that it named has left the set.
    None,
    /// A required copy has not acknowledged everything yet.
    Waits,
    /// Every reply so far may leave. The record that names this copy ([`super::duty::handed_over`]) is to be written, and written again if
    /// it is not certain that it was, until the record is another one.
    Ready(CopyNumber),
    /// This copy may go on as if it had not been asked.
    GivenUp(Hindrance),
}

/// Why a primary does not hand over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hindrance {
    NotInSync(CopyNumber),
    /// It hands over to this copy.
    Busy(CopyNumber),
    NoLease,
    TooSlow,
}

impl fmt::Display for Hindrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hindrance::NotInSync(copy) => write!(f, "copy {copy} is not in sync"),
            Hindrance::Busy(copy) => write!(f, "the primary is handing over to copy {copy}"),
            Hindrance::NoLease => f.write_str("the primary has no serving lease"),
            Hindrance::TooSlow => {
                write!(f, "a copy of the in-sync set did not have the newest writes within {HANDOVER_MS} ms")
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Known {
    incarnation: Incarnation,
    received: Offset,
    lease_until_ms: u64,
    heard_ms: u64,
}

impl Known {
    /// It has granted a lease, since requiring it must not end this copy's, and has not just left because it is silent.
    fn may_join(&self, now_ms: u64) -> bool {
        now_ms < self.lease_until_ms && now_ms < self.heard_ms + SILENCE_MS
    }
}

/// One at a time, because each is a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// The copy is required. The set is written when it has everything before `from`, the end of the stream when it was first required: what
    /// was acknowledged without it lies before.
    Add { copy: CopyNumber, from: Offset, is_sent: bool },
    /// The copy is required until the set without it is recorded.
    Remove(CopyNumber),
}

impl Primary {
    /// Begins an epoch with the set that is recorded for it, which has `me` in it.
    pub fn begin(epoch: Epoch, me: Member, in_sync: &[Member], now_ms: u64) -> Primary {
        let known = |member: &Member| Known {
            incarnation: member.incarnation,
            received: 0,
            lease_until_ms: 0,
            heard_ms: now_ms,
        };
        let others = in_sync.iter().filter(|member| member.copy != me.copy);
        Primary {
            required: others.map(|member| (member.copy, known(member))).collect(),
            others: BTreeMap::new(),
            change: None,
            diverged: BTreeSet::new(),
            staying: None,
            heartbeats: VecDeque::new(),
            hands_over: None,
            me,
            epoch,
        }
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// With this copy. For `min-in-sync`.
    pub fn in_sync_count(&self) -> usize {
        1 + self.required.len() - usize::from(matches!(self.change, Some(Change::Add { .. })))
    }

    /// Every required copy has everything before this. `None`: no other copy is required.
    pub fn acknowledged(&self) -> Option<Offset> {
        self.required.values().map(|known| known.received).min()
    }

    /// Whether no other copy can have been promoted and serve. Asked before a command runs, and when its reply leaves.
    pub fn has_lease(&self, now_ms: u64) -> bool {
        self.lease_until_ms().is_none_or(|until_ms| now_ms < until_ms)
    }

    /// When the serving lease ends. `None`: no other copy is required, so it does not end.
    pub fn lease_until_ms(&self) -> Option<u64> {
        self.required.values().map(|known| known.lease_until_ms).min()
    }

    /// Whether [`Primary::wanted`] may begin to require a copy now.
    pub fn may_add(&self, now_ms: u64) -> bool {
        let may_join = |(copy, known): (&CopyNumber, &Known)| self.stays(*copy) && known.may_join(now_ms);
        self.change.is_none() && self.hands_over.is_none() && self.others.iter().any(may_join)
    }

    /// The copies that are assigned to nodes and are not to go. Others leave the set, and none of them joins it.
    pub fn assigned(&mut self, staying: BTreeSet<CopyNumber>) {
        self.staying = Some(staying);
        if let Some(Change::Add { copy, .. }) = self.change
            && !self.stays(copy)
        {
            // It may be recorded already. It is required until the record says that it is not.
            self.change = Some(Change::Remove(copy));
        }
    }

    fn stays(&self, copy: CopyNumber) -> bool {
        self.staying.as_ref().is_none_or(|staying| staying.contains(&copy))
    }

    /// The next heartbeat, for every replica, if it is due.
    pub fn heartbeat(&mut self, now_ms: u64) -> Option<Heartbeat> {
        let last = self.heartbeats.back();
        if last.is_some_and(|(_, sent_ms)| now_ms < sent_ms + HEARTBEAT_MS) {
            return None;
        }
        let number = last.map_or(0, |(number, _)| number + 1);
        self.heartbeats.push_back((number, now_ms));
        if self.heartbeats.len() > HEARTBEATS_KEPT {
            self.heartbeats.pop_front();
        }
        // One that waits for etcd to hand over does not serve: if etcd does not hear it, a controller may name somebody.
        let has_lease = self.has_lease(now_ms) && !self.is_ready();
        Some(Heartbeat { epoch: self.epoch, number, has_lease })
    }

    fn is_ready(&self) -> bool {
        self.hands_over.is_some_and(|handover| handover.is_ready)
    }

    /// Begins to hand over to this copy. From now on no command may run, until [`Primary::handover`] says that it was given up.
    pub fn hand_over(&mut self, to: CopyNumber, now_ms: u64) -> Result<(), Hindrance> {
        match self.hands_over {
            Some(other) if other.to != to => return Err(Hindrance::Busy(other.to)),
            Some(_) => return Ok(()),
            None if !self.has_lease(now_ms) => return Err(Hindrance::NoLease),
            None => {}
        }
        if !self.is_settled_member(to) {
            return Err(Hindrance::NotInSync(to));
        }
        if let Some(Change::Add { copy, is_sent: false, .. }) = self.change {
            self.give_up_adding(copy);
        }
        self.hands_over = Some(HandsOver { to, until_ms: now_ms + HANDOVER_MS, is_ready: false });
        Ok(())
    }

    pub fn hands_over(&self) -> bool {
        self.hands_over.is_some()
    }

    /// How far the handover is. `end`: of the stream, to which nothing is added any more because no command runs.
    pub fn handover(&mut self, end: Offset, now_ms: u64) -> Handover {
        let Some(HandsOver { to, until_ms, is_ready }) = self.hands_over else { return Handover::None };
        if is_ready {
            return Handover::Ready(to);
        }
        let hindrance = match () {
            () if !self.has_lease(now_ms) => Hindrance::NoLease,
            () if !self.is_settled_member(to) => Hindrance::NotInSync(to),
            () if self.acknowledged().is_some_and(|offset| offset >= end) => {
                self.hands_over = Some(HandsOver { to, until_ms, is_ready: true });
                return Handover::Ready(to);
            }
            () if now_ms >= until_ms => Hindrance::TooSlow,
            () => return Handover::Waits,
        };
        self.hands_over = None;
        Handover::GivenUp(hindrance)
    }

    /// The copy is recorded, and is not about to leave.
    fn is_settled_member(&self, copy: CopyNumber) -> bool {
        let is_changing = match self.change {
            Some(Change::Add { copy: changing, .. } | Change::Remove(changing)) => changing == copy,
            None => false,
        };
        self.required.contains_key(&copy) && !is_changing && !self.diverged.contains(&copy)
    }

    /// A replica follows: its dataset is a prefix of this copy's stream. `received` is what an acknowledgement of it would say.
    pub fn follows(&mut self, replica: &Member, received: Offset, now_ms: u64) {
        let known = Known { incarnation: replica.incarnation, received, lease_until_ms: 0, heard_ms: now_ms };
        match self.required.get_mut(&replica.copy) {
            // What an earlier connection has granted stays granted.
            Some(required) if required.incarnation == replica.incarnation => {
                required.received = required.received.max(received);
                required.heard_ms = now_ms;
            }
            // It is required as what it was. It can be required as what it is when the old one has left.
            _ => drop(self.others.insert(replica.copy, known)),
        }
    }

    pub fn hear(&mut self, replica: &Member, message: &Acknowledgement, now_ms: u64) {
        if message.epoch != self.epoch {
            return;
        }
        let is_it = |known: &&mut Known| known.incarnation == replica.incarnation;
        let required = self.required.get_mut(&replica.copy).filter(is_it);
        let Some(known) = required.or_else(|| self.others.get_mut(&replica.copy).filter(is_it)) else { return };
        known.received = known.received.max(message.received);
        known.heard_ms = now_ms;
        let sent = |number| self.heartbeats.iter().find(|(sent, _)| *sent == number);
        if let Some((_, sent_ms)) = message.heartbeat.and_then(sent) {
            known.lease_until_ms = known.lease_until_ms.max(sent_ms + LEASE_COUNTED_MS);
        }
    }

    /// Whether a copy whose dataset is no prefix of the stream may be given a whole dataset. If not, it leaves the set first: while it takes
    /// the dataset, it has nothing.
    #[must_use]
    pub fn may_be_refilled(&mut self, copy: CopyNumber) -> bool {
        let is_required = self.required.contains_key(&copy);
        match is_required {
            true => self.diverged.insert(copy),
            // With another dataset it may join again.
            false => self.diverged.remove(&copy),
        };
        !is_required
    }

    /// The set to record, if it is to be changed: in a transaction that compares the record with the last one of this epoch that was read or
    /// written. Whatever becomes of it, [`Primary::recorded`] is told what is certain, and this is asked again. `end`: of the stream, no
    /// reply that depends on later bytes has left. So if [`Primary::may_add`], it is read when no reply can leave.
    pub fn wanted(&mut self, end: Offset, now_ms: u64) -> Option<Vec<Member>> {
        if self.is_ready() {
            return None;
        }
        if self.change.is_none() {
            self.change = self.next_change(end, now_ms);
        }
        match &mut self.change {
            Some(Change::Add { copy, from, is_sent }) => {
                let known = self.required[copy];
                if !*is_sent && now_ms >= known.heard_ms + SILENCE_MS {
                    // Its connection may only stand still.
                    let copy = *copy;
                    self.give_up_adding(copy);
                    return None;
                }
                if known.received < *from {
                    return None;
                }
                *is_sent = true;
                Some(self.members(None))
            }
            Some(Change::Remove(copy)) => {
                let copy = *copy;
                Some(self.members(Some(copy)))
            }
            None => None,
        }
    }

    /// The set that is recorded for this epoch: it was read or written, and is not older than what was told before.
    pub fn recorded(&mut self, in_sync: &[Member]) {
        let is_recorded = |copy: CopyNumber| in_sync.iter().any(|member| member.copy == copy);
        if self.hands_over.is_some_and(|handover| handover.is_ready && !is_recorded(handover.to)) {
            // Every transaction that hands over to it was to replace an older record.
            self.hands_over = None;
        }
        match self.change {
            Some(Change::Add { copy, .. }) if is_recorded(copy) => self.change = None,
            Some(Change::Remove(copy)) if !is_recorded(copy) => {
                self.change = None;
                let known = self.required.remove(&copy);
                // It may come back as it is, unless it is to have another dataset, or has one already.
                let stays = !self.diverged.remove(&copy) && !self.others.contains_key(&copy);
                self.others.extend(known.filter(|_| stays).map(|known| (copy, known)));
            }
            _ => {}
        }
    }

    /// Nothing was sent, so nobody can name it.
    fn give_up_adding(&mut self, copy: CopyNumber) {
        let known = self.required.remove(&copy).filter(|_| !self.diverged.remove(&copy));
        if let Some(known) = known {
            self.others.entry(copy).or_insert(known);
        }
        self.change = None;
    }

    fn next_change(&mut self, end: Offset, now_ms: u64) -> Option<Change> {
        let leaves = self.required.iter().find(|(copy, known)| {
            let is_silent = now_ms >= known.heard_ms + SILENCE_MS;
            let is_other = self.others.get(copy).is_some_and(|other| other.incarnation != known.incarnation);
            is_silent || is_other || self.diverged.contains(copy) || !self.stays(**copy)
        });
        if let Some((copy, _)) = leaves {
            return Some(Change::Remove(*copy));
        }
        if self.hands_over.is_some() {
            return None;
        }
        let may_join = |(copy, known): &(&CopyNumber, &Known)| self.stays(**copy) && known.may_join(now_ms);
        let joins = self.others.iter().find(may_join).map(|(copy, _)| *copy)?;
        let known = self.others.remove(&joins)?;
        self.required.insert(joins, known);
        Some(Change::Add { copy: joins, from: end, is_sent: false })
    }

    fn members(&self, without: Option<CopyNumber>) -> Vec<Member> {
        let others = self.required.iter().filter(|(copy, _)| Some(**copy) != without);
        let member = |(copy, known): (&CopyNumber, &Known)| Member {
            copy: *copy,
            incarnation: known.incarnation,
            unknown: Unknown::new(),
        };
        let mut members = Vec::from_iter(others.map(member));
        members.push(self.me.clone());
        members.sort_by_key(|member| member.copy);
        members
    }
}
