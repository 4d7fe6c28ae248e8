//! Owns `flintkv database` and `flintkv node`: requests, waiting for slow changes, and tables. Never knows how a
//! request travels.

mod backups;
mod recovery;
mod replication;

use std::time::Duration;

use indicatif::ProgressBar;
use serde_json::{Value, json};

use crate::args::{Backup, Create, DatabaseAction, RamLimit, Resize, is_option};
use crate::client::{Client, Unanswered, segment};
use crate::failure::Failure;
use crate::operations;
use crate::progress::{self, Wait};
use crate::prompt;
use crate::size::{count, micros};
pub use crate::table::pretty;
use crate::table::{Align, pairs, table};
use crate::timestamp;
use base::size::human;
use config::definition::FIELDS;

/// The pause between two queries about a slow change.
const LOOK: Duration = Duration::from_millis(200);
/// The default RAM share of a memory limit, as in the API.
const RAM_PERCENT: u32 = 30;

pub fn run(client: &Client, action: &DatabaseAction, as_json: bool) -> Result<String, Failure> {
    match action {
        DatabaseAction::List => {
            let reply = client.get("/databases")?;
            Ok(if as_json { pretty(&reply) } else { list(&reply) })
        }
        DatabaseAction::Show { name } => Ok(shown(&get(client, name)?, as_json)),
        DatabaseAction::Shards { name } => {
            let reply = client.get(&format!("{}/shards", path(name)))?;
            Ok(if as_json { pretty(&reply) } else { shards(&reply) })
        }
        DatabaseAction::Create(create) => self::create(client, create, as_json),
        DatabaseAction::Resize(resize) => self::resize(client, resize, as_json),
        DatabaseAction::Replication { name } => replication::show(client, name, as_json),
        DatabaseAction::Replicate(replicate) => replication::replicate(client, replicate, as_json),
        DatabaseAction::Promote { name } => replication::promote(client, name, as_json),
        DatabaseAction::Switchover { name, to, timeout, shard, dry_run, no_wait } => {
            if operations::is_of_cluster(client, name) {
                let body = json!({ "database": name, "shard": shard, "to": to });
                return operations::begin(client, "/cluster/switchover", Some(&body), *dry_run, !no_wait, as_json);
            }
            if shard.is_some() || *dry_run || *no_wait {
                let why = format!("{name} is no database of a cluster: --shard, --dry-run and --no-wait are for those");
                return Err(Failure::refused(why));
            }
            replication::switchover(client, name, to.as_deref(), *timeout, as_json)
        }
        DatabaseAction::Recover { name, shard, lose_data, yes, dry_run } => {
            let body = json!({ "database": name, "shard": shard, "lose_data": lose_data });
            recovery::recover(client, name, &body, yes.as_deref(), *dry_run, as_json)
        }
        DatabaseAction::Pause { name } => switch(client, name, "pause", as_json),
        DatabaseAction::Resume { name } => switch(client, name, "resume", as_json),
        DatabaseAction::Flush { name, yes } => {
            prompt::confirm(&format!("Every key of {name} will be lost"), name, yes.as_deref())?;
            let spinner =
                spinner(&format!("flushing {name}"), format!("the node continues: flintkv database show {name}"));
            let reply = client.post(&format!("{}/flush", path(name)), &json!({ "confirm": name }));
            drop(spinner);
            Ok(said(&reply?, &format!("{name} is empty"), as_json))
        }
        DatabaseAction::Backup(backup) => backups::make(client, backup, as_json),
        DatabaseAction::Backups { name } => backups::list(client, name.as_deref(), as_json),
        DatabaseAction::Delete { name, yes, backup, no_wait } => {
            let what = match backup {
                true => format!("{name} will be backed up, and then deleted"),
                false => {
                    format!("{name} and every key in it will be lost, which cannot be undone; --backup keeps a backup")
                }
            };
            prompt::confirm(&what, name, yes.as_deref())?;
            if *backup {
                let backup = Backup { name: name.clone(), to: None, rdb_version: None, no_wait: false };
                eprint!("{}", backups::make(client, &backup, false)?);
            }
            delete(client, name, !no_wait, as_json)
        }
    }
}

