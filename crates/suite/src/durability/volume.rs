//! Measures how many bytes reach the device for each byte of the journal: from the journal, values on flash, checkpoints and
//! collection together. Never knows the server's code.

use std::time::Duration;

use anyhow::{Context, Result};

use super::kept::{journalled, number, persistence, program, sets, write_checkpoint};
use crate::endurance::{FLASH_BYTES_PER_KEY, UTILISATION, real, tiering, utilisation, warm_up};
use crate::figure::{Figure, Target};
use crate::lab::{FIRST_KEY, Lab, Subject, fill};
use bench::report::{bytes, percent};
use bench::scenario::node::Process;
use bench::scenario::phase::Until;

const PIPELINE: u32 = 24;
/// The share of memory-limit that the log gets by default, if memory-limit is some gigabytes and ram-limit is 30 % of it.
const LOG_SHARE: f64 = 0.84;
const HOW: &str =
    "written for each byte of the journal, by the kernel's count; incompressible values, a checkpoint at the end";

/// Counters at one moment, in bytes except for the checkpoints.
#[derive(Clone, Copy)]
struct Mark {
    device: u64,
    journal: u64,
    flash: u64,
    checkpoints: u64,
}

impl Mark {
    fn of(subject: &mut Subject) -> Result<Mark> {
        let info = persistence(subject.node.client())?;
        let device = subject.node.process.and_then(Process::device_write_bytes);
        Ok(Mark {
            device: device.context("the kernel does not report what a process writes: see /proc/PID/io")?,
            journal: number(&info, "journal_position")?,
            flash: tiering(subject)?.write_bytes,
            checkpoints: number(&info, "aof_rewrites")?,
        })
    }

    fn since(self, before: Mark) -> Mark {
        Mark {
            device: self.device.saturating_sub(before.device),
            journal: self.journal.saturating_sub(before.journal),
            flash: self.flash.saturating_sub(before.flash),
            checkpoints: self.checkpoints.saturating_sub(before.checkpoints),
        }
    }

    fn ratio(self) -> f64 {
        self.device as f64 / self.journal as f64
    }

    fn shown(self) -> String {
        format!(
            "{} for {} of journal: {} of values on flash, {} checkpoints and the rest",
            bytes(self.device),
            bytes(self.journal),
            bytes(self.flash),
            self.checkpoints
        )
    }
}

pub fn measure(lab: &mut Lab) -> Result<Vec<Figure>> {
    Ok(vec![inserts(lab)?, overwrites(lab)?])
}

fn inserts(lab: &mut Lab) -> Result<Figure> {
    let keys = lab.scaled(2_000_000, 400_000);
    let mut subject = lab.start("inserts", &program(lab, keys))?;
    let before = Mark::of(&mut subject)?;
    lab.populate(&mut subject, &[real(fill(FIRST_KEY, keys))])?;
    write_checkpoint(&mut subject)?;
    let written = Mark::of(&mut subject)?.since(before);
    lab.note_fill_of(&subject);
    let detail = format!("{keys} keys of 500 bytes, 30 % RAM: {}", written.shown());
    Ok(Figure::new("bytes to the device, inserts only", HOW, written.ratio(), Target::AtMost(2.3), detail))
}

fn overwrites(lab: &mut Lab) -> Result<Figure> {
    let keys = lab.scaled(4_000_000, 300_000);
    // A little below the wanted utilisation; keys that are never overwritten fill the rest.
    let memory = (keys * FLASH_BYTES_PER_KEY) as f64 / (UTILISATION - 0.05) / LOG_SHARE;
    let program = journalled(lab.flintkv().tiered(memory as u64, (memory * 0.3) as u64));
    let mut subject = lab.start("overwrites", &program)?;
    lab.populate(&mut subject, &[real(fill(FIRST_KEY, keys))])?;
    let load = real(sets(keys, PIPELINE));
    warm_up(lab, &mut subject, &load, keys)?;
    write_checkpoint(&mut subject)?;
    let before = Mark::of(&mut subject)?;
    let run = lab.run(&mut subject, &load, Until::Time(Duration::from_secs(lab.scaled(30, 10))))?;
    write_checkpoint(&mut subject)?;
    let written = Mark::of(&mut subject)?.since(before);
    let used = utilisation(&tiering(&mut subject)?);
    lab.note_fill_of(&subject);
    Ok(Figure::new(
        "bytes to the device, uniform overwrites at 80 % of what live values may take",
        HOW,
        written.ratio(),
        Target::AtMost(3.5),
        format!(
            "{} SETs, {} of what flash may have live: {}",
            run.stats[0].totals.count,
            percent(used),
            written.shown()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_that_of_the_interval() {
        let before = Mark { device: 1000, journal: 500, flash: 300, checkpoints: 1 };
        let after = Mark { device: 3000, journal: 1500, flash: 900, checkpoints: 3 };
        let written = after.since(before);
        assert_eq!(written.ratio(), 2.0);
        assert_eq!(
            written.shown(),
            "2.00 kB for 1.00 kB of journal: 600 B of values on flash, 2 checkpoints and the rest"
        );
    }
}
