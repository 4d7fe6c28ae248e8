//! Owns when a setting that a client has changed at a proxy counts as set: etcd has it, and so have the shards that are served. Never knows
//! what a setting means, or how it gets there: the reconciler brings it.

use crate::followers::{Followers, Lacking, TIMEOUT};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Instant;

/// Up to where a proxy and the records have the same settings.
#[derive(Debug, Default)]
pub struct Agreed {
    at: Mutex<Agreement>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Of the proxy's configuration.
    pub version: u64,
    /// Of the record.
    pub revision: i64,
}

impl Agreed {
    pub fn now(&self) -> Agreement {
        *self.at.lock()
    }

    pub fn set(&self, agreement: Agreement) {
        *self.at.lock() = agreement;
        self.changed.notify_all();
    }

    /// The revision of a record that has this version of the configuration. `None`: there is none before the deadline.
    fn wait(&self, version: u64, deadline: Instant) -> Option<i64> {
        let mut at = self.at.lock();
        while at.version < version {
            if self.changed.wait_until(&mut at, deadline).timed_out() {
                return (at.version >= version).then_some(at.revision);
            }
        }
        Some(at.revision)
    }
}

/// The settings of one database, as its proxy here changes them.
pub struct KeptSettings {
    pub agreed: Arc<Agreed>,
    pub followers: Followers,
}

impl node::Settings for KeptSettings {
    fn spread(&self, version: u64) -> Result<(), String> {
        let Some(revision) = self.agreed.wait(version, Instant::now() + TIMEOUT) else {
            let why = "ERR the settings hold at this node only, because etcd does not have them yet: the other nodes take them when it has";
            return Err(why.to_owned());
        };
        self.followers.wait("settings", revision).map_err(|Lacking(shard)| {
            format!("ERR the settings are kept in etcd, and shard '{shard}' has not taken them yet: it will")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn who_waits_gets_the_first_record_that_has_the_version() {
        let agreed = Agreed::default();
        assert_eq!(agreed.wait(0, Instant::now()), Some(0));
        assert_eq!(agreed.wait(1, Instant::now()), None);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| agreed.wait(2, Instant::now() + Duration::from_secs(60)));
            agreed.set(Agreement { version: 1, revision: 7 });
            assert_eq!(agreed.wait(2, Instant::now()), None);
            agreed.set(Agreement { version: 3, revision: 9 });
            assert_eq!(waits.join().unwrap(), Some(9));
        });
        assert_eq!(agreed.now(), Agreement { version: 3, revision: 9 });
    }
}
