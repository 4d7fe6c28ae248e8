//! Owns the conditions of a database: a word, a severity, a sentence, and advice. The API, the console, `flintkv` and
//! /metrics show these conditions, and do not judge by themselves. Never reads a clock, a file or a socket.

use crate::words::{WordOf, Words};
use base::{Policy, size};
use node::{Counter, Database, DatabaseState, Figures};
use serde::{Serialize, Serializer};
use std::cmp::Reverse;
use utoipa::ToSchema;

/// From this part of a limit on, a bar is amber, and the database is near full.
const NEAR_PERCENT: f64 = 85.0;
/// From this part of a limit on, a bar is red.
const ALMOST_PERCENT: f64 = 95.0;
/// RAM this far above its limit is a fault, whatever the limit is for.
const ABOVE_PERCENT: f64 = 110.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Good,
    Info,
    Warning,
    Critical,
}

base::words!(
    /// The worst come first.
    Word {
        Failed = "failed",
        Full = "full",
        ShardsDown = "shards down",
        Degraded = "degraded",
        TooFewReplicas = "too few replicas",
        LinkDown = "link down",
        Deleting = "deleting",
        Paused = "paused",
        Loading = "loading",
        Synchronising = "synchronising",
        WaitingForFlash = "waiting for flash",
        NearFull = "near full",
        Resizing = "resizing",
        Active = "active",
    }
);

impl Words for Word {
    const NAME: &'static str = "ConditionWord";
    const ABOUT: &'static str = "The state of a database, or what it is doing, in a word.";
    const WORDS: &'static [&'static str] = Word::WORDS;
}

type ConditionWord = WordOf<Word>;

impl Serialize for Word {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Condition {
    #[schema(value_type = ConditionWord)]
    pub name: Word,
    pub level: Level,
    /// The condition as a sentence to show.
    pub sentence: String,
    /// What to do about it; empty: nothing has to be done.
    pub advice: String,
}

/// How much of a limit is used.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Filling {
    pub used_bytes: u64,
    /// 0: no limit.
    pub limit_bytes: u64,
    /// null: no limit.
    pub percent: Option<f64>,
    /// warning from 85 % on, critical from 95 % on, where that matters: RAM in front of flash is full on purpose, and a database that
    /// evicts is never worse than warning.
    pub level: Level,
}

/// What a condition is judged by.
pub struct Facts<'f> {
    pub state: DatabaseState,
    pub failure: Option<String>,
    pub figures: &'f Figures,
    pub policy: Policy,
    /// Whether a write was refused within the last second because there was no room.
    pub refuses: bool,
}

