//! Pages of one store's log become another store's: seeded random commands fill a store, whose pages go to a second one and from there to a
//! third one, while commands go on. Each holds exactly what the one before it held at its snapshot's moment.

mod node;

use flash::Sim;
use node::{Node, Random};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use store::counters::Counter;
use store::{
    Admission, Codec, DumpError, Dumper, FlashConfig, Kind, PartReader, Policy, Refusal, StoreConfig, Value, Visited,
};

type Model = BTreeMap<(usize, Vec<u8>), (Vec<u8>, Option<u64>)>;

const RAM: u64 = 2 << 20;
const FLASH: u64 = 20 << 20;
const DBS: u64 = 3;
const KEYS: u64 = 6_000;

/// What a snapshot with pages gives, in its order.
#[derive(Debug)]
enum Sent {
    Key(usize, Vec<u8>, Vec<u8>, Option<u64>),
    Dictionary(Vec<u8>),
    Pages(Vec<u8>, u64),
}

#[derive(Default)]
struct Gathered(Vec<Sent>);

impl Dumper for Gathered {
    fn key(&mut self, key: &Visited<'_>, value: Value<'_>, _parts: &mut PartReader<'_>) -> Result<(), DumpError> {
        let Value::Inline(Kind::String, bytes) = value else { panic!("only strings were set") };
        self.0.push(Sent::Key(key.db, key.name.to_vec(), bytes.to_vec(), key.expiry));
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn dictionary(&mut self, dictionary: &[u8]) -> io::Result<()> {
        self.0.push(Sent::Dictionary(dictionary.to_vec()));
        Ok(())
    }

    fn pages(&mut self, shipment: &[u8], keys: u64) -> io::Result<()> {
        self.0.push(Sent::Pages(shipment.to_vec(), keys));
        Ok(())
    }
}

struct Run {
    node: Node,
    random: Random,
    model: Model,
}

fn value(random: &mut Random) -> Vec<u8> {
    let length = match random.below(400) {
        // More than a shipment has.
        0 => random.below(300_000),
        1..=40 => random.below(9_000),
        _ => random.below(900),
    };
    let word = random.draw();
    match random.below(3) {
        0 => (0..length).map(|_| random.draw() as u8).collect(),
        1 => (0..length).map(|n| (word >> (n % 7)) as u8).collect(),
        _ => {
            let fields = (0..).map(|n| format!("\"field {}\": {}, ", n % 50, (word >> (n % 32)) % 1_000));
            fields.flat_map(String::into_bytes).take(length as usize).collect()
        }
    }
}

impl Run {
    fn new(seed: u64, codec: Codec) -> Run {
        Run::with(seed, FLASH, codec)
    }

    /// Each store has a secret of its own, and so other hashes.
    fn with(seed: u64, flash: u64, codec: Codec) -> Run {
        let flash = FlashConfig::divide(flash, 16 << 20, 2, flash::DATA_OFFSET, codec);
        let sim = Sim::new(seed, 2, flash.bytes_per_path());
        let config = StoreConfig { secret: [seed, 7], ..Node::config(RAM, Policy::NoEviction, 2, flash) };
        let node = Node::on(sim, &config);
        node.store.set_blocking(Arc::new(node.sim.clone()));
        Run { node, random: Random(seed), model: Model::new() }
    }

    fn set(&mut self, db: usize, name: &[u8], value: &[u8], expiry: Option<u64>) {
        assert!(self.node.make_room());
        self.node
            .run(db, &[name], |ks, keys| {
                ks.set_string(&keys[0], value, expiry);
                Ok(())
            })
            .expect("a blind set reads nothing");
        self.model.insert((db, name.to_vec()), (value.to_vec(), expiry));
    }

    fn step(&mut self) {
        let db = if self.random.below(4) == 0 { self.random.below(DBS) } else { 0 } as usize;
        let name = format!("key:{}", self.random.below(KEYS)).into_bytes();
        match self.random.below(100) {
            0..=79 => {
                let value = value(&mut self.random);
                // Some of it has passed when a replica loads it: the stream says what has expired.
                let expiry = (self.random.below(8) == 0).then(|| self.node.now_ms + 60_000_000);
                self.set(db, &name, &value, expiry);
            }
            80..=89 => {
                self.node.run(db, &[&name], |ks, keys| ks.remove(&keys[0])).expect("the device is good");
                self.model.remove(&(db, name));
            }
            _ => {
                let found = self.node.get(db, &name).expect("the device is good");
                assert!(found.as_ref() == self.model.get(&(db, name)).map(|(value, _)| value));
            }
        }
        self.node.now_ms += 1;
        self.node.maintain();
    }