fn shards(reply: &Value) -> String {
    let row = |shard: &Value| {
        let bytes = |field: &str| shard[field].as_u64().map_or_else(|| "-".to_owned(), human);
        let number = |field: &str| shard[field].as_u64().map_or_else(|| "-".to_owned(), |number| number.to_string());
        let percent =
            |field: &str| shard[field].as_f64().map_or_else(|| "-".to_owned(), |share| format!("{share:.1} %"));
        let state = match (&shard["is_served"], shard["trouble"].as_str()) {
            (Value::Bool(true), None) => "served".to_owned(),
            (_, Some(trouble)) => format!("not served: {trouble}"),
            _ => "not served".to_owned(),
        };
        vec![
            number("number"),
            text(&shard["node"]),
            number("keys"),
            format!("{} of {}", bytes("used_ram_bytes"), bytes("ram_limit_bytes")),
            bytes("used_flash_bytes"),
            percent("values_in_ram_percent"),
            percent("ram_hit_percent"),
            number("ops_per_s"),
            state,
        ]
    };
    let right = |title| (title, Align::Right);
    let head = [
        right("SHARD"),
        ("NODE", Align::Left),
        right("KEYS"),
        right("RAM"),
        right("FLASH"),
        right("VALUES IN RAM"),
        right("RAM HITS"),
        right("OPS/S"),
        ("STATE", Align::Left),
    ];
    let all = reply.as_array().map_or(&[][..], Vec::as_slice);
    table(&head, &all.iter().map(row).collect::<Vec<_>>()) + &copies(all)
}

/// The copies of shards that have replicas.
fn copies(shards: &[Value]) -> String {
    let of = |shard: &Value| shard["copies"].as_array().cloned().unwrap_or_default();
    if shards.iter().all(|shard| of(shard).len() < 2) {
        return String::new();
    }
    let row = |shard: &Value, copy: &Value| {
        let bytes = |field: &str| copy[field].as_u64().map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
        vec![
            shard["number"].to_string(),
            text(&copy["node"]),
            text(&copy["role"]),
            if copy["is_in_sync"] == true { "yes" } else { "no" }.to_owned(),
            bytes("offset"),
            copy["lag_bytes"].as_u64().map_or_else(|| "-".to_owned(), human),
            text(&copy["state"]),
        ]
    };
    let rows: Vec<_> =
        shards.iter().flat_map(|shard| of(shard).iter().map(|copy| row(shard, copy)).collect::<Vec<_>>()).collect();
    let right = |title| (title, Align::Right);
    let left = |title| (title, Align::Left);
    let head =
        [right("SHARD"), left("NODE"), left("ROLE"), left("IN SYNC"), right("OFFSET"), right("LAG"), left("STATE")];
    format!("\n{}", table(&head, &rows))
}

fn path(name: &str) -> String {
    format!("/databases/{}", segment(name))
}

fn get(client: &Client, name: &str) -> Result<Value, Unanswered> {
    client.get(&path(name))
}

fn create(client: &Client, create: &Create, as_json: bool) -> Result<String, Failure> {
    let fields = &create.fields;
    let mut body = fields.request.clone();
    let ram = fields.ram_limit.unwrap_or(RamLimit::Percent(RAM_PERCENT)).of(integer(&body["memory_limit_bytes"]));
    body.insert("name".to_owned(), json!(create.name));
    body.insert("ram_limit_bytes".to_owned(), json!(ram));
    body.extend(password(&fields.password, &create.name)?);
    let spinner = spinner(
        &format!("creating {}", create.name),
        format!("the node continues: flintkv database show {}", create.name),
    );
    let query = if create.dry_run { "?dry_run=true" } else { "" };
    let reply = client.post(&format!("/databases{query}"), &Value::Object(body));
    drop(spinner);
    let reply = reply?;
    if create.dry_run {
        return Ok(said(&reply, &format!("{} could be created; nothing was changed", create.name), as_json));
    }
    Ok(shown(&wait_while_loading(client, &create.name, reply)?, as_json))
}

/// Waits while a backup is loaded, with a bar of the bytes that are read. Returns the state afterwards.
fn wait_while_loading(client: &Client, name: &str, mut database: Value) -> Result<Value, Failure> {
    let bar = waits("loading {prefix} [{bar:30}] {binary_bytes} of {binary_total_bytes}", name);
    while database["state"] == "loading" {
        follow(&bar, &database["progress"], "done_bytes", "total_bytes");
        std::thread::sleep(LOOK);
        database = get(client, name)?;
    }
    drop(bar);
    match database["state"] == "failed" {
        true => Err(Failure::failed(text(&database["failure"]))
            .hint(format!("{name} does not serve clients: to remove it, flintkv database delete {name}"))),
        false => Ok(database),
    }
}

