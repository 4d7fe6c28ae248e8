//! Owns the reading of all counters once a second: current values, history, and input for the alerts. Never knows a
//! request.

use super::cluster::Sight;
use super::history::{History, RINGS, Ring};
use super::shards::{ShardFigures, of_shards};
use super::trace::Trace;
use crate::error::ApiError;
use node::metrics::{Disk, Fold, Io, NodeReading, NodeSpan, Reading, Scope, Span, Window};
use node::{Database, Figures, Node};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use utoipa::ToSchema;

/// The name of the node's own history. No database has this name.
pub const NODE: &str = "node";

pub struct Watch {
    folder: Option<PathBuf>,
    state: Mutex<WatchState>,
    /// The keys that each database had when the node ended, until somebody was told what has become of them.
    keys_before: Mutex<BTreeMap<String, u64>>,
}

#[derive(Default)]
struct WatchState {
    databases: BTreeMap<String, Followed<Measured>>,
    /// Of the cluster's databases, as their shards were last asked.
    shards: BTreeMap<String, Option<Arc<ShardFigures>>>,
    node: Option<Followed<NodeReading>>,
    disks: Vec<DiskNow>,
}

/// A disk that the node uses.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct DiskNow {
    /// As in /dev; of a file system without a disk of this machine, its number.
    pub name: String,
    /// flash, journal, state, backups.
    pub uses: Vec<&'static str>,
    pub bytes: u64,
    /// That the node may still take.
    pub free_bytes: u64,
    /// How long a read or write took on average in the last second. null: there was none.
    pub latency_us: Option<f64>,
    /// Share of the last second in which the disk had something to do. null: the kernel does not count.
    pub busy_percent: Option<f64>,
    pub read_bytes_per_second: Option<f64>,
    pub written_bytes_per_second: Option<f64>,
}

impl DiskNow {
    fn of(disk: &Disk, spent: Option<Io>) -> DiskNow {
        DiskNow {
            name: disk.name.clone(),
            uses: disk.uses.clone(),
            bytes: disk.bytes,
            free_bytes: disk.free_bytes,
            latency_us: spent.and_then(|spent| spent.latency_us()),
            busy_percent: spent.map(|spent| spent.busy_percent()),
            read_bytes_per_second: spent.map(|spent| spent.per_second(spent.read_bytes)),
            written_bytes_per_second: spent.map(|spent| spent.per_second(spent.written_bytes)),
        }
    }
}

/// What is known of a database at a moment.
#[derive(Clone)]
struct Measured {
    /// Of its endpoint, if it is the cluster's.
    reading: Reading,
    shards: Option<Arc<ShardFigures>>,
}

/// One database, or the node.
struct Followed<R> {
    history: History,
    /// Where the current step of each ring started.
    since: [Option<(u64, R)>; RINGS.len()],
    /// In the order of the charts; NaN means unknown.
    now: Vec<f64>,
    /// Of the stream for replicas, if it is a database.
    trace: Trace,
    /// Of the tiers, if it is a database.
    window: Window,
    /// At the last look its dataset was being loaded, if it is a database.
    loads: bool,
}

impl<R> Followed<R> {
    fn new(history: History, columns: usize) -> Followed<R> {
        Followed {
            history,
            since: [const { None }; RINGS.len()],
            now: vec![f64::NAN; columns],
            trace: Trace::default(),
            window: Window::default(),
            loads: false,
        }
    }
}

impl<R> Followed<R> {
    /// What a start loads is no load of clients: rates are unknown until it has ended, and the counters count from the look after it on.
    fn leave_out_loading(&mut self, loads: bool) {
        if std::mem::replace(&mut self.loads, loads) || loads {
            self.since = [const { None }; RINGS.len()];
            self.window = Window::default();
        }
    }
}

fn names_of(scope: Scope) -> Vec<&'static str> {
    scope.charts().iter().map(|(_, chart)| chart.name).collect()
}

