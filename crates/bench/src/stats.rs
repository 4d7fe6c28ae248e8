//! Owns the statistics of a run: counters, histograms and the series of seconds. Never knows threads, and prints
//! nothing.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;

use crate::mix::{Kind, KindIndex};

/// Latencies are kept in microseconds, from 1 µs to 100 minutes, with three significant digits.
pub const LATENCY_US_MAX: u64 = 6_000_000_000;
const DIGITS: u8 = 3;
/// The number of different error texts that are kept. The rest are only counted.
const ERROR_TEXTS_MAX: usize = 16;

/// An empty histogram with the common range. It grows as needed.
pub fn histogram() -> Histogram<u64> {
    Histogram::new(DIGITS).expect("three digits are within the histogram's limits")
}

/// Requests of one kind over some time.
#[derive(Clone, Debug)]
pub struct Row {
    /// `SET`
    pub name: String,
    /// `Sets`
    pub label: String,
    /// Replies.
    pub count: u64,
    pub hits: u64,
    pub misses: u64,
    /// Error replies.
    pub errors: u64,
    pub bytes_rx: u64,
    pub bytes_tx: u64,
    pub latency_ns_sum: u64,
    /// In microseconds.
    pub latency: Histogram<u64>,
    /// The totals have every second from 0 on. Other rows leave out seconds without traffic.
    pub seconds: Vec<Second>,
}

/// One second of a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Second {
    /// Since the start of the run.
    pub index: u64,
    pub count: u64,
    pub hits: u64,
    pub misses: u64,
    pub errors: u64,
    pub bytes_rx: u64,
    pub bytes_tx: u64,
    pub latency_ms_avg: f64,
    pub latency_ms_min: f64,
    pub latency_ms_max: f64,
    /// One for each of [`crate::Config::quantiles`].
    pub latency_ms_quantiles: Vec<f64>,
}

/// One connection, if [`crate::Config::per_client`] asks for it.
#[derive(Clone, Debug)]
pub struct ClientStats {
    pub thread: u32,
    pub client: u32,
    pub rows: Vec<Row>,
}

/// The outcome of one run of one workload.
#[derive(Clone, Debug)]
pub struct RunStats {
    pub name: String,
    pub started: SystemTime,
    /// From the first request to the last reply.
    pub duration: Duration,
    pub threads: u32,
    pub clients: u32,
    pub requests_per_client: Option<u64>,
    pub rows: Vec<Row>,
    /// All rows together, named `Totals`.
    pub totals: Row,
    /// Which quantile each of [`Second::latency_ms_quantiles`] is.
    pub quantiles: Vec<f64>,
    pub connection_errors: u64,
    /// Texts of error replies and connection errors with their counts, the most frequent first.
    pub error_texts: Vec<(String, u64)>,
    /// Requests that were due but could not be sent before the end: the server did not keep up with the rate.
    pub unsent: u64,
    /// The run ended before its time.
    pub interrupted: bool,
    pub per_client: Vec<ClientStats>,
}

impl Row {
    pub fn new(name: &str, label: &str) -> Row {
        Row {
            name: name.to_owned(),
            label: label.to_owned(),
            count: 0,
            hits: 0,
            misses: 0,
            errors: 0,
            bytes_rx: 0,
            bytes_tx: 0,
            latency_ns_sum: 0,
            latency: histogram(),
            seconds: Vec::new(),
        }
    }

    pub fn ops_per_s(&self, duration: Duration) -> f64 {
        per_second(self.count, duration)
    }

    pub fn latency_ms_avg(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.latency_ns_sum as f64 / self.count as f64 / 1e6 }
    }

    /// `quantile` from 0 to 1.
    pub fn quantile_ms(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1e3
    }

    pub fn kb_per_s(&self, duration: Duration) -> f64 {
        per_second(self.bytes_rx + self.bytes_tx, duration) / 1024.0
    }

    /// Hits ÷ (hits + misses). `None`: there were neither.
    pub fn hit_ratio(&self) -> Option<f64> {
        let asked = self.hits + self.misses;
        (asked > 0).then(|| self.hits as f64 / asked as f64)
    }

    /// Adds counters and histogram, not the seconds.
    pub fn add(&mut self, other: &Row) {
        self.count += other.count;
        self.hits += other.hits;
        self.misses += other.misses;
        self.errors += other.errors;
        self.bytes_rx += other.bytes_rx;
        self.bytes_tx += other.bytes_tx;
        self.latency_ns_sum += other.latency_ns_sum;
        add_histogram(&mut self.latency, &other.latency);
    }

    fn add_cell(&mut self, cell: &Cell) {
        self.count += cell.count;
        self.hits += cell.hits;
        self.misses += cell.misses;
        self.errors += cell.errors;
        self.bytes_rx += cell.bytes_rx;
        self.bytes_tx += cell.bytes_tx;
        self.latency_ns_sum += cell.latency_ns_sum;
        if let Some(latency) = &cell.latency {
            add_histogram(&mut self.latency, latency);
        }
    }
}

