//! Owns the turning of effects into records.

use crate::database::Database;
use journal::{Log, Record};
use resp::client::encode_command;
use std::sync::Arc;
use store::Effects;

pub fn attach(database: &Database, log: &Arc<Log>) {
    let slot = Arc::clone(&database.files.journal.attached);
    let is_kept = database.shard.store.keeps_effects();
    *slot.write() = Some(Arc::clone(log));
    if !is_kept {
        database.keep_effects(Box::new(move |effects| {
            if let Some(log) = &*slot.read() {
                append(log, effects);
            }
        }));
    }
}

pub fn detach(database: &Database) {
    *database.files.journal.attached.write() = None;
}

fn append(log: &Log, effects: &Effects) {
    let Some(first) = effects.iter().next() else { return };
    let mut resp = Vec::new();
    let several = effects.len() > 1;
    if several {
        encode_command(&[b"MULTI"], &mut resp);
    }
    let mut db = first.db;
    for effect in effects.iter() {
        if effect.db != db {
            db = effect.db;
            encode_command(&[b"SELECT", db.to_string().as_bytes()], &mut resp);
        }
        encode_command(&effect.words().collect::<Vec<_>>(), &mut resp);
    }
    if several {
        encode_command(&[b"EXEC"], &mut resp);
    }
    log.append(&Record { stripe: None, db: first.db as u32, time_ms: first.now_ms, resp: &resp });
}
