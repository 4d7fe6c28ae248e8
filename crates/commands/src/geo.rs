//! Owns the commands on positions, which are sorted sets whose scores are geohashes. Never knows how a sorted set is
//! stored.

mod hash;
mod search;

pub use search::ROWS as SEARCHES;

use crate::cx::{Args, Cx};
use crate::number;
use crate::row::{Access, Flag, Group, KeyUse, Row, is};
use crate::stop::{NOT_FLOAT, Run, SYNTAX, Stop};
use crate::zsets::form::{of_members, zset};
use crate::zsets::{Rule, put};
use hash::Position;
use resp::reply::{Out, Proto};

const WRONG: &str = "(error) WRONGTYPE Operation against a key holding the wrong kind of value";
const NO_UNIT: &str = "(error) ERR unsupported unit provided. please use M, KM, FT, MI";

const BASE: Row = Row { group: Group::Geo, since: "3.2.0", flags: &[Flag::Readonly], ..Row::BASE };

pub const ROWS: &[Row] = &[
    Row {
        name: "geoadd",
        arity: -5,
        access: Access::All(KeyUse::UPDATE),
        flags: &[Flag::Write, Flag::Denyoom],
        complexity: "O(log(N)) for each member, where N is the number of members of the sorted set.",
        summary: "Sets the positions of members; absent members are added.",
        syntax: "key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]",
        examples: &[
            is("GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", "(integer) 2"),
            is("GEOADD g XX CH 13.36 38.11 Palermo 1 1 nosuch", "(integer) 1"),
            is("ZSCORE g Catania", "\"3479447370796909\""),
            is("GEOADD g 200 0 x", "(error) ERR invalid longitude,latitude pair 200.000000,0.000000"),
            is("GEOADD g NX XX 1 1 x", "(error) ERR syntax error"),
            is("GEOADD g x 1 y", "(error) ERR value is not a valid float"),
        ],
        run: geoadd,
        ..BASE
    },
    Row {
        name: "geodist",
        arity: -4,
        summary: "Gives the distance between two members, in metres or another unit.",
        syntax: "key member1 member2 [M | KM | FT | MI]",
        examples: &[
            is("GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", "(integer) 2"),
            is("GEODIST g Palermo Catania", "\"166274.1516\""),
            is("GEODIST g Palermo Catania km", "\"166.2742\""),
            is("GEODIST g Palermo nosuch", "(nil)"),
            is("GEODIST g Palermo Catania parsec", NO_UNIT),
        ],
        run: geodist,
        ..BASE
    },
    Row {
        name: "geohash",
        arity: -2,
        complexity: "O(N) where N is the number of members asked for.",
        summary: "Gives members' positions as geohashes of eleven letters.",
        syntax: "key [member [member ...]]",
        examples: &[
            is("GEOADD g 13.361389 38.115556 Palermo", "(integer) 1"),
            is("GEOHASH g Palermo nosuch", "1) \"sqc8b49rny0\"\n2) (nil)"),
            is("GEOHASH nosuch a", "1) (nil)"),
            is("SET k x", "OK"),
            is("GEOHASH k a", WRONG),
        ],
        run: |cx| {
            each_position(cx, |out, position| match position {
                Some(position) => out.bulk(&position.text()),
                None => out.null(),
            })
        },
        ..BASE
    },
    Row {
        name: "geopos",
        arity: -2,
        complexity: "O(N) where N is the number of members asked for.",
        summary: "Gives members' longitudes and latitudes.",
        syntax: "key [member [member ...]]",
        examples: &[
            is("GEOADD g 13.361389 38.115556 Palermo", "(integer) 1"),
            is("GEOPOS g Palermo nosuch", "1) 1) \"13.36138933897018433\"\n   2) \"38.11555639549629859\"\n2) (nil)"),
            is("GEOPOS nosuch a", "1) (nil)"),
            is("SET k x", "OK"),
            is("GEOPOS k a", WRONG),
        ],
        run: |cx| {
            each_position(cx, |out, position| match position {
                Some(position) => write_position(out, position),
                None => out.null_array(),
            })
        },
        ..BASE
    },
];

