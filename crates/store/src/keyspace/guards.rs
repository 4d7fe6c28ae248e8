//! Owns the locks that a command holds: which stripes, how they are locked, how more are added.
//! Never knows what is in a stripe.
//!
//! Stripes are locked in ascending order. Only a script may add a stripe while it holds others. To avoid a deadlock, a
//! command that locks several stripes unlocks all of them after [`BACK_OFF`] and starts again. So only scripts hold one stripe
//! and wait for another without bound. If two scripts want each other's stripes, the second to ask is refused.
//!
//! This is the only file of the store that reads a clock: the caller's time stands still during a wait. The clock decides only
//! when to give up.

use crate::mem::hash::{Key, STRIPES};
use crate::store::Store;
use crate::stripe::{Guard, Stripe};
use smallvec::SmallVec;
use std::time::{Duration, Instant};

/// How long a command that locks several stripes waits for one while it holds others.
const BACK_OFF: Duration = Duration::from_millis(1);
/// How often a command that backed off checks whether the script has added its stripes.
const STAND_BACK: Duration = Duration::from_micros(50);
/// How long a script waits for its turn to add stripes, and then for each stripe.
const TURN_TIMEOUT: Duration = Duration::from_millis(50);
const ADD_TIMEOUT: Duration = Duration::from_millis(500);

/// The locked stripes that a handler may use.
pub(crate) enum Guards<'s> {
    None,
    One(usize, Guard<'s>),
    /// Sorted by number, ascending.
    Many(Vec<(usize, Guard<'s>)>),
    /// The stripes of the transaction or script around the command.
    Outer(&'s mut (dyn Stripes + 's)),
}

/// The stripes held by a transaction or script, as its inner commands see them.
pub(crate) trait Stripes {
    fn stripe(&mut self, stripe: usize) -> Option<&mut Stripe>;
    /// A shared reference, so that several stripes may be read at the same time.
    fn view(&self, stripe: usize) -> Option<&Stripe>;
    fn count(&self) -> usize;
    /// Locks more stripes. False: they could not be locked, and nothing has changed.
    fn add(&mut self, stripes: &[usize]) -> bool;
}

/// Why a command's stripes could not be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotHeld {
    /// A script holds one of them for a long time.
    Busy,
    /// The store does not own one of them: see [`Store::set_owned`].
    NotOwned,
}

/// Which stripes a command may lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// A client's command: those that the store owns.
    Owned,
    /// A command of a journal, of a file or of a primary, which was accepted before.
    All,
}

/// The stripes that a command has locked, and the store for locking more.
pub struct Held<'s> {
    store: &'s Store,
    guards: Guards<'s>,
}

impl<'s> Held<'s> {
    /// Locks the stripes of `keys`. `None`: one could not be locked within `timeout`, or is out of reach. Without `timeout` it waits
    /// without bound.
    #[inline(always)]
    pub(crate) fn of(store: &'s Store, keys: &[Key<'_>], timeout: Option<Duration>, reach: Reach) -> Option<Held<'s>> {
        let [key] = keys else { return Held::of_several(store, keys, timeout, reach) };
        let stripe = key.hash.stripe();
        let guard = match timeout {
            None => store.stripe(stripe),
            Some(timeout) => store.try_stripe(stripe, timeout)?,
        };
        if !(guard.owned | (reach == Reach::All)) {
            return None;
        }
        Some(Held { store, guards: Guards::One(stripe, guard) })
    }

    fn of_several(store: &'s Store, keys: &[Key<'_>], timeout: Option<Duration>, reach: Reach) -> Option<Held<'s>> {
        if keys.is_empty() {
            return Some(Held { store, guards: Guards::None });
        }
        let mut stripes: SmallVec<[usize; 32]> = keys.iter().map(|key| key.hash.stripe()).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let guards = lock_many(store, &stripes, timeout)?;
        if reach == Reach::Owned && !guards.iter().all(|(_, guard)| guard.owned) {
            return None;
        }
        Some(Held { store, guards: Guards::Many(guards) })
    }

    /// Locks every stripe. A client's command needs a store that owns some of them: the others have no keys, or none that it may see.
    pub(crate) fn all(store: &'s Store, timeout: Option<Duration>, reach: Reach) -> Option<Held<'s>> {
        let guards = lock_many(store, &all_stripes(), timeout)?;
        if reach == Reach::Owned && !guards.iter().any(|(_, guard)| guard.owned) {
            return None;
        }
        Some(Held { store, guards: Guards::Many(guards) })
    }

    #[inline]
    pub(crate) fn store(&self) -> &'s Store {
        self.store
    }

    /// These stripes, as a command inside the transaction or script that holds them sees them.
    pub(crate) fn inner(&mut self) -> Held<'_> {
        Held { store: self.store, guards: Guards::Outer(self) }
    }

    #[inline]
    pub(crate) fn get(&mut self, stripe: usize) -> &mut Stripe {
        find(&mut self.guards, stripe).expect("a row names every key its handler touches")
    }

    /// Like [`Held::get`], but shared, so that several stripes may be read at the same time.
    pub(crate) fn see(&self, stripe: usize) -> &Stripe {
        self.view(stripe).expect("a row names every key its handler touches")
    }

    pub(crate) fn holds(&mut self, stripe: usize) -> bool {
        self.stripe(stripe).is_some()
    }

    /// Whether the store owns the stripe, which is locked.
    pub(crate) fn owns(&self, stripe: usize) -> bool {
        self.view(stripe).is_some_and(|stripe| stripe.owned)
    }

    /// Whether a transaction or script around the command holds the stripes.
    #[inline]
    pub(crate) fn is_inner(&self) -> bool {
        matches!(self.guards, Guards::Outer(_))
    }

    /// Appends the numbers of its own stripes that have a value in RAM.
    #[cold]
    pub(crate) fn note_hot(&self, into: &mut Vec<usize>) {
        match &self.guards {
            Guards::None | Guards::Outer(_) => {}
            Guards::One(number, stripe) => into.extend((stripe.hot() > 0).then_some(*number)),
            Guards::Many(guards) => {
                into.extend(guards.iter().filter(|(_, stripe)| stripe.hot() > 0).map(|(number, _)| *number));
            }
        }
    }
}

