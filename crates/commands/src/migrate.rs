//! Owns MIGRATE: which keys go to another server, and which of them are removed here. Never knows sockets: the handler
//! leaves an [`Exchange`] to the server, and continues when the exchange is over.
//!
//! Redis serves no other client during MIGRATE. Here stripes are not locked while the command waits for the network, so
//! another client may change a key while it is sent. A mark at each key detects that. A changed key stays here, and the
//! reply counts such keys.

use crate::cx::{Args, Cx};
use crate::dump::portable_payload;
use crate::exchange::{Exchange, Failure, Outcome, Target};
use crate::number::int_or_error;
use crate::row::{Access, Acl, Effect, Flag, HowMany, KeyLocation, KeyUse, Keys, Row, Secrets, is, is_behind};
use crate::stop::{Run, SYNTAX, Stop};
use resp::client::{begin_command, encode_argument};
use std::borrow::Cow;
use std::time::Duration;
use store::{Class, Cold, Watches};

pub const ROWS: &[Row] = &[Row {
    name: "migrate",
    acl: &[Acl::Dangerous],
    arity: -6,
    keys: Keys::UsuallyAt(3, keys, &[KeyLocation::Behind { word: "KEYS", from: -2, how_many: HowMany::All }]),
    access: Access::All(KeyUse::TAKE),
    // Found after the timeout argument.
    secrets: Secrets::Rule(|args, at| is_behind(args, at, "AUTH", 1, 6) || is_behind(args, at, "AUTH2", 2, 6)),
    flags: &[Flag::Write, Flag::MovableKeys, Flag::Noscript, Flag::NoMulti],
    tips: &["nondeterministic_output"],
    effect: Effect::Stated,
    since: "2.6.0",
    complexity: "O(N) where N is the size of the values, here and on the other server.",
    summary: "Moves keys to another server, hot or cold. A key that changes in the meantime stays here, and the reply is an error.",
    syntax: "host port <key | \"\"> destination-db timeout [COPY] [REPLACE] [AUTH password | AUTH2 username password] [KEYS key [key ...]]",
    examples: &[
        is("MIGRATE 127.0.0.1 1 nosuch 0 100", "NOKEY"),
        is("SET k v", "OK"),
        is("MIGRATE 127.0.0.1 1 k 0 100", "(error) IOERR error or timeout writing to target instance"),
        is("MIGRATE 127.0.0.1 1 k 0 100 MOVE", "(error) ERR syntax error"),
        is(
            "MIGRATE 127.0.0.1 1 k 0 100 KEYS a",
            "(error) ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
        ),
        is("EXISTS k", "(integer) 1"),
    ],
    run: migrate,
    ..Row::BASE
}];

/// The third argument. If that is empty: all arguments after KEYS. KEYS must not be the argument of another option.
fn keys(args: &Args<'_>, at: &mut Vec<usize>) {
    let Some(key) = args.get(3) else { return };
    match keys_word(args) {
        None => at.push(3),
        Some(word) if key.is_empty() => at.extend(word + 1..args.len()),
        Some(_) => {}
    }
}

fn keys_word(args: &Args<'_>) -> Option<usize> {
    let mut at = 6;
    loop {
        let word = args.get(at)?;
        let says = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        at += match () {
            () if says("keys") => return Some(at),
            () if says("auth") => 2,
            () if says("auth2") => 3,
            () => 1,
        };
    }
}

#[derive(Default)]
struct Options<'a> {
    copy: bool,
    replace: bool,
    user: Option<&'a [u8]>,
    password: Option<&'a [u8]>,
}

fn options<'a>(args: Args<'a>) -> Result<Options<'a>, Stop> {
    let mut options = Options::default();
    let mut at = 6;
    while let Some(word) = args.get(at) {
        let says = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        match (args.get(at + 1), args.get(at + 2)) {
            _ if says("copy") => options.copy = true,
            _ if says("replace") => options.replace = true,
            (Some(password), _) if says("auth") => {
                options.password = Some(password);
                at += 1;
            }
            (Some(user), Some(password)) if says("auth2") => {
                (options.user, options.password) = (Some(user), Some(password));
                at += 2;
            }
            _ if says("keys") && !args[3].is_empty() => {
                return Err(Stop::error(
                    "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
                ));
            }
            _ if says("keys") => break,
            _ => return Err(SYNTAX),
        }
        at += 1;
    }
    Ok(options)
}

