//! Owns the planner's answer: what data take in RAM and on flash. The arithmetic is `base::sizing`'s. Never changes anything.

use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::route::{Answer, Route, decimal, flag, number, one};
use base::pattern::Pattern;
use base::sizing::{Demand, SHARES, Sizing, cost};
use serde::Serialize;
use utoipa::ToSchema;

/// Bounds of a price, of a gigabyte in any currency.
const PRICES: (f64, f64) = (0.0, 1e9);

pub const ROUTES: &[Route] = &[Route {
    path: "/api/v1/plan",
    tag: "Node",
    summary: "What data take in RAM and on flash, and how many of their reads RAM answers.",
    query: &[
        number("keys", "how many keys"),
        number("key_bytes", "of a key; 16 unless said"),
        number("value_bytes", "of a value, on average"),
        decimal("compression", "what the data take on flash ÷ what they are; 1 unless said"),
        decimal("skew", "exponent of Zipf's law by which keys are used: 0 all alike; 0.8 unless said"),
        decimal("reads_per_second", "0 unless said"),
        decimal("writes_per_second", "0 unless said"),
        number("workers", "of the node; as many as this node has unless said"),
        flag("no_journal", "the data need not survive restarts"),
        decimal("hit_ratio", "share of the reads that RAM shall answer, 0 to 1; 0.85 unless said"),
        decimal("ram_share", "share of the values that shall be in RAM, instead of hit_ratio"),
        decimal("ram_price", "of a gigabyte of RAM, in any currency; 0 unless said"),
        decimal("flash_price", "of a gigabyte of flash"),
    ],
    reply: Answer::Json(one::<PlanCard>),
    run: plan,
    ..Route::BASE
}];

#[derive(Serialize, ToSchema)]
struct PlanCard {
    chosen: SizingCard,
    /// Other shares of values in RAM, the smallest first.
    choices: Vec<SizingCard>,
    /// The same data in RAM without flash.
    all_in_ram_bytes: u64,
    all_in_ram_price: f64,
    /// What this node has not promised to a database yet.
    node_ram_left_bytes: u64,
    node_flash_left_bytes: u64,
}

#[derive(Serialize, ToSchema)]
struct SizingCard {
    /// Share of the values in RAM, 0 to 1.
    ram_share: f64,
    /// Share of the reads that RAM answers, 0 to 1.
    hit_ratio: f64,
    /// The process itself.
    own_bytes: u64,
    index_bytes: u64,
    hot_values: u64,
    hot_bytes: u64,
    ram_limit_bytes: u64,
    /// Values with a record on flash, at most.
    flash_values: u64,
    flash_live_bytes: u64,
    /// With the room that collection needs.
    flash_bytes: u64,
    memory_limit_bytes: u64,
    flash_reads_per_second: f64,
    /// How many databases the keys must be divided among.
    databases: u64,
    price: f64,
    /// Lines of flintkv.conf.
    directives: Vec<String>,
}

fn plan(cx: &Cx) -> Result<Reply, ApiError> {
    let required = |name: &str| match cx.query(name) {
        Some(_) => cx.number(name, 0u64, (0, u64::MAX)),
        None => Err(ApiError::field(name, "is missing")),
    };
    let room = cx.app.node.room();
    let any = (f64::NEG_INFINITY, f64::INFINITY);
    let demand = Demand {
        keys: required("keys")?,
        key_bytes: cx.number("key_bytes", 16, (0, u64::MAX))?,
        value_bytes: required("value_bytes")?,
        compression: cx.number("compression", 1.0, any)?,
        pattern: Pattern::Skew(cx.number("skew", 0.8, any)?),
        reads_per_second: cx.number("reads_per_second", 0.0, any)?,
        writes_per_second: cx.number("writes_per_second", 0.0, any)?,
        workers: cx.number("workers", cx.app.node.workers() as u64, (0, u64::MAX))?,
        has_journal: !cx.flag("no_journal")?,
        has_console: true,
    };
    demand.check().map_err(|wrong| ApiError::field(wrong.field, wrong.why))?;
    let prices = (cx.number("ram_price", 0.0, PRICES)?, cx.number("flash_price", 0.0, PRICES)?);
    let chosen = match cx.query("ram_share") {
        Some(_) => demand.for_ram_share(cx.number("ram_share", 0.0, (0.0, 1.0))?),
        None => demand.for_hit_ratio(cx.number("hit_ratio", 0.85, (0.0, 1.0))?),
    };
    let all_in_ram_bytes = demand.all_in_ram_bytes();
    Reply::json(&PlanCard {
        chosen: card(chosen, prices),
        choices: SHARES.map(|share| card(demand.for_ram_share(share), prices)).into(),
        all_in_ram_bytes,
        all_in_ram_price: cost(all_in_ram_bytes, prices.0),
        node_ram_left_bytes: room.ram_bytes.saturating_sub(room.ram_taken_bytes),
        node_flash_left_bytes: room.flash_bytes.saturating_sub(room.flash_taken_bytes),
    })
}

fn card(sizing: Sizing, (ram_price, flash_price): (f64, f64)) -> SizingCard {
    SizingCard {
        price: sizing.cost(ram_price, flash_price),
        directives: sizing.directives().map(|(name, value)| format!("{name} {value}")).into(),
        ram_share: sizing.ram_share,
        hit_ratio: sizing.hit_ratio,
        own_bytes: sizing.own_bytes,
        index_bytes: sizing.index_bytes,
        hot_values: sizing.hot_values,
        hot_bytes: sizing.hot_bytes,
        ram_limit_bytes: sizing.ram_limit_bytes,
        flash_values: sizing.flash_values,
        flash_live_bytes: sizing.flash_live_bytes,
        flash_bytes: sizing.flash_bytes,
        memory_limit_bytes: sizing.memory_limit_bytes,
        flash_reads_per_second: sizing.flash_reads_per_second,
        databases: sizing.databases,
    }
}
