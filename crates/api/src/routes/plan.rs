//! Owns the planner's answer: how much RAM and flash the data need. `survey::plan` computes the plan. Never changes
//! anything.

use crate::auth::Role;
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::route::{Answer, Route, decimal, flag, number, one, text};
use base::device::Device;
use serde::Serialize;
use std::str::FromStr;
use survey::SampledWorkload;
use survey::plan::{Aim, PlanInfo, Said, printed_devices};
use utoipa::ToSchema;

/// The default share of reads that should be served from RAM.
const HIT_RATIO: f64 = 0.85;

pub const ROUTES: &[Route] = &[Route {
    path: "/api/v1/plan",
    tag: "Node",
    summary: "Calculates the RAM and flash that data need, and how many of their reads RAM answers.",
    query: &[
        flag(
            "measured",
            "use the result of the last measurement by POST /survey (role: admin); numbers given here take precedence over it",
        ),
        number("keys", "number of keys"),
        number("key_bytes", "size of a key; default 16"),
        number("value_bytes", "average size of a value"),
        decimal("compression", "compressed size on flash divided by the original size; default 1"),
        decimal(
            "skew",
            "exponent of Zipf's law by which keys are used; 0: all keys alike. Without it, the plan gives a range",
        ),
        decimal("reads_per_second", "default 0"),
        decimal("writes_per_second", "default 0"),
        number("workers", "number of the node's worker threads; default: as many as this node has"),
        flag("no_journal", "true: the data need not survive restarts"),
        decimal("hit_ratio", "share of the reads that are to be answered from RAM, 0 to 1; default 0.85"),
        decimal("ram_share", "share of the values that are to be in RAM, instead of hit_ratio"),
        decimal("ram_price", "price of a gigabyte of RAM, in any currency"),
        decimal("flash_price", "price of a gigabyte of flash; give both prices or neither"),
        text(
            "flash",
            "the output of flintkv prepare-flash --json, at least reads and write_bytes_per_second of each directory",
        ),
    ],
    reply: Answer::Json(one::<NodePlan>),
    run: plan,
    ..Route::BASE
}];

#[derive(Serialize, ToSchema)]
struct NodePlan {
    plan: PlanInfo,
    /// What this node has not promised to a database yet.
    node_ram_left_bytes: u64,
    node_flash_left_bytes: u64,
}

fn plan(cx: &Cx) -> Result<Reply, ApiError> {
    let workers = cx.app.node.workers() as u64;
    let said = Said {
        keys: said(cx, "keys", "a whole number")?,
        key_bytes: said(cx, "key_bytes", "a whole number")?,
        value_bytes: said(cx, "value_bytes", "a whole number")?,
        compression: decimal_said(cx, "compression")?,
        skew: decimal_said(cx, "skew")?,
        reads_per_second: decimal_said(cx, "reads_per_second")?,
        writes_per_second: decimal_said(cx, "writes_per_second")?,
        workers: said(cx, "workers", "a whole number")?.unwrap_or(workers),
        has_journal: !cx.flag("no_journal")?,
        aim: match (decimal_said(cx, "ram_share")?, decimal_said(cx, "hit_ratio")?) {
            (Some(share), _) => Aim::RamShare(share),
            (None, ratio) => Aim::HitRatio(ratio.unwrap_or(HIT_RATIO)),
        },
        prices: prices(cx)?,
        device: device(cx)?,
    };
    let planned = match cx.flag("measured")? {
        true => survey::plan::plan(&*measured(cx)?, &said),
        false => survey::plan::plan(&SampledWorkload::default(), &said),
    };
    let room = cx.app.node.capacity();
    Reply::json(&NodePlan {
        plan: planned.map_err(|wrong| ApiError::field(wrong.field, wrong.why))?,
        node_ram_left_bytes: room.ram_bytes.saturating_sub(room.ram_taken_bytes),
        node_flash_left_bytes: room.flash_bytes.saturating_sub(room.flash_taken_bytes),
    })
}

/// A number of the query. The plan checks its bounds.
fn said<T: FromStr>(cx: &Cx, name: &str, expected: &str) -> Result<Option<T>, ApiError> {
    let wrong = |_| ApiError::field(name, format!("{expected} is expected"));
    cx.query(name).map(|text| text.parse().map_err(wrong)).transpose()
}

fn decimal_said(cx: &Cx, name: &str) -> Result<Option<f64>, ApiError> {
    said(cx, name, "a number")
}

fn prices(cx: &Cx) -> Result<Option<(f64, f64)>, ApiError> {
    match (decimal_said(cx, "ram_price")?, decimal_said(cx, "flash_price")?) {
        (None, None) => Ok(None),
        (Some(ram), Some(flash)) => Ok(Some((ram, flash))),
        (None, _) => Err(ApiError::field("ram_price", "is required when flash_price is given")),
        (_, None) => Err(ApiError::field("flash_price", "is required when ram_price is given")),
    }
}

fn device(cx: &Cx) -> Result<Option<Device>, ApiError> {
    let Some(text) = cx.query("flash") else { return Ok(None) };
    let devices = printed_devices(text).map_err(|error| ApiError::field("flash", error.message).hint(error.hint))?;
    Ok(Device::together(&devices))
}

fn measured(cx: &Cx) -> Result<std::sync::Arc<SampledWorkload>, ApiError> {
    if cx.role() < Role::Admin {
        return Err(ApiError::forbidden("only an administrator may use the measurement of another server"));
    }
    cx.app.surveys.sampled().ok_or_else(|| {
        ApiError::field("measured", "no server was measured").hint("measure one first: POST /api/v1/survey")
    })
}
