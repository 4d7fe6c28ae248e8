//! Owns a rule: its fields, their bounds, and the default rules of every node. Never knows the state of a rule.

use crate::error::ApiError;
use crate::events::Severity;
use node::metrics::Scope;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

const NAME_BYTES_MAX: usize = 100;
const FOR_S_MAX: u64 = 7 * 24 * 3600;

/// A default rule. There is at most one for each metric, because the metric is the rule's id.
pub struct Given {
    /// Its name in contrib/prometheus: alerts.yml, or cluster-alerts.yml.
    #[allow(dead_code, reason = "a test compares the two lists")]
    pub prometheus: &'static str,
    name: &'static str,
    metric: &'static str,
    /// `databases`: the rule applies to each database; or `node`.
    scope: &'static str,
    op: Op,
    threshold: f64,
    for_s: u64,
    keep_s: u64,
    severity: Severity,
}

const fn above(
    prometheus: &'static str,
    severity: Severity,
    metric: &'static str,
    threshold: f64,
    for_s: u64,
    name: &'static str,
) -> Given {
    Given { prometheus, name, metric, scope: "databases", op: Op::Above, threshold, for_s, keep_s: 0, severity }
}

impl Given {
    /// For conditions that last only a moment: the alert stays visible for a while.
    const fn kept(self, keep_s: u64) -> Given {
        Given { keep_s, ..self }
    }

    const fn of_node(self) -> Given {
        Given { scope: "node", ..self }
    }

    const fn below(self) -> Given {
        Given { op: Op::Below, ..self }
    }
}

use Severity::{Critical, Info, Warning};

/// The default rules. Each applies to every database, or to the node. `FlintKVDown` and `FlintKVRestarted` exist only for
/// Prometheus: a node that is down cannot report it, and a restart is an event.
#[rustfmt::skip]
pub const GIVEN: &[Given] = &[
    above("FlintKVJournalFailed", Critical, "journal_failed", 0.0, 0, "the journal cannot be written: writes are refused"),
    above("FlintKVJournalBehind", Warning, "journal_behind", 0.0, 60, "the journal's device is behind: writes wait"),
    above("FlintKVJournalWaits", Warning, "journal_waiting", 0.1, 120, "the journal is nearly full again and again: writes wait"),
    above("FlintKVSlowSync", Warning, "journal_sync_us", 1_000_000.0, 120, "syncs of the journal are late"),
    above("FlintKVCheckpointFailed", Warning, "checkpoint_failures", 0.0, 0, "no new checkpoint can be written: the journal grows"),
    above("FlintKVRecoveryTargetMissed", Warning, "recovery_late", 0.0, 300, "a restart takes longer than recovery-time-target"),
    above("FlintKVJournalNearFull", Warning, "journal_missing_bytes", 0.0, 60, "the journal's file system has too little room"),
    above("FlintKVRot", Critical, "rot", 0.0, 0, "damage was found: replace the device"),
    above("FlintKVBackupFailed", Critical, "backup_failed", 0.0, 0, "the last backup failed"),
    above("FlintKVArchiveFailed", Critical, "archive_failed", 0.0, 120, "the journal is not archived: a database cannot be restored to a time after its newest backup"),
    above("FlintKVLoadFailed", Critical, "load_failed", 0.0, 0, "the dataset could not be loaded: nothing is served"),
    above("FlintKVRamAboveLimit", Critical, "ram_percent", 110.0, 300, "RAM is far above its limit"),
    above("FlintKVIndexTakesRam", Warning, "index_percent", 50.0, 900, "the index takes most of the RAM limit"),
    above("FlintKVLowRamHitRatio", Warning, "busy_hit_ratio", 0.5, 1800, "few reads find their value in RAM").below(),
    above("FlintKVEvicting", Warning, "evicted", 0.0, 300, "keys are evicted"),
    above("FlintKVFlashFull", Critical, "flash_full", 0.0, 60, "flash is full: writes are refused, or keys evicted"),
    above("FlintKVRamFull", Critical, "ram_full", 0.0, 60, "RAM is full of data that cannot move to flash"),
    above("FlintKVFlashNearlyFull", Warning, "flash_percent", 85.0, 900, "flash is nearly full"),
    above("FlintKVRefusesWrites", Critical, "refused", 0.0, 0, "writes are refused").kept(60),
    above("FlintKVChecksumErrors", Critical, "checksum_errors", 0.0, 0, "flash returns damaged pages").kept(900),
    above("FlintKVFlashErrors", Critical, "flash_errors", 0.0, 0, "reads or writes of flash fail").kept(900),
    above("FlintKVSlowFlash", Warning, "flash_latency_p99_us", 10_000.0, 600, "reads from flash are slow"),
    above("FlintKVWriteAmplification", Warning, "busy_write_amplification", 3.0, 1800, "much more is written to flash than clients write"),
    above("FlintKVRejectedConnections", Warning, "rejected_clients", 0.0, 0, "connections are refused: maxclients").kept(300),
    above("FlintKVDatabasePaused", Info, "paused", 0.0, 3600, "the database has been paused for an hour"),
    above("FlintKVReplicaLinkDown", Critical, "link_down", 0.0, 30, "the link to the primary is broken"),
    above("FlintKVReplicaLag", Warning, "replica_lag_us", 30_000_000.0, 60, "a replica is far behind"),
    above("FlintKVReplicaDiffers", Critical, "replica_differences", 0.0, 0, "a replica's data differ from the primary's").kept(900),
    above("FlintKVTooFewReplicas", Critical, "replicas_missing", 0.0, 10, "too few replicas keep up: writes are refused"),
    above("FlintKVShardWithoutOwner", Critical, "shards_down", 0.0, 30, "nobody serves a shard: its keys answer CLUSTERDOWN"),
    above("FlintKVShardWithoutReplica", Critical, "shards_alone", 0.0, 120, "a shard has no replica in sync: the next failure stops it"),
    above("FlintKVReplicaOutOfSync", Warning, "copies_out_of_sync", 0.0, 300, "a copy of a shard is not in sync"),
    above("FlintKVClusterNodeDown", Critical, "nodes_down", 0.0, 60, "a node of the cluster does not run").of_node(),
    above("FlintKVControllerMissing", Critical, "no_controller", 0.0, 30, "nobody leads the cluster: no primary is named when a node is lost").of_node(),
    above("FlintKVClocksApart", Warning, "clocks_apart_us", 1_000_000.0, 60, "the clocks of two nodes are apart").of_node(),
    above("FlintKVEtcdUnreachable", Critical, "etcd_away", 0.0, 30, "this node does not reach etcd: the cluster cannot be changed").of_node(),
    above("FlintKVEtcdNoLeader", Critical, "etcd_no_leader", 0.0, 60, "etcd has no leader: less than a majority of its members is there").of_node(),
    above("FlintKVEtcdSlow", Warning, "etcd_slowest_us", 500_000.0, 60, "etcd is slow").of_node(),
    above("FlintKVMachineBusy", Warning, "machine_cpu_percent", 90.0, 900, "the machine's processors are busy").of_node(),
    above("FlintKVMachineLowRam", Critical, "machine_ram_free_percent", 5.0, 300, "the machine is short of RAM").of_node().below(),
    above("FlintKVDiskNearlyFull", Warning, "disk_free_percent", 5.0, 60, "a disk of the node is nearly full").of_node().below(),
    above("FlintKVSlowDisk", Warning, "disk_latency_us", 20_000.0, 600, "a disk of the node is slow").of_node(),
];

