//! Owns the combined sample of a dataset from one or several sources. Never calculates the RAM and flash that the data
//! need.

use std::path::Path;
use std::time::Duration;

use base::pattern::Curve;

use crate::capture::read_capture;
use crate::dump::read_dump;
use crate::look::{Traffic, look};
use crate::watch::{Cost, watch};
use crate::{Address, Error, Sample, Server, Usage};

/// The number of keys of a running server that are sampled.
const SAMPLES: usize = 10_000;

/// A sample of the data, and of how it is used.
#[derive(Debug, Clone, Default)]
pub struct SampledWorkload {
    /// The sources, as text.
    pub sources: Vec<String>,
    pub sample: Option<Sample>,
    pub traffic: Option<Traffic>,
    pub uses: Option<Uses>,
    /// What MONITOR has cost the server.
    pub cost: Option<Cost>,
}

/// How the values were used.
#[derive(Debug, Clone)]
pub struct Uses {
    pub keys: u64,
    pub reads: u64,
    pub changes: u64,
    /// Empty: there were too few reads.
    pub curve: Curve,
}

impl Uses {
    fn of(usage: &Usage) -> Uses {
        Uses { keys: usage.keys().round() as u64, reads: usage.reads(), changes: usage.changes(), curve: usage.curve() }
    }
}

/// The stage of the measurement of a running server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Its commands are monitored.
    Watching,
    /// Its keys are sampled.
    Looking,
}

impl SampledWorkload {
    /// Measures a running server. `watched`: for how long its commands are monitored. `go_on` gets the progress of a stage,
    /// 0 to 1; if it returns false, the stage ends with the data collected so far.
    pub fn from_server(
        address: &Address,
        cacert: Option<&Path>,
        watched: Option<Duration>,
        go_on: &dyn Fn(Stage, f64) -> bool,
    ) -> Result<SampledWorkload, Error> {
        let mut server = Server::connect(address, cacert)?;
        // Before the sample is taken, because sampling is a load itself.
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

    /// `report` gets the part of the file that is read, 0 to 1.
    pub fn add_dump(&mut self, path: &Path, report: &dyn Fn(f64)) -> Result<(), Error> {
        let sample = read_dump(path, report)?;
        self.sources.push(format!("{}, written by version {}", path.display(), sample.version));
        self.sample = Some(sample);
        Ok(())
    }

    /// Adds a capture of MONITOR, which tells how keys are used. If there is no other source, it also tells the sizes
    /// of the values that its commands set.
    pub fn add_capture(&mut self, path: &Path, report: &dyn Fn(f64)) -> Result<(), Error> {
        let capture = read_capture(path, report)?;
        let skipped = match capture.skipped {
            0 => String::new(),
            lines => format!(", without {lines} lines that do not have the format of MONITOR"),
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
