//! Owns the store's rule: a hand goes over the whole index. It takes one from the frequency of each value in RAM, the first
//! that has none leaves, and it clears the references of values on flash. A value that is read from flash stays in RAM if it has a
//! reference, which its last read has left.

use survey::Use;

use crate::hand::Hand;
use crate::replacement::{Key, Replacement, Setup};

const FREQUENCY_MAX: u8 = 3;

pub struct SecondAccess {
    ram: usize,
    hot: usize,
    entries: Vec<Entry>,
    hand: Hand,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    is_hot: bool,
    /// Of a value in RAM, 0 to 3; of one on flash, whether it has a reference.
    frequency: u8,
}

impl SecondAccess {
    pub fn new(setup: Setup) -> SecondAccess {
        let entries = vec![Entry::default(); setup.keys];
        SecondAccess { ram: setup.ram, hot: 0, entries, hand: Hand::new(setup) }
    }

    fn demote(&mut self) {
        loop {
            let (key, _) = self.hand.advance();
            let entry = &mut self.entries[key as usize];
            if entry.is_hot && entry.frequency == 0 {
                entry.is_hot = false;
                self.hot -= 1;
                return;
            }
            entry.frequency = if entry.is_hot { entry.frequency - 1 } else { 0 };
        }
    }
}

impl Replacement for SecondAccess {
    fn access(&mut self, key: Key, kind: Use) -> bool {
        let entry = &mut self.entries[key as usize];
        if entry.is_hot {
            entry.frequency = (entry.frequency + 1).min(FREQUENCY_MAX);
            return true;
        }
        let is_read = kind == Use::Read;
        if is_read && self.hot == self.ram && entry.frequency == 0 {
            entry.frequency = 1;
            return false;
        }
        if self.hot == self.ram {
            self.demote();
        }
        self.entries[key as usize] = Entry { is_hot: true, frequency: u8::from(is_read) };
        self.hot += 1;
        false
    }

    fn contains(&self, key: Key) -> bool {
        self.entries[key as usize].is_hot
    }
}