/// A progress bar for work that the node does without the command.
fn waits(template: &str, name: &str) -> Wait {
    let bar = progress::bar(template, 0).with_prefix(name.to_owned());
    Wait::new(bar, format!("the node continues: flintkv database show {name}"))
}

fn follow(bar: &ProgressBar, progress: &Value, done: &str, total: &str) {
    bar.set_length(integer(&progress[total]));
    bar.set_position(integer(&progress[done]));
}

/// The field of a request. Asks for the password if the option has no value.
fn password(given: &Option<Option<String>>, name: &str) -> Result<Option<(String, Value)>, Failure> {
    let Some(given) = given else { return Ok(None) };
    let password = match given {
        Some(password) => password.clone(),
        None => prompt::new_secret(&format!("database {name}"))?,
    };
    Ok(Some(("password".to_owned(), json!(password))))
}

fn resize(client: &Client, resize: &Resize, as_json: bool) -> Result<String, Failure> {
    let (name, fields) = (&resize.name, &resize.fields);
    let mut change = fields.request.clone();
    let memory_limit = change.get("memory_limit_bytes").map(integer);
    if let Some(ram) = fields.ram_limit {
        // A percentage refers to the limit after the change.
        let memory = match (ram, memory_limit) {
            (RamLimit::Percent(_), None) => integer(&get(client, name)?["definition"]["memory_limit_bytes"]),
            (_, memory) => memory.unwrap_or(0),
        };
        change.insert("ram_limit_bytes".to_owned(), json!(ram.of(memory)));
    }
    change.extend(password(&fields.password, name)?);
    if change.is_empty() {
        let options =
            FIELDS.iter().filter(|field| is_option(field, false)).map(|field| format!("--{}", field.option.0));
        let options = options.collect::<Vec<_>>().join(", ");
        return Err(Failure::refused(format!("nothing to change: give at least one of {options} and --no-password")));
    }
    let mut database = client.patch(&path(name), &Value::Object(change))?;
    if !resize.no_wait && is_moving(&database) {
        database = wait_while_moving(client, name, database)?;
        if memory_limit.is_some_and(|bytes| integer(&database["definition"]["memory_limit_bytes"]) != bytes) {
            return Err(why_not(client, name));
        }
    }
    Ok(shown(&database, as_json))
}

/// The reply was sent before the resize failed, so the events hold the reason.
fn why_not(client: &Client, name: &str) -> Failure {
    let events = client.get("/events?count=50").unwrap_or_default();
    let of_it = |event: &&Value| event["database"] == name && event["severity"] == "warning";
    let why = events.as_array().and_then(|events| events.iter().find(of_it)).map(|event| text(&event["message"]));
    Failure::failed(why.unwrap_or_else(|| format!("{name} was not resized")))
        .hint(format!("its limits did not change: flintkv database show {name}"))
}

fn is_moving(database: &Value) -> bool {
    database["state"] == "resizing"
}

/// Waits while values move, with a bar of the moved bytes. Returns the state afterwards.
fn wait_while_moving(client: &Client, name: &str, mut database: Value) -> Result<Value, Failure> {
    let bar = waits("resizing {prefix} [{bar:30}] {binary_bytes} of {binary_total_bytes}", name);
    while is_moving(&database) {
        follow(&bar, &database["progress"], "done_bytes", "total_bytes");
        std::thread::sleep(LOOK);
        database = get(client, name).map_err(|error| {
            Failure::from(error).hint(format!("the node continues the resize: flintkv database show {name}"))
        })?;
    }
    drop(bar);
    Ok(database)
}

fn switch(client: &Client, name: &str, action: &str, as_json: bool) -> Result<String, Failure> {
    let database = client.post_nothing(&format!("{}/{action}", path(name)))?;
    let state = database["state"].as_str().unwrap_or_default().to_owned();
    Ok(said(&database, &format!("{name} is {state}"), as_json))
}

/// Waits until the API no longer knows the database.
fn delete(client: &Client, name: &str, wait: bool, as_json: bool) -> Result<String, Failure> {
    let spinner = spinner(&format!("deleting {name}"), "the node continues: flintkv database list".to_owned());
    client.delete(&format!("{}?confirm={}", path(name), segment(name)))?;
    while wait && !is_gone(client, name)? {
        std::thread::sleep(LOOK);
    }
    drop(spinner);
    let state = if wait { "deleted" } else { "being deleted" };
    Ok(said(&json!({ "name": name, "state": state }), &format!("{name} is {state}"), as_json))
}

