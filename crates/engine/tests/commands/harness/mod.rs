//! Runs commands, typed as in redis-cli, over a real store, and prints replies as redis-cli does. The store
//! has no flash, or a simulated device and little RAM.

#![allow(dead_code, reason = "each test file uses its part")]

mod host;
pub mod replay;
pub mod text;

use commands::exchange::{Failure, Outcome};
use commands::session::{Claim, Session};
use commands::{Args, Flag, Settings, Stop, table};
use engine::{Call, Engine, Locked, Stripes, execute};
use flash::Sim;
pub use flintkv_tests::{shown, words};
use resp::client::parse_value;
use resp::{Out, Span};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use store::{Admission, Codec, Effects, FlashConfig, Key, Lane, LimitOf, Policy, Resume, Store, StoreConfig, Ticket};
use value::list::Limit;

/// One connection to a store of its own.
pub struct Harness {
    pub store: Arc<Store>,
    pub session: Session,
    pub settings: Settings,
    pub now_ms: u64,
    /// How often the last command yielded before it was done.
    pub yields: usize,
    /// What the last command has claimed: see [`commands::cx::claim`].
    pub claimed_bytes: usize,
    /// How often commands had to wait for flash, by name.
    pub colds: BTreeMap<String, usize>,
    /// How many of the keys that MIGRATE sends are accepted before the connection fails.
    pub taken_elsewhere: usize,
    /// The worker's lane, where a test needs one: for flash, eviction, or active expiry.
    lane: Option<Lane>,
    filled: u64,
}

/// Little, but enough for a slab of every size.
const RAM_BYTES: u64 = 2 << 20;
const FLASH_BYTES: u64 = 24 << 20;
/// The logical database of the keys that fill RAM, and how many there are.
const CROWDED_DB: usize = 9;
const CROWD: u64 = 6000;

impl Harness {
    pub fn new() -> Harness {
        Harness {
            store: Store::new(&StoreConfig::in_ram(1)),
            session: Session::new(1, true, true),
            settings: Settings {
                hash_max_listpack_entries: 128,
                hash_max_listpack_value: 64,
                list_limit: Limit::of(-2),
                set_max_intset_entries: 512,
                set_max_listpack_entries: 128,
                set_max_listpack_value: 64,
                zset_max_listpack_entries: 128,
                zset_max_listpack_value: 64,
                hll_sparse_max_bytes: 3000,
                stream_node_max_bytes: 4096,
                stream_node_max_entries: 100,
                proto_max_bulk_len: 512 * 1024 * 1024,
                claim_free_bytes: usize::MAX,
                databases: 16,
                lfu: false,
            },
            now_ms: 1_700_000_000_000,
            yields: 0,
            claimed_bytes: 0,
            colds: BTreeMap::new(),
            taken_elsewhere: 0,
            lane: None,
            filled: 0,
        }
    }

    /// A store with so little RAM that unused values soon go to flash: see [`Harness::crowd`].
    pub fn with_flash(seed: u64) -> Harness {
        let config = FlashConfig::divide(FLASH_BYTES, 16 << 20, 2, flash::DATA_OFFSET, Codec::Lz4);
        let sim = Sim::new(seed, 2, config.bytes_per_path());
        let store = Store::new(&StoreConfig {
            ram_limit: RAM_BYTES,
            limit_of: LimitOf::Objects,
            policy: Policy::NoEviction,
            flash: Some(config),
            ..StoreConfig::in_ram(1)
        });
        let lane = Lane::new(store.clone(), Some(Box::new(sim.driver())), 0);
        // The cycle that removes expired fields reads from flash synchronously.
        store.set_blocking(Arc::new(sim));
        Harness { store, lane: Some(lane), ..Harness::new() }
    }

    /// A store without flash, with so little RAM that keys are evicted: see [`Harness::crowd`].
    pub fn evicting(policy: Policy) -> Harness {
        let store = Store::new(&StoreConfig {
            ram_limit: RAM_BYTES,
            limit_of: LimitOf::Objects,
            policy,
            ..StoreConfig::in_ram(1)
        });
        let lane = Lane::new(store.clone(), None, 0);
        Harness { store, lane: Some(lane), ..Harness::new() }
    }

