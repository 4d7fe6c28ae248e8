//! Owns the dataset of these figures, and queries to its node: checkpoints, the journal's figures, values before and after a
//! restart. Never measures.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use resp::client::Value;

use crate::endurance::FLASH_BYTES_PER_KEY;
use crate::lab::{FIRST_KEY, KEY_BYTES, Lab, Subject, VALUE_BYTES, ranged};
use bench::report::{bytes, grouped};
use bench::scenario::info::Info;
use bench::scenario::node::Program;
use bench::scenario::spec::Load;
use bench::scenario::wire::Client;

const RAM_SHARE: f64 = 0.3;
/// The smallest RAM limit of a node with flash and a journal here.
const RAM_MIN: u64 = 48 << 20;
/// The share of flash that the values take, hot ones with a copy there included.
const FILL: f64 = 0.8;
const CHECKPOINT_WITHIN: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(5);
const SAMPLE: u64 = 2000;
/// Keys of one MGET.
pub const BATCH: usize = 100;

/// A node with room for 30 % of the values in RAM, and for all of them on flash.
pub fn program(lab: &Lab, keys: u64) -> Program {
    let ram = (((keys * (KEY_BYTES + VALUE_BYTES)) as f64 * RAM_SHARE) as u64).max(RAM_MIN);
    let flash = ((keys * FLASH_BYTES_PER_KEY) as f64 / FILL) as u64;
    journalled(lab.flintkv().tiered(flash + ram, ram))
}

pub fn journalled(program: Program) -> Program {
    program.directive("io-threads", 2).directive("appendonly", "yes").directive("appendfsync", "everysec")
}

/// Configures the node so that checkpoints are written only on request.
pub fn without_checkpoints(program: Program) -> Program {
    program.directive("auto-aof-rewrite-percentage", 0).directive("recovery-time-target", 0)
}

/// Uniform SETs.
pub fn sets(keys: u64, pipeline: u32) -> Load {
    let options = ["--key-pattern=R:R", "--ratio=1:0", "--distinct-client-seed", "--randomize"];
    ranged(Load::new(&format!("SET, pipeline {pipeline}"), 1, 20, options), keys)
        .with(format!("--data-size={VALUE_BYTES}"))
        .with(format!("--pipeline={pipeline}"))
}

pub fn persistence(client: &mut Client) -> Result<Info> {
    Ok(Info::parse(&client.text(&["INFO", "persistence"])?))
}

pub fn number(info: &Info, name: &str) -> Result<u64> {
    info.number(name).with_context(|| format!("INFO persistence has no {name}"))
}

/// How many checkpoints were written.
pub fn checkpoints(subject: &mut Subject) -> Result<u64> {
    number(&persistence(subject.node.client())?, "aof_rewrites")
}