fn migrate(cx: &mut Cx<'_>) -> Run {
    match cx.session.exchange.take() {
        None => begin(cx),
        Some(exchange) => {
            let result = conclude(cx, &exchange);
            // Dropping the marks of its keys locks their stripes, and this command holds them now. So the server drops
            // the exchange.
            cx.session.exchange = Some(exchange);
            result
        }
    }
}

/// Sends nothing before every value is in RAM and can be encoded.
fn begin(cx: &mut Cx<'_>) -> Run {
    let (args, now_ms) = (cx.args, cx.ks.now_ms());
    let options = options(args)?;
    let patience_ms = match int_or_error(&args[5])? {
        ms if ms <= 0 => 1000,
        ms => ms as u64,
    };
    let db = int_or_error(&args[4])?;
    cx.ks.want(cx.keys)?;
    let (mut commands, mut keys) = (Vec::new(), Vec::new());
    for (place, key) in cx.keys.iter().enumerate() {
        let expiry = cx.ks.expiry(key)?.flatten();
        let Some(value) = cx.ks.get(key)? else { continue };
        let payload = portable_payload(value)?;
        let ttl_ms = expiry.map_or(0, |expiry| expiry.saturating_sub(now_ms).max(1));
        begin_command(4 + usize::from(options.replace), &mut commands);
        encode_argument(b"RESTORE", &mut commands);
        encode_argument(key.name, &mut commands);
        encode_argument(ttl_ms.to_string().as_bytes(), &mut commands);
        encode_argument(&payload, &mut commands);
        if options.replace {
            encode_argument(b"REPLACE", &mut commands);
        }
        keys.push((place, Watches::of_everything()));
    }
    if keys.is_empty() {
        cx.out.simple("NOKEY");
        return Ok(());
    }
    let count = keys.len();
    if options.copy {
        keys.clear();
    }
    for (place, mark) in &mut keys {
        // Everything was just read, so nothing is cold.
        cx.ks.watch(&cx.keys[*place..=*place], mark)?;
    }
    let port = std::str::from_utf8(&args[2]).ok().and_then(|text| text.parse().ok());
    cx.session.exchange = Some(Box::new(Exchange {
        target: Target {
            host: String::from_utf8_lossy(&args[1]).into_owned(),
            port: port.unwrap_or(0),
            user: options.user.map(Box::from),
            password: options.password.map(Box::from),
        },
        timeout: Duration::from_millis(patience_ms),
        db,
        commands,
        count,
        keys,
        outcome: None,
    }));
    Err(Stop::Exchange)
}

/// Removes the keys that the other server accepted, unless they changed since they were sent.
fn conclude(cx: &mut Cx<'_>, exchange: &Exchange) -> Run {
    let Some(outcome) = &exchange.outcome else { return Err(Stop::Exchange) };
    let taken = || exchange.keys.iter().zip(&outcome.replies).filter(|(_, reply)| reply.is_ok());
    let is_cold = taken().fold(false, |cold, ((place, _), _)| cx.ks.peek(&cx.keys[*place]) == Err(Cold) || cold);
    if is_cold {
        return Err(Stop::Cold);
    }
    let mut changed = 0;
    for ((place, mark), _) in taken() {
        let key = &cx.keys[*place];
        if mark.changed() {
            changed += 1;
        } else if cx.ks.remove(key)? {
            cx.ks.event(Class::GENERIC, "del", key);
            cx.effect(&[b"DEL", key.name]);
        }
    }
    match problem(exchange, outcome, changed) {
        None => cx.out.ok(),
        Some(text) => {
            // Keys that were removed stay removed, even if the reply is an error.
            cx.ks.commit_despite_error();
            return Err(Stop::Error(text));
        }
    }
    Ok(())
}

/// Why not all keys were moved; `changed` of them changed in the meantime.
fn problem(exchange: &Exchange, outcome: &Outcome, changed: usize) -> Option<Cow<'static, str>> {
    let refused = outcome.refused.as_ref().or_else(|| outcome.replies.iter().find_map(|reply| reply.as_ref().err()));
    if let Some(text) = refused {
        return Some(format!("ERR Target instance replied with error: {text}").into());
    }
    if let Some(failure) = outcome.failed {
        return Some(Cow::Borrowed(match failure {
            Failure::Connecting => "IOERR error or timeout connecting to the client",
            Failure::Writing => "IOERR error or timeout writing to target instance",
            Failure::Reading => "IOERR error or timeout reading to target instance",
        }));
    }
    let text = || {
        format!(
            "ERR {changed} of {} keys were changed while they were sent: they stay here, and the target has them as they \
             were before",
            exchange.count
        )
    };
    (changed > 0).then(|| text().into())
}
