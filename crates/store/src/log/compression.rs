//! Owns how new records are compressed: the codec, and the dictionaries trained from samples of written records.
//! Never writes, and never starts a thread: the caller that offers the samples runs the training.

use crate::log::page::{Codec, DICTIONARY_BYTES, Dictionary, Record, Trainer};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

pub(crate) const ZSTD_LEVEL: i32 = 3;
const SAMPLE_BYTES: usize = 1 << 20;
/// Maximum memory of a training: ZDICT's counters for 2^20 fingerprints, and the samples.
pub(crate) const TRAINING_BYTES: u64 = 14 << 20;
const FIRST_TRAINING_RECORDS: u64 = 2_000;
/// Maximum number of dictionaries. They are never dropped, because pages need them.
const DICTIONARIES_MAX: usize = 6;

/// zstd's dictionaries. The first one is trained from a megabyte of samples. A new one is trained each time when the number of
/// records has grown ten times, because early data often differ from later data.
pub(crate) struct Compression {
    codec: Mutex<Codec>,
    /// The strongest codec so far.
    strongest: Mutex<Codec>,
    trained: RwLock<Vec<Arc<Dictionary>>>,
    trainer: Mutex<Option<Trainer>>,
    training: AtomicBool,
    due: AtomicU64,
    seen: AtomicU64,
}

/// Samples that are enough to train a dictionary.
pub(crate) struct Samples {
    trainer: Trainer,
    /// Number of records offered so far.
    seen: u64,
}

/// Gives the dictionary the next number. Numbers count from 1.
fn add(trained: &mut Vec<Arc<Dictionary>>, dictionary: Dictionary) -> u32 {
    let id = u32::try_from(trained.len() + 1).expect("there are few dictionaries");
    trained.push(Arc::new(dictionary.with_id(id)));
    id
}

fn stronger(one: Codec, other: Codec) -> Codec {
    let strength = |codec| match codec {
        Codec::None => 0,
        Codec::Lz4 => 1,
        Codec::Zstd => 2,
    };
    if strength(other) > strength(one) { other } else { one }
}

impl Compression {
    pub fn new(codec: Codec) -> Compression {
        Compression {
            codec: Mutex::new(codec),
            strongest: Mutex::new(codec),
            trained: RwLock::default(),
            trainer: Mutex::default(),
            training: AtomicBool::new(false),
            due: AtomicU64::new(0),
            seen: AtomicU64::new(0),
        }
    }

    pub fn codec(&self) -> Codec {
        *self.codec.lock()
    }

    /// The codec for records that are moved. It is never weaker than the one that they were written with, because moved records must
    /// not take more room than before.
    pub fn codec_of_moved(&self) -> Codec {
        *self.strongest.lock()
    }

    pub fn set_codec(&self, codec: Codec) {
        *self.codec.lock() = codec;
        let mut strongest = self.strongest.lock();
        *strongest = stronger(*strongest, codec);
    }

    pub fn get(&self, id: u32) -> Option<Arc<Dictionary>> {
        self.trained.read().iter().find(|dictionary| dictionary.id() == id).cloned()
    }

    pub fn newest(&self) -> Option<Arc<Dictionary>> {
        self.trained.read().last().cloned()
    }

    pub fn count(&self) -> usize {
        self.trained.read().len()
    }

    /// All dictionaries as bytes.
    pub fn saved(&self) -> Vec<Vec<u8>> {
        self.trained.read().iter().map(|dictionary| dictionary.serialize()).collect()
    }

    /// Takes over the dictionaries of a checkpoint. False: some are damaged.
    pub fn restore(&self, saved: &[Vec<u8>]) -> bool {
        let all: Option<Vec<_>> =
            saved.iter().map(|bytes| Dictionary::deserialize(bytes, ZSTD_LEVEL).map(Arc::new)).collect();
        let Some(all) = all else { return false };
        // The next dictionary is trained when there are ten times as many records as at the last training.
        let due = (0..all.len()).fold(FIRST_TRAINING_RECORDS, |due, _| due * 10);
        self.due.store(if all.is_empty() { 0 } else { due }, Relaxed);
        *self.trained.write() = all;
        true
    }

    /// Offers a record to the samples. If there are enough, the caller must train with the returned samples and then call
    /// [`Compression::training_ends`].
    pub fn offer(&self, record: &Record<'_>) -> Option<Samples> {
        if self.codec() != Codec::Zstd {
            return None;
        }
        let seen = self.seen.fetch_add(1, Relaxed) + 1;
        // One worker samples at a time. Records that other workers offer meanwhile are skipped, which does no harm.
        let mut trainer = self.trainer.try_lock()?;
        if self.count() >= DICTIONARIES_MAX {
            return None;
        }
        let trainer = trainer.get_or_insert_with(|| Trainer::new(SAMPLE_BYTES));
        trainer.offer(record);
        let due = self.due.load(Relaxed).max(FIRST_TRAINING_RECORDS);
        let enough = trainer.sampled_bytes() >= SAMPLE_BYTES / 8;
        if seen < due || !enough || self.training.swap(true, Relaxed) {
            return None;
        }
        self.due.store(seen * 10, Relaxed);
        Some(Samples { trainer: std::mem::replace(trainer, Trainer::new(SAMPLE_BYTES)), seen })
    }

    /// Trains a dictionary. Needs up to [`TRAINING_BYTES`] of memory.
    pub fn train(&self, Samples { trainer, seen }: Samples) {
        match trainer.train(1, DICTIONARY_BYTES, ZSTD_LEVEL) {
            Some(dictionary) => {
                let id = add(&mut self.trained.write(), dictionary);
                tracing::info!(id, records = seen, "dictionary trained from the data");
            }
            None => tracing::info!(records = seen, "the data has too little in common for a dictionary"),
        }
    }

    /// Adds a dictionary of another store, unless it is there already or there are `max` dictionaries. Returns its
    /// number in this store.
    pub fn adopt(&self, dictionary: Dictionary, max: usize) -> Option<u32> {
        let mut trained = self.trained.write();
        let same = trained.iter().find(|known| known.is_same(&dictionary));
        match same {
            Some(known) => Some(known.id()),
            None => (trained.len() < max).then(|| add(&mut trained, dictionary)),
        }
    }

    /// Allows the next training.
    pub fn training_ends(&self) {
        self.training.store(false, Relaxed);
    }
}
