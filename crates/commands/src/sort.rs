//! Owns SORT and SORT_RO: the elements of a list, set or sorted set, sorted by themselves or by the values of other
//! keys. Never knows how a collection is stored.
//!
//! The elements decide which keys the patterns of BY and GET name. So the stripes of those keys are locked while the
//! first stripes are held, as for a script. If that fails, the handler releases all stripes and starts again.

use crate::cx::{Args, Cx, REPLY_BYTES_MAX, claim};
use crate::hashes::hash;
use crate::lists;
use crate::number;
use crate::row::{Access, Acl, Effect, Flag, KeyLocation, KeyUse, Keys, Row, is};
use crate::sets::form::set;
use crate::stop::{OUT_OF_RANGE, Run, SYNTAX, Stop, WRONG_TYPE};
use crate::zsets::form::zset;
use std::cmp::Ordering;
use std::ops::Range;
use store::{Class, Key, Kind, NotHeld, Value};

const BASE: Row = Row {
    arity: -2,
    complexity: "O(N+M*log(M)) where N is the number of elements and M the number of those given.",
    ..Row::BASE
};

pub const ROWS: &[Row] = &[
    Row {
        name: "sort",
        acl: &[Acl::Set, Acl::SortedSet, Acl::List, Acl::Dangerous],
        keys: Keys::FirstAnd(destination, &[KeyLocation::Unnamed, KeyLocation::Anywhere]),
        access: Access::First(KeyUse::READ, KeyUse::OVERWRITE),
        flags: &[Flag::Write, Flag::Denyoom, Flag::MovableKeys, Flag::UnnamedKeys],
        effect: Effect::Stated,
        since: "1.0.0",
        summary: "Sorts the elements of a list, set or sorted set, by other keys if wanted, and gives or stores them.",
        syntax: "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA] [STORE destination]",
        examples: &[
            is("RPUSH l 3 1 10", "(integer) 3"),
            is("SORT l", "1) \"1\"\n2) \"3\"\n3) \"10\""),
            is("SORT l ALPHA DESC LIMIT 0 2", "1) \"3\"\n2) \"10\""),
            is("MSET weight_1 30 weight_3 20 weight_10 10 name_1 one", "OK"),
            is("SORT l BY weight_* GET # GET name_*", "1) \"10\"\n2) (nil)\n3) \"3\"\n4) (nil)\n5) \"1\"\n6) \"one\""),
            is("SORT l BY nosort STORE sorted", "(integer) 3"),
            is("LRANGE sorted 0 -1", "1) \"3\"\n2) \"1\"\n3) \"10\""),
            is("RPUSH l x", "(integer) 4"),
            is("SORT l", "(error) ERR One or more scores can't be converted into double"),
        ],
        run: |cx| sort(cx, &ROWS[0], true),
        ..BASE
    },
    Row {
        name: "sort_ro",
        acl: &[Acl::Set, Acl::SortedSet, Acl::List, Acl::Dangerous],
        keys: Keys::FirstAnd(|_, _| {}, &[KeyLocation::Unnamed]),
        flags: &[Flag::Readonly, Flag::MovableKeys, Flag::UnnamedKeys],
        since: "7.0.0",
        summary: "Sorts as SORT does, without storing.",
        syntax: "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA]",
        examples: &[
            is("ZADD z 1 b 2 a", "(integer) 2"),
            is("SORT_RO z ALPHA", "1) \"a\"\n2) \"b\""),
            is("HSET user:a age 7", "(integer) 1"),
            is("SORT_RO z BY user:*->age GET user:*->age", "1) (nil)\n2) \"7\""),
            is("SORT_RO z STORE d", "(error) ERR syntax error"),
        ],
        run: |cx| sort(cx, &ROWS[1], false),
        ..BASE
    },
];

/// What follows the key.
#[derive(Default)]
struct Options<'a> {
    descending: bool,
    alpha: bool,
    by: Option<&'a [u8]>,
    gets: Vec<&'a [u8]>,
    offset: i64,
    count: Option<i64>,
    store: bool,
}

