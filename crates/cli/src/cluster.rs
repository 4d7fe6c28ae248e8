//! Owns `flintkv cluster`: init and join work on this machine's files, the others ask a node. Never knows what a node does for a cluster.

use crate::TIMEOUT;
use crate::args::{AuthorityAction, Begun, ClusterAction, Init, Join, Local, Role};
use crate::client::{Client, segment};
use crate::database::{pretty, said};
use crate::failure::Failure;
use crate::prompt;
use crate::table::{Align, pairs, table};
use base::size::human;
use config::{Config, ConfigStore};
use membership::init::{self, init};
use membership::issuer::DEFAULT_ZONE;
use membership::join::{self, address, join};
use membership::{ExternalEtcd, addresses};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

pub fn run(action: &ClusterAction) -> Result<String, Failure> {
    match action {
        ClusterAction::Init(args) => begin(args),
        ClusterAction::Join(args) => enter(args),
        ClusterAction::Status { connection } => {
            let reply = Client::new(connection, TIMEOUT)?.get("/cluster")?;
            Ok(if connection.json { pretty(&reply) } else { status(&reply) })
        }
        ClusterAction::Nodes { connection } => {
            let client = Client::new(connection, TIMEOUT)?;
            let reply = client.get("/cluster")?;
            // What etcd cannot say now, the nodes are shown without.
            let etcd = client.get("/cluster/etcd");
            if connection.json {
                return Ok(pretty(&json!({ "nodes": reply["nodes"], "etcd": etcd.unwrap_or(Value::Null) })));
            }
            Ok(nodes(&reply) + &etcd.map_or_else(|_| "\netcd does not answer\n".to_owned(), |etcd| members(&etcd)))
        }
        ClusterAction::Operations { connection } => {
            let reply = Client::new(connection, TIMEOUT)?.get("/operations")?;
            Ok(if connection.json { pretty(&reply) } else { operations(&reply) })
        }
        ClusterAction::Abort { connection, id } => {
            let reply =
                Client::new(connection, TIMEOUT)?.post_nothing(&format!("/operations/{}/abort", segment(id)))?;
            let then = "flintkv cluster operations shows when it has ended, and what stays as it is";
            Ok(said(&reply, &format!("operation {id} is being aborted; {then}"), connection.json))
        }
        ClusterAction::Drain { begun, node } => {
            begin_operation(begun, &format!("/cluster/nodes/{}/drain", segment(node)), None)
        }
        ClusterAction::Undrain { begun, node } => {
            begin_operation(begun, &format!("/cluster/nodes/{}/undrain", segment(node)), None)
        }
        ClusterAction::Replace { begun, node } => {
            begin_operation(begun, &format!("/cluster/nodes/{}/replace", segment(node)), None)
        }
        ClusterAction::Move { begun, shard, to, from } => {
            begin_operation(begun, "/cluster/move", Some(&json!({ "shard": shard, "to": to, "from": from })))
        }
        ClusterAction::Restart { begun, nodes, yes } => {
            if !begun.dry_run {
                let name = text(&Client::new(&begun.connection, TIMEOUT)?.get("/cluster")?["name"]);
                let which =
                    if nodes.is_empty() { "All nodes".to_owned() } else { format!("The nodes {}", nodes.join(", ")) };
                let what = format!("{which} of the cluster {name} will start anew, one after the other");
                prompt::confirm(&what, &name, yes.as_deref())?;
            }
            begin_operation(begun, "/cluster/restart", Some(&json!({ "nodes": nodes })))
        }
        ClusterAction::Settings { connection, replace_after } => {
            let client = Client::new(connection, TIMEOUT)?;
            let reply = match replace_after {
                Some(seconds) => client.put("/cluster/settings", &json!({ "replace_after_s": seconds }))?,
                None => client.get("/cluster/settings")?,
            };
            let after = match reply["replace_after_s"].as_u64().unwrap_or(0) {
                0 => "off".to_owned(),
                seconds => format!("{seconds} s"),
            };
            Ok(if connection.json { pretty(&reply) } else { pairs(&[("replace after", after)]) })
        }
        ClusterAction::Token { connection, no_coordinator } => {
            let body = json!({ "no_coordinator": no_coordinator });
            let reply = Client::new(connection, TIMEOUT)?.post("/cluster/tokens", &body)?;
            let until = base::time::instant(reply["expires_ms"].as_u64().unwrap_or(0));
            let text = format!("One node can join until {until} with\n  {}", text(&reply["command"]));
            Ok(said(&reply, &text, connection.json))
        }
        ClusterAction::Authority { connection, action, yes } => {
            let client = Client::new(connection, TIMEOUT)?;
            let (what, path) = match action {
                None => {
                    let reply = client.get("/cluster/authority")?;
                    return Ok(if connection.json { pretty(&reply) } else { authority(&reply) });
                }
                Some(AuthorityAction::Replace) => ("will be replaced", "/cluster/authority/replace"),
                Some(AuthorityAction::Abandon) => ("will not be replaced", "/cluster/authority/abandon"),
            };
            let name = text(&client.get("/cluster")?["name"]);
            prompt::confirm(&format!("The authority of the cluster {name} {what}"), &name, yes.as_deref())?;
            let reply = client.post_nothing(path)?;
            let then = "the nodes go on by themselves: flintkv cluster authority shows how far they are";
            Ok(said(&reply, &format!("The authority of the cluster {name} {what}; {then}"), connection.json))
        }
        ClusterAction::Leave { connection, yes } => {
            let client = Client::new(connection, TIMEOUT)?;
            let cluster = client.get("/cluster")?;
            let (node, name) = (text(&cluster["node"]), text(&cluster["name"]));
            prompt::confirm(&format!("Node {node} will leave the cluster {name}"), &node, yes.as_deref())?;
            let reply = client.post_nothing("/cluster/leave")?;
            let then = "stop flintkv coordinator there, if it ran a member of etcd";
            Ok(said(&reply, &format!("{node} has left the cluster {name}; {then}"), connection.json))
        }
        ClusterAction::Forget { connection, node, yes, lose_data, dry_run } => {
            let client = Client::new(connection, TIMEOUT)?;
            let path = format!("/cluster/nodes/{}?lose_data={lose_data}", segment(node));
            if *dry_run {
                let plan = client.delete(&format!("{path}&dry_run=true"))?;
                return Ok(if connection.json { pretty(&plan) } else { forgetting(&plan) });
            }
            prompt::confirm(&format!("Node {node} will be removed from the cluster"), node, yes.as_deref())?;
            Ok(said(&client.delete(&path)?, &format!("{node} is removed"), connection.json))
        }
    }
}

