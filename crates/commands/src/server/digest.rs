//! Owns the digests that DEBUG returns: Redis's own, of values and of the whole dataset, and FlintKV's, which also
//! covers what Redis's leaves out (see `store::digest`). Unordered data is combined by exclusive or. Never changes
//! anything.

use crate::cx::Cx;
use crate::stop::{Run, SYNTAX, Stop};
use resp::number::format_shortest;
use store::digest::Sum as StoreSum;
use store::{Kind, Value, Visited, Visitor};
use value::walk::{Element, walk_inline};

type Sum = [u8; 20];

struct Digest<'a> {
    sha1: &'a dyn Fn(&[u8]) -> Sum,
    sum: Sum,
}

impl<'a> Digest<'a> {
    fn new(sha1: &'a dyn Fn(&[u8]) -> Sum) -> Digest<'a> {
        Digest { sha1, sum: Sum::default() }
    }

    /// Adds bytes whose order does not matter.
    fn add(&mut self, bytes: &[u8]) {
        let hash = (self.sha1)(bytes);
        self.sum.iter_mut().zip(hash).for_each(|(sum, byte)| *sum ^= byte);
    }

    /// Adds bytes whose order matters.
    fn then(&mut self, bytes: &[u8]) {
        self.add(bytes);
        self.sum = (self.sha1)(&self.sum);
    }

    /// Adds a pair. The order of pairs does not matter.
    fn add_pair(&mut self, one: &[u8], other: &[u8]) {
        let mut pair = Digest::new(self.sha1);
        pair.then(one);
        pair.then(other);
        self.add(&pair.sum);
    }
}

/// The digest of the value at a key of the command, with whether it expires. Zero: no such key.
pub(super) fn of_value(cx: &mut Cx<'_>, place: usize) -> Result<String, Stop> {
    let key = &cx.keys[place];
    let expires = cx.ks.expiry(key)?.flatten().is_some();
    let server = cx.server;
    let sha1 = |bytes: &[u8]| server.sha1(bytes);
    let mut digest = Digest::new(&sha1);
    if let Some(value) = cx.ks.view(key)? {
        match value {
            Value::Inline(kind, bytes) => {
                digest.kind(kind);
                walk_inline(kind, bytes, &mut |element| digest.element(element));
            }
            Value::Boxed(value) => {
                digest.kind(value.kind());
                value.walk_all(&mut |element| digest.element(element));
            }
        }
    }
    if expires {
        digest.add(EXPIRES);
    }
    Ok(hex(&digest.sum))
}

/// Redis hashes this text if a key has an expiry, whatever the time.
const EXPIRES: &[u8] = b"!!expire!!";

fn hex(sum: &Sum) -> String {
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Digest<'_> {
    /// Redis starts with its number for the value's type.
    fn kind(&mut self, kind: Kind) {
        let number = match kind {
            Kind::String => 0u32,
            Kind::List => 1,
            Kind::Set => 2,
            Kind::ZSet => 3,
            Kind::Hash => 4,
            Kind::Stream => 6,
        };
        self.then(&number.to_be_bytes());
    }

    /// Redis's digest leaves out when fields expire, and the data beside a stream's entries.
    fn element(&mut self, element: Element<'_>) {
        match element {
            Element::Text(bytes) | Element::Item(_, bytes) => self.then(bytes),
            Element::Member(member) => self.add(member),
            Element::Field(field, value, _) => self.add_pair(field, value),
            Element::Scored(member, score) => {
                let mut text = Vec::new();
                // As Redis 7.2 prints a score here: 3.1, and 1e+8. Redis 7.0 prints 17 digits.
                format_shortest(score, &mut text);
                self.add_pair(member, &text);
            }
            Element::Entry(entry) => {
                self.then(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
                for (field, value) in entry.pairs() {
                    self.then(&field.to_vec());
                    self.then(&value.to_vec());
                }
            }
            Element::Stream(_) | Element::Group(..) | Element::Pending(..) => {}
        }
    }
}

/// The state of DEBUG DIGEST between slices.
#[derive(Default)]
struct Progress {
    total: Sum,
    /// The logical database of the key that was added last.
    db: Option<usize>,
    key: Sum,
    key_db: usize,
    expires: bool,
}

struct Dataset<'a> {
    sha1: &'a dyn Fn(&[u8]) -> Sum,
    progress: &'a mut Progress,
}

impl<'a> Dataset<'a> {
    fn change(&mut self, sum: impl Fn(&mut Progress) -> &mut Sum, change: impl FnOnce(&mut Digest<'a>)) {
        let sum = sum(self.progress);
        let mut digest = Digest { sha1: self.sha1, sum: *sum };
        change(&mut digest);
        *sum = digest.sum;
    }
}

impl Visitor for Dataset<'_> {
    fn begin(&mut self, key: &Visited<'_>) {
        *self.progress = Progress {
            total: self.progress.total,
            db: self.progress.db,
            key: Sum::default(),
            key_db: key.db,
            expires: key.expiry.is_some(),
        };
        self.change(
            |progress| &mut progress.key,
            |digest| {
                digest.then(key.name);
                digest.kind(key.kind);
            },
        );
    }

