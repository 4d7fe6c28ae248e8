//! Owns the controller: one member of the cluster leads, watches whether each shard with replicas has a primary that serves, and names
//! another one when it has not. Never serves anything itself, and never names a copy that may lack an acknowledged write
//! (`cluster::failover::choose`). A name at the wrong time costs a pause.

use crate::calls::{Answers, ask};
use crate::candidate::{Candidate, is_to_restart, majority_is_away};
use crate::choice::{Asked, advice, is_avoided, reports};
use crate::executor::carry_out;
use base::clock::wall_ms;
use cluster::failover::{Choice, CopyAnswer, Report, choose, recover};
use cluster::ids::{DatabaseId, Epoch, NodeId, OperationId, ProcessId, ShardNumber, ShardUid, shard_uid};
use cluster::keys::Key;
use cluster::records::{
    self, DatabaseState, FailoverRecord, LeaderRecord, Member, Record, Role, ShardRecord, SpecRecord, Unknown,
};
use cluster::view::{Revised, View};
use coord::{Coord, Keeper};
use membership::issuer::Issuer;
use membership::records::{Change, RecordsError};
use rand::RngCore;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// Of the leader's record.
const LEADER_TTL: Duration = Duration::from_secs(2);
/// Between two looks at the records.
const TICK: Duration = Duration::from_millis(100);
/// The same, when it has been so for long that nobody can be named.
const LONG_TICK: Duration = Duration::from_secs(1);
/// A node with data leaves the lead to the quorum node for so long.
const COURTESY: Duration = Duration::from_secs(1);
/// Who leads no more says so within this time, or lets the lease end by itself: without etcd's leader it could not be told for seconds.
const FAREWELL: Duration = Duration::from_millis(300);
/// A primary that runs, and does not serve yet, is given so long: a restart reads its dataset first, and a promotion waits for the end of
/// leases.
const PATIENCE_MS: u64 = 5_000;
/// Failovers are kept for operators to see.
const FAILOVERS_KEPT: usize = 50;
/// How many older ones are removed with a new one.
const TRIMMED_AT_ONCE: usize = 10;

type Shard = (DatabaseId, ShardNumber);

// --- who leads ---

/// Leads whenever nobody else does.
pub async fn lead(me: &Candidate) -> Infallible {
    let mut vacant_since: Option<Instant> = None;
    // A quorum node that does not take the lead that was left to it is of an older version.
    let mut left_to: BTreeSet<ProcessId> = BTreeSet::new();
    let mut told = String::new();
    loop {
        sleep(TICK).await;
        let view = me.view();
        if view.leader.is_some() || !me.runs(&view) {
            vacant_since = None;
            continue;
        }
        if is_to_restart(&view, me.me, me.process) && view.live.len() > 1 {
            continue;
        }
        let since = *vacant_since.get_or_insert_with(Instant::now);
        if me.role == Role::Data && quorum_process(&view).is_some() && since.elapsed() < COURTESY {
            continue;
        }
        match lead_once(me, &mut left_to).await {
            Ok(()) => told.clear(),
            Err(why) if why == told => {}
            Err(why) => {
                tracing::debug!("this node does not lead: {why}");
                told = why;
            }
        }
        vacant_since = None;
    }
}

/// A quorum node that runs, and goes on.
fn quorum_process(view: &View) -> Option<ProcessId> {
    let quorum = view.nodes.iter().filter(|(_, node)| node.role == Role::Quorum);
    let mut running = quorum.filter_map(|(id, _)| Some((*id, view.live.get(id)?.process)));
    running.find(|(id, process)| !is_to_restart(view, *id, *process)).map(|(_, process)| process)
}

