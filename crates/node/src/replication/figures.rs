//! Owns what is shown of a database as a primary and as a replica. Plain data. Never changes anything.

use crate::database::Database;
use crate::role::{GivenUp, LinkState};
use base::clock::wall_ms;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// A database as a primary, and as a replica if it follows. The counts are of this run of the node.
#[derive(Clone, Debug, Default)]
pub struct ReplicationFigures {
    /// `None`: it is a primary.
    pub primary: Option<PrimaryFigures>,
    pub replicas: Vec<ReplicaFigures>,
    /// Of its stream; empty: there is none.
    pub id: String,
    /// The bytes of its stream.
    pub offset: u64,
    /// Which of them can still be sent to a replica that was cut off.
    pub backlog: Range<u64>,
    pub backlog_bytes_max: u64,
    pub full_syncs: u64,
    pub partial_syncs: u64,
    pub refused_partial_syncs: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Commands of the primary that have failed here.
    pub failed_commands: u64,
    /// It was promoted, and its primary still sent.
    pub was_promoted_while_primary_up: bool,
    /// What it had that the primary whose dataset it took last had not.
    pub given_up: Option<GivenUp>,
    /// INFO's word.
    pub failover: &'static str,
    pub checks: CheckFigures,
}

/// The comparisons of the datasets of primary and replica.
#[derive(Clone, Debug, Default)]
pub struct CheckFigures {
    pub done: u64,
    pub given_up: u64,
    /// How many have found a difference.
    pub differences: u64,
    /// `None`: there was none.
    pub last_ago_ms: Option<u64>,
    /// Of the last one.
    pub stripes: usize,
    pub error: Option<String>,
}

/// Whom the database follows.
#[derive(Clone, Debug)]
pub struct PrimaryFigures {
    pub host: String,
    pub port: u16,
    /// ROLE's word: connect, connecting, handshake, sync or connected.
    pub state: &'static str,
    pub is_up: bool,
    /// The primary's dataset is being received or loaded.
    pub is_synchronising: bool,
    /// `None`: nothing has come yet.
    pub silent_ms: Option<u64>,
    /// `None`: it is up.
    pub down_ms: Option<u64>,
    /// Of the dataset that is being received; 0: not known.
    pub sync_total_bytes: u64,
    pub sync_bytes: u64,
    pub error: Option<String>,
}

/// Who follows the database.
#[derive(Clone, Debug)]
pub struct ReplicaFigures {
    pub ip: String,
    pub port: u16,
    pub version: String,
    /// INFO's word: wait_bgsave, send_bulk, online.
    pub state: &'static str,
    /// The bytes of the stream that it has.
    pub offset: u64,
    pub lag_bytes: u64,
    /// When it last said something.
    pub silent_ms: u64,
    /// Of the dataset that it gets; 0: it gets none.
    pub sync_total_bytes: u64,
    pub sync_bytes: u64,
}

impl Database {
    pub(crate) fn check_figures(&self, now_ms: u64) -> CheckFigures {
        let state = self.replication.checks.0.lock();
        let (stripes, error) = match &state.last {
            Ok(stripes) => (*stripes, None),
            Err(why) => (0, Some(why.clone())),
        };
        CheckFigures {
            done: state.done,
            given_up: state.given_up,
            differences: state.differences,
            last_ago_ms: (state.ended_ms != 0).then(|| now_ms.saturating_sub(state.ended_ms)),
            stripes,
            error,
        }
    }

    /// What has happened to the database as a replica since the last call, and people must know.
    pub fn take_replication_news(&self) -> Vec<String> {
        self.replication.untold.lock().drain(..).collect()
    }

    pub fn replication_figures(&self) -> ReplicationFigures {
        let (hub, now_ms) = (&self.hub, wall_ms());
        let stream = &hub.dataset.journaling.stream;
        let mark = stream.mark();
        let offset = mark.map_or(0, |_| self.applied_offset());
        let since = |at_ms: u64| (at_ms != 0).then(|| now_ms.saturating_sub(at_ms));
        let primary = self.replication.role.following().map(|following| {
            let state = following.state();
            let is_syncing = matches!(state, LinkState::Sync | LinkState::Load);
            let of_sync = |bytes: u64| if is_syncing { bytes } else { 0 };
            let is_up = state == LinkState::Connected;
            PrimaryFigures {
                host: following.host.clone(),
                port: following.port,
                state: state.name(),
                is_up,
                is_synchronising: is_syncing,
                silent_ms: since(following.last_io_ms.load(Relaxed)),
                down_ms: since(following.down_since_ms.load(Relaxed)).filter(|_| !is_up),
                sync_total_bytes: of_sync(following.sync_total_bytes.load(Relaxed)),
                sync_bytes: of_sync(following.sync_bytes.load(Relaxed)),
                error: following.error.lock().clone(),
            }
        });
        let replicas = hub.dataset.links.all().into_iter().map(|link| ReplicaFigures {
            ip: link.ip.clone(),
            port: link.port,
            version: link.version.to_string(),
            state: link.phase().name(),
            offset: link.acked(),
            lag_bytes: offset.saturating_sub(link.acked()),
            silent_ms: link.silent_ms(now_ms),
            sync_total_bytes: link.dump_bytes.load(Relaxed),
            sync_bytes: link.dump_sent_bytes.load(Relaxed),
        });
        let (links, role) = (&hub.dataset.links, &self.replication.role);
        ReplicationFigures {
            primary,
            replicas: replicas.collect(),
            id: mark.map_or_else(String::new, |mark| mark.id.to_string()),
            offset,
            backlog: stream.backlog(),
            backlog_bytes_max: hub.config.snapshot().redis_files.backlog_bytes,
            full_syncs: links.full_syncs.load(Relaxed),
            partial_syncs: links.partial_syncs.load(Relaxed),
            refused_partial_syncs: links.refused_partial_syncs.load(Relaxed),
            sent_bytes: links.sent_bytes.load(Relaxed),
            received_bytes: role.received_bytes.load(Relaxed),
            failed_commands: role.failures.count.load(Relaxed),
            was_promoted_while_primary_up: role.left.lock().as_ref().is_some_and(|left| left.was_up),
            given_up: *role.given_up.lock(),
            failover: self.failover_state(),
            checks: self.check_figures(now_ms),
        }
    }
}
