//! Owns how a keyspace is opened: by the stripes of a command's keys, or all of them; and what can be asked of a key before.
//! Never waits for flash.

use super::{ColdRead, Keyspace, Resume};
use crate::keyspace::guards::Held;
use crate::mem::hash::{Key, KeyHash};
use crate::mem::word::Word;
use crate::store::Store;
use crate::stripe::LOCK_PATIENCE;

impl Store {
    /// Locks the stripes of `keys`, in ascending order, for one command.
    #[inline(always)]
    pub fn hold(&self, keys: &[Key<'_>]) -> Held<'_> {
        Held::of(self, keys, None).expect("waited for without end")
    }

    /// As [`Store::hold`], but gives up when a script keeps a stripe for long.
    #[inline(always)]
    pub fn try_hold(&self, keys: &[Key<'_>]) -> Option<Held<'_>> {
        Held::of(self, keys, Some(LOCK_PATIENCE))
    }

    /// As [`Store::try_hold`], with every stripe.
    pub fn try_hold_all(&self) -> Option<Held<'_>> {
        Held::all(self, Some(LOCK_PATIENCE))
    }

    /// The keyspace of `keys` for one command in logical database `db`, with their stripes locked.
    pub fn lock<'a>(
        &'a self,
        keys: &[Key<'_>],
        db: usize,
        now_ms: u64,
        touch: bool,
        resume: &'a mut Resume,
    ) -> Keyspace<'a> {
        Keyspace::new(self.hold(keys), db, now_ms, touch, resume)
    }

    /// As [`Store::lock`], but gives up when a script keeps a stripe for long.
    pub fn try_lock<'a>(
        &'a self,
        keys: &[Key<'_>],
        db: usize,
        now_ms: u64,
        touch: bool,
        resume: &'a mut Resume,
    ) -> Option<Keyspace<'a>> {
        Some(Keyspace::new(self.try_hold(keys)?, db, now_ms, touch, resume))
    }

    /// As [`Store::try_lock`], with every stripe.
    pub fn try_lock_all<'a>(
        &'a self,
        db: usize,
        now_ms: u64,
        touch: bool,
        resume: &'a mut Resume,
    ) -> Option<Keyspace<'a>> {
        Some(Keyspace::new(self.try_hold_all()?, db, now_ms, touch, resume))
    }

    /// Whether a command on this key would have to read flash first. Brings the key's entry into the cache. A stripe that is
    /// locked is not waited for: the command itself finds out.
    pub fn probe(&self, key: &Key<'_>, db: usize) -> Option<ColdRead> {
        let stripe = self.stripes.lock_at_once(key.hash.stripe())?;
        let uid = self.uid(db);
        let database = stripe.database(uid)?;
        let word = database.table.word(database.find(key)?);
        if word.is_hot() {
            return None;
        }
        Some(self.cold_read(key.hash, uid, word, Some(key.name)))
    }

    /// Under the stripe's lock: notes the reader with the segment, so that its pages stay.
    pub(crate) fn cold_read(&self, hash: KeyHash, uid: u32, word: Word, name: Option<&[u8]>) -> ColdRead {
        ColdRead::new(self, hash, uid, word, name)
    }
}