impl Watch {
    pub fn open(folder: Option<PathBuf>, node: &Node, now_ms: u64) -> io::Result<Watch> {
        if let Some(folder) = &folder {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let watch = Watch { folder, state: Mutex::default(), keys_before: Mutex::default() };
        for database in node.databases() {
            let history = watch.history(database.name(), &names_of(Scope::Database))?;
            watch
                .keys_before
                .lock()
                .extend(last_keys(&history, now_ms)?.map(|keys| (database.name().to_owned(), keys)));
        }
        watch.look(node, &Sight::default(), now_ms)?;
        Ok(watch)
    }

    fn history(&self, name: &str, names: &[&str]) -> io::Result<History> {
        match &self.folder {
            Some(folder) => History::open(&folder.join(name), names),
            None => History::in_memory(names),
        }
    }

    /// Reads every counter, and writes the steps that have ended. An error is that of a file; the current values are
    /// right anyway.
    pub fn look(&self, node: &Node, sight: &Sight, now_ms: u64) -> io::Result<()> {
        let mut outcome = Ok(());
        let mut failed = |result: io::Result<()>| {
            if outcome.is_ok() {
                outcome = result;
            }
        };
        let mut state = self.state.lock();
        let WatchState { databases, shards, node: node_followed, disks } = &mut *state;
        let all = node.databases();
        let names: HashSet<&str> = all.iter().map(|database| database.name()).collect();
        for gone in databases.extract_if(.., |name, _| !names.contains(name.as_str())) {
            failed(gone.1.history.delete());
        }
        for database in &all {
            if !databases.contains_key(database.name()) {
                match self.history(database.name(), &names_of(Scope::Database)) {
                    Ok(history) => {
                        databases
                            .insert(database.name().to_owned(), Followed::new(history, Scope::Database.charts().len()));
                    }
                    Err(error) => failed(Err(error)),
                }
            }
            let Some(followed) = databases.get_mut(database.name()) else { continue };
            let mut now = Reading::of(database, now_ms);
            followed.leave_out_loading(matches!(database.state(), node::DatabaseState::Loading { .. }));
            let replication = &now.figures.replication;
            followed.trace.saw(now_ms, replication.offset);
            let lags = replication.replicas.iter().map(|replica| followed.trace.lag_ms(replica.offset, now_ms));
            let (lag_ms_max, lately) = (lags.max(), followed.window.saw(&now));
            let is_of_cluster = database.is_of_cluster();
            now.figures.shards = sight.shards.get(database.name()).filter(|_| is_of_cluster).copied();
            let now = Measured { reading: now, shards: shards.get(database.name()).cloned().flatten() };
            failed(advance(followed, now_ms, &now, |before, now| {
                let span = Span::new(before.map(|before| &before.reading), &now.reading, lag_ms_max, lately);
                let values: Vec<f64> = Scope::Database.charts().iter().map(|(row, _)| row.of_span(&span)).collect();
                if is_of_cluster {
                    let before = before.and_then(|before| before.shards.as_deref());
                    return of_shards(&values, before, now.shards.as_deref());
                }
                values
            }));
        }
        if node_followed.is_none() {
            *node_followed =
                Some(Followed::new(self.history(NODE, &names_of(Scope::Node))?, Scope::Node.charts().len()));
        }
        if let Some(followed) = node_followed {
            let now = NodeReading::of(node, sight.node, now_ms);
            let before = followed.since[0].as_ref().map(|(_, before)| &before.machine);
            *disks = now.machine.since(before).map(|(disk, spent)| DiskNow::of(disk, spent)).collect();
            let values: Vec<Vec<f64>> = databases.values().map(|followed| followed.now.clone()).collect();
            failed(advance(followed, now_ms, &now, |before, now| {
                let span = NodeSpan { before, now, databases: &values };
                Scope::Node.charts().iter().map(|(row, _)| row.of_node_span(&span)).collect()
            }));
        }
        outcome
    }

    /// What the shards of the cluster's databases have said; `None`: not all of them have answered.
    pub fn saw_shards(&self, shards: BTreeMap<String, Option<ShardFigures>>) {
        let shards = shards.into_iter().map(|(name, figures)| (name, figures.map(Arc::new)));
        self.state.lock().shards = shards.collect();
    }

    /// What a condition is judged by: of the cluster's databases, what their parts are together.
    pub fn judged(&self, database: &Database, mut figures: Figures) -> Figures {
        let state = self.state.lock();
        if let Some(shards) = state.shards.get(database.name()).and_then(Option::as_ref) {
            shards.put_into(&mut figures);
        }
        figures
    }

    /// The keys that a database had when the node ended. Only the first call is told.
    pub fn take_keys_before(&self, database: &str) -> Option<u64> {
        self.keys_before.lock().remove(database)
    }

    /// Current values by name, in the order of the charts; null means unknown.
    pub fn now(&self, database: &str) -> BTreeMap<&'static str, Option<f64>> {
        let state = self.state.lock();
        let values = state.databases.get(database).map(|followed| followed.now.as_slice());
        named(&names_of(Scope::Database), values)
    }

    /// How long ago a database's stream got the first byte that a replica with the first `has` bytes has not.
    pub fn lag_ms(&self, database: &str, has: u64, now_ms: u64) -> u64 {
        let state = self.state.lock();
        state.databases.get(database).map_or(0, |followed| followed.trace.lag_ms(has, now_ms))
    }

    /// The disks that the node uses.
    pub fn disks(&self) -> Vec<DiskNow> {
        self.state.lock().disks.clone()
    }