impl<'a> Options<'a> {
    /// Patterns can name any key, so they require the right to read every key.
    fn parse(args: &Args<'a>, may_store: bool, reads_all: bool) -> Result<Options<'a>, Stop> {
        let mut options = Options::default();
        for (at, width) in words(args) {
            let value = args.get(at + 1).filter(|_| width > 1);
            match (args[at].to_ascii_lowercase().as_slice(), value) {
                (b"asc", _) => options.descending = false,
                (b"desc", _) => options.descending = true,
                (b"alpha", _) => options.alpha = true,
                (b"limit", Some(offset)) => {
                    options.offset = number::int_or_error(offset)?;
                    options.count = Some(number::int_or_error(&args[at + 2])?);
                }
                (b"store", Some(_)) if may_store => options.store = true,
                (b"by", Some(pattern)) if !reads_all && pattern.contains(&b'*') => {
                    return Err(Stop::error("ERR BY option of SORT denied due to insufficient ACL permissions."));
                }
                (b"by", Some(pattern)) => options.by = Some(pattern),
                (b"get", Some(_)) if !reads_all => {
                    return Err(Stop::error("ERR GET option of SORT denied due to insufficient ACL permissions."));
                }
                (b"get", Some(pattern)) => options.gets.push(pattern),
                _ => return Err(SYNTAX),
            }
        }
        Ok(options)
    }

    /// Which of `len` elements are wanted.
    fn window(&self, len: usize) -> Range<usize> {
        let clamped = |number: i64| usize::try_from(number).unwrap_or(0).min(len);
        let start = clamped(self.offset);
        match self.count {
            Some(count) if count >= 0 => start..start.saturating_add(clamped(count)).min(len),
            _ => start..len,
        }
    }
}

/// The position of each option among the arguments, and its number of words. An option that lacks a word counts as one
/// word.
fn words<'a>(args: &Args<'a>) -> impl Iterator<Item = (usize, usize)> + use<'a> {
    let args = *args;
    let mut at = 2;
    std::iter::from_fn(move || {
        let width = match args.get(at)? {
            word if word.eq_ignore_ascii_case(b"limit") => 3,
            word if [&b"store"[..], b"by", b"get"].iter().any(|name| word.eq_ignore_ascii_case(name)) => 2,
            _ => 1,
        };
        let found = (at, if at + width <= args.len() { width } else { 1 });
        at += found.1;
        Some(found)
    })
}

/// The key of the last STORE, which is the one that takes effect.
fn destination(args: &Args<'_>, positions: &mut Vec<usize>) {
    let is_store = |&(at, width): &(usize, usize)| width == 2 && args[at].eq_ignore_ascii_case(b"store");
    positions.extend(words(args).filter(is_store).last().map(|(at, _)| at + 1));
}

/// Texts, one after the other. Some may be absent.
#[derive(Default)]
struct Texts {
    bytes: Vec<u8>,
    spans: Vec<Option<Range<usize>>>,
}

impl Texts {
    fn push(&mut self, text: Option<&[u8]>) {
        self.spans.push(text.map(|text| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(text);
            start..self.bytes.len()
        }));
    }

    fn len(&self) -> usize {
        self.spans.len()
    }

    fn get(&self, index: usize) -> Option<&[u8]> {
        Some(&self.bytes[self.spans[index].clone()?])
    }

    /// A text of a list in which none is absent.
    fn element(&self, index: usize) -> &[u8] {
        self.get(index).unwrap_or_default()
    }

    fn iter(&self) -> impl ExactSizeIterator<Item = Option<&[u8]>> + Clone {
        (0..self.len()).map(|index| self.get(index))
    }
}

fn sort(cx: &mut Cx<'_>, row: &Row, may_store: bool) -> Run {
    let reads_all = cx.session.rights.as_ref().is_none_or(|rights| rights.reads_every_key(row));
    let options = &mut Options::parse(&cx.args, may_store, reads_all)?;
    let in_script = cx.ks.is_in_script();
    let value = cx.ks.get(&cx.keys[0])?;
    let kind = value.as_ref().map(kind_of);
    if !matches!(kind, None | Some(Kind::List | Kind::Set | Kind::ZSet)) {
        return Err(WRONG_TYPE);
    }
    // A pattern without `*` keeps the elements' own order. A set has no order that could be stored, or that a script could
    // rely on.
    let mut keeps_order = options.by.is_some_and(|pattern| !pattern.contains(&b'*'));
    if keeps_order && (options.store || in_script) && kind == Some(Kind::Set) {
        keeps_order = false;
        (options.alpha, options.by) = (true, None);
    }
    // Memory for the elements' texts, for their order, and for the reply.
    let value_bytes = match &value {
        Some(Value::Boxed(boxed)) => boxed.mem_bytes(),
        _ => 0,
    };
    let claimed_bytes = 3 * value_bytes;
    claim(cx.settings, cx.session, claimed_bytes)?;
    let (elements, chosen) = if keeps_order {
        let elements = in_their_order(value, options)?;
        let all = (0..elements.len()).collect();
        (elements, all)
    } else {
        let elements = all_of(value)?;
        let window = options.window(elements.len());
        let chosen = sorted(cx, &elements, options, claimed_bytes, window)?;
        (elements, chosen)
    };
    let mut wanted = Texts::default();
    if options.gets.is_empty() {
        chosen.iter().for_each(|&element| wanted.push(elements.get(element)));
    } else {
        wanted = look_up(cx, &options.gets, chosen.iter().map(|&element| elements.element(element)), claimed_bytes)?;
    }
    if options.store {
        return store(cx, &wanted);
    }
    cx.out.array(wanted.len());
    wanted.iter().for_each(|text| cx.out.bulk_or_null(text));
    Ok(())
}

