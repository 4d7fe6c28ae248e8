//! Owns DEBUG, for tests and for people who look inside, and LOLWUT. Never changes data.

use crate::connection::wrong_subcommand;
use crate::cx::{Args, Cx, NO_SUCH_KEY, NOT_INTEGER, Run, SYNTAX, Stop};
use crate::glob;
use crate::host::REDIS_VERSION;
use crate::number;
use crate::object::encoding_name;
use std::time::Duration;

const NOT_ALLOWED: Stop = Stop::error(
    "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a \
     local connection, otherwise you need to set this option in the configuration file, and then restart the server.",
);

/// DEBUG STRINGMATCH-LEN's longest text: the time is at most this times the pattern's length.
const MATCHED_BYTES_MAX: usize = 1 << 20;

/// DEBUG OBJECT's key.
pub(super) fn keys(args: &Args<'_>, at: &mut Vec<usize>) {
    if args.len() == 3 && args[1].eq_ignore_ascii_case(b"object") {
        at.push(2);
    }
}

pub(super) fn run(cx: &mut Cx<'_>) -> Run {
    if !cx.server.debug_allowed(cx.session) {
        return Err(NOT_ALLOWED);
    }
    let args = cx.args;
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"sleep", 3) => {
            let seconds = std::str::from_utf8(&args[2]).ok().and_then(|text| text.parse::<f64>().ok());
            let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            cx.server.sleep(duration.ok_or(Stop::error("ERR value is not a valid float"))?);
            cx.out.ok();
        }
        (b"object", 3) => object(cx)?,
        (b"set-active-expire", 3) => {
            let on = match &args[2] {
                b"0" => false,
                b"1" => true,
                _ => return Err(SYNTAX),
            };
            cx.server.set_active_expire(on);
            cx.out.ok();
        }
        (b"protocol", 3) => protocol(cx)?,
        (b"error", 3) => {
            // A line of its own in the protocol: it must not hold another.
            let text = String::from_utf8_lossy(&args[2]).replace(['\r', '\n'], " ");
            return Err(Stop::Error(text.into()));
        }
        (b"log", 3) => {
            cx.server.log(&String::from_utf8_lossy(&args[2]));
            cx.out.ok();
        }
        (b"stringmatch-len", 4) => {
            let length = number::int(&args[2]).and_then(|length| usize::try_from(length).ok());
            let length = length.filter(|&length| length <= MATCHED_BYTES_MAX).ok_or(NOT_INTEGER)?;
            cx.out.int(glob::matches(&args[3], &vec![b'a'; length], false).into());
        }
        (b"panic", 2) => panic!("DEBUG PANIC was given"),
        (b"help", 2) => {
            let lines = [
                "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "SLEEP seconds",
                "    Holds up the worker of this connection, with all its connections.",
                "OBJECT key",
                "    Shows where and how the key's value is kept.",
                "SET-ACTIVE-EXPIRE <0 | 1>",
                "    Whether expired keys are looked for, or only found when somebody asks for them.",
                "PROTOCOL <STRING | INTEGER | DOUBLE | NULL | ARRAY | SET | MAP | PUSH | BIGNUM | VERBATIM | TRUE | FALSE>",
                "    Answers with a reply of that type.",
                "ERROR string",
                "    Answers with that as an error.",
                "LOG message",
                "    Writes that to the log.",
                "STRINGMATCH-LEN len pattern",
                "    Whether the pattern fits so many letters a.",
                "PANIC",
                "    Fails inside the command, which costs this connection and no other.",
            ];
            cx.out.array(lines.len());
            lines.iter().for_each(|line| cx.out.simple(line));
        }
        _ => {
            return Err(wrong_subcommand(args, "DEBUG"));
        }
    }
    Ok(())
}

fn object(cx: &mut Cx<'_>) -> Run {
    let found = cx.ks.inspect(&cx.keys[0])?.ok_or(NO_SUCH_KEY)?;
    let encoding = encoding_name(cx, &found)?;
    let tier = match (found.hot, found.dirty) {
        (false, _) => "flash",
        (true, false) => "ram,flash",
        (true, true) => "ram",
    };
    cx.out.simple(&format!(
        "Value at:{tier} refcount:1 encoding:{encoding} serializedlength:{} lru_seconds_idle:{} type:{} frequency:{} \
         flash_pages:{} expiry_ms:{}",
        found.ram_bytes,
        found.idle_seconds,
        found.kind.name(),
        found.frequency,
        found.flash_pages,
        found.expiry.map_or(-1, |at| at as i64),
    ));
    Ok(())
}

/// One reply of each type, for tests of clients.
fn protocol(cx: &mut Cx<'_>) -> Run {
    let out = &mut cx.out;
    match cx.args[2].to_ascii_lowercase().as_slice() {
        b"string" => out.bulk(b"Hello World"),
        b"integer" => out.int(12345),
        b"double" => out.double(3.25),
        b"null" => out.null(),
        b"array" => {
            out.array(3);
            (0..3).for_each(|i| out.int(i));
        }
        b"set" => {
            out.set(3);
            (0..3).for_each(|i| out.int(i));
        }
        b"map" => {
            out.map(3);
            for i in 0..3 {
                out.int(i);
                out.boolean(i == 1);
            }
        }
        b"push" => {
            if out.proto() == resp::reply::Proto::Resp2 {
                return Err(Stop::error("ERR RESP2 is not supported by this command"));
            }
            out.push(2);
            out.bulk(b"server-cpu-usage");
            out.int(42);
            // A push message answers nothing; the command does.
            out.ok();
        }
        b"bignum" => out.big_number("1234567999999999999999999999999999999"),
        b"verbatim" => out.verbatim("txt", b"This is a verbatim\nstring"),
        b"true" => out.boolean(true),
        b"false" => out.boolean(false),
        _ => {
            return Err(Stop::error(
                "ERR Wrong protocol type name. Please use one of the following: string|integer|double|null|array|set|\
                 map|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}

/// Rows and columns of LOLWUT's picture.
const ROWS: usize = 8;
const COLUMNS: usize = 48;

/// A flint struck: sparks that are fewer the farther they fly, different each time.
pub(super) fn lolwut(cx: &mut Cx<'_>) -> Run {
    if cx.args.len() >= 3 && cx.args[1].eq_ignore_ascii_case(b"version") {
        number::int(&cx.args[2]).ok_or(crate::cx::NOT_INTEGER)?;
    }
    let mut seed = cx.server.time_us() | 1;
    let mut picture = String::new();
    for row in 0..ROWS {
        for column in 0..COLUMNS {
            // xorshift64*: any generator will do for sparks.
            seed ^= seed >> 12;
            seed ^= seed << 25;
            seed ^= seed >> 27;
            let distance = (ROWS - row) * 4 + column;
            let spark = (seed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % (distance + 2);
            picture.push(match (row == ROWS - 1 && column < 3, spark) {
                (true, _) => '▲',
                (false, 0) => '*',
                (false, 1) => '·',
                _ => ' ',
            });
        }
        picture.truncate(picture.trim_end_matches(' ').len());
        picture.push('\n');
    }
    picture.push_str(&format!("\nFlintKV, speaks Redis ver. {REDIS_VERSION}\n"));
    cx.out.verbatim("txt", picture.as_bytes());
    Ok(())
}