    pub fn node_now(&self) -> BTreeMap<&'static str, Option<f64>> {
        let state = self.state.lock();
        named(&names_of(Scope::Node), state.node.as_ref().map(|followed| followed.now.as_slice()))
    }

    /// The past values of a database; `None`: of the node.
    pub fn series(&self, database: Option<&str>, wanted: &Wanted) -> Result<Series, ApiError> {
        let state = self.state.lock();
        let (history, scope) = match database {
            Some(name) => (state.databases.get(name).map(|followed| &followed.history), Scope::Database),
            None => (state.node.as_ref().map(|followed| &followed.history), Scope::Node),
        };
        let all: Vec<_> = scope.charts().iter().map(|(_, chart)| (chart.name, chart.fold)).collect();
        let history =
            history.ok_or_else(|| ApiError::not_found("nothing was measured yet").hint("try again in a second"))?;
        read(history, &all, wanted)
    }
}

/// The newest number of keys in a history.
fn last_keys(history: &History, now_ms: u64) -> io::Result<Option<u64>> {
    let column = Scope::Database.column("keys").expect("a row of the table");
    let mut newest: Option<(u64, f32)> = None;
    for (number, ring) in RINGS.iter().enumerate() {
        let from_ms = now_ms.saturating_sub(ring.step_ms * (ring.slots - 1));
        history.read(number, from_ms, now_ms, |at_ms, value| {
            let keys = value(column);
            if !keys.is_nan() && newest.is_none_or(|(before_ms, _)| at_ms > before_ms) {
                newest = Some((at_ms, keys));
            }
        })?;
    }
    Ok(newest.map(|(_, keys)| keys as u64))
}