/// Waits for the checkpoint that is being written.
pub fn wait_for_checkpoint(subject: &mut Subject) -> Result<()> {
    let deadline = Instant::now() + CHECKPOINT_WITHIN;
    loop {
        let info = persistence(subject.node.client())?;
        if info.text("aof_rewrite_in_progress") == Some("0") {
            ensure!(info.text("aof_last_bgrewrite_status") == Some("ok"), "{}: a checkpoint failed", subject.name);
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{}: a checkpoint takes longer than {CHECKPOINT_WITHIN:?}", subject.name);
        std::thread::sleep(POLL);
    }
}

/// Writes a checkpoint, so that the journal after it is empty.
pub fn write_checkpoint(subject: &mut Subject) -> Result<()> {
    let begun = Instant::now();
    let before = checkpoints(subject)?;
    loop {
        wait_for_checkpoint(subject)?;
        // This fails if another checkpoint has just begun automatically.
        if subject.node.client().call(&["BGREWRITEAOF"]).is_ok() {
            break;
        }
        ensure!(begun.elapsed() < CHECKPOINT_WITHIN, "{}: no checkpoint can be begun", subject.name);
    }
    wait_for_checkpoint(subject)?;
    ensure!(checkpoints(subject)? > before, "{}: no checkpoint was written", subject.name);
    eprintln!("   {}: a checkpoint in {:.2} s", subject.name, begun.elapsed().as_secs_f64());
    Ok(())
}

/// The state of a dataset before its node ends.
pub struct Before {
    keys: u64,
    sample: Vec<Option<Vec<u8>>>,
    pub checkpoint_bytes: u64,
    pub tail_bytes: u64,
    /// The node's own estimate of a restart.
    pub estimated_s: f64,
}

impl Before {
    pub fn of(subject: &mut Subject, keys: u64) -> Result<Before> {
        let client = subject.node.client();
        let sample = values(client, &sample_of(keys))?;
        let info = persistence(client)?;
        let checkpoint_bytes = number(&info, "aof_base_size")?;
        Ok(Before {
            keys: size(client)?,
            sample,
            checkpoint_bytes,
            tail_bytes: number(&info, "aof_current_size")?.saturating_sub(checkpoint_bytes),
            estimated_s: number(&info, "recovery_estimated_ms")? as f64 / 1000.0,
        })
    }

    /// An error if the dataset is another one.
    pub fn compare(&self, subject: &mut Subject, keys: u64) -> Result<()> {
        let client = subject.node.client();
        let now = size(client)?;
        ensure!(now == self.keys, "{}: {now} keys came back of {}", subject.name, self.keys);
        let sample = values(client, &sample_of(keys))?;
        let others = differing(&self.sample, &sample);
        ensure!(others == 0, "{}: {others} of {} values are others after the restart", subject.name, sample.len());
        Ok(())
    }

    pub fn shown(&self) -> String {
        format!(
            "{} keys, {} of journal behind a checkpoint of {}, {} values compared",
            grouped(self.keys as f64),
            bytes(self.tail_bytes),
            bytes(self.checkpoint_bytes),
            grouped(self.sample.len() as f64),
        )
    }
}

/// Keys that are spread over the whole dataset.
fn sample_of(keys: u64) -> Vec<String> {
    let count = SAMPLE.min(keys);
    (0..count).map(|n| format!("memtier-{}", FIRST_KEY + n * keys / count)).collect()
}

fn size(client: &mut Client) -> Result<u64> {
    match client.call(&["DBSIZE"])? {
        Value::Int(count) => Ok(count as u64),
        other => bail!("DBSIZE answered {other:?}"),
    }
}

/// Strings, `None` where there is none.
pub fn values(client: &mut Client, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>> {
    let mut all = Vec::with_capacity(keys.len());
    for batch in keys.chunks(BATCH) {
        let words: Vec<&str> = std::iter::once("MGET").chain(batch.iter().map(String::as_str)).collect();
        let Value::Array(items) = client.call(&words)? else { bail!("MGET answered no array") };
        all.extend(items.into_iter().map(|item| match item {
            Value::Bulk(value) => Some(value),
            _ => None,
        }));
    }
    ensure!(all.len() == keys.len(), "MGET of {} keys answered {}", keys.len(), all.len());
    Ok(all)
}

/// The number of values that differ from the wanted ones.
pub fn differing(wanted: &[Option<Vec<u8>>], found: &[Option<Vec<u8>>]) -> usize {
    let missing = wanted.len().saturating_sub(found.len());
    missing + wanted.iter().zip(found).filter(|(wanted, found)| wanted != found).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_older_or_gone_differs() {
        let value = |text: &str| Some(text.as_bytes().to_vec());
        let wanted = [value("1"), value("2"), value("3"), None];
        assert_eq!(differing(&wanted, &wanted), 0);
        assert_eq!(differing(&wanted, &[value("1"), value("1"), None, None]), 2);
        assert_eq!(differing(&wanted, &[value("1")]), 3, "what was not answered is not there");
    }

    #[test]
    fn the_sample_is_of_the_whole_dataset() {
        assert_eq!(sample_of(3), ["memtier-10000001", "memtier-10000002", "memtier-10000003"]);
        let many = sample_of(2999);
        assert_eq!(many.len(), 2000);
        assert_eq!(many[1999], "memtier-10002998", "the last ones too");
    }
}