fn geoadd(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let (mut rule, mut from) = (Rule::default(), 2);
    while let Some(word) = args.get(from) {
        let option = match word {
            _ if word.eq_ignore_ascii_case(b"nx") => &mut rule.nx,
            _ if word.eq_ignore_ascii_case(b"xx") => &mut rule.xx,
            _ if word.eq_ignore_ascii_case(b"ch") => &mut rule.ch,
            _ => break,
        };
        *option = true;
        from += 1;
    }
    let words = args.len() - from;
    if words == 0 || !words.is_multiple_of(3) || rule.nx && rule.xx {
        return Err(SYNTAX);
    }
    let scores = (from..args.len()).step_by(3).map(|at| Ok(position_at(args, at)?.score()));
    let scores = scores.collect::<Result<_, Stop>>()?;
    put(cx, rule, scores, args.from(from + 2).step_by(3))
}

fn geodist(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let unit_m = match args.get(4) {
        None => 1.0,
        Some(_) if args.len() > 5 => return Err(SYNTAX),
        Some(unit) => unit_m(unit)?,
    };
    let zset = zset(cx.ks.get_for(&cx.keys[0], &of_members([&args[2], &args[3]].into_iter()))?)?;
    match zset.and_then(|zset| Some((zset.score(&args[2])?, zset.score(&args[3])?))) {
        Some((from, to)) => {
            let distance_m = Position::of_score(from).distance_m(Position::of_score(to));
            write_distance(&mut cx.out, distance_m / unit_m);
        }
        None => cx.out.null(),
    }
    Ok(())
}

fn each_position(cx: &mut Cx<'_>, write: fn(&mut Out<'_>, Option<Position>)) -> Run {
    let members = cx.args.from(2);
    let zset = zset(cx.ks.get_for(&cx.keys[0], &of_members(members.clone()))?)?;
    cx.out.array(members.len());
    for member in members {
        write(&mut cx.out, zset.and_then(|zset| zset.score(member)).map(Position::of_score));
    }
    Ok(())
}

/// A longitude and a latitude at the two arguments from `at`. Both arguments exist.
fn position_at(args: Args<'_>, at: usize) -> Result<Position, Stop> {
    let longitude = number::double(&args[at]).ok_or(NOT_FLOAT)?;
    let latitude = number::double(&args[at + 1]).ok_or(NOT_FLOAT)?;
    let position = Position { longitude, latitude };
    if position.is_on_map() {
        return Ok(position);
    }
    Err(Stop::Error(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}").into()))
}

/// The metres of a unit.
fn unit_m(unit: &[u8]) -> Result<f64, Stop> {
    let units: [(&[u8], f64); 4] = [(b"m", 1.0), (b"km", 1000.0), (b"ft", 0.3048), (b"mi", 1609.34)];
    let found = units.into_iter().find(|(name, _)| unit.eq_ignore_ascii_case(name));
    found.map(|(_, metres)| metres).ok_or(Stop::error("ERR unsupported unit provided. please use M, KM, FT, MI"))
}

/// Four decimals, rounded as Redis 7.2 rounds: the product is rounded to even.
fn write_distance(out: &mut Out<'_>, distance: f64) {
    out.bulk(format!("{:.4}", (distance * 10_000.0).round_ties_even() / 10_000.0).as_bytes());
}

fn write_position(out: &mut Out<'_>, position: Position) {
    out.array(2);
    for degrees in [position.longitude, position.latitude] {
        let text = format!("{degrees:.17}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        let text = if text == "-0" { "0" } else { text };
        match out.proto() {
            Proto::Resp2 => out.bulk(text.as_bytes()),
            Proto::Resp3 => out.raw(format!(",{text}\r\n").as_bytes()),
        }
    }
}
