//! Owns what becomes of the store's news: keyspace events are published, changed keys invalidate clients' caches.
//! Never knows a command.

use crate::database::Database;
use crate::pubsub::Delivery;
use commands::host::Space;
use std::sync::{Arc, Weak};
use store::Listener;

struct Notifier(Weak<Database>);

/// From now on the database hears what its store says.
pub fn connect(database: &Arc<Database>) {
    database.store.set_listener(Box::new(Notifier(Arc::downgrade(database))));
}

impl Listener for Notifier {
    fn event(&self, name: &'static str, db: usize, key: &[u8]) {
        let Some(database) = self.0.upgrade() else { return };
        if !database.pubsub.has_listeners() {
            return;
        }
        let config = database.config.snapshot();
        let mut delivery = Delivery::new(&database.posts, &database.clients, config.output_limit_pubsub);
        if config.events.by_key {
            let channel = [format!("__keyspace@{db}__:").as_bytes(), key].concat();
            database.pubsub.publish(Space::Channel, &channel, name.as_bytes(), &mut delivery);
        }
        if config.events.by_event {
            let channel = format!("__keyevent@{db}__:{name}");
            database.pubsub.publish(Space::Channel, channel.as_bytes(), key, &mut delivery);
        }
        delivery.finish();
    }

    fn changed(&self, key: &[u8], client: u64) {
        let Some(database) = self.0.upgrade() else { return };
        database.tracking.changed(&database, key, client);
    }

    fn flushed(&self) {
        let Some(database) = self.0.upgrade() else { return };
        database.tracking.flushed(&database);
    }
}
