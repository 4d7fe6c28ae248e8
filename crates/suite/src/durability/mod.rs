//! Owns the figures of a dataset that survives restarts (`appendonly yes`): the cost of the journal and its checkpoints, the
//! time of a restart, and the losses when a node is killed. Never knows the server's code.
//!
//! `kept` is such a dataset; the other modules measure. Whether persistence costs anything while it is off is a matter of
//! single instructions, which a throughput cannot show: `scripts/instructions.sh --journal` counts them.

mod kept;
mod latency;
mod loss;
mod restart;
mod save;
mod throughput;
mod volume;

use anyhow::Result;

use super::Measure;
use super::figure::Figure;
use super::lab::Lab;
use bench::cli::interrupt;

const PARTS: [(&str, Measure); 7] = [
    ("throughput with a journal", throughput::between_checkpoints_and_with_them),
    ("throughput with appendfsync always", throughput::always),
    ("restart", restart::measure),
    ("latency while a checkpoint is written", latency::measure),
    ("bytes written to the device", volume::measure),
    ("acknowledged writes that are lost", loss::measure),
    ("BGSAVE", save::measure),
];

pub fn measure(lab: &mut Lab) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (name, part) in PARTS {
        eprintln!("   -- {name}");
        match part(lab) {
            Ok(measured) => figures.extend(measured),
            Err(error) if interrupt::interrupted() => return Err(error),
            // As with groups, the other figures are still measured.
            Err(error) => lab.note_failure(&format!("durability, {name}"), &error),
        }
    }
    Ok(figures)
}