pub fn per_second(count: u64, duration: Duration) -> f64 {
    let seconds = duration.as_secs_f64();
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

fn add_histogram(to: &mut Histogram<u64>, from: &Histogram<u64>) {
    to.add(from).expect("histograms resize, and share their digits");
}

/// The counts of one thread for one kind in one second.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    pub count: u64,
    pub hits: u64,
    pub misses: u64,
    pub errors: u64,
    pub bytes_rx: u64,
    pub bytes_tx: u64,
    pub latency_ns_sum: u64,
    /// The first reply creates it.
    pub latency: Option<Box<Histogram<u64>>>,
}

impl Cell {
    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        self.count += 1;
        self.latency_ns_sum += latency_ns;
        let us = (latency_ns / 1000).clamp(1, LATENCY_US_MAX);
        let latency = self.latency.get_or_insert_with(|| Box::new(histogram()));
        latency.record(us).expect("the histogram grows to any latency");
    }

    fn add(&mut self, other: Cell) {
        self.count += other.count;
        self.hits += other.hits;
        self.misses += other.misses;
        self.errors += other.errors;
        self.bytes_rx += other.bytes_rx;
        self.bytes_tx += other.bytes_tx;
        self.latency_ns_sum += other.latency_ns_sum;
        match (&mut self.latency, other.latency) {
            (Some(mine), Some(theirs)) => add_histogram(mine, &theirs),
            (mine @ None, theirs) => *mine = theirs,
            (Some(_), None) => {}
        }
    }

    fn second(&self, index: u64, quantiles: &[f64]) -> Second {
        let ms = |us: u64| us as f64 / 1e3;
        let latency = self.latency.as_deref();
        Second {
            index,
            count: self.count,
            hits: self.hits,
            misses: self.misses,
            errors: self.errors,
            bytes_rx: self.bytes_rx,
            bytes_tx: self.bytes_tx,
            latency_ms_avg: if self.count == 0 { 0.0 } else { self.latency_ns_sum as f64 / self.count as f64 / 1e6 },
            latency_ms_min: latency.map_or(0.0, |latency| ms(latency.min())),
            latency_ms_max: latency.map_or(0.0, |latency| ms(latency.max())),
            latency_ms_quantiles: quantiles
                .iter()
                .map(|&quantile| latency.map_or(0.0, |latency| ms(latency.value_at_quantile(quantile))))
                .collect(),
        }
    }
}

/// The cells of one second from one thread or connection. Kinds without traffic are left out.
pub type Cells = Vec<(KindIndex, Cell)>;

/// Collects the seconds of several threads into rows. The histograms of a second are dropped as soon as every thread
/// has handed them in, so the series takes some hundred bytes per second and row, however long the run.
pub struct Gather {
    rows: Vec<Row>,
    totals: Row,
    quantiles: Vec<f64>,
    open: BTreeMap<u64, BTreeMap<KindIndex, Cell>>,
    /// For each thread, the first second that it has not handed in yet.
    handed_in: Vec<u64>,
}

impl Gather {
    pub fn new(kinds: &[Kind], threads: usize, quantiles: &[f64]) -> Gather {
        Gather {
            rows: kinds.iter().map(|kind| Row::new(&kind.name, &kind.row)).collect(),
            totals: Row::new("ALL", "Totals"),
            quantiles: quantiles.to_vec(),
            open: BTreeMap::new(),
            handed_in: vec![0; threads],
        }
    }

    /// Takes the cells of `second`. `next` is the first second that this thread may still hand in.
    pub fn hand_in(&mut self, thread: usize, second: u64, cells: Cells, next: u64) {
        if !cells.is_empty() {
            let open = self.open.entry(second).or_default();
            for (kind, cell) in cells {
                open.entry(kind).or_default().add(cell);
            }
        }
        self.handed_in[thread] = next;
        let complete = self.handed_in.iter().copied().min().unwrap_or(u64::MAX);
        while let Some(entry) = self.open.first_entry()
            && *entry.key() < complete
        {
            let (second, cells) = entry.remove_entry();
            self.close(second, cells);
        }
    }

    fn close(&mut self, second: u64, cells: BTreeMap<KindIndex, Cell>) {
        let mut all = Cell::default();
        for (kind, cell) in cells {
            let row = &mut self.rows[usize::from(kind)];
            row.add_cell(&cell);
            row.seconds.push(cell.second(second, &self.quantiles));
            all.add(cell);
        }
        self.totals.add_cell(&all);
        // A second without any reply must be visible in the series.
        for index in self.totals.seconds.len() as u64..second {
            self.totals.seconds.push(Cell::default().second(index, &self.quantiles));
        }
        self.totals.seconds.push(all.second(second, &self.quantiles));
    }

