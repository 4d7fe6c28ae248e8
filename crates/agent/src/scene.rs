//! For tests: a cluster's records at etcd's twin, and what changes them.

use cluster::ids::{HashSecret, NodeId, ProcessId};
use cluster::keys::Key;
use cluster::records::{
    Addresses, Capacity, DatabaseState, LiveRecord, NodeRecord, Record, Role, SpecRecord, StoredDefinition, Unknown,
    Versions, encode,
};
use cluster::view::View;
use config::definition::Definition;
use coord::Twin;
use membership::records::{Change, Records, RecordsError};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::runtime::Builder;

pub struct Scene {
    pub twin: Twin,
    records: Records,
}

/// Of the database `orders`, which is served.
pub fn spec(edit: impl FnOnce(&mut Definition)) -> SpecRecord {
    let mut definition = StoredDefinition::default();
    definition.known.port = 7000;
    edit(&mut definition.known);
    SpecRecord {
        name: "orders".parse().unwrap(),
        state: DatabaseState::Serving,
        hash_secret: HashSecret([7; 16]),
        config: BTreeMap::new(),
        flushes: 0,
        definition,
        unknown: Unknown::new(),
    }
}

pub fn node(number: u8) -> NodeId {
    NodeId([number; 20])
}

impl Scene {
    /// Nodes `n1`, `n2` and so on with data, which run as processes of these numbers. `zone` is of each number.
    pub fn new(nodes: u8, zone: impl Fn(u8) -> String) -> Scene {
        let twin = Twin::new(1);
        let records = Records::new(Arc::new(twin.clone()), pki::ClusterId::random());
        let scene = Scene { twin, records };
        for number in 1..=nodes {
            let record = NodeRecord {
                name: format!("n{number}").parse().unwrap(),
                zone: zone(number).parse().unwrap(),
                role: Role::Data,
                is_draining: false,
                addresses: Addresses {
                    peer: "127.0.0.1:8380".parse().unwrap(),
                    client_host: String::new(),
                    unknown: Unknown::new(),
                },
                versions: Versions { flintkv: String::new(), unknown: Unknown::new() },
                capacity: Capacity { ram_bytes: 1 << 30, flash_bytes: 0, unknown: Unknown::new() },
                feature_level: 1,
                unknown: Unknown::new(),
            };
            scene.put(Key::Node(node(number)), &record);
            scene.runs(number, number);
        }
        scene
    }

    pub fn change(&self, change: Change) -> Result<i64, RecordsError> {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(self.records.change(change))
    }

    pub fn put<R: Record>(&self, key: Key, record: &R) {
        let bytes = encode(key, record).unwrap();
        self.change(Change::default().put_bytes(&key.to_string(), bytes)).unwrap();
    }

    /// This process is the node from now on.
    pub fn runs(&self, number: u8, process: u8) {
        let process = ProcessId([process; 8]);
        self.put(Key::Live(node(number)), &LiveRecord { process, place: String::new(), unknown: Unknown::new() });
    }

    pub fn ends(&self, number: u8) {
        self.change(Change::default().delete(&Key::Live(node(number)).to_string())).unwrap();
    }

    pub fn view(&self) -> View {
        let mut view = View::default();
        for (key, entry) in self.twin.entries() {
            view.apply(key.strip_prefix(self.records.prefix()).unwrap(), Some(&entry.value), entry.mod_revision);
        }
        assert!(view.unreadable.is_empty(), "{:?}", view.unreadable);
        view
    }
}
