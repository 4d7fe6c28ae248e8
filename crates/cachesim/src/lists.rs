//! Owns linked lists of keys: every key is in one of them or in none. Never knows what the lists are for.

use crate::replacement::Key;

const NONE: u8 = u8::MAX;

/// `N` lists. Each operation takes constant time.
pub struct Lists<const N: usize> {
    /// Rings. The ring of a list goes through its keys and one more link, its end, which follows the links of all keys.
    links: Vec<Link>,
    /// The list of each key.
    list: Vec<u8>,
    lens: [usize; N],
}

#[derive(Clone, Copy)]
struct Link {
    older: u32,
    newer: u32,
}

impl<const N: usize> Lists<N> {
    pub fn new(keys: usize) -> Lists<N> {
        let itself = |at: usize| Link { older: at as u32, newer: at as u32 };
        Lists { links: (0..keys + N).map(itself).collect(), list: vec![NONE; keys], lens: [0; N] }
    }

    /// The list that the key is in.
    pub fn of(&self, key: Key) -> Option<usize> {
        let list = self.list[key as usize];
        (list != NONE).then_some(list.into())
    }

    pub fn len(&self, list: usize) -> usize {
        self.lens[list]
    }

    /// Makes the key the newest of a list. It leaves the list that it was in.
    pub fn push(&mut self, list: usize, key: Key) {
        self.remove(key);
        let end = self.end(list);
        let newest = self.links[end].older;
        self.links[key as usize] = Link { older: newest, newer: end as u32 };
        self.links[newest as usize].newer = key;
        self.links[end].older = key;
        self.list[key as usize] = list as u8;
        self.lens[list] += 1;
    }

    pub fn remove(&mut self, key: Key) {
        let Some(list) = self.of(key) else { return };
        let Link { older, newer } = self.links[key as usize];
        self.links[older as usize].newer = newer;
        self.links[newer as usize].older = older;
        self.list[key as usize] = NONE;
        self.lens[list] -= 1;
    }

    /// The key that was pushed first.
    pub fn oldest(&self, list: usize) -> Option<Key> {
        let oldest = self.links[self.end(list)].newer;
        ((oldest as usize) < self.list.len()).then_some(oldest)
    }

    fn end(&self, list: usize) -> usize {
        self.list.len() + list
    }
}