    /// Goes on until pages need a dictionary. It is trained on another thread.
    fn await_dictionary(&mut self) {
        while self.node.store.stats().dictionaries == 0 {
            self.step();
        }
        (0..3_000).for_each(|_| self.step());
    }

    /// A snapshot with pages, with commands in between, and what the store held at its moment.
    fn send(&mut self) -> (Vec<Sent>, Model) {
        let store = self.node.store.clone();
        for _ in 0..8 {
            let snapshot = store.cut_with_pages(|| Ok(Gathered::default())).expect("nobody locks").expect("it begins");
            let model = self.model.clone();
            let mut pause = || {
                if self.random.below(4) == 0 {
                    self.step();
                }
                Ok(())
            };
            match snapshot.run(&mut io::Cursor::new(Vec::new()), &mut pause) {
                Ok(gathered) => return (gathered.0, model),
                // Writers need the segments that it keeps.
                Err(DumpError::NoRoom) => (0..100).for_each(|_| self.node.maintain()),
                Err(error) => panic!("{error:?}"),
            }
        }
        panic!("there is never room for a snapshot");
    }

    /// Takes in all of it.
    fn take(&mut self, sent: &[Sent]) -> Result<(), Refusal> {
        let mut import = self.node.store.page_import();
        for sent in sent {
            match sent {
                Sent::Dictionary(bytes) => import.dictionary(bytes)?,
                Sent::Pages(bytes, keys) => {
                    let mut pause = || {
                        self.node.now_ms += 1;
                        self.node.maintain();
                        true
                    };
                    assert_eq!(import.take(bytes, &mut pause)?, *keys);
                    self.node.maintain();
                }
                Sent::Key(db, name, value, expiry) => self.set(*db, name, value, *expiry),
            }
        }
        import.finish(&mut || true)
    }

