//! Owns what is shown of a database as a primary and as a replica. Plain data. Never changes anything.

use crate::database::Database;
use crate::role::LinkState;
use engine::wall_ms;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// A database as a primary, and as a replica if it follows.
#[derive(Clone, Debug)]
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
    /// INFO's word.
    pub failover: &'static str,
}

/// Whom the database follows.
#[derive(Clone, Debug)]
pub struct PrimaryFigures {
    pub host: String,
    pub port: u16,
    /// ROLE's word: connect, connecting, handshake, sync or connected.
    pub state: &'static str,
    pub is_up: bool,
    /// `None`: nothing has come yet.
    pub silent_ms: Option<u64>,
    /// `None`: it is up.
    pub down_ms: Option<u64>,
    /// Of the dataset that is being received; 0: not known.
    pub sync_total_bytes: u64,
    pub sync_bytes: u64,
    pub error: Option<String>,
    /// Commands of the primary that have failed here.
    pub failed_commands: u64,
}

/// Who follows the database.
#[derive(Clone, Debug)]
pub struct ReplicaFigures {
    pub address: String,
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
    pub fn replication_figures(&self) -> ReplicationFigures {
        let (hub, now_ms) = (&self.hub, wall_ms());
        let stream = &hub.journaling.stream;
        let mark = stream.mark();
        let offset = mark.map_or(0, |mark| mark.offset);
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
                silent_ms: since(following.last_io_ms.load(Relaxed)),
                down_ms: since(following.down_since_ms.load(Relaxed)).filter(|_| !is_up),
                sync_total_bytes: of_sync(following.sync_total_bytes.load(Relaxed)),
                sync_bytes: of_sync(following.sync_bytes.load(Relaxed)),
                error: following.error.lock().clone(),
                failed_commands: self.replication.role.failures.count.load(Relaxed),
            }
        });
        let replicas = hub.links.all().into_iter().map(|link| ReplicaFigures {
            address: format!("{}:{}", link.ip, link.port),
            version: link.version.to_string(),
            state: link.phase().name(),
            offset: link.acked(),
            lag_bytes: offset.saturating_sub(link.acked()),
            silent_ms: link.silent_ms(now_ms),
            sync_total_bytes: link.dump_bytes.load(Relaxed),
            sync_bytes: link.dump_sent_bytes.load(Relaxed),
        });
        ReplicationFigures {
            primary,
            replicas: replicas.collect(),
            id: mark.map_or_else(String::new, |mark| mark.id.to_string()),
            offset,
            backlog: stream.backlog(),
            failover: self.failover_state(),
        }
    }
}