    /// Runs the maintenance of an idle worker at the present time. It removes what has expired.
    pub fn maintain(&mut self) {
        let now_ms = self.now_ms;
        let lane = self.lane.get_or_insert_with(|| Lane::new(self.store.clone(), None, 0));
        for _ in 0..4 {
            lane.complete(now_ms);
            lane.maintain(now_ms);
        }
    }

    /// Records the effects of everything that follows. Call it once.
    pub fn keep_effects(&self) -> Arc<Mutex<Vec<Effects>>> {
        let kept = Arc::<Mutex<Vec<Effects>>>::default();
        let keeper = Arc::clone(&kept);
        self.store.set_change_log(Arc::new(move |effects: &Effects| {
            keeper.lock().expect("no panic").push(effects.clone());
        }));
        kept
    }

    /// Sets other keys in a database of their own, and demotes what no longer fits into RAM.
    pub fn crowd(&mut self, keys: u64) {
        let lane = self.lane.as_mut().expect("a harness with a lane");
        for _ in 0..keys {
            self.filled = (self.filled + 1) % CROWD;
            let name = format!("crowd:{}", self.filled);
            let key = self.store.hasher().key(name.as_bytes());
            let mut resume = Resume::default();
            let mut ks = self.store.lock(&[key], CROWDED_DB, self.now_ms, true, &mut resume);
            let value = [self.filled as u8; 500];
            ks.set_string(&key, &value, None);
            ks.effect([&b"SET"[..], key.name, &value]);
            ks.close();
        }
        // Maintenance paces itself by a clock. It gets a clock of its own here, because with the test's clock keys
        // would expire.
        for wait_ms in 0..20_000 {
            lane.complete(self.now_ms + wait_ms);
            lane.maintain(self.now_ms + wait_ms);
            if self.store.admission() == Admission::Open {
                return;
            }
        }
        panic!("maintenance makes no progress: {:#?}", self.store.stats());
    }

    /// Sends all values of database 0 to flash by a very low RAM limit, for a moment. The time goes on by what maintenance took:
    /// commands must not run before the fields expired that maintenance has removed.
    pub fn freeze(&mut self) {
        let lane = self.lane.as_mut().expect("a harness with a lane");
        self.store.set_ram_limit(1);
        for wait_ms in 0..20_000 {
            if self.store.hot(0) == 0 {
                self.store.set_ram_limit(RAM_BYTES);
                self.now_ms += wait_ms;
                return;
            }
            lane.complete(self.now_ms + wait_ms);
            lane.maintain(self.now_ms + wait_ms);
        }
        panic!("values stay in RAM: {:#?}", self.store.stats());
    }

    /// Sets a very low RAM limit for some rounds of maintenance: values that were not used lately go to flash.
    pub fn squeeze(&mut self) {
        let lane = self.lane.as_mut().expect("a harness with a lane");
        self.store.set_ram_limit(1);
        for wait_ms in 0..60 {
            lane.complete(self.now_ms + wait_ms);
            lane.maintain(self.now_ms + wait_ms);
        }
        self.store.set_ram_limit(RAM_BYTES);
    }

    /// A store in which every collection that is not packed goes to flash in parts.
    pub fn in_parts(seed: u64) -> Harness {
        let here = Harness::with_flash(seed);
        here.store.set_split_bytes(0);
        here
    }

    /// Reads what the stopped command asked for.
    fn promote(lane: &mut Lane, resume: &mut Resume, tickets: &mut Vec<Ticket>, now_ms: u64) {
        let cold: Vec<_> = resume.cold.drain(..).collect();
        assert!(!cold.is_empty(), "who stops for a cold value names it");
        let new: Vec<Ticket> = cold.into_iter().map(|cold| lane.read(cold)).collect();
        lane.submit();
        for ticket in &new {
            loop {
                match lane.poll(ticket, Waker::noop(), resume) {
                    Poll::Ready(read) => break read.expect("the device is sound"),
                    Poll::Pending => _ = lane.complete(now_ms),
                }
            }
        }
        tickets.extend(new);
    }

