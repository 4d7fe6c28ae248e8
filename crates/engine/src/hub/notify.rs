//! Owns what becomes of the store's news: keyspace events are published, changed keys invalidate clients' caches.
//! Never knows a command.

use super::Hub;
use crate::pubsub::Delivery;
use commands::host::Space;
use config::Events;
use std::sync::{Arc, Weak};
use store::{Class, Listener};

/// What the store is to tell: nothing if it would be published nowhere.
pub fn classes(events: &Events) -> Class {
    if !events.by_key && !events.by_event {
        return Class::default();
    }
    events.classes.chars().filter_map(Class::from_letter).fold(Class::default(), Class::and)
}

struct Notifier(Weak<Hub>);

/// From now on the database hears what its store says.
pub fn connect(hub: &Arc<Hub>) {
    hub.store.set_listener(Box::new(Notifier(Arc::downgrade(hub))));
}

impl Listener for Notifier {
    fn event(&self, name: &'static str, db: usize, key: &[u8]) {
        let Some(hub) = self.0.upgrade() else { return };
        if !hub.pubsub.has_listeners() {
            return;
        }
        let config = hub.config.snapshot();
        let mut delivery = Delivery::new(&hub.posts, &hub.clients, config.output_limit_pubsub);
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

    fn flushed(&self) {
        let Some(hub) = self.0.upgrade() else { return };
        hub.tracking.flushed(&hub);
    }
}
