//! Owns the random commands on streams. Never knows how commands are sent.

use crate::Random;

/// Ids never come from a clock, because the servers have two clocks.
pub const TEMPLATES: &[&str] = &[
    "XADD <stream> <new-id> <field> <value>",
    "XADD <stream> <new-id> <field> <value>",
    "XADD <stream> <new-id> <field> <short>",
    "XADD <stream> <new-id> a <short>",
    "XADD <stream> <new-id> a <short> b <short>",
    "XADD <stream> <new-id> a <short> b <short>",
    "XADD <stream> <new-id> a <short> b <short>",
    "XADD <stream> <trim> <new-id> a <short>",
    "XADD <stream> NOMKSTREAM ?<trim> <new-id> <field> <short>",
    "XADD <stream> <any-id> <field> <value> *<field>",
    "XTRIM <stream> <trim>",
    "XDEL <stream> <id> *<id>",
    "XDEL <stream> <id> <id> *<id>",
    "XLEN <stream>",
    "XRANGE <stream> - +",
    "XRANGE <stream> <start> <start> ?<count-option>",
    "XREVRANGE <stream> + -",
    "XREVRANGE <stream> <start> <start> ?<count-option>",
    "XSETID <stream> <top-id> ?<setid-option> ?<setid-option>",
    "XREAD STREAMS <stream> <any-id>",
    "XREAD ?<count-option> STREAMS <stream> <stream> <id> <id>",
    "XREAD ?<count-option> STREAMS <stream> <stream> <any-id> <any-id>",
    "XREADGROUP GROUP <group> <consumer> ?<count-option> ?<no-ack> STREAMS <stream> >",
    "XREADGROUP GROUP <group> <consumer> ?<count-option> STREAMS <stream> >",
    "XREADGROUP GROUP <group> <consumer> ?<count-option> STREAMS <stream> >",
    "XREADGROUP GROUP <group> <consumer> ?<count-option> STREAMS <stream> <any-id>",
    "XREADGROUP GROUP <group> <consumer> ?<count-option> STREAMS <stream> 0",
    "XGROUP CREATE <stream> <group> <group-id> ?<group-option> ?<group-option>",
    "XGROUP CREATE <stream> <group> 0 MKSTREAM",
    "XGROUP SETID <stream> <group> <group-id> ?<group-option>",
    "XGROUP DESTROY <stream> <group>",
    "XGROUP CREATECONSUMER <stream> <group> <consumer>",
    "XGROUP DELCONSUMER <stream> <group> <consumer>",
    "XACK <stream> <group> <id> *<id>",
    "XPENDING <stream> <group>",
    "XPENDING <stream> <group> <start> <start> <integer> ?<consumer>",
    "XPENDING <stream> <group> ?<idle-option> - + 100 ?<consumer>",
    "XCLAIM <stream> <group> <consumer> <idle> <id> *<id>",
    "XCLAIM <stream> <group> <consumer> 0 <id> <id> ?<claim-option> ?<claim-option> ?<claim-option>",
    "XAUTOCLAIM <stream> <group> <consumer> <idle> <start> ?<auto-option> ?<auto-option>",
    "XAUTOCLAIM <stream> <group> <consumer> 0 - ?<auto-option>",
    "XINFO STREAM <stream>",
    "XINFO STREAM <stream> FULL",
    "XINFO STREAM <stream> FULL COUNT <integer>",
    "XINFO GROUPS <stream>",
    "XINFO CONSUMERS <stream> <group>",
    "OBJECT ENCODING <stream>",
    "DEL <stream>",
    "COPY <stream> <stream> REPLACE",
    "RENAME <stream> <stream>",
];

pub const BLOCKING: &[&str] = &[
    "XREAD BLOCK <timeout> STREAMS nosuch $",
    "XREAD BLOCK <timeout> STREAMS <stream> <stream> $ <id>",
    "XREADGROUP GROUP <group> <consumer> BLOCK <timeout> STREAMS <stream> >",
];

const IDS_MAX: usize = 30;

