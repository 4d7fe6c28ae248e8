//! Owns a store over a simulated device, whose commands run as a session runs them, for the tests beside it.

#![allow(dead_code, reason = "each test uses some of it")]

pub use base::random::SplitMix64 as Random;
use flash::Sim;
use std::sync::Arc;
use std::task::{Poll, Waker};
use store::{
    Admission, Codec, Cold, FlashConfig, Keyspace, Kind, Lane, LimitOf, Policy, ReadError, ResizeError, Resume, Show,
    Store, StoreConfig, Value,
};

pub struct Node {
    pub sim: Sim,
    pub store: Arc<Store>,
    pub lanes: Vec<Lane>,
    resume: Resume,
    pub now_ms: u64,
    turn: usize,
}

/// How a command ended that needs values from flash.
pub type Answer<T> = Result<T, ReadError>;

impl Node {
    pub fn new(seed: u64, ram: u64, flash: u64, codec: Codec, policy: Policy) -> Node {
        Node::with(seed, ram, flash, codec, policy, 2, 2)
    }

    pub fn with(seed: u64, ram: u64, flash: u64, codec: Codec, policy: Policy, workers: usize, paths: u16) -> Node {
        let config = FlashConfig::divide(flash, 16 << 20, paths.into(), flash::DATA_OFFSET, codec);
        let sim = Sim::new(seed, paths, config.bytes_per_path());
        Node::on(sim, &Node::config(ram, policy, workers, config))
    }

    pub fn config(ram: u64, policy: Policy, workers: usize, flash: FlashConfig) -> StoreConfig {
        StoreConfig {
            ram_limit: ram,
            limit_of: LimitOf::Objects,
            policy,
            flash: Some(flash),
            ..StoreConfig::in_ram(workers)
        }
    }

    /// On a device that may have been used before.
    pub fn on(sim: Sim, config: &StoreConfig) -> Node {
        let store = Store::new(config);
        Node::of(sim, store, config.workers)
    }

    pub fn of(sim: Sim, store: Arc<Store>, workers: usize) -> Node {
        // Where tables put their members decides what the parts take, so without this a seed would not replay a run.
        value::hash::seed([7, 11]);
        // Whatever happens, the scrubber reads meanwhile.
        store.set_scrub_interval(5_000);
        let driver = || store.has_flash().then(|| Box::new(sim.driver()) as Box<_>);
        let lanes = (0..workers).map(|worker| Lane::new(store.clone(), driver(), worker)).collect();
        Node { sim, store, lanes, resume: Resume::default(), now_ms: 1_700_000_000_000, turn: 0 }
    }