fn is_gone(client: &Client, name: &str) -> Result<bool, Failure> {
    match get(client, name) {
        Ok(_) => Ok(false),
        Err(Unanswered::Refused(refusal)) if refusal.status == 404 => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn spinner(what: &str, goes_on: String) -> Wait {
    let spinner = progress::spinner("{spinner} {msg} {elapsed}").with_message(what.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(100));
    Wait::new(spinner, goes_on)
}

/// The API's reply with `--json`, otherwise a sentence.
pub fn said(reply: &Value, text: &str, as_json: bool) -> String {
    match as_json {
        true if reply.is_null() => "{}\n".to_owned(),
        true => pretty(reply),
        false => format!("{text}\n"),
    }
}

fn shown(database: &Value, as_json: bool) -> String {
    if as_json { pretty(database) } else { show(database) }
}

fn integer(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_f64().map(|number| number as u64)).unwrap_or(0)
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A dash stands for an unknown figure.
fn figure(value: &Value, show: impl Fn(f64) -> String) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), show)
}

fn bytes(value: &Value) -> String {
    figure(value, |bytes| human(bytes as u64))
}

/// 0 means no limit.
fn limit(value: &Value) -> String {
    if integer(value) == 0 { "no limit".to_owned() } else { bytes(value) }
}

fn percent(value: &Value) -> String {
    figure(value, |ratio| format!("{:.1} %", ratio * 100.0))
}

/// The conditions of a database, in the node's words, the worst first.
fn state(database: &Value) -> String {
    let mut words: Vec<String> = conditions(database).map(|condition| text(&condition["name"])).collect();
    words.dedup();
    if words.is_empty() {
        // Nodes of earlier releases send no conditions.
        words.push(text(&database["state"]));
    }
    let (done, total) = (integer(&database["progress"]["done_bytes"]), integer(&database["progress"]["total_bytes"]));
    for word in words.iter_mut().filter(|word| total > 0 && ["loading", "resizing"].contains(&word.as_str())) {
        *word = format!("{word} {:.0} %", done as f64 / total as f64 * 100.0);
    }
    words.join(", ")
}

fn conditions(database: &Value) -> impl Iterator<Item = &Value> {
    database["conditions"].as_array().into_iter().flatten()
}

fn list(reply: &Value) -> String {
    let right = ["PORT", "MEMORY", "RAM", "USED RAM", "USED FLASH", "KEYS", "OPS/S", "RAM HITS", "LATENCY"];
    let head: Vec<(&str, Align)> = [("NAME", Align::Left), ("STATE", Align::Left)]
        .into_iter()
        .chain(right.map(|name| (name, Align::Right)))
        .collect();
    let row = |database: &Value| {
        let (definition, now) = (&database["definition"], &database["now"]);
        vec![
            text(&database["name"]),
            state(database),
            text(&definition["port"]),
            limit(&definition["memory_limit_bytes"]),
            limit(&definition["ram_limit_bytes"]),
            bytes(&now["used_ram_bytes"]),
            bytes(&now["used_flash_bytes"]),
            figure(&now["keys"], count),
            figure(&now["ops"], count),
            percent(&now["hit_ratio"]),
            figure(&now["latency_us"], micros),
        ]
    };
    let rows: Vec<Vec<String>> = reply["databases"].as_array().into_iter().flatten().map(row).collect();
    format!("{}\n{}", table(&head, &rows), room(&reply["room"]))
}

/// The files of a database, and their limit.
fn files(now: &Value) -> String {
    match integer(&now["files_limit_bytes"]) {
        0 => bytes(&now["files_bytes"]),
        _ => format!("{} of {}", bytes(&now["files_bytes"]), bytes(&now["files_limit_bytes"])),
    }
}

fn room(room: &Value) -> String {
    let part = |kind: &str| {
        let (taken, all) = (&room[format!("{kind}_taken_bytes")], &room[format!("{kind}_bytes")]);
        format!("{} of {}", bytes(taken), bytes(all))
    };
    format!("Promised to databases: {} RAM, {} flash\n", part("ram"), part("flash"))
}

fn replicas(definition: &Value) -> String {
    match definition["replicas"].as_u64() {
        Some(count @ 1..) => format!(
            "{count} of each shard, {}, writes with {} in sync",
            text(&definition["replication"]),
            text(&definition["min_in_sync"])
        ),
        _ => "0".to_owned(),
    }
}

