//! Owns the pace of the log lines about damaged flash. Damage comes in thousands: of lines from one place of the store's code
//! the first is written, and then one a second that counts the others. Never knows what is damaged.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt::{Debug, Write};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The places that have written a line since the last quiet second.
#[derive(Default)]
pub struct LogThrottle(Mutex<HashMap<Identifier, Repeated>>);

struct Repeated {
    /// The first line.
    text: String,
    left_out: u64,
}

impl LogThrottle {
    /// Call this once a second. Returns the lines that count what was left out.
    pub fn summaries(&self) -> Vec<String> {
        let mut lines = Vec::new();
        self.0.lock().retain(|_, repeated| {
            let count = std::mem::take(&mut repeated.left_out);
            if count > 0 {
                lines.push(format!("{count} more like this in the last second: {}", repeated.text));
            }
            count > 0
        });
        lines
    }
}

impl<S: Subscriber> Layer<S> for &'static LogThrottle {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() != Level::ERROR || !metadata.target().starts_with("store") {
            return true;
        }
        let mut places = self.0.lock();
        match places.get_mut(&metadata.callsite()) {
            Some(repeated) => {
                repeated.left_out += 1;
                false
            }
            None => {
                let mut text = Text::default();
                event.record(&mut text);
                places.insert(metadata.callsite(), Repeated { text: text.0, left_out: 0 });
                true
            }
        }
    }
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            // Writing to a String cannot fail.
            let _ = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use tracing_subscriber::Registry;
    use tracing_subscriber::layer::SubscriberExt;

    struct Lines(&'static AtomicUsize);

    impl<S: Subscriber> Layer<S> for Lines {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn repeated_damage_is_one_line_and_a_count() {
        let throttle: &'static LogThrottle = Box::leak(Box::default());
        let lines: &'static AtomicUsize = Box::leak(Box::default());
        let damage = |page: u32| tracing::error!(target: "store::lane", page, "page damaged: bad checksum");
        tracing::subscriber::with_default(Registry::default().with(throttle).with(Lines(lines)), || {
            (0..1_000).for_each(damage);
            assert_eq!(lines.load(Relaxed), 1);
            assert_eq!(throttle.summaries(), ["999 more like this in the last second: page damaged: bad checksum"]);
            damage(7);
            assert_eq!(lines.load(Relaxed), 1, "no quiet second was between");
            assert_eq!(throttle.summaries().len(), 1);
            assert!(throttle.summaries().is_empty(), "a quiet second");
            damage(8);
            assert_eq!(lines.load(Relaxed), 2);
            (0..3).for_each(|_| tracing::error!(target: "node::start", "something else"));
            assert_eq!(lines.load(Relaxed), 5);
        });
    }
}
