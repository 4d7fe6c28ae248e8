//! Owns S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache eviction, SOSP 2023). A value begins in a small
//! queue, and moves to the main queue if it is used more than once there. Keys that left the small queue are remembered in a third one, the ghosts:
//! their values begin in the main queue.

use survey::Use;

use crate::lists::Lists;
use crate::replacement::{Key, Replacement, Setup};

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOSTS: usize = 2;

/// The small queue's part of RAM, in percent.
const SMALL_PERCENT: usize = 10;
const FREQUENCY_MAX: u8 = 3;

pub struct S3Fifo {
    ram: usize,
    small: usize,
    lists: Lists<3>,
    frequency: Vec<u8>,
}

impl S3Fifo {
    pub fn new(setup: Setup) -> S3Fifo {
        let Setup { keys, ram, .. } = setup;
        S3Fifo { ram, small: (ram * SMALL_PERCENT / 100).max(1), lists: Lists::new(keys), frequency: vec![0; keys] }
    }

    fn main_max(&self) -> usize {
        self.ram - self.small
    }

    /// One value leaves RAM.
    fn evict(&mut self) {
        if self.lists.len(SMALL) >= self.small && self.evict_small() {
            return;
        }
        self.evict_main();
    }

    /// Whether a value has left RAM, out of either queue.
    fn evict_small(&mut self) -> bool {
        while let Some(oldest) = self.lists.oldest(SMALL) {
            if self.frequency[oldest as usize] > 1 {
                self.frequency[oldest as usize] = 0;
                self.lists.push(MAIN, oldest);
                if self.lists.len(MAIN) > self.main_max() {
                    self.evict_main();
                    return true;
                }
            } else {
                self.lists.push(GHOSTS, oldest);
                if self.lists.len(GHOSTS) > self.main_max() {
                    self.lists.remove(self.lists.oldest(GHOSTS).expect("there are ghosts"));
                }
                return true;
            }
        }
        false
    }

    fn evict_main(&mut self) {
        loop {
            let oldest = self.lists.oldest(MAIN).expect("RAM is full, and the small queue is short");
            let frequency = &mut self.frequency[oldest as usize];
            if *frequency == 0 {
                self.lists.remove(oldest);
                return;
            }
            *frequency -= 1;
            self.lists.push(MAIN, oldest);
        }
    }
}

impl Replacement for S3Fifo {
    fn access(&mut self, key: Key, _kind: Use) -> bool {
        if self.contains(key) {
            let frequency = &mut self.frequency[key as usize];
            *frequency = (*frequency + 1).min(FREQUENCY_MAX);
            return true;
        }
        let was_ghost = self.lists.of(key) == Some(GHOSTS);
        self.lists.remove(key);
        if self.lists.len(SMALL) + self.lists.len(MAIN) == self.ram {
            self.evict();
        }
        self.frequency[key as usize] = 0;
        self.lists.push(if was_ghost { MAIN } else { SMALL }, key);
        false
    }

    fn contains(&self, key: Key) -> bool {
        matches!(self.lists.of(key), Some(SMALL | MAIN))
    }
}