fn kind_of(value: &Value<'_>) -> Kind {
    match value {
        Value::Inline(kind, _) => *kind,
        Value::Boxed(boxed) => boxed.kind(),
    }
}

/// The elements of LIMIT, in the collection's own order. A set's order is arbitrary.
fn in_their_order(value: Option<Value<'_>>, options: &Options<'_>) -> Result<Texts, Stop> {
    let mut texts = Texts::default();
    match value.as_ref().map(kind_of) {
        Some(Kind::List) => {
            if let Some(list) = lists::elements(value)? {
                let window = options.window(list.len());
                let (mut skip, mut left) = (if options.descending { window.start } else { 0 }, window.len());
                let mut take = |element: &[u8]| {
                    if skip > 0 {
                        skip -= 1;
                    } else if left > 0 {
                        texts.push(Some(element));
                        left -= 1;
                    }
                    left > 0
                };
                match options.descending {
                    true => list.each_back(&mut take),
                    false => list.each_from(window.start, &mut take),
                }
            }
        }
        Some(Kind::ZSet) => {
            if let Some(zset) = zset(value)? {
                let len = zset.len();
                let window = options.window(len);
                if !window.is_empty() {
                    let first = if options.descending { len - 1 - window.start } else { window.start };
                    let range = zset.range(first, window.len(), options.descending);
                    range.for_each(|(_, member)| texts.push(Some(member)));
                }
            }
        }
        _ => {
            if let Some(set) = set(value)? {
                let window = options.window(set.len());
                let members = set.iter().skip(window.start).take(window.len());
                members.for_each(|member| member.with(|text| texts.push(Some(text))));
            }
        }
    }
    Ok(texts)
}

fn all_of(value: Option<Value<'_>>) -> Result<Texts, Stop> {
    in_their_order(value, &Options::default())
}

/// The numbers of the elements that are in the window after sorting.
fn sorted(
    cx: &mut Cx<'_>,
    elements: &Texts,
    options: &Options<'_>,
    claimed_bytes: usize,
    window: Range<usize>,
) -> Result<Vec<usize>, Stop> {
    let texts = match options.by {
        Some(pattern) => {
            Some(look_up(cx, &[pattern], (0..elements.len()).map(|index| elements.element(index)), claimed_bytes)?)
        }
        None => None,
    };
    let texts = texts.as_ref().unwrap_or(elements);
    let scores = match options.alpha {
        true => Vec::new(),
        false => {
            let score = |text: Option<&[u8]>| text.map_or(Some(0.0), number::sort_score);
            let scores: Option<Vec<f64>> = texts.iter().map(score).collect();
            scores.ok_or(Stop::error("ERR One or more scores can't be converted into double"))?
        }
    };
    let ascending = |&a: &usize, &b: &usize| match options.alpha {
        // An absent text sorts first. Equal texts keep their order.
        true => texts.get(a).cmp(&texts.get(b)),
        false => match scores[a].partial_cmp(&scores[b]) {
            Some(Ordering::Equal) | None => elements.get(a).cmp(&elements.get(b)),
            Some(order) => order,
        },
    };
    let order = |a: &usize, b: &usize| match options.descending {
        true => ascending(b, a),
        false => ascending(a, b),
    };
    let mut chosen: Vec<usize> = (0..elements.len()).collect();
    if window.is_empty() {
        return Ok(Vec::new());
    }
    if window.end < chosen.len() {
        // Elements after the window need no order.
        chosen.select_nth_unstable_by(window.end, order);
        chosen.truncate(window.end);
    }
    chosen.sort_by(order);
    chosen.drain(..window.start);
    Ok(chosen)
}

const REACHES_OUT: Stop = Stop::error("ERR the patterns of BY and GET in SORT name keys of another slot");

