//! Owns `flintkv database backup` and `backups`. Never writes a file: the node does.

use serde_json::{Value, json};

use super::{LOOK, bytes, integer, path, pretty, text};
use crate::args::Backup;
use crate::client::Client;
use crate::failure::Failure;
use crate::progress::{self, Wait};
use crate::size::count;
use crate::table::{Align, table};
use crate::timestamp;

pub fn make(client: &Client, wanted: &Backup, as_json: bool) -> Result<String, Failure> {
    let name = &wanted.name;
    let mut body = serde_json::Map::new();
    body.extend(wanted.to.as_ref().map(|to| ("to".to_owned(), json!(to))));
    body.extend(wanted.rdb_version.map(|version| ("rdb_version".to_owned(), json!(version))));
    let of_database = format!("{}/backups", path(name));
    let begun = client.post(&of_database, &Value::Object(body))?;
    if wanted.no_wait {
        return Ok(super::said(&begun, &format!("{name} is being backed up: {}", text(&begun["path"])), as_json));
    }
    let state = wait(client, name, &of_database, &begun)?;
    let place = &begun["path"];
    let made = state["backups"].as_array().into_iter().flatten().find(|backup| &backup["path"] == place);
    let Some(made) = made else {
        let last = &state["last"];
        let why = match &last["path"] == place {
            true => text(&last["error"]),
            false => "the node has stopped in the meantime".to_owned(),
        };
        return Err(Failure::failed(format!("{name} could not be backed up: {why}")));
    };
    if as_json {
        return Ok(pretty(made));
    }
    let (keys, size) = (count(integer(&made["keys"]) as f64), bytes(&made["bytes"]));
    Ok(format!("{name} is backed up and verified: {}, {keys} keys, {size}\n", text(place)))
}

/// Waits while the backup is being made, with a bar. Returns the state afterwards.
fn wait(client: &Client, name: &str, of_database: &str, begun: &Value) -> Result<Value, Failure> {
    let bar = progress::bar("{msg} {prefix} [{bar:30}] {percent} %", 0).with_prefix(name.to_owned());
    let bar = Wait::new(bar, format!("the node continues: flintkv database backups {name}"));
    loop {
        let state = client.get(of_database).map_err(|error| {
            Failure::from(error).hint(format!("the node continues the backup: flintkv database backups {name}"))
        })?;
        let running = &state["running"];
        if running["path"] != begun["path"] {
            return Ok(state);
        }
        bar.set_message(text(&running["phase"]));
        bar.set_length(integer(&running["total"]));
        bar.set_position(integer(&running["done"]));
        std::thread::sleep(LOOK);
    }
}

pub fn list(client: &Client, name: Option<&str>, as_json: bool) -> Result<String, Failure> {
    let reply = client.get(&name.map_or("/backups".to_owned(), |name| format!("{}/backups", path(name))))?;
    if as_json {
        return Ok(pretty(&reply));
    }
    let head = [
        ("BACKUP", Align::Left),
        ("DATABASE", Align::Left),
        ("MADE", Align::Left),
        ("REACHES", Align::Left),
        ("BY", Align::Left),
        ("KEYS", Align::Right),
        ("SIZE", Align::Right),
    ];
    let row = |backup: &Value| {
        let by = if backup["scheduled"] == true { "schedule" } else { "request" };
        vec![
            text(&backup["path"]),
            text(&backup["database"]),
            timestamp::date(integer(&backup["created_ms"])),
            backup["reaches_ms"].as_u64().map_or("-".to_owned(), timestamp::date),
            by.to_owned(),
            count(integer(&backup["keys"]) as f64),
            bytes(&backup["bytes"]),
        ]
    };
    let rows: Vec<Vec<String>> = reply["backups"].as_array().into_iter().flatten().map(row).collect();
    let mut shown = table(&head, &rows);
    if let Some(running) = reply["running"].as_object() {
        let percent = 100 * integer(&running["done"]) / integer(&running["total"]).max(1);
        shown.push_str(&format!("\n{} {}: {percent} %\n", text(&running["phase"]), text(&running["path"])));
    }
    if reply["last"]["error"].is_string() {
        shown.push_str(&format!("\nThe last backup failed: {}\n", text(&reply["last"]["error"])));
    }
    Ok(shown)
}
