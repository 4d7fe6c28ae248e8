//! Owns how an operator begins what a cluster carries out step by step, and follows it. Never knows what a step does.

use crate::client::{Client, Unanswered};
use crate::failure::Failure;
use crate::progress::{self, Wait};
use crate::table::{Align, pretty, table};
use serde_json::Value;
use std::time::{Duration, Instant};

/// The pause between two queries how far an operation is.
const LOOK: Duration = Duration::from_millis(200);
/// How long the node that is asked may be away: a restart of the cluster restarts it too.
const PATIENCE: Duration = Duration::from_secs(120);

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
    let ended = follow(client, &id, PATIENCE)?;
    if let Some(why) = ended["error"].as_str() {
        return Err(Failure::failed(format!("operation {id}: {why}")));
    }
    let said = format!("{} of {}: {} steps done\n", text(&ended["kind"]), text(&ended["target"]), ended["steps_done"]);
    Ok(if as_json { pretty(&ended) } else { said })
}

/// Waits until an operation has ended, also while the node does not say how far it is, for `patience` since it last did.
fn follow(client: &Client, id: &str, patience: Duration) -> Result<Value, Failure> {
    let continues =
        format!("the cluster continues: flintkv cluster operations shows it, flintkv cluster abort {id} ends it");
    let bar = Wait::new(progress::bar("{prefix} [{bar:30}] {pos} of {len} steps {msg}", 0), continues.clone());
    let mut answered = Instant::now();
    loop {
        let operation = match look(client, id)? {
            Ok(operation) => operation,
            Err(why) if answered.elapsed() >= patience => return Err(Failure::failed(why).hint(continues)),
            Err(why) => {
                bar.set_message(format!("({why})"));
                std::thread::sleep(LOOK);
                continue;
            }
        };
        answered = Instant::now();
        if operation["state"] != "running" {
            return Ok(operation);
        }
        bar.set_prefix(format!("{} of {}", text(&operation["kind"]), text(&operation["target"])));
        bar.set_length(list(&operation["steps"]).len() as u64);
        bar.set_position(operation["steps_done"].as_u64().unwrap_or(0));
        bar.set_message(operation["waits_for"].as_str().map_or_else(String::new, |why| format!("({why})")));
        std::thread::sleep(LOOK);
    }
}

/// How far the operation is, or why the node does not say it now.
fn look(client: &Client, id: &str) -> Result<Result<Value, String>, Failure> {
    let all = match client.get("/operations") {
        Ok(all) => all,
        Err(Unanswered::Gone(failure)) => return Ok(Err(failure.message)),
        // It starts or stops, or does not work for its cluster yet.
        Err(Unanswered::Refused(refusal)) if matches!(refusal.status, 409 | 422 | 502 | 503 | 504) => {
            return Ok(Err(refusal.failure.message));
        }
        Err(error) => return Err(error.into()),
    };
    let found = list(&all).iter().find(|operation| operation["id"] == id);
    // A node that has just started does not know the cluster's records yet. Or it has ended long ago: of those, the last ones are kept.
    Ok(found.cloned().ok_or_else(|| format!("operation {id} is not listed")))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::{Mock, NO_ANSWER, error};
    use serde_json::json;

    fn operation(state: &str) -> (u16, Value) {
        (200, json!([{ "id": "7", "kind": "restart", "target": "all nodes", "state": state, "steps_done": 3 }]))
    }

    /// Whoever restarted a cluster was told that it had failed when the node that was asked began anew.
    #[test]
    fn a_restart_is_followed_while_the_node_that_is_asked_restarts() {
        let mock = Mock::start();
        let not_now = |status, code| (status, error(code, "not now", ""));
        mock.inner().operations = [
            operation("running"),
            not_now(503, "stopping"),
            (NO_ANSWER, Value::Null),
            not_now(422, "unsupported"),
            not_now(409, "busy"),
            (200, json!([])),
            operation("running"),
            not_now(502, "unreachable"),
            not_now(504, "timeout"),
            operation("done"),
        ]
        .into();
        let said = begin(&mock.client(), "/cluster/restart", Some(&json!({ "nodes": [] })), false, true, false);
        assert_eq!(said.unwrap(), "restart of all nodes: 3 steps done\n");
        assert_eq!(mock.inner().operations.len(), 1, "all were asked for");
    }

    #[test]
    fn a_node_that_stays_away_is_given_up_and_the_hint_says_where_to_look() {
        let mock = Mock::start();
        mock.inner().operations = [operation("running"), (NO_ANSWER, Value::Null)].into();
        let failed = follow(&mock.client(), "7", LOOK).unwrap_err();
        assert!(failed.message.contains("does not answer") && failed.code == 1, "{failed}");
        assert!(failed.hint.contains("flintkv cluster operations shows it"), "{failed}");
        // What will not change is not waited for.
        mock.inner().operations = [(403, error("forbidden", "this needs the role admin", ""))].into();
        assert_eq!(follow(&mock.client(), "7", PATIENCE).unwrap_err().message, "this needs the role admin");
    }
}