#[inline]
fn find<'g>(guards: &'g mut Guards<'_>, stripe: usize) -> Option<&'g mut Stripe> {
    match guards {
        Guards::None => None,
        Guards::One(held, guard) => (*held == stripe).then_some(guard),
        Guards::Many(guards) => {
            let at = place_of(guards, stripe)?;
            Some(&mut guards[at].1)
        }
        Guards::Outer(outer) => outer.stripe(stripe),
    }
}

#[inline]
fn place_of(guards: &[(usize, Guard<'_>)], stripe: usize) -> Option<usize> {
    match guards.len() {
        STRIPES => Some(stripe),
        _ => guards.binary_search_by_key(&stripe, |(held, _)| *held).ok(),
    }
}

impl Stripes for Held<'_> {
    fn stripe(&mut self, stripe: usize) -> Option<&mut Stripe> {
        find(&mut self.guards, stripe)
    }

    fn view(&self, stripe: usize) -> Option<&Stripe> {
        match &self.guards {
            Guards::None => None,
            Guards::One(held, guard) => (*held == stripe).then_some(guard),
            Guards::Many(guards) => Some(&guards[place_of(guards, stripe)?].1),
            Guards::Outer(outer) => outer.view(stripe),
        }
    }

    fn count(&self) -> usize {
        match &self.guards {
            Guards::None => 0,
            Guards::One(..) => 1,
            Guards::Many(guards) => guards.len(),
            Guards::Outer(outer) => outer.count(),
        }
    }

    fn add(&mut self, stripes: &[usize]) -> bool {
        if let Guards::Outer(outer) = &mut self.guards {
            return outer.add(stripes);
        }
        let mut missing: SmallVec<[usize; 8]> = stripes.iter().copied().filter(|&stripe| !self.holds(stripe)).collect();
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() {
            return true;
        }
        let Some(_turn) = self.store.stripes.adding.try_lock_for(TURN_TIMEOUT) else { return false };
        let deadline = Instant::now() + ADD_TIMEOUT;
        let mut added = Vec::with_capacity(missing.len());
        for stripe in missing {
            let Some(guard) = self.store.try_stripe(stripe, deadline.saturating_duration_since(Instant::now())) else {
                return false;
            };
            added.push((stripe, guard));
        }
        let mut held = match std::mem::replace(&mut self.guards, Guards::None) {
            Guards::One(stripe, guard) => vec![(stripe, guard)],
            Guards::Many(guards) => guards,
            Guards::None | Guards::Outer(_) => Vec::new(),
        };
        held.append(&mut added);
        held.sort_unstable_by_key(|(stripe, _)| *stripe);
        self.guards = Guards::Many(held);
        true
    }
}

/// Locks several stripes, given in ascending order. Without `timeout` it waits without bound.
pub(crate) fn lock_many<'s>(
    store: &'s Store,
    stripes: &[usize],
    timeout: Option<Duration>,
) -> Option<Vec<(usize, Guard<'s>)>> {
    let mut deadline = None;
    loop {
        let mut guards = Vec::with_capacity(stripes.len());
        for &stripe in stripes {
            let Some(guard) = store.try_stripe(stripe, BACK_OFF) else { break };
            guards.push((stripe, guard));
        }
        if guards.len() == stripes.len() {
            return Some(guards);
        }
        drop(guards);
        if let Some(timeout) = timeout
            && *deadline.get_or_insert_with(|| Instant::now() + timeout) <= Instant::now()
        {
            return None;
        }
        store.wait();
        // The mutex is not fair: without this pause the waiting script might never get its stripe.
        while store.stripes.adding.is_locked() {
            std::thread::sleep(STAND_BACK);
        }
    }
}

/// The numbers of all stripes, in order.
pub(crate) fn all_stripes() -> SmallVec<[usize; STRIPES]> {
    (0..STRIPES).collect()
}
