//! Owns how a keyspace is opened: with the stripes of a command's keys, or with all stripes. Also owns the probe of a
//! key before its command runs.
//! Never waits for flash.

use super::{ColdRead, Keyspace, Resume};
use crate::keyspace::guards::{Held, NotHeld, Reach};
use crate::mem::hash::{Key, KeyHash, STRIPES};
use crate::mem::word::Word;
use crate::store::Store;
use crate::stripe::LOCK_TIMEOUT;

impl Store {
    /// Locks the stripes of `keys`, in ascending order, for one command. `None`: one is out of reach.
    #[inline(always)]
    pub fn hold(&self, keys: &[Key<'_>], reach: Reach) -> Option<Held<'_>> {
        Held::of(self, keys, None, reach)
    }

    /// Like [`Store::hold`], but gives up if a script holds a stripe for long. `None`: see [`Store::why_not_held`].
    #[inline(always)]
    pub fn try_hold(&self, keys: &[Key<'_>], reach: Reach) -> Option<Held<'_>> {
        Held::of(self, keys, Some(LOCK_TIMEOUT), reach)
    }

    /// Like [`Store::try_hold`], for every stripe.
    pub fn try_hold_all(&self, reach: Reach) -> Option<Held<'_>> {
        Held::all(self, Some(LOCK_TIMEOUT), reach)
    }

    /// Why [`Store::try_hold`] has not locked the stripes of `keys`. Apart from it: a reason beside the locks would cost every command
    /// a dozen instructions. If the reason is gone meanwhile: [`NotHeld::Busy`], so that the command is tried again.
    #[cold]
    pub fn why_not_held(&self, keys: &[Key<'_>], reach: Reach) -> NotHeld {
        let is_foreign =
            |key: &Key<'_>| self.stripes.lock_at_once(key.hash.stripe()).is_some_and(|stripe| !stripe.owned);
        if reach == Reach::Owned && keys.iter().any(is_foreign) { NotHeld::NotOwned } else { NotHeld::Busy }
    }

    /// The same for every stripe.
    #[cold]
    pub fn why_not_all_held(&self, reach: Reach) -> NotHeld {
        let is_foreign = |stripe| self.stripes.lock_at_once(stripe).is_some_and(|stripe| !stripe.owned);
        if reach == Reach::Owned && (0..STRIPES).all(is_foreign) { NotHeld::NotOwned } else { NotHeld::Busy }
    }

    /// Locks the stripes of `keys`, owned or not, and opens the keyspace for one command in logical database `db`.
    pub fn lock<'a>(
        &'a self,
        keys: &[Key<'_>],
        db: usize,
        now_ms: u64,
        touch: bool,
        resume: &'a mut Resume,
    ) -> Keyspace<'a> {
        let held = self.hold(keys, Reach::All).expect("it waits without bound");
        Keyspace::new(held, db, now_ms, touch, resume)
    }

    /// Like [`Store::lock`], but gives up if a script holds a stripe for long, or if a stripe is out of reach.
    pub fn try_lock<'a>(
        &'a self,
        keys: &[Key<'_>],
        db: usize,
        now_ms: u64,
        touch: bool,
        reach: Reach,
        resume: &'a mut Resume,
    ) -> Result<Keyspace<'a>, NotHeld> {
        let held = self.try_hold(keys, reach).ok_or_else(|| self.why_not_held(keys, reach))?;
        Ok(Keyspace::new(held, db, now_ms, touch, resume))
    }

    /// Like [`Store::try_lock`], for every stripe.
    pub fn try_lock_all<'a>(
        &'a self,
        db: usize,
        now_ms: u64,
        touch: bool,
        reach: Reach,
        resume: &'a mut Resume,
    ) -> Result<Keyspace<'a>, NotHeld> {
        let held = self.try_hold_all(reach).ok_or_else(|| self.why_not_all_held(reach))?;
        Ok(Keyspace::new(held, db, now_ms, touch, resume))
    }

    /// Whether the key's stripe is not locked at the moment.
    pub fn is_free(&self, key: &Key<'_>) -> bool {
        self.stripes.lock_at_once(key.hash.stripe()).is_some()
    }

    /// The read that a command on this key would need first, if any. Also brings the key's entry into the processor's cache. Does
    /// not wait for a locked stripe: then the command itself finds out.
    pub fn probe(&self, key: &Key<'_>, db: usize) -> Option<ColdRead> {
        let stripe = self.stripes.lock_at_once(key.hash.stripe())?;
        let table_id = self.table_id(db);
        let database = stripe.database(table_id)?;
        let word = database.table.word(database.find(key)?);
        if word.is_hot() {
            return None;
        }
        Some(self.cold_read(key.hash, table_id, word, Some(key.name)))
    }

    /// Makes a read. The caller holds the stripe's lock. Counts the reader in the segment, so that its pages are not reused.
    pub(crate) fn cold_read(&self, hash: KeyHash, table_id: u32, word: Word, name: Option<&[u8]>) -> ColdRead {
        ColdRead::new(self, hash, table_id, word, name)
    }
}