    /// The rows and their totals, after every thread has handed in everything.
    pub fn finish(mut self) -> (Vec<Row>, Row) {
        while let Some((second, cells)) = self.open.pop_first() {
            self.close(second, cells);
        }
        (self.rows, self.totals)
    }
}

/// Counts error texts and keeps the first few.
#[derive(Clone, Debug, Default)]
pub struct ErrorTexts(BTreeMap<String, u64>);

impl ErrorTexts {
    pub fn count(&mut self, text: &str) {
        self.count_many(text, 1);
    }

    fn count_many(&mut self, text: &str, times: u64) {
        if let Some(count) = self.0.get_mut(text) {
            *count += times;
        } else if self.0.len() < ERROR_TEXTS_MAX {
            self.0.insert(text.to_owned(), times);
        } else {
            *self.0.entry(String::from("(other errors)")).or_default() += times;
        }
    }

    pub fn add(&mut self, other: ErrorTexts) {
        for (text, times) in other.0 {
            self.count_many(&text, times);
        }
    }

    pub fn into_sorted(self) -> Vec<(String, u64)> {
        let mut texts: Vec<(String, u64)> = self.0.into_iter().collect();
        texts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        texts
    }
}

impl RunStats {
    /// The average of several runs of one workload: counters, histograms and times are added up.
    pub fn aggregate(runs: &[RunStats]) -> Option<RunStats> {
        let (first, rest) = runs.split_first()?;
        let mut all = first.clone();
        let mut texts = ErrorTexts::default();
        for (text, count) in runs.iter().flat_map(|run| &run.error_texts) {
            texts.count_many(text, *count);
        }
        for run in rest {
            all.duration += run.duration;
            all.connection_errors += run.connection_errors;
            all.unsent += run.unsent;
            all.interrupted |= run.interrupted;
            all.totals.add(&run.totals);
            for row in &run.rows {
                match all.rows.iter_mut().find(|known| known.label == row.label) {
                    Some(known) => known.add(row),
                    None => all.rows.push(row.clone()),
                }
            }
        }
        for row in all.rows.iter_mut().chain([&mut all.totals]) {
            row.seconds.clear();
        }
        all.error_texts = texts.into_sorted();
        all.per_client.clear();
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds() -> Vec<Kind> {
        ["SET", "GET"]
            .iter()
            .map(|name| Kind { name: (*name).to_owned(), row: format!("{name}s"), hits: crate::mix::Hits::None })
            .collect()
    }

    fn cell(latencies_us: &[u64]) -> Cell {
        let mut cell = Cell::default();
        latencies_us.iter().for_each(|us| cell.record(us * 1000));
        cell
    }

    #[test]
    fn seconds_close_when_every_thread_has_handed_them_in() {
        let mut gather = Gather::new(&kinds(), 2, &[0.5, 1.0]);
        gather.hand_in(0, 0, vec![(0, cell(&[100, 200]))], 1);
        gather.hand_in(0, 1, vec![(0, cell(&[300]))], 2);
        assert_eq!(gather.open.len(), 2, "the second thread has not said anything");
        gather.hand_in(1, 0, vec![(0, cell(&[900])), (1, cell(&[50]))], 1);
        assert_eq!(gather.open.len(), 1);
        gather.hand_in(1, 3, vec![(1, cell(&[70]))], u64::MAX);
        gather.hand_in(0, 0, vec![], u64::MAX);
        let (rows, totals) = gather.finish();
        assert_eq!(rows[0].count, 4);
        let counts = |row: &Row| row.seconds.iter().map(|second| (second.index, second.count)).collect::<Vec<_>>();
        assert_eq!(counts(&rows[0]), [(0, 3), (1, 1)]);
        assert_eq!(counts(&totals), [(0, 4), (1, 1), (2, 0), (3, 1)]);
        assert_eq!(rows[0].seconds[0].latency_ms_quantiles, [0.2, 0.9]);
        assert_eq!(rows[0].seconds[0].latency_ms_avg, 0.4);
        assert_eq!(totals.count, 6);
        assert_eq!((totals.seconds[0].latency_ms_min, totals.seconds[0].latency_ms_max), (0.05, 0.9));
        assert_eq!(totals.latency.len(), 6);
    }

    #[test]
    fn latencies_outside_the_range_are_kept_at_its_ends() {
        let cell = cell(&[0, 10_000_000_000]);
        let latency = cell.latency.expect("two records");
        assert_eq!(latency.min(), 1);
        assert!(latency.max() >= LATENCY_US_MAX);
    }

    #[test]
    fn the_number_of_error_texts_is_bounded() {
        let mut texts = ErrorTexts::default();
        (0..100).for_each(|number| texts.count(&format!("error {number}")));
        let sorted = texts.into_sorted();
        assert_eq!(sorted.len(), ERROR_TEXTS_MAX + 1);
        assert_eq!(sorted[0], (String::from("(other errors)"), 100 - ERROR_TEXTS_MAX as u64));
    }
}