    fn element(&mut self, element: Element<'_>) {
        self.change(|progress| &mut progress.key, |digest| digest.element(element));
    }

    fn end(&mut self) {
        let Progress { db, key_db, expires, .. } = *self.progress;
        if expires {
            self.change(|progress| &mut progress.key, |digest| digest.add(EXPIRES));
        }
        // The number of a database is added before its first key; an empty database adds nothing.
        if db != Some(key_db) {
            self.progress.db = Some(key_db);
            self.change(|progress| &mut progress.total, |digest| digest.then(&(key_db as u32).to_be_bytes()));
        }
        let key = self.progress.key;
        self.change(|progress| &mut progress.total, |digest| digest.add(&key));
    }
}

/// DEBUG DIGEST: the digest of the whole dataset, as Redis computes it.
pub(super) fn of_dataset(cx: &mut Cx<'_>) -> Run {
    let server = cx.server;
    let sha1 = |bytes: &[u8]| server.sha1(bytes);
    let state = cx.ks.resume.state.take().and_then(|state| state.downcast::<Progress>().ok());
    let mut progress = state.unwrap_or_default();
    let visited = cx.ks.visit(&mut Dataset { sha1: &sha1, progress: &mut progress });
    if let Ok(true) = visited {
        cx.out.simple(&hex(&progress.total));
        return Ok(());
    }
    cx.ks.resume.state = Some(progress);
    visited?;
    Err(Stop::Yield)
}

/// DEBUG FLINT-DIGEST: the digest of the whole dataset, with what Redis leaves out.
pub(super) fn of_everything(cx: &mut Cx<'_>) -> Run {
    let with_stripes = match cx.args.get(2) {
        None => false,
        Some(word) if word.eq_ignore_ascii_case(b"stripes") => true,
        Some(_) => return Err(SYNTAX),
    };
    let Some(dataset) = cx.ks.digest()? else { return Err(Stop::Yield) };
    let mut functions = StoreSum::default();
    for library in cx.server.function_list(None) {
        functions.add(StoreSum::of("library", &[library.name.as_bytes(), &library.code]));
    }
    let mut total = dataset.total();
    total.add(functions);
    if !with_stripes {
        cx.out.simple(&total.to_string());
        return Ok(());
    }
    let stripes = dataset.stripes.iter().enumerate().filter(|(_, sum)| **sum != StoreSum::default());
    cx.out.map(3);
    cx.out.bulk(b"total");
    cx.out.bulk(total.to_string().as_bytes());
    cx.out.bulk(b"functions");
    cx.out.bulk(functions.to_string().as_bytes());
    cx.out.bulk(b"stripes");
    cx.out.map(stripes.clone().count());
    for (stripe, sum) in stripes {
        cx.out.int(stripe as i64);
        cx.out.bulk(sum.to_string().as_bytes());
    }
    Ok(())
}
