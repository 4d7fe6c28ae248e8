//! Owns the commands on HyperLogLogs, which are strings in a certain format. Never knows that format: `value::hll`
//! does.

use crate::cx::Cx;
use crate::row::{Access, Effect, Flag, Group, Handling, KeyUse, Keys, Row, Values, is, starts};
use crate::stop::{Run, Stop};
use crate::strings::{mark_raw, string};
use store::{Class, Cold, Value};
use value::hll::{self, Encoding, Union};
use value::{Buffer, Corrupt};

const BASE: Row = Row { group: Group::HyperLogLog, since: "2.8.9", ..Row::BASE };

pub const ROWS: &[Row] = &[
    Row {
        name: "pfadd",
        arity: -2,
        access: Access::All(KeyUse::INSERT),
        flags: &[Flag::Write, Flag::Denyoom, Flag::Fast],
        effect: Effect::Stated,
        complexity: "O(1) for each element.",
        summary: "Adds elements to a HyperLogLog; tells whether its estimate may have changed.",
        syntax: "key [element [element ...]]",
        examples: &[
            is("PFADD visitors ann bob cid", "(integer) 1"),
            is("PFADD visitors ann", "(integer) 0"),
            is("PFADD empty", "(integer) 1"),
            is("PFADD empty", "(integer) 0"),
            is("SET k x", "OK"),
            is("PFADD k x", "(error) WRONGTYPE Key is not a valid HyperLogLog string value."),
        ],
        run: pfadd,
        ..BASE
    },
    Row {
        name: "pfcount",
        handling: &[Handling::MayReplicate],
        arity: -2,
        keys: Keys::ALL,
        access: Access::All(KeyUse::CACHE),
        flags: &[Flag::Readonly],
        effect: Effect::Stated,
        complexity: "O(1) for one key, as its last estimate is kept; O(N) for N keys, each of which is read whole.",
        summary: "Estimates how many distinct elements one HyperLogLog, or several together, have seen.",
        syntax: "key [key ...]",
        examples: &[
            is("PFADD a 1 2 3", "(integer) 1"),
            is("PFADD b 3 4", "(integer) 1"),
            is("PFCOUNT a", "(integer) 3"),
            is("PFCOUNT a b nosuch", "(integer) 4"),
            is("PFCOUNT nosuch", "(integer) 0"),
            is("HSET h f v", "(integer) 1"),
            is("PFCOUNT h", "(error) WRONGTYPE Operation against a key holding the wrong kind of value"),
        ],
        run: pfcount,
        ..BASE
    },
    Row {
        name: "pfdebug",
        arity: 3,
        access: Access::All(KeyUse::CACHE),
        keys: Keys::Range { first: 2, last: 2, step: 1 },
        flags: &[Flag::Write, Flag::Denyoom, Flag::Admin],
        effect: Effect::Stated,
        complexity: "O(1), the number of registers being fixed.",
        summary: "Shows the registers, the runs or the encoding of a HyperLogLog, or makes it dense.",
        syntax: "<GETREG | DECODE | ENCODING | TODENSE> key",
        examples: &[
            is("PFADD h a b c", "(integer) 1"),
            is("PFDEBUG ENCODING h", "sparse"),
            is("PFDEBUG DECODE h", "\"Z:8436 v:1,1 Z:4274 v:2,1 Z:3068 v:1,1 Z:603\""),
            is("PFDEBUG TODENSE h", "(integer) 1"),
            is("PFDEBUG ENCODING h", "dense"),
            is("PFDEBUG DECODE h", "(error) ERR HLL encoding is not sparse"),
            starts("PFDEBUG GETREG h", "    1) (integer) 0\n    2) (integer) 0"),
            is("PFDEBUG ENCODING nosuch", "(error) ERR The specified key does not exist"),
            is("PFDEBUG WHAT h", "(error) ERR Unknown PFDEBUG subcommand 'WHAT'"),
        ],
        run: pfdebug,
        ..BASE
    },
    Row {
        name: "pfmerge",
        arity: -2,
        access: Access::First(KeyUse::MERGE, KeyUse::READ),
        keys: Keys::ALL,
        flags: &[Flag::Write, Flag::Denyoom],
        effect: Effect::Stated,
        complexity: "O(N) for N keys, each of which is read whole.",
        summary: "Makes the first HyperLogLog the union of all.",
        syntax: "destkey [sourcekey [sourcekey ...]]",
        examples: &[
            is("PFADD a 1 2 3", "(integer) 1"),
            is("PFADD b 3 4", "(integer) 1"),
            is("PFMERGE to a b", "OK"),
            is("PFCOUNT to", "(integer) 4"),
            is("SET k x", "OK"),
            is("PFMERGE to k", "(error) WRONGTYPE Key is not a valid HyperLogLog string value."),
        ],
        run: pfmerge,
        ..BASE
    },
    Row {
        name: "pfselftest",
        arity: 1,
        keys: Keys::NONE,
        flags: &[Flag::Admin],
        values: Values::Untouched,
        complexity: "O(1)",
        summary: "Tests the registers and estimates of a HyperLogLog of its own.",
        syntax: "",
        examples: &[
            is("PFSELFTEST", "OK"),
            is("PFSELFTEST x", "(error) ERR wrong number of arguments for 'pfselftest' command"),
        ],
        run: pfselftest,
        ..BASE
    },
];