async fn lead_once(me: &Candidate, left_to: &mut BTreeSet<ProcessId>) -> Result<(), String> {
    let issuer = (me.issuer)();
    let lease = issuer.etcd.grant(LEADER_TTL).await.map_err(|error| error.to_string())?;
    let record = LeaderRecord { node: me.me, process: me.process, unknown: Unknown::new() };
    let bytes = records::encode(Key::Leader, &record).map_err(|error| error.to_string())?;
    let name = Key::Leader.to_string();
    let change = Change::default().given(&name, 0).put_leased(&name, bytes, lease.id);
    let revision = issuer.records.change(change).await.map_err(|error| error.to_string())?;
    let keeper = Keeper::start(Arc::new(issuer.etcd.apart()), lease, || true).map_err(|error| error.to_string())?;
    tracing::info!("this node leads the cluster: it names primaries");
    let steps_down = async {
        loop {
            sleep(COURTESY).await;
            if me.role == Role::Data
                && let Some(process) = quorum_process(&me.view())
                && left_to.insert(process)
            {
                return;
            }
        }
    };
    tokio::select! {
        why = keeper.lost() => tracing::info!("this node does not lead any more: {why:?}"),
        never = control(me, revision) => match never {},
        () = steps_down => tracing::info!("this node leaves the lead to the node that only votes"),
        () = carry_out(me, revision) => tracing::info!("this node is to start anew, and leaves the lead to another one"),
    }
    drop(keeper);
    let _ = timeout(FAREWELL, issuer.etcd.revoke(lease.id)).await;
    Ok(())
}

async fn control(me: &Candidate, leader: i64) -> std::convert::Infallible {
    let mut controller = Controller::default();
    let begun = Instant::now();
    let mut tick = TICK;
    loop {
        sleep(tick).await;
        let view = me.view();
        let now_ms = begun.elapsed().as_millis() as u64;
        tick = if controller.waits_for_long(now_ms) { LONG_TICK } else { TICK };
        let asked = controller.questions(&view, now_ms);
        if asked.is_empty() {
            continue;
        }
        let answers = ask(&(me.issuer)(), &view, asked).await;
        let named = controller.decide(&view, &answers, begun.elapsed().as_millis() as u64, wall_ms());
        controller.tell();
        for named in named {
            name(&(me.issuer)(), &view, leader, &named).await;
        }
        for (id, served) in controller.served(&view, wall_ms()) {
            note(&(me.issuer)(), leader, Key::Failover(id), &served).await;
        }
        for (shard, record) in controller.undecided(&view) {
            note(&(me.issuer)(), leader, Key::Shard(shard.0, shard.1), &record).await;
        }
    }
}

async fn name(issuer: &Issuer, view: &View, leader: i64, named: &Named) {
    match issuer.records.change(named.change(view, leader)).await {
        Ok(_) => {
            let FailoverRecord { target, from, to, epoch, cause, .. } = &named.failover;
            tracing::warn!("shard {target} goes from node {from} to node {to}, epoch {epoch}: {cause}");
        }
        // The records that come say what holds.
        Err(RecordsError::Conflict | RecordsError::Unknown(_)) => {}
        Err(error) => tracing::warn!("shard {} has no new primary: {error}", named.failover.target),
    }
}

/// Changes a record in what only operators read. Whoever finds it unchanged tries it again.
async fn note<R: Record>(issuer: &Issuer, leader: i64, key: Key, noted: &Revised<R>) {
    let record =
        records::encode(key, &*noted.record).expect("the record was read, and the change keeps what was checked");
    let change = Change::default().given(&key.to_string(), noted.revision).given(&Key::Leader.to_string(), leader);
    if let Err(error) = issuer.records.change(change.put_bytes(&key.to_string(), record)).await {
        tracing::debug!("{key} does not say what it should: {error}");
    }
}

// --- whom it misses, and whom it names ---