fn show(database: &Value) -> String {
    let (definition, now) = (&database["definition"], &database["now"]);
    let mut rows = vec![
        ("name", text(&database["name"])),
        ("state", state(database)),
        ("memory limit", limit(&definition["memory_limit_bytes"])),
        ("RAM limit", limit(&definition["ram_limit_bytes"])),
        ("policy", text(&definition["policy"])),
        ("compression", text(&definition["compression"])),
        ("password", if definition["has_password"] == true { "set" } else { "none" }.to_owned()),
        ("shards", text(&definition["shards"])),
        ("replicas", replicas(definition)),
        ("replica of", text(&definition["replica_of"])),
        ("persistence", text(&definition["persistence"])),
        ("backups", backup_schedule(definition)),
    ];
    let told = conditions(database).filter(|condition| condition["level"] != "good");
    let told = told.flat_map(|condition| [("", text(&condition["sentence"])), ("", text(&condition["advice"]))]);
    rows.splice(2..2, told.filter(|(_, sentence)| !sentence.is_empty()));
    if definition["replica_of"].as_str().unwrap_or_default().is_empty() {
        rows.retain(|(name, _)| *name != "replica of");
    }
    for endpoint in database["endpoints"].as_array().into_iter().flatten() {
        let command = endpoint["command"].as_str().map(|command| format!("    {command}")).unwrap_or_default();
        rows.push(("endpoint", format!("{} {}{command}", text(&endpoint["kind"]), text(&endpoint["address"]))));
    }
    if now.is_object() {
        rows.extend([
            ("used RAM", bytes(&now["used_ram_bytes"])),
            ("used flash", bytes(&now["used_flash_bytes"])),
            ("files on flash", files(now)),
            ("keys", figure(&now["keys"], count)),
            ("values in RAM", figure(&now["values_in_ram"], count)),
            ("values in flash", figure(&now["values_in_flash"], count)),
            ("operations", figure(&now["ops"], |ops| format!("{}/s", count(ops)))),
            ("RAM hit ratio", percent(&now["hit_ratio"])),
            ("latency", figure(&now["latency_us"], micros)),
            ("clients", figure(&now["clients"], count)),
        ]);
        if definition["persistence"] != "none" {
            let target = match integer(&definition["recovery_time_target_s"]) {
                0 => "no target".to_owned(),
                seconds => format!("at most {}", timestamp::span(seconds)),
            };
            rows.push(("restart", figure(&now["recovery_us"], |us| format!("about {}", micros(us)))));
            rows.push(("restart target", target));
        }
    }
    pairs(&rows)
}

fn backup_schedule(definition: &Value) -> String {
    let archived = match definition["backup_journal_keep"].as_str() {
        None | Some("") => String::new(),
        Some(keep) => format!(", the journal is archived for {keep}"),
    };
    match definition["backup_schedule"].as_str() {
        None | Some("") => format!("no schedule{archived}"),
        Some(schedule) => format!("every {schedule}, {} kept{archived}", text(&definition["backup_keep"])),
    }
}

