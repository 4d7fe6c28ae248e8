//! Owns the random commands on sorted sets and positions. Never knows how commands are sent.

use crate::Random;

/// In a `<lexed>` set all scores are the same; otherwise the result of a lexicographic range is undefined. No two
/// members of a `<geo>` set have the same position; otherwise their order would be arbitrary. Commands that would break
/// these rules use other keys. So do distances, whose sums depend on the order.
pub const TEMPLATES: &[&str] = &[
    "ZADD <zset> <score> <member> *<score-member>",
    "ZADD <zset> <score> <member> *<score-member>",
    "ZADD <zset> <score> <member> *<score-member>",
    "ZADD <zset> <score> <member> *<score-member>",
    "ZADD <zset> ?<zadd-option> ?<zadd-option> <score> <member> *<score-member>",
    "ZADD <zset> ?<zadd-option> ?<zadd-option> <score> <member>",
    "ZADD <zset> INCR ?<zadd-option> <score> <member>",
    "ZINCRBY <zset> <score> <member>",
    "ZREM <zset> <member> *<member>",
    "ZCARD <zset>",
    "ZSCORE <zset> <member>",
    "ZMSCORE <zset> <member> *<member>",
    "ZRANK <zset> <member>",
    "ZREVRANK <zset> <member>",
    "ZCOUNT <zset> <bound> <bound>",
    "ZRANGE <zset> <rank> <rank> ?<range-option> ?<range-option>",
    "ZRANGE <zset> <bound> <bound> BYSCORE ?<range-option> ?<range-option> ?<range-option>",
    "ZRANGE <zset> <bound> <bound> ?<range-option> BYSCORE REV ?<range-option>",
    "ZRANGE <zset> 0 -1 WITHSCORES",
    "ZREVRANGE <zset> <rank> <rank> ?<range-option>",
    "ZRANGEBYSCORE <zset> <bound> <bound> ?<range-option> ?<range-option>",
    "ZREVRANGEBYSCORE <zset> <bound> <bound> ?<range-option> ?<range-option>",
    "ZRANGESTORE <zset> <zset> <rank> <rank> ?<range-option>",
    "ZRANGESTORE <zset> <zset> <bound> <bound> BYSCORE ?<range-option> ?<range-option>",
    "ZREMRANGEBYRANK <zset> <rank> <rank>",
    "ZREMRANGEBYSCORE <zset> <bound> <bound>",
    "ZPOPMIN <zset> ?<count>",
    "ZPOPMAX <zset> ?<count>",
    "ZMPOP 2 <zset> <zset> <extreme> ?<count-option>",
    "ZMPOP <integer> <zset> *<zset> <extreme> ?<count-option>",
    "ZUNION 2 <sets> <sets> ?<union-option> ?<union-option>",
    "ZUNION 3 <sets> <sets> <sets> WEIGHTS 1 -1 2 ?<union-option> WITHSCORES",
    "ZINTER 2 <sets> <sets> ?<union-option> ?<union-option>",
    "ZINTER 2 <sets> <sets> WEIGHTS 0.5 2 ?<union-option> WITHSCORES",
    "ZDIFF 2 <sets> <sets> ?<union-option>",
    "ZDIFF 3 <sets> <sets> <sets> WITHSCORES",
    "ZUNION <integer> <sets> *<sets> ?<union-option>",
    "ZUNIONSTORE <zset> 2 <sets> <sets> ?<union-option> ?<union-option>",
    "ZINTERSTORE <zset> 2 <sets> <sets> ?<union-option> ?<union-option>",
    "ZDIFFSTORE <zset> 2 <sets> <sets> ?<union-option>",
    "ZUNIONSTORE <zset> <integer> <sets> *<sets>",
    "ZINTERCARD 2 <sets> <sets> ?<limit-option>",
    "ZINTERCARD <integer> <sets> *<sets> ?<limit-option>",
    "ZRANDMEMBER <zset> 100000 ?<with-scores>",
    "ZRANDMEMBER nosuch ?<integer> ?<with-scores>",
    "ZSCAN <zset> junk ?<scan-option>",
    "ZSCAN <zset> 0 <scan-option>",
    "ZSCAN <zset> 0 MATCH m* COUNT 100000",
    "OBJECT ENCODING <zset>",
    "SORT <zset> ALPHA DESC LIMIT 0 3",
    // Lexicographic ranges.
    "ZADD <lexed> 0 <member> *<zero-member>",
    "ZADD <lexed> 0 <member> *<zero-member>",
    "ZREM <lexed> <member>",
    "ZRANGEBYLEX <lexed> <text> <text> ?<range-option>",
    "ZREVRANGEBYLEX <lexed> <text> <text> ?<range-option>",
    "ZRANGE <lexed> <text> <text> BYLEX ?<range-option> ?<range-option>",
    "ZRANGE <lexed> - + BYLEX",
    "ZRANGESTORE <zset> <lexed> <text> <text> BYLEX ?<range-option>",
    "ZLEXCOUNT <lexed> <text> <text>",
    "ZREMRANGEBYLEX <lexed> <text> <text>",
    "COPY <lexed> <lexed> REPLACE",
    "DEL <lexed>",
    // Positions.
    "GEOADD <geo> <place> <member> *<place-member>",
    "GEOADD <geo> <place> <member> *<place-member>",
    "GEOADD <geo> <place> <member> *<place-member>",
    "GEOADD <geo> ?<geoadd-option> ?<geoadd-option> <place> <member> *<place-member>",
    "GEODIST <geo> <member> <member> ?<length>",
    "GEOHASH <geo> <member> *<member>",
    "GEOPOS <geo> <member> *<member>",
    "GEOSEARCH <geo> <from> <by> ?<geo-option> ?<geo-option> ?<geo-option>",
    "GEOSEARCH <geo> <from> <by> ?<geo-option> ?<geo-option> ?<geo-option>",
    "GEOSEARCH <geo> <from> <by> ASC COUNT 3 WITHDIST WITHCOORD WITHHASH",
    "GEOSEARCHSTORE <geo> <geo> <from> <by> ?<geo-option> ?<geo-option>",
    "GEOSEARCHSTORE <distances> <geo> <from> <by> STOREDIST",
    "GEORADIUS <geo> <center> <distance> <length> ?<geo-option> ?<geo-option> ?<radius-option>",
    "GEORADIUS_RO <geo> <center> <distance> <length> ?<geo-option> ?<radius-option>",
    "GEORADIUSBYMEMBER <geo> <member> <distance> <length> ?<geo-option> ?<geo-option> ?<radius-option>",
    "GEORADIUSBYMEMBER_RO <geo> <member> <distance> <length> ?<geo-option> ?<radius-option>",
    "ZREM <geo> <member>",
    "ZRANGE <geo> 0 -1 WITHSCORES",
    "ZRANGE <distances> 0 -1 WITHSCORES",
    "RENAME <geo> <geo>",
    "PEXPIRE <geo> <seconds>",
    "DEL <geo>",
];

