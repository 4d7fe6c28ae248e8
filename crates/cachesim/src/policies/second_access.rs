//! Owns the store's rule. Every key has a frequency: 0 to 3 while its value is in RAM; one bit, the reference, while the value is on flash. A value
//! that is read from flash stays in RAM if it has a reference, so at its second access; one that is written always does.
//!
//! A hand goes over the whole index. It takes one from the frequency of each value in RAM. The first that has none leaves, with a
//! reference, because it was used when it came. The hand clears the references that it passes, but not in every turn.

use survey::Use;

use crate::hand::Hand;
use crate::replacement::{Key, Replacement, Setup};

const FREQUENCY_MAX: u8 = 3;

pub struct SecondAccess {
    ram: usize,
    hot: usize,
    entries: Vec<Entry>,
    hand: Hand,
    turn: Turn,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    is_hot: bool,
    /// Of a value in RAM, 0 to 3; of one on flash, whether it has a reference.
    frequency: u8,
}

/// As `Turn` of the store (`store/mem/tier.rs`).
struct Turn {
    met: usize,
    idle: usize,
    forgets: bool,
}

impl Turn {
    fn end(&mut self) {
        self.forgets = 32 * self.idle >= self.met && 8 * self.idle <= 7 * self.met;
        (self.met, self.idle) = (0, 0);
    }
}

impl SecondAccess {
    pub fn new(setup: Setup) -> SecondAccess {
        SecondAccess {
            ram: setup.ram,
            hot: 0,
            entries: vec![Entry::default(); setup.keys],
            hand: Hand::new(setup),
            turn: Turn { met: 0, idle: 0, forgets: true },
        }
    }

    fn demote(&mut self) {
        loop {
            let (key, ends_turn) = self.hand.advance();
            let is_victim = self.visit(key);
            if ends_turn {
                self.turn.end();
            }
            if is_victim {
                return;
            }
        }
    }

    /// Whether the value leaves RAM.
    fn visit(&mut self, key: Key) -> bool {
        let entry = &mut self.entries[key as usize];
        if !entry.is_hot {
            if self.turn.forgets {
                entry.frequency = 0;
            }
            return false;
        }
        self.turn.met += 1;
        if entry.frequency > 0 {
            entry.frequency -= 1;
            return false;
        }
        self.turn.idle += 1;
        *entry = Entry { is_hot: false, frequency: 1 };
        self.hot -= 1;
        true
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
        let frequency = if is_read { 1 } else { entry.frequency };
        if self.hot == self.ram {
            self.demote();
        }
        self.entries[key as usize] = Entry { is_hot: true, frequency };
        self.hot += 1;
        false
    }

    fn contains(&self, key: Key) -> bool {
        self.entries[key as usize].is_hot
    }
}
