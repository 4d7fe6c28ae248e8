//! Owns traces that were recorded: captures of MONITOR. Never knows a policy.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Result, anyhow, ensure};
use bench::report::grouped;
use survey::Use;

use super::{NewPolicy, Trace};
use crate::replacement::{Key, Setup};
use crate::run::Run;

/// The commands of a capture, on several sizes of RAM. Hits are counted in its second half; the first one fills RAM.
pub struct Capture {
    name: String,
    uses: Vec<(Key, Use)>,
    setups: Vec<Setup>,
}

impl Capture {
    /// `ram`: the parts of the values that RAM has room for, 0 to 1.
    pub fn read(path: &Path, ram: &[f64], seed: u64) -> Result<Capture> {
        let mut numbers = HashMap::<(u32, Vec<u8>), Key>::new();
        let mut uses = Vec::new();
        survey::read_uses(path, |db, key, kind| {
            let next = numbers.len() as Key;
            uses.push((*numbers.entry((db, key.to_vec())).or_insert(next), kind));
        })
        .map_err(|error| anyhow!("{error} {}", error.hint))?;
        let keys = numbers.len();
        ensure!(keys >= 2, "{}: its commands use {keys} keys, so there is nothing to simulate", path.display());
        let setups = ram.iter().map(|&part| Setup::of(keys, part, seed)).collect();
        Ok(Capture { name: path.display().to_string(), uses, setups })
    }

    fn hit_ratio(&self, setup: Setup, new_policy: NewPolicy) -> f64 {
        let mut run = Run::new(new_policy(setup));
        let (first, second) = self.uses.split_at(self.uses.len() / 2);
        first.iter().for_each(|&(key, kind)| run.access(key, kind));
        run.hit_ratio();
        second.iter().for_each(|&(key, kind)| run.access(key, kind));
        run.hit_ratio()
    }
}

impl Trace for Capture {
    fn title(&self) -> String {
        let keys = self.setups.first().map_or(0, |setup| setup.keys);
        let (uses, keys) = (grouped(self.uses.len() as f64), grouped(keys as f64));
        format!("Hit ratio of {}: {uses} uses of {keys} keys", self.name)
    }

    fn columns(&self) -> Vec<String> {
        self.setups.iter().map(|setup| format!("RAM for {}", setup.part())).collect()
    }

    fn measure(&self, new_policy: NewPolicy) -> Vec<f64> {
        self.setups.iter().map(|&setup| self.hit_ratio(setup, new_policy)).collect()
    }
}