impl<'f> Facts<'f> {
    pub fn of(database: &Database, figures: &'f Figures, refuses: bool) -> Facts<'f> {
        Facts {
            state: database.state(),
            failure: database.load_failure(),
            figures,
            policy: database.config().snapshot().maxmemory_policy,
            refuses,
        }
    }

    fn evicts(&self) -> bool {
        self.policy != Policy::NoEviction
    }

    fn has_flash(&self) -> bool {
        self.figures.store.flash_full_at_bytes > 0
    }

    pub fn ram(&self) -> Filling {
        let (used_bytes, limit_bytes) = (self.figures.used_ram_bytes, self.figures.ram_limit_bytes);
        let percent = self.figures.ram_percent();
        let level = match percent {
            Some(percent) if percent >= ABOVE_PERCENT => Level::Critical,
            _ if self.figures.store.ram_full => self.full_level(),
            Some(percent) if !self.has_flash() => self.level(percent),
            _ => Level::Good,
        };
        Filling { used_bytes, limit_bytes, percent, level }
    }

    /// The values on flash, and how much they may take.
    pub fn flash(&self) -> Filling {
        let store = &self.figures.store;
        let percent = self.figures.flash_percent();
        let level = match percent {
            _ if store.flash_full => self.full_level(),
            Some(percent) => self.level(percent),
            None => Level::Good,
        };
        Filling { used_bytes: store.flash_charged_bytes, limit_bytes: store.flash_full_at_bytes, percent, level }
    }

    /// RAM or flash of a database of the cluster, of which only its shards know what is in use. `None`: that is unknown.
    pub fn of_shards(&self, used_bytes: Option<f64>, limit_bytes: u64, is_full: bool) -> Option<Filling> {
        let used_bytes = used_bytes? as u64;
        let percent = (limit_bytes > 0).then(|| 100.0 * used_bytes as f64 / limit_bytes as f64);
        let level = if is_full { self.full_level() } else { Level::Good };
        Some(Filling { used_bytes, limit_bytes, percent, level })
    }

    fn full_level(&self) -> Level {
        if self.evicts() { Level::Warning } else { Level::Critical }
    }

    fn level(&self, percent: f64) -> Level {
        match percent {
            percent if percent >= ALMOST_PERCENT => self.full_level(),
            percent if percent >= NEAR_PERCENT => Level::Warning,
            _ => Level::Good,
        }
    }

    /// Worst first, and never empty.
    pub fn conditions(&self) -> Vec<Condition> {
        self.conditions_and(Vec::new())
    }

    /// With those that others have found.
    pub fn conditions_and(&self, mut found: Vec<Condition>) -> Vec<Condition> {
        self.life(&mut found);
        self.room(&mut found);
        self.durability(&mut found);
        self.replication(&mut found);
        if found.is_empty() {
            found.push(condition(Word::Active, Level::Good, "The database serves its clients.", ""));
        }
        found.sort_by_key(|condition| (Reverse(condition.level), condition.name as u8));
        found
    }

    fn life(&self, found: &mut Vec<Condition>) {
        let progress = |done, total| format!("{} of {}", size::human(done), size::human(total));
        found.push(match self.state {
            DatabaseState::Active => return,
            DatabaseState::Failed => condition(
                Word::Failed,
                Level::Critical,
                format!(
                    "The dataset could not be loaded, so nothing is served: {}",
                    self.failure.as_deref().unwrap_or("see the log for the reason")
                ),
                "Remove the cause and restart the node, or create the database again from a backup.",
            ),
            DatabaseState::Loading { done_bytes, total_bytes } => condition(
                Word::Loading,
                Level::Info,
                format!("The dataset is being loaded, {} are read.", progress(done_bytes, total_bytes)),
                "Clients get an error until the dataset is loaded. A backup is read twice, because it is verified first.",
            ),
            DatabaseState::Paused => condition(
                Word::Paused,
                Level::Warning,
                "Clients get an error for every command. The console can still use the database.",
                "Resume it when the work is done.",
            ),
            DatabaseState::Resizing { done_bytes, total_bytes } => condition(
                Word::Resizing,
                Level::Info,
                format!("Flash is being made smaller: {} are moved.", progress(done_bytes, total_bytes)),
                "",
            ),
            DatabaseState::Deleting => condition(Word::Deleting, Level::Warning, "The database is being deleted.", ""),
        });
    }

    fn room(&self, found: &mut Vec<Condition>) {
        const MORE: &str = "Give it a larger memory limit, delete keys, or choose a policy that evicts.";
        let store = &self.figures.store;
        let (ram, flash) = (self.figures.ram_percent(), self.figures.flash_percent());
        let is_near = |percent: Option<f64>| percent.is_some_and(|percent| percent >= NEAR_PERCENT);
        // A policy that evicts makes room. With other policies, the writes of this second were refused.
        let refuses = self.refuses && (is_near(ram) || is_near(flash));
        if store.flash_full || store.ram_full || refuses {
            let what = match self.has_flash() {
                true if store.flash_full => "Flash is full",
                true => "RAM is full of data that cannot move to flash",
                false => "RAM is full",
            };
            let (outcome, advice) = match self.evicts() {
                true => (format!("the policy {} makes room by evicting keys.", self.policy.as_str()), ""),
                false => ("writes are refused.".to_owned(), MORE),
            };
            found.push(condition(Word::Full, self.full_level(), format!("{what}: {outcome}"), advice));
            return;
        }
        let nearest = match self.has_flash() {
            true => flash.map(|percent| ("Flash", percent)),
            false => ram.map(|percent| ("RAM", percent)),
        };
        if let Some((what, percent)) = nearest.filter(|_| !self.evicts())
            && percent >= NEAR_PERCENT
        {
            let text = format!("{what} is {percent:.0} % full. When it is full, writes are refused.");
            found.push(condition(Word::NearFull, Level::Warning, text, MORE));
        }
        if store.flash_room == "waiting" && self.has_flash() {
            found.push(condition(
                Word::WaitingForFlash,
                Level::Warning,
                "Writes wait until the collector has made room on flash.",
                "If this lasts, give it a larger memory limit or a faster device: more room makes collecting cheaper.",
            ));
        }
    }

    fn durability(&self, found: &mut Vec<Condition>) {
        let (kept, store) = (&self.figures.durability, &self.figures.store);
        let mut degraded = |is_so: bool, level, sentence: String, advice: &str| {
            if is_so {
                found.push(condition(Word::Degraded, level, sentence, advice));
            }
        };
        degraded(
            kept.journal_has_failed,
            Level::Critical,
            "The journal cannot be written: writes are refused.".to_owned(),
            "Look for the device's error in the log. When the device works again, restart the node.",
        );
        let rot = store[Counter::RottenPages] + kept.damaged_checkpoints + kept.damaged_journals + kept.damaged_backups;
        degraded(
            rot > 0,
            Level::Critical,
            format!("Damage was found in {rot} places."),
            "Replace the device: the events and the log name the places.",
        );
        degraded(
            store.flash_retired_segments > 0,
            Level::Warning,
            format!("{} segments of flash are out of use after errors of the device.", store.flash_retired_segments),
            "They are tested, and used again if they work. If the number grows, replace the device.",
        );
        degraded(
            kept.checkpoint_failures > 0,
            Level::Warning,
            "No new checkpoint can be written: the journal grows.".to_owned(),
            "Look for the reason in the log; often the file system is full.",
        );
        degraded(
            kept.journal_missing_bytes > 0,
            Level::Warning,
            format!(
                "The journal's file system lacks {} for the next checkpoint.",
                size::human(kept.journal_missing_bytes)
            ),
            "Free space on the file system before it is full, because then writes are refused.",
        );
        if kept.journal.behind.is_some() {
            found.push(condition(
                Word::WaitingForFlash,
                Level::Warning,
                "Writes wait, because the journal's device is too slow.",
                "If this lasts, put the journal on a faster device, or set persistence to everysec instead of always.",
            ));
        }
    }

    fn replication(&self, found: &mut Vec<Condition>) {
        if self.figures.replicas_missing > 0 {
            found.push(condition(
                Word::TooFewReplicas,
                Level::Critical,
                format!(
                    "Writes are refused: {} of the replicas that min-replicas-to-write requires do not keep up.",
                    self.figures.replicas_missing
                ),
                "Repair a replica, or lower min-replicas-to-write.",
            ));
        }
        let Some(primary) = &self.figures.replication.primary else { return };
        let place = format!("{}:{}", primary.host, primary.port);
        if self.figures.is_full_replica {
            found.push(condition(
                Word::Full,
                Level::Critical,
                format!("Replication has stopped: this replica has no room for the data of its primary {place}."),
                "Give it larger limits, or delete keys on the primary. Replication then continues by itself.",
            ));
        } else if primary.is_synchronising {
            let progress = match primary.sync_total_bytes {
                0 => size::human(primary.sync_bytes),
                total => format!("{} of {}", size::human(primary.sync_bytes), size::human(total)),
            };
            let text = format!("The dataset of the primary {place} is being received: {progress} so far.");
            found.push(condition(Word::Synchronising, Level::Info, text, ""));
        } else if !primary.is_up {
            let since = primary.down_ms.map_or(String::new(), |ms| format!(" for {} s", ms / 1000));
            let why = primary.error.as_ref().map_or(String::new(), |why| format!(" ({why})"));
            found.push(condition(
                Word::LinkDown,
                Level::Critical,
                format!("There has been no link to the primary {place}{since}{why}: the data here are getting out of date."),
                "Check that the primary runs, and that address, user and password are right. If the primary is lost, promote this replica.",
            ));
        }
    }
}

/// Shards of a cluster's database whose node does not serve them. `advice`: what an operator has to decide about them.
pub fn unserved_shards(numbers: &[u16], node: &str, runs: bool, advice: Option<&str>) -> Condition {
    let list = numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    let shards = if let [_] = numbers { format!("Shard {list} is") } else { format!("Shards {list} are") };
    if let Some(advice) = advice {
        let text = format!("{shards} not served, and no copy becomes the primary by itself.");
        return condition(Word::ShardsDown, Level::Critical, text, &format!("An operator decides: {advice}."));
    }
    if runs {
        let text = format!("{shards} not served yet: node {node} is opening what it has.");
        return condition(
            Word::ShardsDown,
            Level::Warning,
            text,
            "If this lasts, look at flintkv cluster status and the node's log.",
        );
    }
    let advice = format!(
        "Start node {node} again. If it is gone for good, flintkv cluster forget {node} --lose-data has its shards go on with what other nodes have."
    );
    condition(Word::ShardsDown, Level::Critical, format!("{shards} not served: node {node} does not run."), &advice)
}

fn condition(word: Word, level: Level, sentence: impl Into<String>, advice: &str) -> Condition {
    Condition { name: word, level, sentence: sentence.into(), advice: advice.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::PrimaryFigures;

    const GB: u64 = 1 << 30;

    /// Half full, with 4 GB of RAM, and 92 GB of flash for values if there is flash.
    fn figures(has_flash: bool) -> Figures {
        let mut figures = Figures { used_ram_bytes: 2 * GB, ram_limit_bytes: 4 * GB, ..Figures::default() };
        if has_flash {
            figures.store.flash_charged_bytes = 46 * GB;
            figures.store.flash_full_at_bytes = 92 * GB;
        }
        figures.store.flash_room = "plenty";
        figures
    }

    fn facts(figures: &Figures) -> Facts<'_> {
        Facts { state: DatabaseState::Active, failure: None, figures, policy: Policy::NoEviction, refuses: false }
    }

    fn words(facts: &Facts<'_>) -> Vec<(&'static str, Level)> {
        facts.conditions().into_iter().map(|condition| (condition.name.as_str(), condition.level)).collect()
    }

    #[test]
    fn a_database_that_refuses_writes_is_never_good() {
        assert_eq!(words(&facts(&figures(true))), [("active", Level::Good)]);
        let mut flash_full = figures(true);
        flash_full.store.flash_full = true;
        let mut ram_full = figures(true);
        ram_full.store.ram_full = true;
        let mut no_journal = figures(true);
        no_journal.durability.journal_has_failed = true;
        let no_replica = Figures { replicas_missing: 1, ..figures(true) };
        for (figures, word) in
            [(flash_full, "full"), (ram_full, "full"), (no_journal, "degraded"), (no_replica, "too few replicas")]
        {
            assert_eq!(words(&facts(&figures)), [(word, Level::Critical)]);
        }
        // RAM is at its limit, but no flag is set yet.
        let at_limit = Figures { used_ram_bytes: 4 * GB, ..figures(false) };
        assert_eq!(words(&Facts { refuses: true, ..facts(&at_limit) }), [("full", Level::Critical)]);
        // A database is not full because one reply was too large for the memory of clients.
        assert_eq!(words(&Facts { refuses: true, ..facts(&figures(true)) }), [("active", Level::Good)]);
    }

    #[test]
    fn bars_turn_amber_at_85_and_red_at_95_percent() {
        let level = |percent: u64| {
            let mut of_flash = figures(true);
            of_flash.store.flash_charged_bytes = 92 * GB * percent / 100;
            let of_ram = Figures { used_ram_bytes: 4 * GB * percent / 100, ..figures(false) };
            assert_eq!(facts(&of_flash).flash().level, facts(&of_ram).ram().level);
            (facts(&of_flash).flash().level, words(&facts(&of_flash))[0].0)
        };
        assert_eq!(level(84), (Level::Good, "active"));
        assert_eq!(level(86), (Level::Warning, "near full"));
        assert_eq!(level(96), (Level::Critical, "near full"));
        // With flash, RAM is full on purpose, but not far above its limit.
        let ram_of = |percent| Figures { used_ram_bytes: 4 * GB * percent / 100, ..figures(true) };
        assert_eq!(facts(&ram_of(99)).ram().level, Level::Good);
        assert_eq!(facts(&ram_of(111)).ram().level, Level::Critical);
        assert_eq!(
            facts(&Figures::default()).ram(),
            Filling { used_bytes: 0, limit_bytes: 0, percent: None, level: Level::Good }
        );
    }

    #[test]
    fn a_policy_that_evicts_makes_full_a_warning() {
        let mut full = figures(true);
        full.store.flash_full = true;
        full.store.flash_charged_bytes = 92 * GB;
        let facts = Facts { policy: Policy::AllKeysLru, ..facts(&full) };
        assert_eq!((words(&facts), facts.flash().level), (vec![("full", Level::Warning)], Level::Warning));
        assert!(facts.conditions()[0].sentence.contains("allkeys-lru"));
    }

    #[test]
    fn the_worst_comes_first_and_each_says_what_to_do() {
        let mut figures = figures(true);
        figures.store.flash_room = "waiting";
        figures.store.flash_retired_segments = 2;
        figures.durability.journal_has_failed = true;
        let primary = PrimaryFigures {
            host: "a".into(),
            port: 1,
            state: "connect",
            is_up: false,
            is_synchronising: false,
            silent_ms: None,
            down_ms: Some(3000),
            sync_total_bytes: 0,
            sync_bytes: 0,
            error: Some("refused".into()),
        };
        figures.replication.primary = Some(primary.clone());
        let facts = Facts { state: DatabaseState::Resizing { done_bytes: 1, total_bytes: 2 }, ..facts(&figures) };
        let found = facts.conditions();
        assert_eq!(
            words(&facts),
            [
                ("degraded", Level::Critical),
                ("link down", Level::Critical),
                ("degraded", Level::Warning),
                ("waiting for flash", Level::Warning),
                ("resizing", Level::Info),
            ]
        );
        assert!(found.iter().filter(|one| one.level >= Level::Warning).all(|one| !one.advice.is_empty()));
        let text =
            "There has been no link to the primary a:1 for 3 s (refused): the data here are getting out of date.";
        assert_eq!(found[1].sentence, text);
        figures.replication.primary = Some(PrimaryFigures { is_synchronising: true, sync_bytes: 5, ..primary });
        let synchronising = self::facts(&figures);
        assert_eq!(words(&synchronising)[2..], [("waiting for flash", Level::Warning), ("synchronising", Level::Info)]);
        figures.is_full_replica = true;
        assert_eq!(words(&self::facts(&figures))[0], ("full", Level::Critical));
    }
}