/// What a leader remembers. It begins with nothing: then it asks all primaries.
#[derive(Default)]
pub struct Controller {
    /// The primaries that were heard to serve, in which epoch and process.
    heard: BTreeMap<Shard, (Epoch, ProcessId)>,
    /// The shards whose primary is not known to serve, since when, and in which epoch.
    missed: BTreeMap<Shard, (u64, Epoch)>,
    /// The epochs of the primaries that it has named, and has not heard to serve yet.
    awaited: BTreeMap<Shard, Epoch>,
    /// The shards for which nobody can be named: no copy has everything.
    undecided: BTreeSet<Shard>,
    /// Why nobody is named, and what was said of it.
    waits: BTreeSet<String>,
    said: BTreeSet<String>,
}

/// A shard's next record, and what is noted of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    pub shard: Shard,
    /// The record that was read.
    pub revision: i64,
    pub next: ShardRecord,
    pub failover: FailoverRecord,
}

impl Named {
    fn change(&self, view: &View, leader: i64) -> Change {
        let (database, number) = self.shard;
        let key = Key::Shard(database, number);
        let mut id = [0; 8];
        rand::rng().fill_bytes(&mut id);
        let note = Key::Failover(OperationId(id));
        let mut change =
            Change::default().given(&key.to_string(), self.revision).given(&Key::Leader.to_string(), leader);
        let mut old: Vec<(u64, OperationId)> = view.failovers.iter().map(|(id, old)| (old.named_ms, *id)).collect();
        old.sort_unstable();
        let surplus = old.len().saturating_sub(FAILOVERS_KEPT).min(TRIMMED_AT_ONCE);
        for (_, old) in &old[..surplus] {
            change = change.delete(&Key::Failover(*old).to_string());
        }
        let encoded = "the record was read, and the change keeps what was checked";
        change
            .put_bytes(&key.to_string(), records::encode(key, &self.next).expect(encoded))
            .put_bytes(&note.to_string(), records::encode(note, &self.failover).expect(encoded))
    }
}

/// A shard that may need a controller: it is of a database with replicas, and has served.
fn replicated(view: &View) -> impl Iterator<Item = (Shard, &SpecRecord, &Revised<ShardRecord>)> {
    view.databases.iter().flat_map(|(&id, database)| {
        let spec = database.spec.as_ref().filter(|spec| spec.state != DatabaseState::Deleting);
        spec.into_iter().flat_map(move |spec| {
            let has_replicas = spec.definition().replicas > 0;
            let kept = database.shards.iter().filter(move |(_, record)| has_replicas && !record.in_sync.is_empty());
            kept.map(move |(&number, record)| ((id, number), &*spec.record, record))
        })
    })
}

impl Controller {
    /// Whom to ask for which shards. Empty: each shard is known to be served.
    pub fn questions(&mut self, view: &View, now_ms: u64) -> BTreeMap<NodeId, Vec<ShardUid>> {
        let (mut asked, mut seen) = (Asked::default(), BTreeSet::new());
        for (shard, _, record) in replicated(view) {
            seen.insert(shard);
            if self.hears(view, shard, record) && !record.is_undecided() {
                self.missed.remove(&shard);
                continue;
            }
            let missed = self.missed.entry(shard).or_insert((now_ms, record.epoch));
            if missed.1 != record.epoch {
                *missed = (now_ms, record.epoch);
            }
            asked.add(view, shard_uid(shard.0, shard.1), record);
        }
        self.heard.retain(|shard, _| seen.contains(shard));
        self.missed.retain(|shard, _| seen.contains(shard));
        asked.0
    }

    /// The primary was heard to serve in the record's epoch, in the process that runs now.
    fn hears(&self, view: &View, shard: Shard, record: &ShardRecord) -> bool {
        let live = record.primary_node().and_then(|node| view.live.get(&node));
        live.is_some_and(|live| self.heard.get(&shard) == Some(&(record.epoch, live.process)))
    }

    /// Whether everything that it misses has been missed for long.
    fn waits_for_long(&self, now_ms: u64) -> bool {
        !self.missed.is_empty() && self.missed.values().all(|(since_ms, _)| now_ms > since_ms + 4 * PATIENCE_MS)
    }

