//! Owns the handling of the store's news: it publishes keyspace events and invalidates clients' caches. Never knows a
//! command.

use super::Hub;
use base::clock::wall_ms;
use commands::host::Space;
use std::sync::{Arc, Weak};
use store::Listener;

struct Notifier(Weak<Hub>);

/// Makes the hub the listener of its store.
pub fn connect(hub: &Arc<Hub>) {
    hub.dataset.store.set_listener(Box::new(Notifier(Arc::downgrade(hub))));
}

impl Listener for Notifier {
    fn event(&self, name: &'static str, db: usize, key: &[u8]) {
        let Some(hub) = self.0.upgrade() else { return };
        if !hub.pubsub.has_listeners() {
            return;
        }
        let config = hub.config.snapshot();
        let mut delivery = hub.delivery();
        if config.events.by_key {
            let channel = [format!("__keyspace@{db}__:").as_bytes(), key].concat();
            hub.pubsub.publish(Space::Channel, &channel, name.as_bytes(), &mut delivery);
        }
        if config.events.by_event {
            let channel = format!("__keyevent@{db}__:{name}");
            hub.pubsub.publish(Space::Channel, channel.as_bytes(), key, &mut delivery);
        }
        delivery.finish();
    }

    fn changed(&self, key: &[u8], client: u64) {
        let Some(hub) = self.0.upgrade() else { return };
        hub.tracking.changed(&hub, key, client);
    }

    fn published(&self, is_sharded: bool, channel: &[u8], text: &[u8]) {
        let Some(hub) = self.0.upgrade() else { return };
        let space = if is_sharded { Space::Shard } else { Space::Channel };
        hub.publish(space, channel, text, wall_ms());
    }

    fn flushed(&self) {
        let Some(hub) = self.0.upgrade() else { return };
        hub.tracking.flushed(&hub);
    }
}
