//! Owns the slow log and the latency monitor's events: bounded lists behind a lock that only slow commands take.
//! Never knows why a command was slow.

use commands::host::{LatencyEvent, SlowCommand};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};

/// The bounds of one slow log entry, as in Redis.
const ARGS_MAX: usize = 32;
const ARG_BYTES_MAX: usize = 128;

#[derive(Debug, Default)]
pub struct SlowLog {
    entries: Mutex<SlowEntries>,
}

#[derive(Debug, Default)]
struct SlowEntries {
    /// Newest first.
    list: VecDeque<SlowCommand>,
    next_id: u64,
}

impl SlowLog {
    /// Adds an entry, and keeps at most `count_max` entries.
    pub fn push(&self, mut command: SlowCommand, count_max: usize) {
        let mut entries = self.entries.lock();
        command.id = entries.next_id;
        entries.next_id += 1;
        entries.list.push_front(command);
        entries.list.truncate(count_max);
    }

    pub fn newest(&self, count: usize) -> Vec<SlowCommand> {
        self.entries.lock().list.iter().take(count).cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.entries.lock().list.len()
    }

    pub fn clear(&self) {
        self.entries.lock().list.clear();
    }
}

/// The arguments of a command, cut to the slow log's bounds.
pub fn shortened<'a>(args: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let count = args.len();
    let kept = if count > ARGS_MAX { ARGS_MAX - 1 } else { count };
    let mut words: Vec<Vec<u8>> = args
        .take(kept)
        .map(|arg| match arg.len().checked_sub(ARG_BYTES_MAX) {
            None | Some(0) => arg.to_vec(),
            Some(more) => [&arg[..ARG_BYTES_MAX], format!("... ({more} more bytes)").as_bytes()].concat(),
        })
        .collect();
    if kept < count {
        words.push(format!("... ({} more arguments)", count - kept).into_bytes());
    }
    words
}

/// The latency monitor: what took longer than `latency-monitor-threshold`, with one sample per second and event.
#[derive(Debug, Default)]
pub struct LatencyEvents {
    events: Mutex<BTreeMap<&'static str, Samples>>,
}

#[derive(Debug, Default)]
struct Samples {
    /// (second, ms), oldest first; at most [`HISTORY`].
    list: VecDeque<(u64, u64)>,
    max_ms: u64,
}

/// Samples per event, as in Redis.
const HISTORY: usize = 160;

impl LatencyEvents {
    pub fn add(&self, event: &'static str, at_s: u64, ms: u64) {
        let mut events = self.events.lock();
        let samples = events.entry(event).or_default();
        samples.max_ms = samples.max_ms.max(ms);
        match samples.list.back_mut() {
            Some((second, worst)) if *second == at_s => *worst = ms.max(*worst),
            _ => {
                if samples.list.len() == HISTORY {
                    samples.list.pop_front();
                }
                samples.list.push_back((at_s, ms));
            }
        }
    }

    pub fn latest(&self) -> Vec<LatencyEvent> {
        let events = self.events.lock();
        events
            .iter()
            .filter_map(|(&name, samples)| {
                let &(at_s, last_ms) = samples.list.back()?;
                Some(LatencyEvent { name, at_s, last_ms, max_ms: samples.max_ms })
            })
            .collect()
    }

    pub fn history(&self, event: &[u8]) -> Vec<(u64, u64)> {
        let events = self.events.lock();
        let found = events.iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(event));
        found.map_or(Vec::new(), |(_, samples)| samples.list.iter().copied().collect())
    }

    /// Resets the named events; without names, all events.
    pub fn reset(&self, names: &[&[u8]]) -> usize {
        let mut events = self.events.lock();
        let before = events.len();
        events.retain(|name, _| {
            !names.is_empty() && !names.iter().any(|wanted| name.as_bytes().eq_ignore_ascii_case(wanted))
        });
        before - events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_commands_are_shortened_as_redis_does() {
        let long = [b'x'; 200];
        let args = vec![&long[..]; 40];
        let words = shortened(args.into_iter());
        assert_eq!(words.len(), 32);
        assert!(words[0].ends_with(b"xx... (72 more bytes)"));
        assert_eq!(words[31], b"... (9 more arguments)");
    }

    #[test]
    fn one_sample_a_second_keeps_the_worst() {
        let events = LatencyEvents::default();
        events.add("command", 10, 5);
        events.add("command", 10, 9);
        events.add("command", 11, 3);
        assert_eq!(events.history(b"COMMAND"), [(10, 9), (11, 3)]);
        assert_eq!(events.latest()[0].max_ms, 9);
        assert_eq!(events.reset(&[b"other"]), 0);
        assert_eq!(events.reset(&[]), 1);
    }
}