    /// Notes who serves, and names primaries for the shards that nobody serves. `view`: the one that the questions came from. `wall_ms`:
    /// milliseconds since 1970.
    pub fn decide(&mut self, view: &View, answers: &Answers, now_ms: u64, wall_ms: u64) -> Vec<Named> {
        let mut named = Vec::new();
        (self.waits, self.undecided) = Default::default();
        for (shard, spec, record) in replicated(view) {
            let Some(&(since_ms, _)) = self.missed.get(&shard) else { continue };
            let missed_ms = now_ms.saturating_sub(since_ms);
            let Some(cause) = self.cause(view, shard, spec, record, answers, missed_ms) else { continue };
            let majority = majority_is_away(view);
            self.waits.extend(majority.clone());
            let (next, cause) = match next_record(view, shard, spec, record, answers, cause) {
                Next::Name(_, _) if majority.is_some() => continue,
                Next::Name(next, cause) => (next, cause),
                Next::Operator if missed_ms >= PATIENCE_MS => {
                    self.undecided.insert(shard);
                    self.waits.extend(advice(view, spec.name.as_str(), &undecided(record, true)));
                    continue;
                }
                Next::Operator | Next::Nobody => continue,
            };
            let node = |node: Option<NodeId>| node.and_then(|node| Some(view.nodes.get(&node)?.name.clone()));
            let (Some(from), Some(to)) = (node(record.primary_node()), node(next.primary_node())) else { continue };
            let failover = FailoverRecord {
                database: shard.0,
                shard: shard.1,
                target: format!("{}.{}", spec.name, shard.1),
                cause,
                from,
                to,
                epoch: next.epoch,
                missed_ms: wall_ms.saturating_sub(missed_ms),
                named_ms: wall_ms,
                served_ms: None,
                unknown: Unknown::new(),
            };
            self.awaited.insert(shard, next.epoch);
            named.push(Named { shard, revision: record.revision, next, failover });
        }
        named
    }

    /// Why the shard needs another primary. `None`: it does not, or not yet.
    fn cause(
        &mut self,
        view: &View,
        shard: Shard,
        spec: &SpecRecord,
        record: &ShardRecord,
        answers: &Answers,
        missed_ms: u64,
    ) -> Option<String> {
        let node = record.primary_node()?;
        let Some(live) = view.live.get(&node) else { return Some("its node does not run".to_owned()) };
        let primary = said(answers, node, shard).filter(|said| said.report.copy == record.primary);
        if primary.is_some_and(|said| said.serving == Some(record.epoch)) {
            self.heard.insert(shard, (record.epoch, live.process));
            self.missed.remove(&shard);
            return None;
        }
        if let Some(said) = primary.filter(|said| !record.names(said.report.copy, said.report.incarnation)) {
            return Some(format!("the dataset of copy {} is not the one that was acknowledged", said.report.copy));
        }
        let has_ended =
            self.heard.get(&shard).is_some_and(|(epoch, process)| *epoch == record.epoch && *process != live.process);
        // A primary of `async` comes back with writes that its replicas may lack.
        if has_ended && spec.definition().replication == "sync" {
            return Some("its process has ended".to_owned());
        }
        (missed_ms >= PATIENCE_MS).then(|| match primary {
            Some(_) => "its node runs and does not serve it".to_owned(),
            None => "its node does not answer".to_owned(),
        })
    }

    /// The failovers that it has named whose new primary it has heard since, with the time.
    pub fn served(&mut self, view: &View, wall_ms: u64) -> Vec<(OperationId, Revised<FailoverRecord>)> {
        let mut served = Vec::new();
        for (id, failover) in &view.failovers {
            let shard = (failover.database, failover.shard);
            let is_heard = self.heard.get(&shard).is_some_and(|(epoch, _)| *epoch == failover.epoch);
            if is_heard && self.awaited.get(&shard) == Some(&failover.epoch) {
                self.awaited.remove(&shard);
                let record = FailoverRecord { served_ms: Some(wall_ms), ..(*failover.record).clone() };
                served.push((*id, Revised { record: Arc::new(record), revision: failover.revision }));
            }
        }
        served
    }