    /// Runs a command as typed, and returns its reply as redis-cli prints it.
    pub fn run(&mut self, line: &str) -> String {
        let words = words(line);
        self.words(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    pub fn words(&mut self, words: &[&[u8]]) -> String {
        let reply = self.reply(words);
        let (value, consumed) = parse_value(&reply).expect("a reply").expect("a whole reply");
        assert_eq!(consumed, reply.len(), "one reply, not more");
        shown(&value)
    }

    /// The reply's bytes.
    pub fn reply(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut reply = Vec::new();
        match self.execute(words, &mut reply) {
            Ok(()) => {}
            Err(error) => {
                reply.clear();
                Out::new(&mut reply, self.session.proto).error(&error);
            }
        }
        reply
    }

    fn execute(&mut self, words: &[&[u8]], reply: &mut Vec<u8>) -> Result<(), String> {
        let name = String::from_utf8_lossy(words[0]);
        let mut row = table::find(words[0]).ok_or(format!("ERR unknown command '{name}'"))?;
        let mut full_name = row.name.to_owned();
        if let Some(sub) = words.get(1).and_then(|word| table::find_subcommand(row, word)) {
            full_name = format!("{}|{}", row.name, sub.name);
            row = sub;
        }
        if !row.takes(words.len()) {
            return Err(format!("ERR wrong number of arguments for '{full_name}' command"));
        }
        let bytes = words.concat();
        let mut start = 0;
        let spans: Vec<Span> = words
            .iter()
            .map(|word| {
                let span = Span { start, len: word.len() as u32 };
                start += span.len;
                span
            })
            .collect();
        let args = Args::new(&bytes, &spans);
        let mut positions = Vec::new();
        row.keys.positions(&args, &mut positions);
        let keys: Vec<Key<'_>> = positions.iter().map(|&at| self.store.hasher().key(words[at])).collect();
        let mut resume = Resume::default();
        (self.yields, self.claimed_bytes) = (0, 0);
        let mut tickets = Vec::new();
        let result = loop {
            reply.clear();
            let call =
                Call { row, name: &full_name, is_barrier: row.flags.contains(&Flag::Barrier), args, keys: &keys };
            let engine =
                Engine { store: &self.store, settings: &self.settings, server: &host::NoServer, now_ms: self.now_ms };
            let stripes = Stripes::InTime(&mut resume);
            match execute(&engine, &mut self.session, call, stripes, reply, Locked::run) {
                Ok(()) => break Ok(()),
                // As in a transaction, because nobody could end the wait.
                Err(Stop::Block(block)) => {
                    (block.at_once)(&mut Out::new(reply, self.session.proto));
                    break Ok(());
                }
                Err(Stop::NotHeld(why)) => panic!("nobody else locks: {why:?}"),
                Err(Stop::Error(text)) => break Err(text.into_owned()),
                Err(Stop::Yield) => self.yields += 1,
                Err(Stop::Memory) => {
                    self.claimed_bytes = self.session.claim.wanted;
                    self.session.claim.granted = self.claimed_bytes;
                }
                Err(Stop::Exchange) => {
                    if let Some(exchange) = &mut self.session.exchange {
                        let taken = self.taken_elsewhere.min(exchange.count);
                        let failed = (taken < exchange.count).then_some(Failure::Writing);
                        exchange.outcome = Some(Outcome { replies: vec![Ok(()); taken], refused: None, failed });
                    }
                }
                Err(Stop::Cold) => {
                    *self.colds.entry(full_name.clone()).or_default() += 1;
                    let lane = self.lane.as_mut().expect("nothing is cold without flash");
                    Harness::promote(lane, &mut resume, &mut tickets, self.now_ms);
                }
            }
        };
        self.session.exchange = None;
        self.session.claim = Claim::default();
        for ticket in tickets {
            self.lane.as_mut().expect("it made the tickets").release(ticket);
        }
        result
    }
}
