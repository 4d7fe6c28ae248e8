//! Owns `flintkv database replication|replicate|promote|switchover`. Never knows how a replica gets its data.

use serde_json::{Value, json};

use super::{follow, integer, path, pretty, text, waits};
use crate::args::Replicate;
use crate::client::Client;
use crate::failure::Failure;
use crate::prompt;
use crate::table::{Align, pairs, table};
use base::size::human;

/// The pause between two queries whether the primary's dataset has arrived.
const LOOK: std::time::Duration = std::time::Duration::from_millis(200);

pub fn show(client: &Client, name: &str, as_json: bool) -> Result<String, Failure> {
    let reply = client.get(&format!("{}/replication", path(name)))?;
    Ok(if as_json { pretty(&reply) } else { shown(&reply) })
}

pub fn replicate(client: &Client, replicate: &Replicate, as_json: bool) -> Result<String, Failure> {
    let Replicate { name, of, primary_user, primary_password, tls, yes } = replicate;
    let address = of.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    let (host, port) = address.ok_or_else(|| Failure::refused(format!("--of: '{of}' is not HOST:PORT")))?;
    let what = format!("Every key of {name} will be lost when the dataset of {of} arrives");
    prompt::confirm(&what, name, yes.as_deref())?;
    let mut body = json!({ "host": host, "port": port, "tls": tls });
    for (field, value) in [("username", primary_user), ("password", primary_password)] {
        if let Some(value) = value {
            body[field] = json!(value);
        }
    }
    let mut state = client.post(&format!("{}/replicate", path(name)), &body)?;
    let bar = waits("copying {prefix} [{bar:30}] {binary_bytes} of {binary_total_bytes} {msg}", name);
    while state["primary"]["is_up"] == false {
        follow(&bar, &state["primary"], "sync_bytes", "sync_total_bytes");
        bar.set_message(text(&state["primary"]["error"]));
        std::thread::sleep(LOOK);
        state = client.get(&format!("{}/replication", path(name)))?;
    }
    drop(bar);
    Ok(if as_json { pretty(&state) } else { shown(&state) })
}

pub fn promote(client: &Client, name: &str, as_json: bool) -> Result<String, Failure> {
    let reply = client.post_nothing(&format!("{}/promote", path(name)))?;
    Ok(if as_json { pretty(&reply) } else { format!("{name} is a primary now\n") })
}

pub fn switchover(
    client: &Client,
    name: &str,
    to: Option<&str>,
    timeout_ms: u64,
    as_json: bool,
) -> Result<String, Failure> {
    let mut body = json!({ "timeout_ms": timeout_ms });
    if let Some(to) = to {
        body["to"] = json!(to);
    }
    let reply = client.post(&format!("{}/switchover", path(name)), &body)?;
    Ok(if as_json { pretty(&reply) } else { shown(&reply) })
}

fn shown(state: &Value) -> String {
    let mut rows = vec![("role", text(&state["role"]))];
    let primary = &state["primary"];
    if !primary.is_null() {
        rows.push(("primary", format!("{}:{}", text(&primary["host"]), primary["port"])));
        rows.push(("link", if primary["is_up"] == true { "up".to_owned() } else { text(&primary["state"]) }));
        if primary["error"].is_string() {
            rows.push(("last error", text(&primary["error"])));
        }
        if integer(&primary["failed_commands"]) > 0 {
            rows.push(("failed commands", integer(&primary["failed_commands"]).to_string()));
        }
    }
    rows.push(("offset", integer(&state["offset"]).to_string()));
    rows.push(("backlog", human(integer(&state["backlog_bytes"]))));
    let mut said = pairs(&rows);
    let replicas = state["replicas"].as_array().map_or(&[][..], Vec::as_slice);
    if !replicas.is_empty() {
        let head =
            [("replica", Align::Left), ("state", Align::Left), ("behind", Align::Right), ("silent", Align::Right)];
        let rows: Vec<Vec<String>> = replicas
            .iter()
            .map(|replica| {
                let silent = format!("{} ms", integer(&replica["silent_ms"]));
                let behind = human(integer(&replica["lag_bytes"]));
                vec![text(&replica["address"]), text(&replica["state"]), behind, silent]
            })
            .collect();
        said.push('\n');
        said.push_str(&table(&head, &rows));
    }
    said
}
