//! Owns the rule that the store is to have. Every key has a frequency: 0 to 3 while its value is in RAM, one bit while the value is on flash. A cold value that is read
//! comes into RAM at its second access; one that is written always does.
//!
//! What comes into RAM joins a FIFO queue, *probation*. When room is needed and the queue is long, its oldest value leaves RAM, unless it was
//! used there. If the queue is short, a hand goes over the whole index, as in CLOCK. A scan therefore passes through probation,
//! and a value that is read repeatedly is in RAM after its second read.

use std::collections::VecDeque;

use survey::Use;

use crate::hand::Hand;
use crate::replacement::{Key, Replacement, Setup};

const FREQUENCY_MAX: u8 = 3;
/// A value on flash has at most this frequency, so a value with more does not leave RAM.
const COLD_FREQUENCY_MAX: u8 = 1;
/// The length that probation is cut to, in percent of the values in RAM.
const PROBATION_PERCENT: usize = 10;
/// Hits between two arrivals in RAM that count as use.
const HITS_COUNTED_MAX: usize = 15;

pub struct Probation {
    ram: usize,
    hot: usize,
    entries: Vec<Entry>,
    probation: VecDeque<Key>,
    probation_max: usize,
    hand: Hand,
    /// Whether the hand takes the references of cold entries too, in this revolution.
    clears_cold: bool,
    /// Since the hand last began to clear references: the number of arrivals in RAM, and of hits between them.
    uses: usize,
    /// Hits since the last arrival.
    hits: usize,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    is_hot: bool,
    is_on_probation: bool,
    frequency: u8,
}

impl Probation {
    pub fn new(setup: Setup) -> Probation {
        Probation {
            ram: setup.ram,
            hot: 0,
            entries: vec![Entry::default(); setup.keys],
            probation: VecDeque::new(),
            probation_max: (setup.ram * PROBATION_PERCENT / 100).max(1),
            hand: Hand::new(setup),
            clears_cold: true,
            uses: 0,
            hits: 0,
        }
    }

    fn demote(&mut self) {
        while self.probation.len() >= self.probation_max {
            let oldest = self.probation.pop_front().expect("it is not empty");
            let entry = &mut self.entries[oldest as usize];
            entry.is_on_probation = false;
            if entry.frequency <= COLD_FREQUENCY_MAX {
                entry.is_hot = false;
                self.hot -= 1;
                return;
            }
        }
        self.sweep();
    }

    fn sweep(&mut self) {
        loop {
            let (key, ends_revolution) = self.hand.advance();
            let entry = &mut self.entries[key as usize];
            let before = entry.frequency;
            if entry.is_hot || self.clears_cold {
                entry.frequency = before.saturating_sub(1);
            }
            let leaves = entry.is_hot && !entry.is_on_probation && before <= COLD_FREQUENCY_MAX;
            if leaves {
                entry.is_hot = false;
                self.hot -= 1;
            }
            if ends_revolution {
                self.begin_revolution();
            }
            if leaves {
                return;
            }
        }
    }

    /// If a hot set moves, nothing of the old set is used and the hand turns fast. It must not forget the first accesses to the new set
    /// meanwhile, so references of cold entries are cleared only after enough use.
    fn begin_revolution(&mut self) {
        self.clears_cold = 2 * self.uses >= 3 * self.ram;
        if self.clears_cold {
            self.uses = 0;
        }
    }
}

impl Replacement for Probation {
    fn access(&mut self, key: Key, kind: Use) -> bool {
        let entry = &mut self.entries[key as usize];
        let frequency = (entry.frequency + 1).min(FREQUENCY_MAX);
        if entry.is_hot {
            entry.frequency = frequency;
            self.hits += 1;
            return true;
        }
        let is_full = self.hot == self.ram;
        if kind == Use::Read && is_full && frequency <= COLD_FREQUENCY_MAX {
            entry.frequency = frequency;
            return false;
        }
        self.uses += 1 + self.hits.min(HITS_COUNTED_MAX);
        self.hits = 0;
        if is_full {
            self.demote();
        }
        self.entries[key as usize] = Entry { is_hot: true, is_on_probation: true, frequency };
        self.probation.push_back(key);
        self.hot += 1;
        false
    }

    fn contains(&self, key: Key) -> bool {
        self.entries[key as usize].is_hot
    }
}