pub const BLOCKING: &[&str] = &[
    "BZPOPMIN <zset> *<zset> <timeout>",
    "BZPOPMAX <zset> *<zset> <timeout>",
    "BZMPOP <timeout> 2 <zset> <zset> <extreme> ?<count-option>",
    "BZMPOP <timeout> <integer> <zset> *<zset> <extreme> ?<count-option>",
];

/// Words of these commands only. The caller splits a text with spaces into several words.
pub fn word(kind: &str, random: &mut Random) -> Option<String> {
    let several = |kinds: &[&str], random: &mut Random| {
        let words = kinds.iter().map(|kind| word(kind, random).unwrap_or_else(|| (*kind).to_owned()));
        words.collect::<Vec<_>>().join(" ")
    };
    let one = match kind {
        // Few different scores, whose sums are exact.
        "<score>" if !random.one_in(8) => random.of(&["0", "1", "-1", "2.5", "3", "0.25", "7", "10", "1e3", "-42"]),
        "<score>" => random.of(&["inf", "-inf", "+inf", "x", "nan", "", "-0", "1e400", "1.5e", "Infinity", "\t1"]),
        "<bound>" if !random.one_in(6) => {
            random.of(&["-inf", "+inf", "inf", "(1", "1", "(2.5", "5", "(-1", "0", "10", "(10", "-1", "1000"])
        }
        "<bound>" => {
            random.of(&["x", "", "(", "1e400", "nan", "((1", "(inf", "(-inf", "(nan", "1x", "[1", "\t1", "1\t"])
        }
        "<text>" => random
            .of(&["-", "+", "[m1", "(m3", "[m5", "(1", "[9", "[", "(", "b", "", "-x", "[m", "(zz", "[27000", "++"]),
        "<rank>" if !random.one_in(8) => random.of(&["0", "1", "2", "3", "7", "-1", "-2", "-3", "-8", "20"]),
        "<rank>" => random.of(&["x", "", "1.5", "9223372036854775807", "-9223372036854775808", "9223372036854775808"]),
        "<extreme>" => random.of(&["MIN", "max", "MIN", "MAX", "MAX", "mid"]),
        "<zadd-option>" => random.of(&["NX", "XX", "GT", "LT", "CH", "INCR", "gt", "ch", "foo"]),
        "<range-option>" => random.of(&[
            "REV",
            "rev",
            "WITHSCORES",
            "withscores",
            "LIMIT 0 2",
            "LIMIT 1 -1",
            "LIMIT -1 5",
            "LIMIT 2 0",
            "LIMIT 0 -7",
            "LIMIT x 1",
            "LIMIT 1",
            "LIMIT 9223372036854775807 9223372036854775807",
            "BYLEX",
            "foo",
        ]),
        "<with-scores>" => random.of(&["WITHSCORES", "withscores", "foo"]),
        "<union-option>" => random.of(&[
            "WEIGHTS 2 3",
            "WEIGHTS 1 -1",
            "WEIGHTS -1 -0",
            "WEIGHTS inf 0",
            "WEIGHTS inf -inf",
            "WEIGHTS 1",
            "WEIGHTS 1 2 3",
            "WEIGHTS x 1",
            "WEIGHTS nan 1",
            "AGGREGATE MIN",
            "AGGREGATE MAX",
            "aggregate sum",
            "AGGREGATE",
            "AGGREGATE AVG",
            "WITHSCORES",
            "foo",
        ]),
        "<score-member>" => return Some(several(&["<score>", "<short-member>"], random)),
        "<zero-member>" => return Some(several(&["0", "<short-member>"], random)),
        "<place-member>" => return Some(several(&["<place>", "<short-member>"], random)),
        "<short-member>" => {
            return Some(match random.below(3) {
                0 => format!("m{}", random.below(14)),
                _ => (random.below(16) * 9000).to_string(),
            });
        }
        "<place>" => match random.below(25) {
            0 => random.of(&["181 0", "0 86", "x 0", "0 x", "inf 0", "nan 1", "1", "-180.1 0", "0 -85.06"]),
            // Positions all over the map, and many in one region.
            n => {
                let (longitudes, latitudes) = if n < 12 { (3600, 1700) } else { (40, 40) };
                let mut degrees = |range: usize| (random.below(range * 997) as f64 / 997.0 - range as f64 / 2.0) / 10.0;
                return Some(format!("{:.6} {:.6}", degrees(longitudes), degrees(latitudes)));
            }
        },
        // The centre of a search may be at the very edge of the map.
        "<center>" if random.one_in(10) => {
            random.of(&["180 85.05112878", "-180 -85.05112878", "0 0", "179.9999 0.1", "-179.99 0", "10 85", "10 -85"])
        }
        "<center>" => return word("<place>", random),
        "<length>" => random.of(&["m", "km", "KM", "ft", "mi", "km", "km", "parsec"]),
        "<distance>" if !random.one_in(8) => random.of(&["1", "100", "200", "1000", "5000", "20000", "300000"]),
        "<distance>" => random.of(&["0", "1e6", "2.5", "-1", "x", "inf", "nan", "", "1e300"]),
        "<from>" => match random.below(10) {
            0 => random.of(&["FROMMEMBER", "FROMLONLAT 1 1 FROMMEMBER m1", "FROMLONLAT 1", "ASC"]),
            1..5 => return Some(several(&["FROMMEMBER", "<short-member>"], random)),
            _ => return Some(several(&["fromlonlat", "<center>"], random)),
        },
        "<by>" => match random.below(10) {
            0 => random.of(&[
                "BYRADIUS 1 m BYBOX 1 1 m",
                "BYRADIUS",
                "BYBOX 1 m",
                "BYBOX x 1 m",
                "BYBOX 1 -1 km",
                "DESC",
            ]),
            1..6 => return Some(several(&["BYRADIUS", "<distance>", "<length>"], random)),
            _ => return Some(several(&["bybox", "<distance>", "<distance>", "<length>"], random)),
        },
        "<geoadd-option>" => random.of(&["NX", "XX", "CH", "nx", "ch", "GT", "foo"]),
        "<geo-option>" => random.of(&[
            "ASC",
            "DESC",
            "WITHDIST",
            "WITHCOORD",
            "withhash",
            "COUNT 3",
            "COUNT 100",
            "COUNT 2 ANY",
            "ANY",
            "COUNT 0",
            "COUNT -1",
            "COUNT x",
            "COUNT",
            "foo",
        ]),
        "<radius-option>" => random.of(&["STORE g2", "STOREDIST d2", "STOREDIST", "STORE", "STORE g2 STOREDIST d3"]),
        _ => return None,
    };
    Some(one.to_owned())
}