/// `flintkv node show`.
pub fn node(client: &Client, as_json: bool) -> Result<String, Failure> {
    let node = client.get("/node")?;
    if as_json {
        return Ok(pretty(&node));
    }
    let figures = &node["figures"];
    let paths: Vec<String> = node["flash_paths"].as_array().into_iter().flatten().map(text).collect();
    let flash = match paths.is_empty() {
        true => "none: everything stays in RAM".to_owned(),
        false => format!("{} by {}", paths.join(", "), text(&node["flash_driver"])),
    };
    let cpu_s = (integer(&figures["cpu_user_us"]) + integer(&figures["cpu_system_us"])) / 1_000_000;
    let cpu_now = figure(&node["now"]["cpu_percent"], |percent| format!(", {percent:.0} % of a core now"));
    let rows = [
        ("address", client.url().to_owned()),
        ("version", format!("{}, as Redis {}", text(&node["version"]), text(&node["redis_version"]))),
        ("run id", text(&node["run_id"])),
        ("started", figure(&node["started_ms"], |ms| timestamp::date(ms as u64))),
        ("up for", timestamp::span(integer(&figures["uptime_s"]))),
        ("workers", format!("{} on {} cores", text(&node["workers"]), text(&node["cores"]))),
        ("processor", format!("{}{}", timestamp::span(cpu_s), cpu_now.trim_start_matches('-'))),
        ("resident", bytes(&figures["resident_bytes"])),
        (
            "system RAM",
            format!("{}, {} free", bytes(&figures["system_ram_bytes"]), bytes(&figures["system_ram_free_bytes"])),
        ),
        ("open files", text(&figures["open_files"])),
        ("flash", flash),
    ];
    let by_database = node["room"]["by_database"].as_array().into_iter().flatten();
    let by_database: Vec<Vec<String>> = by_database
        .map(|share| vec![text(&share["name"]), bytes(&share["ram_bytes"]), bytes(&share["flash_bytes"])])
        .collect();
    let head = [("DATABASE", Align::Left), ("RAM", Align::Right), ("FLASH", Align::Right)];
    Ok(format!("{}\n{}{}", pairs(&rows), room(&node["room"]), table(&head, &by_database)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database(name: &str) -> Value {
        json!({
            "name": name, "state": "resizing", "progress": { "done_bytes": 1_u64 << 30, "total_bytes": 4_u64 << 30 }, "is_default": false,
            "definition": {
                "port": 7001, "tls_port": 0, "unixsocket": null, "bind": [], "memory_limit_bytes": 10_u64 << 30,
                "ram_limit_bytes": 3_u64 << 30, "policy": "noeviction", "compression": "lz4", "has_password": true,
                "shards": 1, "replicas": 0, "persistence": "none", "zones": [],
            },
            "endpoints": [{ "kind": "tcp", "address": "127.0.0.1:7001", "command": "redis-cli -h 127.0.0.1 -p 7001" }],
            "now": { "ops": 12_345.6, "hit_ratio": 0.8512, "keys": 1_200_000, "used_ram_bytes": 2_u64 << 30,
                "used_flash_bytes": null, "latency_us": 85.2, "values_in_ram": 5, "values_in_flash": 6, "clients": 12 },
        })
    }

    #[test]
    fn a_list_is_a_table_with_units() {
        let reply = json!({
            "databases": [database("ads"), { "name": "a-name-of-forty-characters-0123456789abcd", "state": "active",
                "definition": { "port": 6379, "memory_limit_bytes": 0, "ram_limit_bytes": 0 }, "now": {} }],
            "room": { "ram_bytes": 16_u64 << 30, "ram_taken_bytes": 3_u64 << 30, "flash_bytes": 100_u64 << 30, "flash_taken_bytes": 7_u64 << 30 },
        });
        assert_eq!(
            list(&reply),
            "\
NAME                                      STATE          PORT    MEMORY       RAM  USED RAM  USED FLASH  KEYS  OPS/S  RAM HITS  LATENCY
ads                                       resizing 25 %  7001     10 GB      3 GB      2 GB           -  1.2M  12.3k    85.1 %  85.2 µs
a-name-of-forty-characters-0123456789abcd active         6379  no limit  no limit         -           -     -      -         -        -

Promised to databases: 3 GB of 16 GB RAM, 7 GB of 100 GB flash
"
            .replace("abcd active", "abcd  active")
            .replace("NAME                                      S", "NAME                                       S")
            .replace("ads                                       r", "ads                                        r")
        );
    }

    #[test]
    fn a_database_that_refuses_writes_says_so_and_what_to_do() {
        let mut full = database("ads");
        full["conditions"] = json!([
            { "name": "full", "level": "critical", "sentence": "Flash is full: writes are refused.", "advice": "Delete keys." },
            { "name": "resizing", "level": "info", "sentence": "Flash becomes smaller.", "advice": "" },
        ]);
        let text = show(&full);
        let lines: Vec<&str> = text.lines().skip(1).take(5).map(str::trim_end).collect();
        let memory = "memory limit     10 GB";
        assert_eq!(
            lines,
            [
                "state            full, resizing 25 %",
                "                 Flash is full: writes are refused.",
                "                 Delete keys.",
                "                 Flash becomes smaller.",
                memory
            ]
        );
    }

    #[test]
    fn a_database_is_shown_with_its_endpoint() {
        let text = show(&database("ads"));
        for line in [
            "name             ads",
            "state            resizing 25 %",
            "memory limit     10 GB",
            "password         set",
            "endpoint         tcp 127.0.0.1:7001    redis-cli -h 127.0.0.1 -p 7001",
            "used flash       -",
            "RAM hit ratio    85.1 %",
        ] {
            assert!(text.lines().any(|known| known == line), "{line:?} is missing in\n{text}");
        }
    }
}