const NOT_HLL: Stop = Stop::error("WRONGTYPE Key is not a valid HyperLogLog string value.");

fn corrupt(_: Corrupt) -> Stop {
    Stop::error("INVALIDOBJ Corrupted HLL object detected")
}

/// The bytes of a HyperLogLog with a valid header. `None`: no such key.
fn sketch(value: Option<Value<'_>>) -> Result<Option<&[u8]>, Stop> {
    let bytes = string(value)?;
    match bytes {
        Some(bytes) if hll::encoding(bytes).is_none() => Err(NOT_HLL),
        bytes => Ok(bytes),
    }
}

fn pfadd(cx: &mut Cx<'_>) -> Run {
    let key = &cx.keys[0];
    let places = cx.args.from(2).map(hll::place);
    let is_new = match sketch(cx.ks.get_to_edit(key)?)? {
        None => true,
        Some(bytes) => {
            let mut changes = false;
            for (index, rank) in places.clone() {
                changes = hll::register(bytes, index).map_err(corrupt)? < rank;
                if changes {
                    break;
                }
            }
            // A PFADD that changes nothing must not make the value dirty.
            if !changes {
                make_raw(cx)?;
                cx.out.int(0);
                return Ok(());
            }
            // Changing a corrupt HyperLogLog may fail halfway, and half the change would stand. So try it on a copy
            // first.
            if hll::check(bytes).is_err() {
                let mut copy = bytes.to_vec();
                for (index, rank) in places.clone() {
                    hll::raise(&mut copy, index, rank, cx.settings.hll_sparse_max_bytes).map_err(corrupt)?;
                }
            }
            false
        }
    };
    if is_new {
        cx.ks.set_string(key, &hll::empty(), None);
    }
    let sparse_bytes_max = cx.settings.hll_sparse_max_bytes;
    let mut became_dense = false;
    if let Some(mut value) = cx.ks.get_mut(key)? {
        let was = hll::encoding(value.bytes());
        for (index, rank) in places {
            hll::raise(&mut value, index, rank, sparse_bytes_max).map_err(corrupt)?;
        }
        hll::invalidate(value.bytes_mut());
        value.mark_raw();
        became_dense = hll::encoding(value.bytes()) != was;
    }
    cx.ks.event(Class::STRING, "pfadd", key);
    state(cx, b"PFADD", became_dense);
    cx.out.int(1);
    Ok(())
}

/// States the command's own arguments. The bytes of a HyperLogLog are visible to clients, and a setting decides when it
/// becomes dense. So that change is stated as a command of its own.
fn state(cx: &mut Cx<'_>, name: &[u8], became_dense: bool) {
    cx.ks.effect(std::iter::once(name).chain(cx.args.from(1)));
    if became_dense {
        cx.effect(&[b"PFDEBUG", b"TODENSE", cx.keys[0].name]);
    }
}

/// A HyperLogLog that was SET becomes a raw string at its first use, as OBJECT ENCODING shows.
fn make_raw(cx: &mut Cx<'_>) -> Run {
    let key = &cx.keys[0];
    if cx.ks.is_raw(key)? { Ok(()) } else { mark_raw(cx, key) }
}

fn pfcount(cx: &mut Cx<'_>) -> Run {
    let [key] = cx.keys else {
        let count = union(cx)?.0.estimate();
        cx.out.int(count as i64);
        return Ok(());
    };
    let Some(bytes) = sketch(cx.ks.get(key)?)? else {
        cx.out.int(0);
        return Ok(());
    };
    if let Some(count) = hll::cached(bytes) {
        make_raw(cx)?;
        cx.out.int(count as i64);
        return Ok(());
    }
    let count = hll::count(bytes).map_err(corrupt)?;
    if let Some(mut value) = cx.ks.get_mut(key)? {
        hll::cache(value.bytes_mut(), count);
        value.mark_raw();
    }
    // The value's bytes hold the cached estimate. The estimate uses only additions, products and square roots, which
    // give the same result on every machine.
    cx.effect(&[b"PFCOUNT", key.name]);
    cx.out.int(count as i64);
    Ok(())
}

/// The union of all the command's keys, and whether one of them is dense.
fn union(cx: &mut Cx<'_>) -> Result<(Union, bool), Stop> {
    let (mut union, mut any_dense, mut cold) = (Union::default(), false, false);
    for key in cx.keys {
        // Do not stop at the first cold key: the walk goes on, so that all cold keys are read together. Errors of other
        // keys wait for the run that sees all values; otherwise the reply would not be the first error.
        let bytes = match cx.ks.get(key) {
            Ok(value) if !cold => sketch(value)?,
            Ok(_) => continue,
            Err(Cold) => {
                cold = true;
                continue;
            }
        };
        if let Some(bytes) = bytes {
            any_dense |= hll::encoding(bytes) == Some(Encoding::Dense);
            union.add(bytes).map_err(corrupt)?;
        }
    }
    if cold { Err(Stop::Cold) } else { Ok((union, any_dense)) }
}