/// The values of the patterns for each element, pattern by pattern. `#` is the element itself. In a key's name `*` is
/// replaced by the element; `->field` after it names a field of a hash.
fn look_up<'e>(
    cx: &mut Cx<'_>,
    patterns: &[&[u8]],
    elements: impl ExactSizeIterator<Item = &'e [u8]> + Clone,
    claimed_bytes: usize,
) -> Result<Texts, Stop> {
    // Each text takes at least 5 bytes of a reply.
    if elements.len().saturating_mul(patterns.len()) > REPLY_BYTES_MAX / 5 {
        return Err(OUT_OF_RANGE);
    }
    let patterns: Vec<Pattern<'_>> = patterns.iter().map(|pattern| Pattern::parse(pattern)).collect();
    let mut names = Texts::default();
    for element in elements.clone() {
        for pattern in &patterns {
            if let Pattern::Key { before, behind, .. } = pattern {
                names.push(Some(&[before, element, behind].concat()));
            }
        }
        if names.bytes.len() > REPLY_BYTES_MAX {
            return Err(OUT_OF_RANGE);
        }
    }
    let hasher = cx.ks.hasher();
    let keys: Vec<Key<'_>> = (0..names.len()).map(|index| hasher.key(names.element(index))).collect();
    let slot = cx.keys[0].hash.slot;
    if cx.session.is_divided() && keys.iter().any(|key| key.hash.slot != slot) {
        return Err(REACHES_OUT);
    }
    match cx.ks.reach(&keys, cx.session.reach()) {
        Ok(()) => {}
        Err(NotHeld::Busy) => return Err(Stop::Yield),
        Err(NotHeld::NotOwned) => {
            return Err(REACHES_OUT);
        }
    }
    let mut fields = patterns
        .iter()
        .filter_map(|pattern| match pattern {
            Pattern::Key { field, .. } => Some(*field),
            _ => None,
        })
        .cycle();
    let texts = cx.ks.get_all(&keys)?.into_iter().map(|value| text_of(value, fields.next().flatten()));
    let texts: Vec<Option<&[u8]>> = texts.collect();
    // Memory for a copy of the texts, and for the reply.
    let bytes: usize = texts.iter().flatten().map(|text| text.len()).sum();
    claim(cx.settings, cx.session, claimed_bytes + 2 * bytes)?;
    let mut values = texts.into_iter();
    let mut found = Texts::default();
    for element in elements {
        for pattern in &patterns {
            match pattern {
                Pattern::Element => found.push(Some(element)),
                Pattern::Nothing => found.push(None),
                Pattern::Key { .. } => found.push(values.next().flatten()),
            }
        }
        if found.bytes.len() > REPLY_BYTES_MAX {
            return Err(OUT_OF_RANGE);
        }
    }
    Ok(found)
}

enum Pattern<'a> {
    Element,
    /// A pattern without `*` has no value.
    Nothing,
    Key {
        before: &'a [u8],
        behind: &'a [u8],
        field: Option<&'a [u8]>,
    },
}

impl<'a> Pattern<'a> {
    fn parse(pattern: &'a [u8]) -> Pattern<'a> {
        if pattern == b"#" {
            return Pattern::Element;
        }
        let Some(star) = pattern.iter().position(|&byte| byte == b'*') else { return Pattern::Nothing };
        let (before, behind) = (&pattern[..star], &pattern[star + 1..]);
        match behind.windows(2).position(|pair| pair == b"->").filter(|arrow| arrow + 2 < behind.len()) {
            Some(arrow) => Pattern::Key { before, behind: &behind[..arrow], field: Some(&behind[arrow + 2..]) },
            None => Pattern::Key { before, behind, field: None },
        }
    }
}

/// Pushes a string, or a field of a hash. Any other value counts as absent.
fn text_of<'v>(value: Option<Value<'v>>, field: Option<&[u8]>) -> Option<&'v [u8]> {
    match (value, field) {
        (Some(Value::Inline(Kind::String, text)), None) => Some(text),
        (value, Some(field)) => hash(value).ok().flatten().and_then(|hash| hash.get(field)),
        _ => None,
    }
}

/// An absent text is stored as an empty one.
fn store(cx: &mut Cx<'_>, texts: &Texts) -> Run {
    let key = &cx.keys[1];
    if texts.len() == 0 {
        if cx.ks.clear(key)? {
            cx.ks.event(Class::GENERIC, "del", key);
            cx.effect(&[b"DEL", key.name]);
        }
    } else {
        let was_there = cx.ks.is_there(key);
        let elements = texts.iter().map(Option::unwrap_or_default);
        lists::store(cx, key, elements.clone());
        cx.ks.event(Class::LIST, "sortstore", key);
        if was_there {
            cx.effect(&[b"DEL", key.name]);
        }
        cx.ks.effect([b"RPUSH", key.name].into_iter().chain(elements));
    }
    cx.out.int(texts.len() as i64);
    Ok(())
}