fn begin_operation(begun: &Begun, path: &str, body: Option<&Value>) -> Result<String, Failure> {
    let Begun { connection, dry_run, no_wait } = begun;
    crate::operations::begin(&Client::new(connection, TIMEOUT)?, path, body, *dry_run, !no_wait, connection.json)
}

/// The node's configuration.
fn config(local: &Local) -> Result<Arc<Config>, Failure> {
    let conf = local.conf.iter().map(|path| path.display().to_string());
    let args: Vec<String> = conf.chain(local.directives.iter().cloned()).collect();
    let store = ConfigStore::from_args(&args).map_err(|error| Failure::refused(error.to_string()))?;
    Ok(store.snapshot())
}

fn node_name(local: &Local) -> Result<cluster::names::NodeName, Failure> {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = local.name.clone().unwrap_or_else(|| machine.split('.').next().unwrap_or_default().to_owned());
    name.parse().map_err(|error| Failure::refused(format!("{error}")).hint("choose one with --name"))
}

fn zone(local: &Local) -> Result<Option<cluster::names::ZoneName>, Failure> {
    local.zone.as_ref().map(|zone| zone.parse().map_err(|error| Failure::refused(format!("{error}")))).transpose()
}

/// Runs a call of `membership`, which waits for other nodes.
fn wait<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(error.to_string()))?;
    runtime.block_on(work).map_err(Failure::failed)
}

/// Each step is a line of its own: it may be waited for by somebody who has to do something.
fn progress(step: &str) {
    eprintln!("{step}");
}