fn pfmerge(cx: &mut Cx<'_>) -> Run {
    let (union, any_dense) = union(cx)?;
    let key = &cx.keys[0];
    if cx.ks.peek(key)?.is_none() {
        cx.ks.set_string(key, &hll::empty(), None);
    }
    let sparse_bytes_max = cx.settings.hll_sparse_max_bytes;
    let mut became_dense = false;
    if let Some(mut value) = cx.ks.get_mut(key)? {
        if any_dense {
            hll::make_dense(&mut value).map_err(corrupt)?;
        }
        let was = hll::encoding(value.bytes());
        for (index, &rank) in union.registers().iter().enumerate().filter(|(_, rank)| **rank > 0) {
            hll::raise(&mut value, index, rank, sparse_bytes_max).map_err(corrupt)?;
        }
        hll::invalidate(value.bytes_mut());
        value.mark_raw();
        became_dense = hll::encoding(value.bytes()) != was;
    }
    cx.ks.event(Class::STRING, "pfadd", key);
    state(cx, b"PFMERGE", became_dense);
    cx.out.ok();
    Ok(())
}

fn pfdebug(cx: &mut Cx<'_>) -> Run {
    let (key, word) = (&cx.keys[0], cx.args.get(1).unwrap_or_default());
    let says = |name: &[u8]| word.eq_ignore_ascii_case(name);
    let Some(bytes) = sketch(cx.ks.get(key)?)? else {
        return Err(Stop::error("ERR The specified key does not exist"));
    };
    let encoding = hll::encoding(bytes);
    if says(b"encoding") {
        make_raw(cx)?;
        cx.out.simple(if encoding == Some(Encoding::Dense) { "dense" } else { "sparse" });
    } else if says(b"decode") {
        if encoding == Some(Encoding::Dense) {
            return Err(Stop::error("ERR HLL encoding is not sparse"));
        }
        let runs = shown(bytes);
        make_raw(cx)?;
        cx.out.bulk(runs.as_bytes());
    } else if says(b"getreg") || says(b"todense") {
        let is_sparse = encoding == Some(Encoding::Sparse);
        if is_sparse && let Some(mut value) = cx.ks.get_mut(key)? {
            hll::make_dense(&mut value).map_err(corrupt)?;
            cx.effect(&[b"PFDEBUG", b"TODENSE", key.name]);
        }
        make_raw(cx)?;
        if says(b"todense") {
            cx.out.int(is_sparse.into());
            return Ok(());
        }
        let mut union = Union::default();
        if let Some(bytes) = sketch(cx.ks.get(key)?)? {
            union.add(bytes).map_err(corrupt)?;
        }
        cx.out.array(hll::REGISTERS);
        union.registers().iter().for_each(|&register| cx.out.int(register.into()));
    } else {
        let text = format!("ERR Unknown PFDEBUG subcommand '{}'", String::from_utf8_lossy(word));
        return Err(Stop::Error(text.into()));
    }
    Ok(())
}

/// The runs of a sparse HyperLogLog in the format of PFDEBUG DECODE.
fn shown(bytes: &[u8]) -> String {
    let runs = hll::runs(bytes).map(|(run, long)| match run.value {
        0 if long => format!("Z:{}", run.len),
        0 => format!("z:{}", run.len),
        value => format!("v:{value},{}", run.len),
    });
    runs.collect::<Vec<_>>().join(" ")
}

/// Elements that PFSELFTEST counts. This takes some milliseconds, in which the worker does nothing else.
const SELF_TEST_ELEMENTS: u64 = 20_000;

fn pfselftest(cx: &mut Cx<'_>) -> Run {
    let failed = |what: String| Stop::Error(format!("ERR TESTFAILED {what}").into());
    let (mut sparse, mut dense) = (hll::empty(), hll::empty());
    hll::make_dense(&mut dense).map_err(corrupt)?;
    for element in 1..=SELF_TEST_ELEMENTS {
        let (index, rank) = hll::place(&element.to_le_bytes());
        let sparse_bytes_max = cx.settings.hll_sparse_max_bytes;
        let changed = hll::raise(&mut sparse, index, rank, sparse_bytes_max).map_err(corrupt)?;
        if changed != hll::raise(&mut dense, index, rank, sparse_bytes_max).map_err(corrupt)? {
            return Err(failed(format!("Sparse and dense registers disagree about element {element}")));
        }
        if !element.is_power_of_two() && element != SELF_TEST_ELEMENTS {
            continue;
        }
        let counts = (hll::count(&sparse).map_err(corrupt)?, hll::count(&dense).map_err(corrupt)?);
        // Four standard errors of 1.04 / sqrt(16,384), plus one for small numbers.
        let allowed = element as f64 * 4.0 * 1.04 / (hll::REGISTERS as f64).sqrt() + 1.0;
        if counts.0 != counts.1 || counts.0.abs_diff(element) as f64 > allowed {
            return Err(failed(format!("{element} elements were estimated as {} and {}", counts.0, counts.1)));
        }
    }
    cx.out.ok();
    Ok(())
}
