//! Owns what was sampled of a dataset from one or several sources. Never calculates what the data take here.

use std::path::Path;
use std::time::Duration;

use base::pattern::Curve;

use crate::capture::read_capture;
use crate::dump::read_dump;
use crate::look::{Traffic, look};
use crate::watch::{Cost, watch};
use crate::{Address, Error, Sample, Server, Usage};

/// How many keys of a running server are measured.
const SAMPLES: usize = 10_000;

/// What was sampled of the data and their use.
#[derive(Debug, Clone, Default)]
pub struct SampledWorkload {
    /// Where from, for people.
    pub sources: Vec<String>,
    pub sample: Option<Sample>,
    pub traffic: Option<Traffic>,
    pub uses: Option<Uses>,
    /// What watching a server has cost it.
    pub cost: Option<Cost>,
}

/// How the values were used.
#[derive(Debug, Clone)]
pub struct Uses {
    pub keys: u64,
    pub reads: u64,
    pub changes: u64,
    /// Empty: the reads were too few.
    pub curve: Curve,
}

impl Uses {
    fn of(usage: &Usage) -> Uses {
        Uses { keys: usage.keys().round() as u64, reads: usage.reads(), changes: usage.changes(), curve: usage.curve() }
    }
}

/// What is being done with a running server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Its commands are watched.
    Watching,
    /// Its keys are looked at.
    Looking,
}

impl SampledWorkload {
    /// Measures a running server. `watched`: for how long its commands are watched. `go_on` gets how much of a stage is over, 0 to 1; its no ends
    /// the stage with what was seen so far.
    pub fn from_server(
        address: &Address,
        cacert: Option<&Path>,
        watched: Option<Duration>,
        go_on: &dyn Fn(Stage, f64) -> bool,
    ) -> Result<SampledWorkload, Error> {
        let mut server = Server::connect(address, cacert)?;
        // Before the sample, which is a load of its own.
        let mut sampled = SampledWorkload { traffic: Some(Traffic::of(&mut server)?), ..SampledWorkload::default() };
        if let Some(time) = watched {
            let watched = watch(address, cacert, time, &|part| go_on(Stage::Watching, part))?;
            sampled.traffic = Some(watched.capture.traffic());
            sampled.uses = Some(Uses::of(&watched.capture.usage));
            sampled.cost = Some(watched.cost);
        }
        let sample = look(&mut server, SAMPLES, address.db, &|part| go_on(Stage::Looking, part))?;
        let is_of_cluster = server.info("server")?.get("redis_mode").is_some_and(|mode| mode == "cluster");
        let part = if is_of_cluster { ", one node of a cluster: its own keys only" } else { "" };
        sampled.sources.push(format!("{address}, version {}{part}", sample.version));
        sampled.sample = Some(sample);
        Ok(sampled)
    }

    /// `report` gets how much of the file is read, 0 to 1.
    pub fn add_dump(&mut self, path: &Path, report: &dyn Fn(f64)) -> Result<(), Error> {
        let sample = read_dump(path, report)?;
        self.sources.push(format!("{}, written by version {}", path.display(), sample.version));
        self.sample = Some(sample);
        Ok(())
    }

    /// A capture of MONITOR tells how keys are used, and, if nothing else does, how large the values are that it sets.
    pub fn add_capture(&mut self, path: &Path, report: &dyn Fn(f64)) -> Result<(), Error> {
        let capture = read_capture(path, report)?;
        let skipped = match capture.skipped {
            0 => String::new(),
            lines => format!(", without {lines} lines that are none of MONITOR's"),
        };
        self.sources.push(format!("{}, {:.0} s{skipped}", path.display(), capture.seconds()));
        self.traffic = Some(capture.traffic());
        self.uses = Some(Uses::of(&capture.usage));
        if self.sample.is_none() && capture.written.sampled > 0 {
            self.sample = Some(capture.written);
        }
        Ok(())
    }
}
