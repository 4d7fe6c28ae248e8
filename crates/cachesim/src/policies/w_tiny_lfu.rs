//! Owns W-TinyLFU (Einziger, Friedman, Manes: TinyLFU, a highly efficient cache admission policy, 2017). A value begins in a small LRU list, the
//! window. When it leaves the window, it takes the place of the main list's victim if a sketch says that it is used more often. The main
//! list is a segmented LRU: a value is on probation until it is used again, then it is protected.

use survey::Use;

use crate::lists::Lists;
use crate::replacement::{Key, Replacement, Setup};
use crate::sketch::Sketch;

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// The window's part of RAM, and the protected part of the main list, in percent.
const WINDOW_PERCENT: usize = 1;
const PROTECTED_PERCENT: usize = 80;

pub struct WTinyLfu {
    window: usize,
    main: usize,
    protected: usize,
    lists: Lists<3>,
    sketch: Sketch,
}

impl WTinyLfu {
    pub fn new(setup: Setup) -> WTinyLfu {
        let window = (setup.ram * WINDOW_PERCENT / 100).max(1);
        let main = setup.ram - window;
        WTinyLfu {
            window,
            main,
            protected: main * PROTECTED_PERCENT / 100,
            lists: Lists::new(setup.keys),
            sketch: Sketch::new(setup.ram),
        }
    }

    fn protect(&mut self, key: Key) {
        self.lists.push(PROTECTED, key);
        if self.lists.len(PROTECTED) > self.protected {
            let oldest = self.lists.oldest(PROTECTED).expect("there are protected values");
            self.lists.push(PROBATION, oldest);
        }
    }

    /// The oldest value of the window moves to the main list, or leaves RAM.
    fn shorten_window(&mut self) {
        let candidate = self.lists.oldest(WINDOW).expect("the window is too long");
        if self.lists.len(PROBATION) + self.lists.len(PROTECTED) < self.main {
            self.lists.push(PROBATION, candidate);
            return;
        }
        let victim = self.lists.oldest(PROBATION).or(self.lists.oldest(PROTECTED)).expect("the main list is full");
        if self.sketch.estimate(candidate) > self.sketch.estimate(victim) {
            self.lists.remove(victim);
            self.lists.push(PROBATION, candidate);
        } else {
            self.lists.remove(candidate);
        }
    }
}

impl Replacement for WTinyLfu {
    fn access(&mut self, key: Key, _kind: Use) -> bool {
        self.sketch.add(key);
        match self.lists.of(key) {
            Some(WINDOW) => self.lists.push(WINDOW, key),
            Some(_) => self.protect(key),
            None => {
                self.lists.push(WINDOW, key);
                if self.lists.len(WINDOW) > self.window {
                    self.shorten_window();
                }
                return false;
            }
        }
        true
    }

    fn contains(&self, key: Key) -> bool {
        self.lists.of(key).is_some()
    }
}
