//! Owns how an operator begins what a cluster carries out step by step, and follows it. Never knows what a step does.

use crate::client::Client;
use crate::failure::Failure;
use crate::progress::{self, Wait};
use crate::table::{Align, pretty, table};
use serde_json::Value;
use std::time::Duration;

/// The pause between two queries how far an operation is.
const LOOK: Duration = Duration::from_millis(200);

/// Whether the cluster of the node that is asked has a database with this name.
pub fn is_of_cluster(client: &Client, name: &str) -> bool {
    let cluster = client.get("/cluster").unwrap_or_default();
    cluster["databases"].as_array().is_some_and(|databases| databases.iter().any(|database| database["name"] == name))
}

/// Begins an operation, and waits for its end if that is wanted.
pub fn begin(
    client: &Client,
    path: &str,
    body: Option<&Value>,
    is_dry_run: bool,
    waits: bool,
    as_json: bool,
) -> Result<String, Failure> {
    let query = if is_dry_run { "?dry_run=true" } else { "" };
    let path = format!("{path}{query}");
    let begun = match body {
        Some(body) => client.post(&path, body)?,
        None => client.post_nothing(&path)?,
    };
    if is_dry_run {
        return Ok(if as_json { pretty(&begun) } else { steps(&begun) + "nothing was changed\n" });
    }
    let id = text(&begun["id"]);
    if !waits {
        let then = format!("operation {id} has begun: flintkv cluster operations shows how far it is\n");
        return Ok(if as_json { pretty(&begun) } else { steps(&begun) + &then });
    }
    for note in list(&begun["notes"]) {
        eprintln!("{}", text(note));
    }
    let ended = follow(client, &id)?;
    if let Some(why) = ended["error"].as_str() {
        return Err(Failure::failed(format!("operation {id}: {why}")));
    }
    let said = format!("{} of {}: {} steps done\n", text(&ended["kind"]), text(&ended["target"]), ended["steps_done"]);
    Ok(if as_json { pretty(&ended) } else { said })
}

/// Waits until an operation has ended.
fn follow(client: &Client, id: &str) -> Result<Value, Failure> {
    let bar = Wait::new(
        progress::bar("{prefix} [{bar:30}] {pos} of {len} steps {msg}", 0),
        format!("the cluster continues: flintkv cluster operations shows it, flintkv cluster abort {id} ends it"),
    );
    loop {
        let all = client.get("/operations")?;
        let found = list(&all).iter().find(|operation| operation["id"] == id);
        // The last ones that have ended are kept: it has ended long ago.
        let Some(operation) = found else {
            return Err(Failure::failed(format!("operation {id} is not listed any more")));
        };
        if operation["state"] != "running" {
            return Ok(operation.clone());
        }
        bar.set_prefix(format!("{} of {}", text(&operation["kind"]), text(&operation["target"])));
        bar.set_length(list(&operation["steps"]).len() as u64);
        bar.set_position(operation["steps_done"].as_u64().unwrap_or(0));
        bar.set_message(operation["waits_for"].as_str().map_or_else(String::new, |why| format!("({why})")));
        std::thread::sleep(LOOK);
    }
}

fn steps(begun: &Value) -> String {
    let row = |step: &Value| {
        let of = |field: &str| step[field].as_str().unwrap_or_default().to_owned();
        vec![of("kind"), of("shard"), of("from"), of("to")]
    };
    let left = |title| (title, Align::Left);
    let head = [left("STEP"), left("SHARD"), left("FROM"), left("TO")];
    let rows: Vec<_> = list(&begun["steps"]).iter().map(row).collect();
    let mut shown = if rows.is_empty() { "there is nothing to do\n".to_owned() } else { table(&head, &rows) };
    for note in list(&begun["notes"]) {
        shown += &format!("{}\n", text(note));
    }
    shown
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
