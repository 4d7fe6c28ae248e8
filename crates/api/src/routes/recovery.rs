//! Owns how an operator has shards go on that nobody can serve, and what is said of that before. Never decides which copy goes on: `agent`
//! does.

use crate::auth::Role;
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::events::{Event, Severity};
use crate::route::{Answer, Method, Route, flag, one};
use crate::routes::cluster::agent;
use agent::{FoundCopy, RecoveredShard, Recovery};
use cluster::ids::ShardNumber;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub const ROUTES: &[Route] = &[Route {
    method: Method::Post,
    path: "/api/v1/cluster/recover",
    role: Some(Role::Admin),
    tag: "Cluster",
    summary: "Has the shards of a database that nobody can serve, because no copy has every acknowledged write, go on with the copies that have most.",
    query: &[flag("dry_run", "true: only shows which copies these are, what each copy has, and what may be lost")],
    body: Some(one::<RecoverRequest>),
    reply: Answer::Json(one::<RecoveryPlan>),
    action: "cluster.recover",
    run: recover,
    ..Route::BASE
}];

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RecoverRequest {
    database: String,
    /// The number of a shard. Without it, all shards that nobody can serve.
    #[serde(default)]
    shard: Option<u16>,
    /// Go on without the copies that do not answer: what only they have is lost.
    #[serde(default)]
    lose_data: bool,
}

/// How shards go on that nobody can serve.
#[derive(Serialize, ToSchema)]
struct RecoveryPlan {
    database: String,
    shards: Vec<RecoveryShard>,
    /// What may be lost, in sentences.
    lost: Vec<String>,
    /// The shards that need no decision, and why.
    left_out: Vec<String>,
}

#[derive(Serialize, ToSchema)]
struct RecoveryShard {
    number: u16,
    /// The node whose copy becomes the primary.
    to: String,
    /// That the new primary serves in.
    epoch: u64,
    copies: Vec<RecoveryCopy>,
}

#[derive(Serialize, ToSchema)]
struct RecoveryCopy {
    node: String,
    /// The shard goes on with it.
    is_taken: bool,
    /// The epoch of the primary whose stream the copy has last. A newer one counts more than a longer stream. null: the copy is empty, or does
    /// not answer.
    stream_epoch: Option<u64>,
    /// How much of the shard's stream it has. null: it does not answer.
    received_bytes: Option<u64>,
}

fn recover(cx: &Cx) -> Result<Reply, ApiError> {
    let RecoverRequest { database, shard, lose_data } = cx.body()?;
    cx.note(database.clone(), "");
    let (agent, shard) = (agent(cx)?, shard.map(ShardNumber));
    if cx.flag("dry_run")? {
        cx.unaudited();
        return Reply::json(&plan(&agent.plan_recover(&database, shard, lose_data)?));
    }
    let done = plan(&agent.recover(&database, shard, lose_data, &cx.user())?);
    let taken = |shard: &RecoveryShard| format!("{database}.{} at {}", shard.number, shard.to);
    let taken: Vec<String> = done.shards.iter().map(taken).collect();
    let text = format!("these shards go on with what was left: {}", taken.join(", "));
    cx.note_more(&text);
    cx.app.event(Event::info("database", &database, text).severity(Severity::Warning).by(cx.user()));
    Reply::json(&done)
}

fn plan(recovery: &Recovery) -> RecoveryPlan {
    let copy = |copy: &FoundCopy| RecoveryCopy {
        node: copy.node.clone(),
        is_taken: copy.is_taken,
        stream_epoch: copy.report.and_then(|report| report.stream).map(|epoch| epoch.0.get()),
        received_bytes: copy.report.map(|report| report.received),
    };
    let shard = |shard: &RecoveredShard| RecoveryShard {
        number: shard.number.0,
        to: shard.copies.iter().find(|copy| copy.is_taken).map_or_else(String::new, |copy| copy.node.clone()),
        epoch: shard.epoch.0.get(),
        copies: shard.copies.iter().map(copy).collect(),
    };
    RecoveryPlan {
        database: recovery.database.to_string(),
        shards: recovery.shards.iter().map(shard).collect(),
        lost: lost(recovery),
        left_out: recovery.left_out.clone(),
    }
}

/// What may be lost with this decision.
fn lost(recovery: &Recovery) -> Vec<String> {
    let of_copy = match recovery.persistence.as_str() {
        "none" => "The database has no persistence: what its copies had before their processes began anew is lost.",
        "everysec" => {
            "Acknowledged writes may be lost that the copies which go on had not synced to disk when they lost power: those of about the \
             last second, or of the last two if the disk was slow. Everything before is there."
        }
        "no" => {
            "Acknowledged writes may be lost that the copies which go on had not on disk when they lost power: with persistence no the \
             operating system decides that, usually within 30 seconds. Everything before is there."
        }
        _ => "Acknowledged writes may be lost that only other copies had.",
    };
    let mut sentences = vec![of_copy.to_owned()];
    let copies = recovery.shards.iter().flat_map(|shard| &shard.copies);
    let mut silent: Vec<&str> = copies.filter(|copy| copy.report.is_none()).map(|copy| copy.node.as_str()).collect();
    silent.sort_unstable();
    silent.dedup();
    if !silent.is_empty() {
        sentences.push(format!("What only the copies on {} have is lost: they do not answer.", silent.join(" and ")));
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::failover::Report;
    use cluster::ids::{CopyNumber, Epoch, Incarnation};

    #[test]
    fn a_plan_says_what_each_copy_has_and_what_may_be_lost() {
        let report = Report {
            copy: CopyNumber(0),
            incarnation: Incarnation([1; 8]),
            promised: Epoch::FIRST,
            received: 90,
            stream: Some(Epoch::FIRST),
            began: None,
            ended: None,
            hears_a_lease: false,
        };
        let found = |node: &str, report| FoundCopy { node: node.to_owned(), is_taken: node == "n1", report };
        let shard = |copies| RecoveredShard { number: ShardNumber(3), epoch: Epoch::FIRST.next(), copies };
        let of = |persistence: &str, copies| {
            let (database, persistence) = ("orders".parse().unwrap(), persistence.to_owned());
            plan(&Recovery { database, persistence, shards: vec![shard(copies)], left_out: Vec::new() })
        };
        let all = of("everysec", vec![found("n1", Some(report)), found("n2", Some(report))]);
        let [shard] = &all.shards[..] else { panic!("one shard") };
        assert_eq!((shard.number, shard.to.as_str(), shard.epoch), (3, "n1", 2));
        assert_eq!((shard.copies[0].received_bytes, shard.copies[0].stream_epoch), (Some(90), Some(1)));
        assert!(all.lost.len() == 1 && all.lost[0].contains("about the last second"), "{:?}", all.lost);
        let some = of("always", vec![found("n1", Some(report)), found("n2", None)]);
        assert_eq!((some.shards[0].copies[1].received_bytes, some.lost.len()), (None, 2));
        assert!(some.lost[1].contains("on n2"), "{:?}", some.lost);
    }
}
