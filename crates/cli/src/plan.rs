//! Owns `flintkv plan`: what data take here, described by numbers or measured in a running Redis. The arithmetic is `base::sizing`'s. Never changes
//! anything.

use base::size::human;
use base::sizing::{Demand, SHARES, Sizing, cost};

use crate::args::Plan;
use crate::failure::Failure;
use crate::migrate::address::Address;
use crate::migrate::measure::{self, Sample};
use crate::migrate::server::Server;
use crate::size::count;
use crate::table::{Align, pairs, table};

/// How many keys of a running server are measured.
const SAMPLES: usize = 10_000;
const KEY_BYTES: u64 = 16;

/// What was measured in a running server.
struct Source {
    address: Address,
    sample: Sample,
    reads_per_second: f64,
    writes_per_second: f64,
}

pub fn run(args: &Plan) -> Result<String, Failure> {
    let source = args.from.as_deref().map(|from| look(from, args)).transpose()?;
    let demand = demand(args, source.as_ref());
    demand.check().map_err(|wrong| Failure::refused(format!("{}: {}", option(wrong.field), wrong.why)))?;
    for (option, price) in [("--ram-price", args.ram_price), ("--flash-price", args.flash_price)] {
        if price.is_some_and(|price| !(0.0..=1e9).contains(&price)) {
            return Err(Failure::refused(format!("{option}: must be from 0 to 10^9")));
        }
    }
    let prices = args.ram_price.zip(args.flash_price);
    let chosen = match args.ram_share {
        Some(share) => demand.for_ram_share(share),
        None => demand.for_hit_ratio(args.hit_ratio),
    };
    let report = source.map(|source| source.sample.report(&source.address.to_string()) + "\n").unwrap_or_default();
    Ok(format!("{report}{}\n{}", answer(&demand, &chosen, prices), choices(&demand, prices)))
}

/// The option that a field of a demand comes from.
fn option(field: &str) -> &str {
    match field {
        "keys" => "--keys",
        "key_bytes" => "--key-size",
        "value_bytes" => "--value-size",
        "compression" => "--compression",
        "skew" => "--skew",
        "reads_per_second" => "--reads",
        "writes_per_second" => "--writes",
        "workers" => "--workers",
        field => field,
    }
}

fn look(from: &str, args: &Plan) -> Result<Source, Failure> {
    let address: Address = from.parse().map_err(|why: String| Failure::refused(format!("--from: {why}")))?;
    let address = address.with_password(args.from_password.as_deref());
    let mut server = Server::connect(&address, args.cacert.as_deref())?;
    // Before the sample, which is a load of its own.
    let stats = server.info("stats")?;
    let number = |name: &str| stats.get(name).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    let commands = number("total_commands_processed");
    let reads = (number("keyspace_hits") + number("keyspace_misses")).min(commands);
    let share = if commands > 0.0 { reads / commands } else { 1.0 };
    let rate = number("instantaneous_ops_per_sec");
    let sample = measure::sample(&mut server, SAMPLES)?;
    if sample.keys == 0 && args.keys.is_none() {
        return Err(Failure::failed(format!("{address} has no keys to measure")));
    }
    let (reads_per_second, writes_per_second) = ((rate * share).round(), (rate * (1.0 - share)).round());
    Ok(Source { address, sample, reads_per_second, writes_per_second })
}

fn demand(args: &Plan, source: Option<&Source>) -> Demand {
    let sample = source.map(|source| &source.sample);
    let rate = |said: Option<u64>, measured: Option<f64>| said.map(|rate| rate as f64).or(measured).unwrap_or(0.0);
    Demand {
        keys: args.keys.or(sample.map(|sample| sample.keys)).unwrap_or(0),
        key_bytes: args.key_size.or(sample.map(Sample::name_bytes)).unwrap_or(KEY_BYTES),
        value_bytes: args.value_size.or(sample.map(Sample::value_bytes)).unwrap_or(0),
        compression: args.compression.or(sample.map(Sample::compression)).unwrap_or(1.0),
        skew: args.skew,
        reads_per_second: rate(args.reads, source.map(|source| source.reads_per_second)),
        writes_per_second: rate(args.writes, source.map(|source| source.writes_per_second)),
        workers: args.workers,
        has_journal: !args.no_journal,
        has_console: true,
    }
}

fn percent(share: f64) -> String {
    let digits = usize::from(share > 0.0 && share < 0.0995);
    format!("{:.digits$} %", share * 100.0)
}

fn answer(demand: &Demand, sizing: &Sizing, prices: Option<(f64, f64)>) -> String {
    let mut rows = vec![
        (
            "data",
            format!(
                "{} keys of {} with values of {}: {}",
                count(demand.keys as f64),
                human(demand.key_bytes),
                human(demand.value_bytes),
                human(demand.keys.saturating_mul(demand.key_bytes + demand.value_bytes))
            ),
        ),
        (
            "hit ratio",
            format!(
                "{} with {} of the values in RAM, if keys are used with skew {}",
                percent(sizing.hit_ratio),
                percent(sizing.ram_share),
                demand.skew
            ),
        ),
        (
            "RAM limit",
            format!(
                "{}: {} for the process, {} for the index, {} for {} values; at 90 % values begin to leave",
                human(sizing.ram_limit_bytes),
                human(sizing.own_bytes),
                human(sizing.index_bytes),
                human(sizing.hot_bytes),
                count(sizing.hot_values as f64)
            ),
        ),
        (
            "flash",
            format!(
                "{}: {} for at most {} values, 80 % of it",
                human(sizing.flash_bytes),
                human(sizing.flash_live_bytes),
                count(sizing.flash_values as f64)
            ),
        ),
        ("databases", sizing.databases.to_string()),
    ];
    if demand.reads_per_second > 0.0 {
        rows.push((
            "flash reads",
            format!(
                "{}/s of {} reads; flintkv prepare-flash measures what a device can do",
                count(sizing.flash_reads_per_second.round()),
                count(demand.reads_per_second)
            ),
        ));
    }
    if let Some((ram, flash)) = prices {
        let (here, alone) = (sizing.cost(ram, flash), cost(demand.all_in_ram_bytes(), ram));
        rows.push(("price", format!("{here:.2} instead of {alone:.2} with all values in RAM")));
    }
    let directives = sizing.directives().map(|(name, value)| format!("{name} {value}"));
    rows.push(("directives", directives.join(", ")));
    pairs(&rows)
}

/// What other shares of values in RAM mean.
fn choices(demand: &Demand, prices: Option<(f64, f64)>) -> String {
    let mut head = vec!["VALUES IN RAM", "HIT RATIO", "RAM LIMIT", "FLASH", "FLASH READS/S"];
    head.extend(prices.map(|_| "PRICE"));
    let head: Vec<(&str, Align)> = head.into_iter().map(|title| (title, Align::Right)).collect();
    let rows = SHARES.map(|share| {
        let sizing = demand.for_ram_share(share);
        let mut row = vec![
            percent(share),
            percent(sizing.hit_ratio),
            human(sizing.ram_limit_bytes),
            human(sizing.flash_bytes),
            count(sizing.flash_reads_per_second.round()),
        ];
        row.extend(prices.map(|(ram, flash)| format!("{:.2}", sizing.cost(ram, flash))));
        row
    });
    table(&head, &rows)
}
