//! Owns what a copy of a shard with replicas has promised, granted and acknowledged, and what of that is durable. Never knows the dataset, a
//! connection, or which role the copy has.

use cluster::failover::{Heartbeat, Replica};
use cluster::ids::{CopyNumber, Epoch, Incarnation};
use cluster::records::{Member, Unknown};
use engine::random;
use engine::replication::BootClock;
use parking_lot::Mutex;
use std::sync::Arc;

/// What a copy makes durable of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyMemory {
    /// Of the dataset that it has. It changes before the first byte of the dataset is thrown away.
    pub incarnation: Incarnation,
    /// It acknowledges nothing to primaries of older epochs.
    pub promised: Epoch,
    /// The last epoch in which it has served.
    pub served: Option<Epoch>,
    /// It follows a primary, and acknowledges what is only in its memory. If the process ends, the dataset may miss something of that:
    /// then the copy takes a new incarnation when it begins.
    pub acknowledges: bool,
}

/// What a copy needs of who keeps it. Called from several threads.
pub trait CopyHost: Send + Sync {
    /// Makes this durable: when it returns `Ok`, a loss of power does not change it back. After an error the old one may be there, or
    /// the new one. The copy acknowledges nothing meanwhile. Must not call the copy.
    fn keep(&self, memory: &CopyMemory) -> Result<(), String>;

    /// What the copy is asked may have other answers than before, or its database asks to be opened again (`Database::must_reopen`). Must not
    /// wait, and must not call the copy.
    fn changed(&self);
}

pub struct Promises {
    number: CopyNumber,
    host: Arc<dyn CopyHost>,
    clock: BootClock,
    /// The last epoch in which an earlier process has served: this one never does.
    ended: Option<Epoch>,
    state: Mutex<PromiseState>,
}

struct PromiseState {
    memory: CopyMemory,
    replica: Replica,
    /// The offset of the primary's stream up to which it was received.
    received: u64,
}

impl Promises {
    /// `memory`: what was kept last, perhaps by an earlier process.
    pub fn begin(
        number: CopyNumber,
        memory: CopyMemory,
        host: Arc<dyn CopyHost>,
        clock: BootClock,
    ) -> Result<Promises, String> {
        let replica = Replica::start(memory.promised, clock.now_ms());
        let state = Mutex::new(PromiseState { memory, replica, received: 0 });
        let promises = Promises { number, host, clock, ended: memory.served, state };
        if memory.acknowledges {
            promises.renew()?;
        }
        Ok(promises)
    }

    pub fn memory(&self) -> CopyMemory {
        self.state.lock().memory
    }

    pub fn me(&self) -> Member {
        Member { copy: self.number, incarnation: self.memory().incarnation, unknown: Unknown::new() }
    }

    pub fn ended(&self) -> Option<Epoch> {
        self.ended
    }

    pub fn changed(&self) {
        self.host.changed();
    }

    /// Nothing is heard or acknowledged meanwhile.
    fn keep(&self, change: impl FnOnce(&mut CopyMemory)) -> Result<(), String> {
        let mut state = self.state.lock();
        let mut memory = state.memory;
        change(&mut memory);
        if memory != state.memory {
            self.host.keep(&memory).map_err(|why| format!("what the copy promises cannot be made durable: {why}"))?;
            state.memory = memory;
        }
        if memory.promised > state.replica.promised() {
            state.replica.promise(memory.promised);
        }
        Ok(())
    }

    /// From now on, nothing is acknowledged to a primary of an older epoch.
    pub fn promise(&self, epoch: Epoch) -> Result<(), String> {
        self.keep(|memory| memory.promised = memory.promised.max(epoch))
    }

    /// The dataset is to be another one, or misses something that was acknowledged.
    pub fn renew(&self) -> Result<(), String> {
        let mut incarnation = [0; 8];
        random::fill(&mut incarnation);
        let kept = self.keep(|memory| memory.incarnation = Incarnation(incarnation));
        // If that cannot be made durable, nobody takes this process for the copy that it was all the same; and the next one, which finds
        // on disk that the copy acknowledges, renews it.
        self.state.lock().memory.incarnation = Incarnation(incarnation);
        kept
    }

    /// Called before anything is acknowledged that only memory has.
    pub fn acknowledge(&self) -> Result<(), String> {
        self.keep(|memory| memory.acknowledges = true)
    }

    /// It serves in this epoch, which it promises too, and has applied all that it has acknowledged.
    pub fn serve(&self, epoch: Epoch) -> Result<(), String> {
        self.keep(|memory| {
            memory.promised = memory.promised.max(epoch);
            (memory.served, memory.acknowledges) = (Some(epoch), false);
        })
    }

    /// A primary's heartbeat. False: it must not be acknowledged, and nothing else of this primary.
    #[must_use]
    pub fn hear(&self, heartbeat: &Heartbeat) -> bool {
        self.state.lock().replica.hear(heartbeat, self.clock.now_ms())
    }

    pub fn accepts(&self, epoch: Epoch) -> bool {
        self.state.lock().replica.accepts(epoch)
    }

    pub fn grants_have_ended(&self) -> bool {
        self.state.lock().replica.grants_have_ended(self.clock.now_ms())
    }

    pub fn hears_a_lease(&self) -> bool {
        self.state.lock().replica.hears_a_lease(self.clock.now_ms())
    }

    pub fn received(&self) -> u64 {
        self.state.lock().received
    }

    pub fn set_received(&self, offset: u64) {
        self.state.lock().received = offset;
    }
}
