//! What goes wrong: processes end, machines lose power, connections break.

use super::{COPIES, Fate, Log, Mutant, Process, Sim};
use cluster::failover::Replica;
use cluster::ids::Epoch;

impl Sim {
    pub(super) fn fault(&mut self, copy: usize) {
        let other = self.random.index(COPIES);
        match self.random.below(24) {
            0 => self.kill(copy),
            1 if self.chance(3) => self.lose_power(copy),
            1..3 => {
                self.kill(copy);
                self.start(copy);
                // The controller sees at once that it is another process.
                self.ask_all();
            }
            3..6 => {
                if self.nodes[copy].process.is_none() {
                    self.start(copy);
                }
            }
            6 => self.nodes[copy].is_paused = true,
            7..10 => self.nodes[copy].is_paused = false,
            10..12 => self.blocked[copy][other] = true,
            12..16 => self.blocked[copy][other] = false,
            16..18 => self.nodes[copy].hears_etcd = false,
            18..22 => self.nodes[copy].hears_etcd = true,
            _ => self.cut(copy),
        }
    }

    pub(super) fn start(&mut self, copy: usize) {
        self.tell(|| format!("{copy} starts with {:?}", self.nodes[copy].disk));
        let local = self.local(copy);
        let forgets_grants = self.is(Mutant::GrantsForgotten);
        let disk = &mut self.nodes[copy].disk;
        // Who has not all that it has acknowledged is not what the record names any more.
        if disk.acknowledged > disk.log.len() || !disk.is_whole {
            disk.incarnation = self.next_incarnation;
            disk.acknowledged = 0;
            disk.is_whole = true;
            self.next_incarnation += 1;
        }
        let promised = if self.options.mutant == Some(Mutant::PromiseForgotten) { Epoch::FIRST } else { disk.promised };
        // What it reads of etcd first may be old.
        let (random, node) = (&mut self.random, &mut self.nodes[copy]);
        if random.below(3) == 0 {
            node.seen -= random.index(node.seen.min(3) + 1);
        }
        let replica = Replica::start(promised, if forgets_grants { 0 } else { local });
        self.nodes[copy].process = Some(Process {
            replica,
            received: Log::new(),
            arriving: None,
            primary: None,
            promoting: None,
            ended: node.disk.served,
            upstream: None,
            transaction: None,
            waiting: Vec::new(),
            settled: Vec::new(),
        });
    }

    fn kill(&mut self, copy: usize) {
        self.tell(|| format!("{copy} is killed"));
        let node = &mut self.nodes[copy];
        node.is_paused = false;
        let Some(process) = node.process.take() else { return };
        self.orphans.extend(
            process.transaction.filter(|sent| sent.fate == Fate::Pending).map(|sent| (sent.expected, sent.record)),
        );
        self.cut_from(copy);
    }

    pub(super) fn lose_power(&mut self, copy: usize) {
        self.tell(|| format!("{copy} loses its power"));
        self.kill(copy);
        let disk = &mut self.nodes[copy].disk;
        disk.log.truncate(disk.synced);
        // A dataset that has arrived is durable as a whole, with the stream that it is of.
        if disk.log.is_empty() {
            (disk.stream, disk.earlier) = (None, None);
        }
        // What was acknowledged before a loss of power is known only if it was synced before.
        if !self.syncs_always {
            disk.acknowledged = usize::MAX;
        }
    }

    /// The replica's connection.
    fn cut(&mut self, copy: usize) {
        if let Some(process) = &mut self.nodes[copy].process {
            process.upstream = None;
        }
    }

    /// The connections to this primary.
    pub(super) fn cut_from(&mut self, primary: usize) {
        for node in &mut self.nodes {
            let Some(process) = &mut node.process else { continue };
            if process.upstream.as_ref().is_some_and(|upstream| upstream.primary == primary) {
                process.upstream = None;
            }
        }
    }

    pub(super) fn runs(&self, copy: usize) -> bool {
        self.nodes[copy].process.is_some() && !self.nodes[copy].is_paused
    }

    // Clients
}