impl From<&Given> for Rule {
    fn from(given: &Given) -> Rule {
        let &Given { name, metric, scope, op, threshold, for_s, keep_s, severity, .. } = given;
        Rule {
            id: metric.replace('_', "-"),
            name: name.to_owned(),
            metric: metric.to_owned(),
            scope: scope.to_owned(),
            op,
            threshold,
            for_s,
            keep_s,
            severity,
            enabled: true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Op {
    #[serde(rename = ">")]
    Above,
    #[serde(rename = "<")]
    Below,
}

#[derive(Clone, Debug, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRule {
    name: String,
    /// The name of a metric in GET /api/v1/metrics-catalog.
    metric: String,
    /// `node`, `databases` (each of them) or `database:NAME`.
    scope: String,
    op: Op,
    threshold: f64,
    /// The alert fires after the threshold was passed for this long without a break.
    #[serde(default)]
    for_s: u64,
    /// The alert ends after the threshold was not passed for this long without a break.
    #[serde(default)]
    keep_s: u64,
    severity: Severity,
    #[serde(default = "yes")]
    enabled: bool,
}

fn yes() -> bool {
    true
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Rule {
    pub id: String,
    pub name: String,
    pub metric: String,
    pub scope: String,
    pub op: Op,
    pub threshold: f64,
    pub for_s: u64,
    #[serde(default)]
    pub keep_s: u64,
    pub severity: Severity,
    pub enabled: bool,
}

impl Rule {
    pub fn is_beyond(&self, value: f64) -> bool {
        match self.op {
            Op::Above => value > self.threshold,
            Op::Below => value < self.threshold,
        }
    }
}

impl NewRule {
    pub fn checked(self, id: String) -> Result<Rule, ApiError> {
        let NewRule { name, metric, scope, op, threshold, for_s, keep_s, severity, enabled } = self;
        if name.trim().is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(ApiError::field("name", format!("1 to {NAME_BYTES_MAX} bytes are expected")));
        }
        let of = match scope.as_str() {
            "node" => Scope::Node,
            scope if scope == "databases" || scope.strip_prefix("database:").is_some_and(|name| !name.is_empty()) => {
                Scope::Database
            }
            _ => return Err(ApiError::field("scope", "node, databases or database:NAME is expected")),
        };
        if of.column(&metric).is_none() {
            return Err(ApiError::field("metric", format!("there is no metric '{metric}' in this scope"))
                .hint("GET /api/v1/metrics-catalog lists them"));
        }
        if !threshold.is_finite() {
            return Err(ApiError::field("threshold", "a finite number is expected"));
        }
        for (field, seconds) in [("for_s", for_s), ("keep_s", keep_s)] {
            if seconds > FOR_S_MAX {
                return Err(ApiError::field(field, "at most a week is allowed"));
            }
        }
        Ok(Rule { id, name, metric, scope, op, threshold, for_s, keep_s, severity, enabled })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_rules_of_the_beginning_are_as_the_api_takes_them() {
        for rule in GIVEN.iter().map(Rule::from) {
            let Rule { name, metric, scope, op, threshold, for_s, keep_s, severity, enabled, id } = rule.clone();
            let wanted = NewRule { name, metric, scope, op, threshold, for_s, keep_s, severity, enabled };
            assert_eq!(wanted.checked(id).unwrap(), rule);
        }
        let ids: BTreeSet<&str> = GIVEN.iter().map(|given| given.metric).collect();
        assert_eq!(ids.len(), GIVEN.len());
    }

    /// These compare what several nodes say, or are of one link or one certificate.
    const ONLY_PROMETHEUS: [&str; 12] = [
        "FlintKVCertificateEnds",
        "FlintKVClusterTroubles",
        "FlintKVDown",
        "FlintKVEtcdAlarm",
        "FlintKVEtcdMemberDown",
        "FlintKVEtcdNearlyFull",
        "FlintKVForwardsRejected",
        "FlintKVLinkDown",
        "FlintKVLinkSlow",
        "FlintKVProxyRamFull",
        "FlintKVRestarted",
        "FlintKVUncertainReplies",
    ];

    #[test]
    fn the_console_has_the_rules_that_prometheus_has() {
        let text = concat!(
            include_str!("../../../../contrib/prometheus/alerts.yml"),
            include_str!("../../../../contrib/prometheus/cluster-alerts.yml")
        );
        let theirs: BTreeSet<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
        let ours: BTreeSet<&str> = GIVEN.iter().map(|given| given.prometheus).collect();
        let only_theirs: Vec<&str> = theirs.difference(&ours).copied().collect();
        assert_eq!(only_theirs, ONLY_PROMETHEUS);
        assert_eq!(ours.difference(&theirs).count(), 0, "{ours:?}");
        // Both lists must have the same duration and severity.
        for rule in text.split("- alert: ").skip(1) {
            let Some(given) = GIVEN.iter().find(|given| rule.lines().next() == Some(given.prometheus)) else {
                continue;
            };
            let value =
                |name: &str| rule.lines().find_map(|line| line.trim().strip_prefix(name)).map_or("0s", str::trim);
            let (count, unit) = value("for:").split_at(value("for:").len() - 1);
            let seconds = count.parse::<u64>().unwrap()
                * [("s", 1), ("m", 60), ("h", 3600)].iter().find(|(known, _)| *known == unit).unwrap().1;
            assert_eq!(seconds, given.for_s, "{}", given.prometheus);
            let severity = serde_json::to_value(given.severity).unwrap();
            assert!(value("labels:").contains(severity.as_str().unwrap()), "{}", given.prometheus);
        }
    }

    /// docs/operations.md has a row for each rule; where a rule waits, the row says how long.
    #[test]
    fn the_guide_has_the_rules_and_their_times() {
        let guide = include_str!("../../../../docs/operations.md");
        for given in GIVEN {
            let row = guide.lines().find(|line| line.starts_with(&format!("| {} |", given.prometheus)));
            let row = row.unwrap_or_else(|| panic!("{} is missing", given.prometheus));
            let means = row.split(" | ").nth(1).unwrap();
            let time = match given.for_s {
                0 => continue,
                seconds @ 1..60 => format!("{seconds} s"),
                seconds @ 60..3600 => format!("{} min", seconds / 60),
                seconds => format!("{} h", seconds / 3600),
            };
            assert!(means.contains(&format!("for {time}")), "{}: for {time}", given.prometheus);
        }
    }
}