fn named(names: &[&'static str], values: Option<&[f64]>) -> BTreeMap<&'static str, Option<f64>> {
    let value = |at: usize| values.and_then(|values| values.get(at).copied()).filter(|value| !value.is_nan());
    names.iter().enumerate().map(|(at, &name)| (name, value(at))).collect()
}

/// Closes each ring's step that has ended, with the values between its start and now.
fn advance<R: Clone>(
    followed: &mut Followed<R>,
    now_ms: u64,
    now: &R,
    values: impl Fn(Option<&R>, &R) -> Vec<f64>,
) -> io::Result<()> {
    let mut outcome = Ok(());
    for (number, ring) in RINGS.iter().enumerate() {
        let slot_ms = ring.slot_ms(now_ms);
        let since = &mut followed.since[number];
        match since {
            Some((began_ms, _)) if *began_ms == slot_ms => continue,
            _ => {}
        }
        let found = values(since.as_ref().map(|(_, reading)| reading), now);
        if since.is_some() || number == 0 {
            let written = followed.history.write(number, slot_ms, &found);
            outcome = outcome.and(written);
        }
        *since = Some((slot_ms, now.clone()));
        if number == 0 {
            followed.now = found;
        }
    }
    outcome
}

/// The parameters of a graph.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub from_ms: u64,
    pub to_ms: u64,
    pub points: u64,
    /// Empty: all.
    pub names: Vec<String>,
    pub now_ms: u64,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Series {
    /// The distance between two times.
    pub step_ms: u64,
    pub from_ms: u64,
    pub to_ms: u64,
    pub times_ms: Vec<u64>,
    /// By metric, one value for each time; null is a gap.
    pub series: BTreeMap<String, Vec<Option<f32>>>,
}

/// The finest ring that reaches back far enough, and the smallest step that gives no more points than wanted.
fn plan(wanted: &Wanted) -> (usize, u64) {
    let age_ms = wanted.now_ms.saturating_sub(wanted.from_ms);
    let reaches = |ring: &Ring| ring.step_ms * ring.slots >= age_ms;
    let ring = RINGS.iter().position(reaches).unwrap_or(RINGS.len() - 1);
    let step_ms = RINGS[ring].step_ms;
    let range_ms = wanted.to_ms.saturating_sub(wanted.from_ms);
    (ring, range_ms.div_ceil(wanted.points.max(1)).div_ceil(step_ms).max(1) * step_ms)
}

fn read(history: &History, all: &[(&str, Fold)], wanted: &Wanted) -> Result<Series, ApiError> {
    let mut columns: Vec<(usize, Fold)> = Vec::new();
    for name in &wanted.names {
        let column = all.iter().position(|(known, _)| known == name);
        let column = column.ok_or_else(|| {
            ApiError::field("names", format!("there is no metric '{name}' here"))
                .hint("GET /api/v1/metrics-catalog lists them")
        })?;
        if !columns.iter().any(|(known, _)| *known == column) {
            columns.push((column, all[column].1));
        }
    }
    if wanted.names.is_empty() {
        columns = all.iter().enumerate().map(|(column, (_, fold))| (column, *fold)).collect();
    }
    let (ring, step_ms) = plan(wanted);
    let from_ms = wanted.from_ms / step_ms * step_ms;
    let times_ms: Vec<u64> = (0..).map(|nth| from_ms + nth * step_ms).take_while(|&at| at < wanted.to_ms).collect();
    // The sum or the peak, and the number of values.
    let mut bins = vec![vec![(0.0f64, 0u32); times_ms.len()]; columns.len()];
    let outcome = history.read(ring, from_ms, wanted.to_ms, |at_ms, value| {
        let Some(nth) = at_ms.checked_sub(from_ms).map(|since| (since / step_ms) as usize) else { return };
        for ((column, fold), bins) in columns.iter().zip(&mut bins) {
            let value = f64::from(value(*column));
            let Some((sum, count)) = bins.get_mut(nth).filter(|_| !value.is_nan()) else { continue };
            *sum = match fold {
                Fold::Mean => *sum + value,
                Fold::Peak if *count == 0 => value,
                Fold::Peak => sum.max(value),
            };
            *count += 1;
        }
    });
    outcome.map_err(|error| ApiError::failed(format!("the history cannot be read: {error}")))?;
    let series = columns.iter().zip(bins).map(|((column, fold), bins)| {
        let values = bins.into_iter().map(|(sum, count)| match (count, fold) {
            (0, _) => None,
            (count, Fold::Mean) => Some((sum / f64::from(count)) as f32),
            (_, Fold::Peak) => Some(sum as f32),
        });
        (all[*column].0.to_owned(), values.collect())
    });
    let series = series.collect();
    Ok(Series { step_ms, from_ms, to_ms: wanted.to_ms, times_ms, series })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(&str, Fold); 2] = [("ops", Fold::Mean), ("latency_p99_us", Fold::Peak)];
    const NOW_MS: u64 = 1_700_000_040_000;

    fn wanted(from_ms: u64, points: u64) -> Wanted {
        Wanted { from_ms, to_ms: NOW_MS, points, names: Vec::new(), now_ms: NOW_MS }
    }

    #[test]
    fn the_finest_ring_that_reaches_back_is_read() {
        assert_eq!(plan(&wanted(NOW_MS - 60_000, 1000)), (0, 1000));
        assert_eq!(plan(&wanted(NOW_MS - 3_600_000, 1000)), (0, 4000));
        assert_eq!(plan(&wanted(NOW_MS - 3_601_000, 1000)), (1, 10_000));
        assert_eq!(plan(&wanted(NOW_MS - 86_400_000, 1000)), (1, 90_000));
        assert_eq!(plan(&wanted(NOW_MS - 7 * 86_400_000, 1000)), (2, 660_000));
        assert_eq!(plan(&wanted(0, 10)).0, 2);
    }

    /// A counter of 1000 a second is the journal that a start replays, until the third second.
    #[test]
    fn what_a_start_replays_is_not_drawn() {
        let mut followed = Followed::new(History::in_memory(&["rate"]).unwrap(), 1);
        let rates: Vec<f64> = (0..6_u64)
            .map(|second| {
                followed.leave_out_loading(second < 3);
                let counter = 1000 * second.min(3) + 10 * second.saturating_sub(3);
                let rate =
                    |before: Option<&u64>, now: &u64| vec![before.map_or(f64::NAN, |before| (now - before) as f64)];
                advance(&mut followed, NOW_MS + second * 1000, &counter, rate).unwrap();
                followed.now[0]
            })
            .collect();
        assert!(rates[..4].iter().all(|rate| rate.is_nan()), "{rates:?}");
        assert_eq!(rates[4..], [10.0, 10.0]);
    }

    #[test]
    fn bins_hold_means_and_peaks_and_gaps_stay_gaps() {
        let history = History::in_memory(&["ops", "latency_p99_us"]).unwrap();
        for second in 0..60 {
            if !(20..30).contains(&second) {
                let spike = if second == 37 { 900.0 } else { 10.0 };
                history.write(0, NOW_MS - 60_000 + second * 1000, &[second as f64, spike]).unwrap();
            }
        }
        let series = read(&history, &ALL, &wanted(NOW_MS - 60_000, 6)).unwrap();
        assert_eq!(series.step_ms, 10_000);
        assert_eq!(series.times_ms.len(), 6);
        assert_eq!(series.series["ops"], [Some(4.5), Some(14.5), None, Some(34.5), Some(44.5), Some(54.5)]);
        assert_eq!(series.series["latency_p99_us"][3], Some(900.0));
        let mut one = wanted(NOW_MS - 60_000, 6);
        one.names = vec!["ops".into(), "ops".into()];
        assert_eq!(read(&history, &ALL, &one).unwrap().series.len(), 1);
        one.names = vec!["nosuch".into()];
        assert_eq!(read(&history, &ALL, &one).unwrap_err().body.fields[0].field, "names");
    }
}