fn begin(args: &Init) -> Result<String, Failure> {
    let config = config(&args.local)?;
    let host = args.local.address.clone().or_else(addresses::outward_address);
    let host = host.ok_or_else(|| {
        Failure::refused("this machine has no route to other networks, so its address is not known")
            .hint("give the address at which other nodes reach this one: --address HOST")
    })?;
    let options = init::Init {
        cluster: args.cluster.clone(),
        name: node_name(&args.local)?,
        zone: zone(&args.local)?.unwrap_or_else(|| DEFAULT_ZONE.parse().expect("it is a zone's name")),
        host: host.clone(),
        etcd: if args.etcd.is_empty() { None } else { Some((args.etcd.clone(), external(args)?)) },
    };
    let begun = wait(init(&config, &options, &mut progress))?;
    let at = membership::folder::host_and_port(&begun.member.host, membership::folder::announced_port(&config));
    let until = base::time::instant(begun.token.expires_ms);
    Ok(format!(
        "The cluster {} has begun with node {} (zone {}, {at}).\nThe next node can join until {until} with\n  \
         flintkv cluster join {at} --token {}\nEach further node needs a token of its own: flintkv cluster token\n",
        begun.member.cluster_name,
        begun.member.name,
        begun.member.zone,
        begun.token.reveal()
    ))
}

fn external(args: &Init) -> Result<ExternalEtcd, Failure> {
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|error| Failure::refused(format!("{}: {error}", path.display())))
    };
    let client = match (&args.etcd_cert, &args.etcd_key) {
        (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
        _ => None,
    };
    let user = match &args.etcd_user {
        Some(name) => Some((name.clone(), etcd_password(name)?)),
        None => None,
    };
    Ok(ExternalEtcd { ca: args.etcd_ca.as_deref().map(read).transpose()?, client, user })
}

fn etcd_password(user: &str) -> Result<String, Failure> {
    match std::env::var("FLINTKV_ETCD_PASSWORD") {
        Ok(password) => Ok(password),
        Err(_) => prompt::secret(&format!("Password of etcd's user {user}")),
    }
}

