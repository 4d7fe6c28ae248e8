//! Owns the facts about the node as a whole. Never changes it.

use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::link;
use crate::metrics::watch::DiskNow;
use crate::route::{Answer, Route, one};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

pub const ROUTES: &[Route] = &[Route {
    path: "/api/v1/node",
    tag: "Node",
    summary: "The node: its version, its resources, and what is left for more databases.",
    reply: Answer::Json(one::<NodeInfo>),
    run: show,
    ..Route::BASE
}];

#[derive(Serialize, ToSchema)]
struct NodeInfo {
    version: &'static str,
    redis_version: &'static str,
    run_id: String,
    started_ms: u64,
    workers: usize,
    cores: u64,
    console_tls: bool,
    /// uring, threads or none.
    flash_driver: String,
    flash_paths: Vec<String>,
    room: RoomInfo,
    figures: NodeFiguresInfo,
    /// The disks that hold flash, journals, the state and backups.
    disks: Vec<DiskNow>,
    /// The node's metrics as they are now.
    now: BTreeMap<&'static str, Option<f64>>,
}

/// What the databases may have together, and what they were given.
#[derive(Serialize, ToSchema)]
pub struct RoomInfo {
    pub ram_bytes: u64,
    pub ram_taken_bytes: u64,
    pub flash_bytes: u64,
    pub flash_taken_bytes: u64,
    pub by_database: Vec<Share>,
}

#[derive(Serialize, ToSchema)]
pub struct Share {
    pub name: String,
    pub ram_bytes: u64,
    pub flash_bytes: u64,
}

#[derive(Serialize, ToSchema)]
struct NodeFiguresInfo {
    cpu_user_us: u64,
    cpu_system_us: u64,
    resident_bytes: u64,
    open_files: u64,
    uptime_s: u64,
    system_ram_bytes: u64,
    system_ram_free_bytes: u64,
    cores: u64,
}

pub fn room(cx: &Cx) -> RoomInfo {
    let room = cx.app.node.capacity();
    RoomInfo {
        ram_bytes: room.ram_bytes,
        ram_taken_bytes: room.ram_taken_bytes,
        flash_bytes: room.flash_bytes,
        flash_taken_bytes: room.flash_taken_bytes,
        by_database: room
            .by_database
            .into_iter()
            .map(|(name, ram_bytes, flash_bytes)| Share { name, ram_bytes, flash_bytes })
            .collect(),
    }
}

fn show(cx: &Cx) -> Result<Reply, ApiError> {
    let node = &cx.app.node;
    let figures = node.figures();
    let config = node.config().snapshot();
    Reply::json(&NodeInfo {
        version: node.version(),
        redis_version: node::REDIS_VERSION,
        run_id: node.run_id().to_owned(),
        started_ms: node.started_ms(),
        workers: node.workers(),
        cores: figures.cores,
        console_tls: cx.app.console_tls,
        flash_driver: flash_driver(cx)?,
        flash_paths: config.flash_paths.iter().map(|path| path.display().to_string()).collect(),
        room: room(cx),
        figures: NodeFiguresInfo {
            cpu_user_us: figures.cpu_user_us,
            cpu_system_us: figures.cpu_system_us,
            resident_bytes: figures.resident_bytes,
            open_files: figures.open_files,
            uptime_s: figures.uptime_s,
            system_ram_bytes: figures.system_ram_bytes,
            system_ram_free_bytes: figures.system_ram_free_bytes,
            cores: figures.cores,
        },
        disks: cx.app.watch.disks(),
        now: cx.app.watch.node_now(),
    })
}

/// The driver's name is only in INFO.
fn flash_driver(cx: &Cx) -> Result<String, ApiError> {
    let Some(database) = cx.app.node.databases().into_iter().next() else { return Ok("none".to_owned()) };
    let mut link = link::Link::open(&database, cx.role().on_database(), 0)?;
    let info = link::text(link.call(&[b"INFO", b"tiering"])?);
    let line = info.lines().find_map(|line| line.strip_prefix("flash_driver:"));
    Ok(line.unwrap_or("none").to_owned())
}
