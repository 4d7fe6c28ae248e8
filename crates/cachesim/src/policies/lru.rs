//! Owns LRU: every used value comes into RAM, and the least recently used one leaves.

use survey::Use;

use crate::lists::Lists;
use crate::replacement::{Key, Replacement, Setup};

const RAM: usize = 0;

pub struct Lru {
    ram: usize,
    lists: Lists<1>,
}

impl Lru {
    pub fn new(setup: Setup) -> Lru {
        Lru { ram: setup.ram, lists: Lists::new(setup.keys) }
    }
}

impl Replacement for Lru {
    fn access(&mut self, key: Key, _kind: Use) -> bool {
        let was_in_ram = self.contains(key);
        self.lists.push(RAM, key);
        if self.lists.len(RAM) > self.ram {
            let oldest = self.lists.oldest(RAM).expect("the list is not empty");
            self.lists.remove(oldest);
        }
        was_in_ram
    }

    fn contains(&self, key: Key) -> bool {
        self.lists.of(key).is_some()
    }
}