fn enter(args: &Join) -> Result<String, Failure> {
    let config = config(&args.local)?;
    let options = join::Join {
        at: address(&args.at, 8380),
        token: pki::Token::parse(&args.token).map_err(|error| Failure::refused(error.to_string()))?,
        name: node_name(&args.local)?,
        zone: zone(&args.local)?,
        role: match args.role {
            Role::Data => pki::Role::Data,
            Role::Quorum => pki::Role::Quorum,
        },
        host: args.local.address.clone(),
    };
    let member = wait(join(&config, &options, &mut progress))?;
    let folder = membership::Folder::of(&config);
    let coordinates = folder.etcd_member().is_ok_and(|found| found.is_some());
    let what = match (args.role, coordinates) {
        (Role::Quorum, _) => "flintkv quorum",
        (Role::Data, true) => "flintkv server and flintkv coordinator",
        (Role::Data, false) => "flintkv server",
    };
    Ok(format!(
        "Node {} (zone {}) is a member of the cluster {}. On this node runs {what}: if that is not running yet, start it.\n",
        member.name, member.zone, member.cluster_name
    ))
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn bytes(value: &Value) -> String {
    human(value.as_u64().unwrap_or(0))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn status(reply: &Value) -> String {
    if let Some(removed) = reply["removed"].as_str() {
        let (node, cluster) = (text(&reply["node"]), text(&reply["name"]));
        return format!(
            "{removed}: it was node {node} of the cluster {cluster}.\nIt serves nothing for the cluster, and its files stay. \
             flintkv cluster leave makes it a node without a cluster, which may join again\n"
        );
    }
    let nodes = list(&reply["nodes"]);
    let live = nodes.iter().filter(|node| node["is_live"] == true).count();
    let mut shown = pairs(&[
        ("cluster", text(&reply["name"])),
        ("nodes", format!("{live} of {} run", nodes.len())),
        ("asked", text(&reply["node"])),
    ]);
    let row = |database: &Value| {
        let shards = list(&database["shards"]);
        let served = shards.iter().filter(|shard| shard["is_served"] == true).count();
        vec![
            text(&database["name"]),
            text(&database["state"]),
            text(&database["port"]),
            format!("{served} of {}", shards.len()),
            bytes(&database["ram_limit_bytes"]),
            bytes(&database["memory_limit_bytes"]),
        ]
    };
    let rows: Vec<_> = list(&reply["databases"]).iter().map(row).collect();
    if !rows.is_empty() {
        let right = |title| (title, Align::Right);
        let head = [
            ("DATABASE", Align::Left),
            ("STATE", Align::Left),
            right("PORT"),
            right("SHARDS SERVED"),
            right("RAM"),
            right("RAM+FLASH"),
        ];
        shown += &format!("\n{}", table(&head, &rows));
    }
    let shards = list(&reply["databases"]).iter().flat_map(|database| {
        list(&database["shards"]).iter().map(|shard| {
            let state = if shard["is_served"] == true { "served" } else { "not served" };
            vec![
                format!("{}.{}", text(&database["name"]), shard["number"]),
                text(&shard["node"]),
                state.to_owned(),
                text(&shard["epoch"]),
            ]
        })
    });
    let rows: Vec<_> = shards.collect();
    if !rows.is_empty() {
        let head = [("SHARD", Align::Left), ("NODE", Align::Left), ("STATE", Align::Left), ("EPOCH", Align::Right)];
        shown += &format!("\n{}", table(&head, &rows));
    }
    for database in list(&reply["databases"]) {
        for shard in list(&database["shards"]) {
            if let Some(advice) = shard["advice"].as_str() {
                shown += &format!(
                    "\nshard {}.{} waits for an operator: {advice}\n",
                    text(&database["name"]),
                    shard["number"]
                );
            }
        }
    }
    if let Some(trouble) = reply["etcd_trouble"].as_str() {
        shown += &format!("\netcd cannot be followed from this node: {trouble}\n");
    }
    for trouble in list(&reply["troubles"]) {
        shown += &format!("\n{}\n", text(trouble));
    }
    shown
}

fn authority(reply: &Value) -> String {
    let time = |field: &Value| base::time::instant(field.as_u64().unwrap_or(0));
    let mut shown =
        pairs(&[("authority", text(&reply["fingerprint"])), ("its certificate ends", time(&reply["expires_ms"]))]);
    let replacement = &reply["replacement"];
    if replacement.is_null() {
        return shown;
    }
    let state = match replacement["step"].as_str() {
        Some("trust") => "step 1 of 3: every node trusts the old authority and the new one",
        Some("renew") => "step 2 of 3: every node gets certificates of the authority that stays",
        Some(_) => "step 3 of 3: every node trusts the authority that stays alone",
        None => "has ended",
    };
    let what = if replacement["is_abandoned"] == true { "abandoned replacement" } else { "replacement" };
    shown += &format!(
        "\n{}",
        pairs(&[
            (what, state.to_owned()),
            ("stays", text(&replacement["to"])),
            ("begun", format!("{} by {}", time(&replacement["started_ms"]), text(&replacement["by"]))),
        ])
    );
    if !replacement["ended_ms"].is_null() {
        shown += &pairs(&[("ended", time(&replacement["ended_ms"]))]);
    }
    for waits in list(&replacement["waits_for"]) {
        shown += &format!("\n{}\n", text(waits));
    }
    shown
}

fn nodes(reply: &Value) -> String {
    let row = |node: &Value| {
        let of = |placed: &str, all: &str| format!("{} of {}", bytes(&node[placed]), bytes(&node[all]));
        vec![
            text(&node["name"]),
            text(&node["zone"]),
            text(&node["role"]),
            match (node["is_live"] == true, node["is_draining"] == true) {
                (true, false) => "runs",
                (true, true) => "runs, drained",
                (false, _) => "does not run",
            }
            .to_owned(),
            text(&node["address"]),
            text(&node["shards"]),
            of("ram_placed_bytes", "ram_bytes"),
            of("flash_placed_bytes", "flash_bytes"),
            text(&node["version"]),
        ]
    };
    let left = |title| (title, Align::Left);
    let head = [
        left("NODE"),
        left("ZONE"),
        left("ROLE"),
        left("STATE"),
        left("ADDRESS"),
        ("SHARDS", Align::Right),
        ("RAM PLACED", Align::Right),
        ("FLASH PLACED", Align::Right),
        left("VERSION"),
    ];
    table(&head, &list(&reply["nodes"]).iter().map(row).collect::<Vec<_>>())
}

fn forgetting(plan: &Value) -> String {
    let lost = list(&plan["lost"]);
    if lost.is_empty() {
        let node = text(&plan["node"]);
        return format!("{node} has no shard's primary: nothing would be lost; nothing was changed\n");
    }
    let row = |shard: &Value| {
        let left = match shard["left"].as_str() {
            Some("copy_in_sync") => "a copy in sync",
            Some("older_copy") => "an older copy: writes since it was in sync are lost",
            _ => "nothing: all keys are lost",
        };
        vec![format!("{}.{}", text(&shard["database"]), shard["number"]), text(&shard["to"]), left.to_owned()]
    };
    let shown = table(
        &[("SHARD", Align::Left), ("GOES ON AT", Align::Left), ("WITH", Align::Left)],
        &lost.iter().map(row).collect::<Vec<_>>(),
    );
    shown + "nothing was changed\n"
}

fn operations(reply: &Value) -> String {
    let time = |field: &Value| field.as_u64().map_or_else(|| "-".to_owned(), base::time::instant);
    let row = |operation: &Value| {
        let open = list(&operation["nodes"]).iter().filter(|node| node["is_done"] == false);
        let open: Vec<String> = open
            .map(|node| match &node["is_live"] {
                Value::Bool(true) => match node["trouble"].as_str() {
                    Some(why) => format!("{} ({why})", text(&node["name"])),
                    None => text(&node["name"]),
                },
                _ => format!("{} (does not run)", text(&node["name"])),
            })
            .collect();
        let state = match operation["error"].as_str() {
            Some(why) => format!("failed: {why}"),
            None => match operation["about"].as_str() {
                Some(about) => format!("{}, {about}", text(&operation["state"])),
                None => text(&operation["state"]),
            },
        };
        let all = list(&operation["steps"]).len();
        let steps = if all == 0 { state } else { format!("{state}, {} of {all} steps", operation["steps_done"]) };
        let state = match operation["aborted_by"].as_str() {
            Some(by) if operation["ended_ms"].is_null() => format!("{steps}, is aborted by {by}"),
            _ => steps,
        };
        let waits: Vec<String> = open.into_iter().chain(operation["waits_for"].as_str().map(str::to_owned)).collect();
        vec![
            text(&operation["id"]),
            time(&operation["started_ms"]),
            text(&operation["kind"]),
            text(&operation["target"]),
            text(&operation["by"]),
            state,
            waits.join(", "),
            time(&operation["ended_ms"]),
        ]
    };
    let left = |title| (title, Align::Left);
    let head = [
        left("ID"),
        left("STARTED"),
        left("WHAT"),
        left("OF"),
        left("BY"),
        left("STATE"),
        left("WAITS FOR"),
        left("ENDED"),
    ];
    table(&head, &list(reply).iter().map(row).collect::<Vec<_>>())
}

fn members(etcd: &Value) -> String {
    let row = |member: &Value| {
        let role = match (&member["is_leader"], &member["is_learner"]) {
            (Value::Bool(true), _) => "leader",
            (_, Value::Bool(true)) => "learner",
            _ => "follower",
        };
        let state = member["trouble"].as_str().map_or_else(|| "answers".to_owned(), str::to_owned);
        let size = member["db_bytes"].as_u64().map_or_else(String::new, human);
        let version = member["version"].as_str().unwrap_or_default().to_owned();
        vec![text(&member["name"]), role.to_owned(), text(&member["client_url"]), version, size, state]
    };
    let left = |title| (title, Align::Left);
    let head = [left("ETCD"), left("ROLE"), left("URL"), left("VERSION"), ("SIZE", Align::Right), left("STATE")];
    let mut shown = format!("\n{}", table(&head, &list(&etcd["members"]).iter().map(row).collect::<Vec<_>>()));
    for alarm in list(&etcd["alarms"]) {
        shown += &format!("\nalarm: {}\n", text(alarm));
    }
    shown
}