/// Words of the stream commands only. The caller splits options of several words.
pub fn word(kind: &str, random: &mut Random) -> Option<String> {
    let near = |random: &mut Random| format!("{}-{}", random.below(IDS_MAX), random.below(6));
    Some(match kind {
        // Usually above the last id.
        "<new-id>" => match random.below(10) {
            0 => near(random),
            1..5 => format!("{}-*", random.below(IDS_MAX)),
            _ => format!("{}-*", IDS_MAX - random.below(2)),
        },
        "<id>" => match random.below(4) {
            0 => random.below(IDS_MAX).to_string(),
            1 => format!("{}-{}", IDS_MAX - random.below(2), random.below(30)),
            _ => near(random),
        },
        // Never below a deleted id, which 7.0 does not check.
        "<top-id>" => match random.below(5) {
            0 => random.of(&["x", "", "5-*", "$"]).to_owned(),
            _ => format!("{}-{}", IDS_MAX + 1, random.below(3)),
        },
        "<any-id>" => match random.below(3) {
            0 => random
                .of(&[
                    "$",
                    ">",
                    "0-0",
                    "+",
                    "-",
                    "x",
                    "",
                    "1-",
                    "-1",
                    "1-x",
                    "5-*",
                    "0-*",
                    "18446744073709551615-*",
                    "1--2",
                    "18446744073709551615-18446744073709551615",
                    "18446744073709551616",
                    "(1",
                    "01-02",
                    "1- 2",
                    "1-2-3",
                    "1-+2",
                ])
                .to_owned(),
            _ => near(random),
        },
        "<start>" => match random.below(6) {
            0 => "-".to_owned(),
            1 => "+".to_owned(),
            2 => format!("({}", near(random)),
            3 => {
                random.of(&["(", "(-", "(0-0", "(18446744073709551615-18446744073709551615", "x", "", "5-*"]).to_owned()
            }
            _ => near(random),
        },
        "<group-id>" => match random.below(5) {
            0 => random.of(&["+", "-", "x", "", "5-*", ">"]).to_owned(),
            1 => "$".to_owned(),
            2 => "0".to_owned(),
            _ => near(random),
        },
        "<group>" => random.of(&["g", "g", "g", "h", "h", "", "nosuch"]).to_owned(),
        "<consumer>" => random.of(&["ann", "bob", "cid", "ann", "bob", ""]).to_owned(),
        "<short>" => {
            random.of(&["1", "-7", "300", "x", "yy", "70000", "", "4294967296", "a longer one than that"]).to_owned()
        }
        "<trim>" => {
            let len = random.below(12);
            let limit = random.of(&["LIMIT 0", "LIMIT 3", "LIMIT 100", "LIMIT -1", "LIMIT x", "limit 10"]);
            match random.below(8) {
                0 => format!("MAXLEN {len}"),
                1 => format!("MAXLEN = {len}"),
                2 => format!("MAXLEN ~ {len}"),
                3 => format!("maxlen ~ {len} {limit}"),
                4 => format!("MINID {}", near(random)),
                5 => format!("MINID ~ {} {limit}", near(random)),
                6 => format!("MINID = {len}"),
                _ => random
                    .of(&[
                        "MAXLEN -1",
                        "MAXLEN x",
                        "MAXLEN ~",
                        "MAXLEN",
                        "MINID x",
                        "MAXLEN 3 MINID 3",
                        "LIMIT 5",
                        "MAXLEN 5 LIMIT 5",
                        "MAXLEN 5 LIMIT 0",
                        "LIMIT 0",
                        "MAXLEN ~ 9223372036854775807",
                        "MAXLEN 9223372036854775808",
                        "MINID *",
                    ])
                    .to_owned(),
            }
        }
        "<setid-option>" => random
            .of(&[
                "ENTRIESADDED 100",
                "ENTRIESADDED 3",
                "ENTRIESADDED -1",
                "MAXDELETEDID 1-1",
                "MAXDELETEDID 0-0",
                "MAXDELETEDID 20-0",
                "ENTRIESADDED",
                "foo",
            ])
            .to_owned(),
        "<group-option>" => random
            .of(&[
                "MKSTREAM",
                "mkstream",
                "ENTRIESREAD 5",
                "ENTRIESREAD -1",
                "ENTRIESREAD -2",
                "ENTRIESREAD",
                "ENTRIESREAD x",
                "foo",
            ])
            .to_owned(),
        "<no-ack>" => "NOACK".to_owned(),
        "<idle>" => random.of(&["0", "0", "3600000", "-1", "x", "9223372036854775807", ""]).to_owned(),
        "<idle-option>" => random.of(&["IDLE 0", "IDLE 3600000", "IDLE -1", "IDLE x", "IDLE"]).to_owned(),
        "<claim-option>" => random
            .of(&[
                "FORCE",
                "JUSTID",
                "IDLE 7200000",
                "IDLE -5",
                "TIME 1",
                "TIME -1",
                "TIME 99999999999999",
                "RETRYCOUNT 7",
                "RETRYCOUNT -1",
                "RETRYCOUNT x",
                "LASTID 5-5",
                "LASTID 0",
                "LASTID x",
                "IDLE x",
                "TIME",
                "foo",
                "IDLE 9223372036854775807",
                "IDLE -9223372036854775808",
                "RETRYCOUNT 9223372036854775807",
            ])
            .to_owned(),
        "<auto-option>" => random
            .of(&[
                "COUNT 1",
                "COUNT 3",
                "count 100",
                "JUSTID",
                "COUNT 0",
                "COUNT -1",
                "COUNT x",
                "COUNT",
                "foo",
                "COUNT 9223372036854775807",
            ])
            .to_owned(),
        _ => return None,
    })
}

/// Redis 7.0 creates a consumer only when it receives something, 7.2 when it asks. So create the consumer before it
/// asks.
pub fn consumer_of(words: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
    let create = |key: &Vec<u8>, group: &Vec<u8>, consumer: &Vec<u8>| {
        vec![b"XGROUP".to_vec(), b"CREATECONSUMER".to_vec(), key.clone(), group.clone(), consumer.clone()]
    };
    match words {
        [name, key, group, consumer, ..] if [&b"XCLAIM"[..], b"XAUTOCLAIM"].contains(&&name[..]) => {
            vec![create(key, group, consumer)]
        }
        [name, ..] if name == b"XREADGROUP" => {
            let at = |name: &[u8]| words.iter().position(|word| word.eq_ignore_ascii_case(name));
            let (Some(group), Some(streams)) = (at(b"GROUP"), at(b"STREAMS")) else { return Vec::new() };
            let Some([group, consumer]) = words.get(group + 1..group + 3) else { return Vec::new() };
            let keys = &words[streams + 1..];
            keys[..keys.len() / 2].iter().map(|key| create(key, group, consumer)).collect()
        }
        _ => Vec::new(),
    }
}
