//! Owns the locks that a command holds: which stripes, how they are taken, how more are added.
//! Never knows what is in a stripe.
//!
//! Stripes are taken in ascending order. A script alone may want another one while it holds some; so that it gets it,
//! whoever takes several gives back what it has after [`BACK_OFF`] and begins again. Then nobody but scripts holds one
//! stripe and waits for another, and of two scripts that want each other's the one that asked second is refused.
//!
//! This file alone reads a clock in the store: the caller's stands still while it waits, and nothing but giving up depends on it.

use crate::mem::hash::{Key, STRIPES};
use crate::store::Store;
use crate::stripe::{Guard, Stripe};
use smallvec::SmallVec;
use std::time::{Duration, Instant};

/// How long a taker of several stripes waits for one while it holds others.
const BACK_OFF: Duration = Duration::from_millis(1);
/// How often a taker of several stripes that stands back looks whether the script has what it wants.
const STAND_BACK: Duration = Duration::from_micros(50);
/// How long a script waits for its turn to add stripes, and for a stripe when it is its turn.
const TURN_PATIENCE: Duration = Duration::from_millis(50);
const ADD_PATIENCE: Duration = Duration::from_millis(500);

/// The stripes that a handler may touch.
pub(crate) enum Guards<'s> {
    None,
    One(usize, Guard<'s>),
    /// Ascending.
    Many(Vec<(usize, Guard<'s>)>),
    /// Those of the transaction or script it runs in.
    Outer(&'s mut (dyn Stripes + 's)),
}

/// Stripes held by a transaction or script, seen by the commands it runs.
pub(crate) trait Stripes {
    fn stripe(&mut self, stripe: usize) -> Option<&mut Stripe>;
    /// For reading only, so that several may be looked at together.
    fn view(&self, stripe: usize) -> Option<&Stripe>;
    fn count(&self) -> usize;
    /// Holds these too. False: they were not to be had, and nothing has changed.
    fn add(&mut self, stripes: &[usize]) -> bool;
}

/// The stripes that a command has locked, and where more come from.
pub struct Held<'s> {
    store: &'s Store,
    guards: Guards<'s>,
}

impl<'s> Held<'s> {
    /// The stripes of `keys`. `None`: one was not to be had within `patience`. Without one it waits as long as it takes.
    #[inline(always)]
    pub(crate) fn of(store: &'s Store, keys: &[Key<'_>], patience: Option<Duration>) -> Option<Held<'s>> {
        let [key] = keys else { return Held::of_several(store, keys, patience) };
        let stripe = key.hash.stripe();
        let guard = match patience {
            None => store.stripe(stripe),
            Some(patience) => store.try_stripe(stripe, patience)?,
        };
        Some(Held { store, guards: Guards::One(stripe, guard) })
    }

    fn of_several(store: &'s Store, keys: &[Key<'_>], patience: Option<Duration>) -> Option<Held<'s>> {
        if keys.is_empty() {
            return Some(Held { store, guards: Guards::None });
        }
        let mut stripes: SmallVec<[usize; 32]> = keys.iter().map(|key| key.hash.stripe()).collect();
        stripes.sort_unstable();
        stripes.dedup();
        Held::many(store, &stripes, patience)
    }

    /// Every stripe.
    pub(crate) fn all(store: &'s Store, patience: Option<Duration>) -> Option<Held<'s>> {
        Held::many(store, &all_stripes(), patience)
    }

    /// `stripes`: ascending, without repetition. `None`: not within `patience`.
    fn many(store: &'s Store, stripes: &[usize], patience: Option<Duration>) -> Option<Held<'s>> {
        Some(Held { store, guards: Guards::Many(lock_many(store, stripes, patience)?) })
    }

    #[inline]
    pub(crate) fn store(&self) -> &'s Store {
        self.store
    }

    /// For a command that runs inside what holds these.
    pub(crate) fn inner(&mut self) -> Held<'_> {
        Held { store: self.store, guards: Guards::Outer(self) }
    }

    #[inline]
    pub(crate) fn get(&mut self, stripe: usize) -> &mut Stripe {
        find(&mut self.guards, stripe).expect("a row names every key its handler touches")
    }

    /// As [`Held::get`], for reading: several may be looked at together.
    pub(crate) fn see(&self, stripe: usize) -> &Stripe {
        self.view(stripe).expect("a row names every key its handler touches")
    }

    pub(crate) fn holds(&mut self, stripe: usize) -> bool {
        self.stripe(stripe).is_some()
    }

    /// Whether these are the stripes of a transaction or script.
    #[inline]
    pub(crate) fn is_inner(&self) -> bool {
        matches!(self.guards, Guards::Outer(_))
    }

    /// Notes those of its own stripes in which a value is in RAM.
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
        let Some(_turn) = self.store.stripes.adding.try_lock_for(TURN_PATIENCE) else { return false };
        let deadline = Instant::now() + ADD_PATIENCE;
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

/// Takes several stripes, named in ascending order. `patience` `None`: waits until it has them.
pub(crate) fn lock_many<'s>(
    store: &'s Store,
    stripes: &[usize],
    patience: Option<Duration>,
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
        if let Some(patience) = patience
            && *deadline.get_or_insert_with(|| Instant::now() + patience) <= Instant::now()
        {
            return None;
        }
        store.wait();
        // A lock goes to whoever is awake: without this the script that waits for one of these would not get it.
        while store.stripes.adding.is_locked() {
            std::thread::sleep(STAND_BACK);
        }
    }
}

/// Every stripe, in order.
pub(crate) fn all_stripes() -> SmallVec<[usize; STRIPES]> {
    (0..STRIPES).collect()
}
