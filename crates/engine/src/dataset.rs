//! Owns what a dataset consists of for its workers: the keys and values, the journal and the stream of their changes, the replicas that get
//! them, and the memory beside them. Never knows a client, a user or a name.

use crate::journaling::Journaling;
use crate::lost::Lost;
use crate::memory::Memory;
use crate::replication::Links;
use std::sync::Arc;
use store::Store;

/// It is a part of its hub and not behind a pointer of its own: every command reaches for it.
pub struct Dataset {
    pub store: Arc<Store>,
    pub journaling: Arc<Journaling>,
    /// The replicas.
    pub links: Links,
    /// What could not be repeated, because values on flash are damaged.
    pub lost: Lost,
    /// The memory that clients hold beside the objects.
    pub memory: Memory,
}

impl Dataset {
    pub fn new(store: Arc<Store>) -> Dataset {
        Dataset {
            memory: Memory::new(Arc::clone(&store)),
            store,
            journaling: Arc::default(),
            links: Links::default(),
            lost: Lost::default(),
        }
    }
}