    fn check(&mut self, what: &str) {
        for db in 0..DBS as usize {
            let count = self.model.keys().filter(|key| key.0 == db).count() as u64;
            assert_eq!(self.node.store.len(db), count, "{what}");
        }
        for ((db, name), (value, expiry)) in &self.model {
            let found = self.node.run(*db, &[name], |ks, keys| {
                let expiry = ks.expiry(&keys[0])?.flatten();
                let value = ks.get(&keys[0])?.map(|value| match value {
                    Value::Inline(Kind::String, bytes) => bytes.to_vec(),
                    _ => panic!("only strings were set"),
                });
                Ok((value, expiry))
            });
            let (found, of) = found.unwrap_or_else(|error| panic!("{what}, {}: {error}", name.escape_ascii()));
            assert!(found.as_ref() == Some(value) && of == *expiry, "{what}, {}", name.escape_ascii());
        }
        let stats = self.node.store.stats();
        assert_eq!(
            (stats.flash_retired_segments, stats[Counter::ChecksumErrors], stats[Counter::ReadErrors]),
            (0, 0, 0),
            "{what}"
        );
    }
}

fn travels(seed: u64, codec: Codec) {
    let mut first = Run::new(seed, codec);
    (0..12_000).for_each(|_| first.step());
    if codec == Codec::Zstd {
        first.await_dictionary();
    }
    let mut before = first;
    for hop in 0..2 {
        let what = format!("seed {seed}, {codec:?}, hop {hop}");
        let (sent, model) = before.send();
        before.check(&format!("{what}, the source"));
        let count = |is: &dyn Fn(&Sent) -> u64| sent.iter().map(is).sum::<u64>();
        let in_pages = count(&|sent| if let Sent::Pages(_, keys) = sent { *keys } else { 0 });
        let as_keys = count(&|sent| u64::from(matches!(sent, Sent::Key(..))));
        assert_eq!(in_pages + as_keys, model.len() as u64, "{what}");
        assert!(in_pages > as_keys / 4, "{what}: {in_pages} in pages, {as_keys} as keys");
        let mut after = Run::new(seed + 1 + hop, codec);
        after.take(&sent).expect("they suit");
        assert!(after.model.len() as u64 == as_keys);
        after.model = model;
        after.check(&what);
        // The collector moves what came, and what is new stands beside it.
        let is_collected = (0..100_000).any(|n| {
            after.step();
            n > 3_000 && after.node.store.stats()[Counter::RelocatedRecords] > 1_000
        });
        assert!(is_collected, "{what}");
        after.check(&format!("{what}, later"));
        before = after;
    }
}

#[test]
fn pages_travel_from_store_to_store() {
    [Codec::None, Codec::Lz4, Codec::Zstd].into_iter().for_each(|codec| travels(1, codec));
}

/// Bits of pages, of what says which records are live, and of dictionaries.
#[test]
fn damaged_shipments_are_refused_and_do_no_harm() {
    let mut source = Run::new(5, Codec::Zstd);
    (0..9_000).for_each(|_| source.step());
    source.await_dictionary();
    let (sent, _) = source.send();
    assert!(sent.iter().any(|sent| matches!(sent, Sent::Dictionary(_))));
    let mut random = Random(9);
    let mut refused = 0;
    for round in 0..60 {
        let mut target = Run::new(100 + round, Codec::Zstd);
        let mut import = target.node.store.page_import();
        let victim = random.below(6);
        let mut nth = 0;
        for sent in &sent {
            let (Sent::Dictionary(bytes) | Sent::Pages(bytes, _)) = sent else { continue };
            let mut bytes = bytes.clone();
            if nth == victim {
                match random.below(3) {
                    0 => bytes.truncate(random.below(bytes.len() as u64) as usize),
                    1 => bytes.push(random.draw() as u8),
                    _ => {
                        let at = random.below(bytes.len() as u64) as usize;
                        bytes[at] ^= 1 << random.below(8);
                    }
                }
            }
            nth += 1;
            let taken = match sent {
                Sent::Dictionary(_) => import.dictionary(&bytes),
                _ => import.take(&bytes, &mut || true).map(drop),
            };
            if let Err(refusal) = taken {
                assert!(matches!(refusal, Refusal::Unfit(_)), "{refusal}");
                refused += 1;
                break;
            }
        }
        drop(import);
        target.set(0, b"another", b"value", None);
        assert_eq!(target.node.get(0, b"another").unwrap(), Some(b"value".to_vec()));
    }
    assert_eq!(refused, 60);
}

#[test]
fn who_has_no_room_for_pages_says_so() {
    let mut source = Run::new(6, Codec::Lz4);
    for n in 0..8_000_u64 {
        let value: Vec<u8> = (0..800).map(|_| source.random.draw() as u8).collect();
        source.set(0, &n.to_le_bytes(), &value, None);
    }
    let (sent, _) = source.send();
    let mut target = Run::with(3, 3 << 20, Codec::Lz4);
    let pages: Vec<Sent> = sent.into_iter().filter(|sent| !matches!(sent, Sent::Key(..))).collect();
    let refusal = target.take(&pages).expect_err("there is room for a part only");
    assert!(matches!(refusal, Refusal::NoRoom), "{refusal}");
    // What cannot be written is written elsewhere.
    let mut target = Run::new(4, Codec::Lz4);
    (0..3).for_each(|_| target.node.sim.fail_next_write());
    target.take(&pages).expect("three writes fail, and the fourth does not");
    assert_ne!(target.node.store.admission(), Admission::Full);
}

/// A store whose logical databases were swapped has other numbers in its records.
#[test]
fn swapped_databases_are_shown_and_not_sent() {
    let mut source = Run::new(7, Codec::Lz4);
    (0..6_000).for_each(|_| source.step());
    let mut resume = store::Resume::default();
    let mut ks = source
        .node
        .store
        .try_lock_all(0, source.node.now_ms, true, store::Reach::All, &mut resume)
        .expect("nobody else locks");
    ks.swap(0, 2);
    ks.close();
    assert!(!source.node.store.exchanges_pages());
    let store = source.node.store.clone();
    let snapshot = store.cut_with_pages(|| Ok(Gathered::default())).expect("nobody locks").expect("it begins");
    let gathered = snapshot.run(&mut io::Cursor::new(Vec::new()), &mut || Ok(())).expect("nothing fails").0;
    assert_eq!(gathered.len(), source.model.len());
    assert!(gathered.iter().all(|sent| matches!(sent, Sent::Key(..))));
}
