//! Owns generalised CLOCK (Smith, 1978) with two bits: every used value comes into RAM. A hand goes over the values in RAM and takes one from
//! the frequency of each, and the first value that has none leaves.

use survey::Use;

use crate::replacement::{Key, Replacement, Setup};

const FREQUENCY_MAX: u8 = 3;

pub struct Clock {
    ram: usize,
    /// The values in RAM.
    slots: Vec<Key>,
    /// The frequency of each key whose value is in RAM.
    frequency: Vec<Option<u8>>,
    hand: usize,
}

impl Clock {
    pub fn new(setup: Setup) -> Clock {
        Clock { ram: setup.ram, slots: Vec::new(), frequency: vec![None; setup.keys], hand: 0 }
    }

    /// The slot of the value that leaves RAM.
    fn free_slot(&mut self) -> usize {
        loop {
            let slot = self.hand;
            self.hand = (slot + 1) % self.slots.len();
            let frequency = &mut self.frequency[self.slots[slot] as usize];
            *frequency = frequency.and_then(|count| count.checked_sub(1));
            if frequency.is_none() {
                return slot;
            }
        }
    }
}

impl Replacement for Clock {
    fn access(&mut self, key: Key, _kind: Use) -> bool {
        if let Some(frequency) = &mut self.frequency[key as usize] {
            *frequency = (*frequency + 1).min(FREQUENCY_MAX);
            return true;
        }
        if self.slots.len() < self.ram {
            self.slots.push(key);
        } else {
            let slot = self.free_slot();
            self.slots[slot] = key;
        }
        self.frequency[key as usize] = Some(0);
        false
    }

    fn contains(&self, key: Key) -> bool {
        self.frequency[key as usize].is_some()
    }
}
