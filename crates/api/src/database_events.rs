//! Owns the events about what databases report of themselves: restarts, lost keys, damage, archives and backups that have
//! ended. Never changes a database.

use crate::events::{Event, Events, Severity};
use crate::metrics::watch::Watch;
use crate::text::size;
use node::{Database, DatabaseState, Node, Recovered, Rot};

/// Called every second. `has_crashed`: the last run of the node did not end in an orderly way.
pub fn look(node: &Node, watch: &Watch, has_crashed: bool, events: &Events) {
    for database in node.databases() {
        if let Some(Recovered { keys, took_ms, from, to, records }) = database.take_recovered() {
            let after = if has_crashed { " after a crash" } else { "" };
            let seconds = took_ms as f64 / 1000.0;
            let text = format!(
                "restarted{after}: {keys} keys in {seconds:.1} s, journal replayed from {from} to {to}, {records} records"
            );
            let severity = if has_crashed { Severity::Warning } else { Severity::Info };
            events.push(Event::info("database", database.name(), text).severity(severity).mark("restarted"));
        }
        if let Some(text) = lost(&database, watch) {
            events.push(Event::info("database", database.name(), text).severity(Severity::Warning));
        }
        for text in database.take_rot().iter().flat_map(damage) {
            events.push(Event::info("database", database.name(), text).severity(Severity::Critical));
        }
        for text in database.take_replication_news() {
            events.push(Event::info("replication", database.name(), text).severity(Severity::Critical));
        }
        for news in database.take_archive_news() {
            let event = match news {
                Ok(text) => Event::info("backup", database.name(), text),
                Err(text) => Event::info("backup", database.name(), text).severity(Severity::Critical),
            };
            events.push(event);
        }
        for ended in database.take_ended_backups() {
            let event = match &ended.outcome {
                Ok(backup) => {
                    let (path, keys, bytes) = (&backup.path, backup.keys, backup.bytes);
                    let text = format!("a backup is made and verified: {path}, {keys} keys, {}", size(bytes));
                    Event::info("backup", database.name(), text)
                }
                Err(why) => {
                    let text = format!("a backup failed: {why}");
                    Event::info("backup", database.name(), text).severity(Severity::Critical)
                }
            };
            events.push(event);
        }
    }
}

/// What a database without persistence has lost in a restart. Reported once, when the start is over.
fn lost(database: &Database, watch: &Watch) -> Option<String> {
    if matches!(database.state(), DatabaseState::Loading { .. }) {
        return None;
    }
    let before = watch.take_keys_before(database.name())?;
    let loaded = database.keys_loaded();
    if before == 0 || loaded >= before || database.definition().persistence != "none" {
        return None;
    }
    let what = match loaded {
        0 => format!("restarted empty: {} gone, because its persistence is none", keys(before)),
        loaded => format!(
            "restarted with {} of a dump: it had {before} when the node ended, and every later change is lost, because its persistence is none",
            keys(loaded)
        ),
    };
    Some(what)
}

fn keys(count: u64) -> String {
    if count == 1 { "1 key".to_owned() } else { format!("{count} keys") }
}

/// Describes the damage that the scrubber has found.
fn damage(rot: &Rot) -> Vec<String> {
    let Rot { pages, keys, rescued, checkpoints, journals, backups } = *rot;
    let mut found = Vec::new();
    if pages > 0 {
        found.push(format!(
            "{pages} damaged pages were found on flash: {keys} keys have lost values, {rescued} more values are in RAM and are written again; the log has the positions"
        ));
    }
    if checkpoints > 0 {
        found.push(format!("the scrubber has found {checkpoints} damaged checkpoints; a new one is written"));
    }
    if journals > 0 {
        found.push(
            "the scrubber has found damage in the journal; a new checkpoint is written, after which the damaged part is not needed"
                .to_owned(),
        );
    }
    if backups > 0 {
        found.push(format!(
            "the scrubber has found {backups} damaged files of backups or of the archived journal; the log names them: make a new \
             backup, and delete them"
        ));
    }
    found
}