    /// The records of the shards that are to say that an operator must decide, or that nobody must any more.
    pub fn undecided(&self, view: &View) -> Vec<(Shard, Revised<ShardRecord>)> {
        let changed = |(shard, _, record): (Shard, &SpecRecord, &Revised<ShardRecord>)| {
            let is_undecided = match record.is_undecided() {
                false if self.undecided.contains(&shard) => true,
                true if self.hears(view, shard, record) => false,
                _ => return None,
            };
            let now = Arc::new(undecided(record, is_undecided));
            Some((shard, Revised { record: now, revision: record.revision }))
        };
        replicated(view).filter_map(changed).collect()
    }

    /// Logs why nobody is named, once.
    fn tell(&mut self) {
        for why in self.waits.difference(&self.said) {
            tracing::error!("no primary is named, an operator must decide: {why}");
        }
        self.said.clone_from(&self.waits);
    }
}

fn said(answers: &Answers, node: NodeId, (database, number): Shard) -> Option<&CopyAnswer> {
    answers.get(&node)?.iter().find(|said| said.shard == shard_uid(database, number))
}

fn undecided(record: &ShardRecord, is_undecided: bool) -> ShardRecord {
    ShardRecord { undecided: is_undecided.then_some(record.epoch), ..record.clone() }
}

/// What becomes of a shard that needs another primary.
enum Next {
    /// The record to write, and why.
    Name(ShardRecord, String),
    /// The primary serves, or a copy that has not answered may have everything.
    Nobody,
    /// No copy has everything, but for those whose nodes do not run.
    Operator,
}

fn next_record(
    view: &View,
    shard: Shard,
    spec: &SpecRecord,
    record: &ShardRecord,
    answers: &Answers,
    cause: String,
) -> Next {
    let reports = reports(record, shard_uid(shard.0, shard.1), answers);
    let is_avoided = |copy| is_avoided(view, record, copy);
    match choose(record, &reports, is_avoided) {
        Choice::Name(next) => Next::Name(next, cause),
        Choice::IsServed(_) => Next::Nobody,
        Choice::NobodyKnown => match begun_empty(view, spec, record, &reports) {
            Some((next, cause)) => Next::Name(next, cause),
            None => {
                let is_away = |node| !view.live.contains_key(&node);
                let could_decide = recover(record, &reports, is_away, is_avoided).is_ok();
                if could_decide { Next::Operator } else { Next::Nobody }
            }
        },
    }
}

/// A cache whose copies have all begun anew has nothing that could still come back: it begins empty.
fn begun_empty(
    view: &View,
    spec: &SpecRecord,
    record: &ShardRecord,
    reports: &[Report],
) -> Option<(ShardRecord, String)> {
    let all_run = record.assignments.iter().all(|assigned| view.live.contains_key(&assigned.node));
    let all_have_said = reports.len() == record.assignments.len();
    let is_anew = |report: &Report| !record.names(report.copy, report.incarnation) && report.promised <= record.epoch;
    let nobody_serves = reports.iter().all(is_anew);
    if spec.definition().persistence != "none" || !all_run || !all_have_said || !nobody_serves {
        return None;
    }
    let primary = reports.iter().find(|report| report.copy == record.primary)?;
    let mut next = record.clone();
    next.epoch = record.epoch.next();
    next.in_sync = vec![Member { copy: primary.copy, incarnation: primary.incarnation, unknown: Unknown::new() }];
    Some((next, "all copies have begun anew, and the database has no persistence: it begins empty".to_owned()))
}

#[cfg(test)]
mod tests;