    /// Runs a handler as a session does, until it is not stopped by a cold value any more.
    pub fn run<T>(
        &mut self,
        db: usize,
        keys: &[&[u8]],
        handler: impl Fn(&mut Keyspace<'_>, &[store::Key<'_>]) -> Result<T, Cold>,
    ) -> Answer<T> {
        self.turn += 1;
        self.trim_flash();
        let which = self.turn % self.lanes.len();
        self.resume.clear();
        let keys: Vec<store::Key<'_>> = keys.iter().map(|key| self.store.hasher().key(key)).collect();
        let mut tickets = Vec::new();
        for attempt in 0.. {
            assert!(attempt < 64, "a command must come to an end");
            let mut ks = self.store.lock(&keys, db, self.now_ms, true, &mut self.resume);
            let result = handler(&mut ks, &keys);
            match result.is_ok() {
                true => ks.close(),
                false => ks.finish(),
            }
            if let Ok(value) = result {
                tickets.into_iter().for_each(|ticket| self.lanes[which].release(ticket));
                return Ok(value);
            }
            if let Some(error) = self.resume.failed.take() {
                return Err(error);
            }
            for cold in self.resume.cold.drain(..) {
                tickets.push(self.lanes[which].read(cold));
            }
            self.lanes[which].submit();
            for ticket in &tickets {
                loop {
                    match self.lanes[which].poll(ticket, Waker::noop(), &mut self.resume) {
                        Poll::Ready(result) => {
                            result?;
                            break;
                        }
                        Poll::Pending => {
                            self.lanes[which].complete(self.now_ms);
                        }
                    }
                }
            }
        }
        unreachable!()
    }

    /// Makes flash larger, or begins to make it smaller, as a server does with its files.
    pub fn resize(&mut self, bytes: u64) -> Result<(), ResizeError> {
        let needed = self.store.flash_bytes_for(bytes)?;
        if needed > self.sim.data_bytes() {
            self.sim.resize(needed);
        }
        let result = self.store.resize_flash(bytes);
        self.trim_flash();
        result
    }

    /// Cuts off what is not needed any more.
    pub fn trim_flash(&mut self) {
        let needed = self.store.flash_bytes_needed();
        if needed < self.sim.data_bytes() {
            self.sim.resize(needed);
        }
    }

    /// A slice of every lane's maintenance.
    pub fn maintain(&mut self) {
        for lane in &mut self.lanes {
            lane.complete(self.now_ms);
            lane.maintain(self.now_ms);
        }
        self.trim_flash();
    }

    /// Lets maintenance run until writers may go on; false if there is no room at all.
    pub fn make_room(&mut self) -> bool {
        self.try_room(200_000).unwrap_or_else(|| panic!("maintenance makes no progress: {:#?}", self.store.stats()))
    }

    /// As [`Node::make_room`], for so many milliseconds; `None`: still neither.
    pub fn try_room(&mut self, ms: u64) -> Option<bool> {
        for _ in 0..ms {
            self.now_ms += 1;
            self.maintain();
            match self.store.admission() {
                Admission::Open => return Some(true),
                Admission::Full => return Some(false),
                Admission::Slow => {}
            }
        }
        None
    }

    pub fn get(&mut self, db: usize, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        self.run(db, &[key], |ks, keys| {
            Ok(ks.get(&keys[0])?.map(|value| match value {
                Value::Inline(Kind::String, bytes) => bytes.to_vec(),
                _ => panic!("only strings were set"),
            }))
        })
    }

    pub fn scan(&mut self, db: usize, count: usize) -> Answer<Vec<Vec<u8>>> {
        let (mut all, mut cursor) = (Vec::new(), 0);
        loop {
            let (next, names) = self.list(db, cursor, Some(count), &mut |_| {})?;
            all.extend(names);
            if next == 0 {
                return Ok(all);
            }
            cursor = next;
        }
    }

    /// Lists keys as a session does, with what others do between two slices. Without `count`: all keys.
    pub fn list(
        &mut self,
        db: usize,
        cursor: u64,
        count: Option<usize>,
        between: &mut dyn FnMut(&mut Node),
    ) -> Answer<(u64, Vec<Vec<u8>>)> {
        self.turn += 1;
        let which = self.turn % self.lanes.len();
        let (store, mut resume) = (Arc::clone(&self.store), Resume::default());
        let (mut names, mut tickets) = (Vec::new(), Vec::new());
        for slice in 0.. {
            assert!(slice < 100_000, "a list must come to an end");
            let mut ks = store.lock(&[], db, self.now_ms, true, &mut resume);
            ks.begin_list(cursor, count);
            let listed = ks.list(&mut Show { kinds: &|_| true, name: &mut |name| names.push(name.to_vec()) });
            match listed.is_ok() {
                true => ks.close(),
                false => ks.finish(),
            }
            if let Ok(Some(next)) = listed {
                return Ok((next, names));
            }
            if let Some(error) = resume.failed.take() {
                return Err(error);
            }
            let lane = &mut self.lanes[which];
            tickets.extend(resume.cold.drain(..).map(|cold| lane.read(cold)));
            lane.submit();
            between(self);
            if listed.is_ok() {
                continue;
            }
            for ticket in tickets.drain(..) {
                let lane = &mut self.lanes[which];
                loop {
                    match lane.poll(&ticket, Waker::noop(), &mut resume) {
                        Poll::Ready(result) => break result?,
                        Poll::Pending => _ = lane.complete(self.now_ms),
                    }
                }
            }
        }
        unreachable!()
    }
}
