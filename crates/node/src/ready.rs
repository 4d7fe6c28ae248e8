//! Owns whether the node serves its clients: at the start, it does when every dataset is loaded. Never loads one.

use crate::node::{DatabaseState, Node};
use base::clock::wall_ms;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

/// How far the datasets are that are being loaded.
#[derive(Debug, PartialEq, Eq)]
pub struct Loading {
    /// The databases that nobody can use yet.
    pub databases: Vec<String>,
    pub done_bytes: u64,
    /// 0: not known yet.
    pub total_bytes: u64,
    /// A number that changes whenever a load makes progress.
    pub steps: u64,
}

impl Node {
    /// What is being loaded at the moment. `None`: nothing.
    pub fn loading(&self) -> Option<Loading> {
        let mut loading = Loading { databases: Vec::new(), done_bytes: 0, total_bytes: 0, steps: 0 };
        for database in self.datasets() {
            if let DatabaseState::Loading { done_bytes, total_bytes } = database.state() {
                loading.databases.push(database.name().to_owned());
                loading.done_bytes += done_bytes.min(total_bytes);
                loading.total_bytes += total_bytes;
                // A load may end with writing a checkpoint.
                let written = database.files.saved_keys.load(Relaxed);
                loading.steps = loading.steps.wrapping_add(done_bytes).wrapping_add(written);
            }
        }
        (!loading.databases.is_empty()).then_some(loading)
    }

    /// Whether everything that was there at the start is served. A database that is created later is not waited for.
    pub fn is_ready(&self) -> bool {
        // Writers wait while the end waits.
        self.has_started.load(Relaxed) && !self.is_stopping() && self.ending().left_ms(wall_ms()).is_none()
    }

    /// Called from the clock until this returns `None`, which means that the node is ready from now on.
    pub(crate) fn still_loading(&self) -> Option<Loading> {
        let loading = self.loading();
        if loading.is_none() {
            self.has_started.store(true, Relaxed);
        }
        loading
    }
}

impl fmt::Display for Loading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = u128::from(self.done_bytes) * 100 / u128::from(self.total_bytes.max(1));
        write!(f, "loading {}: {percent} %", self.databases.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_what_is_loaded_and_how_far() {
        let loading = |done_bytes, total_bytes| Loading {
            databases: vec!["default".into(), "orders".into()],
            done_bytes,
            total_bytes,
            steps: 0,
        };
        assert_eq!(loading(1, 3).to_string(), "loading default, orders: 33 %");
        assert_eq!(loading(0, 0).to_string(), "loading default, orders: 0 %");
        assert_eq!(loading(u64::MAX, u64::MAX).to_string(), "loading default, orders: 100 %");
    }
}
