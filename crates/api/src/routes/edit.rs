//! Owns changes of one key: its whole value, some members, its expiry. Each request is one transaction, all or nothing.
//! Never reads a page of values.

use crate::auth::Role;
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::link::{self, Link, number as int};
use crate::route::{Answer, Method, Route, one};
use crate::routes::keys::{KEY, KeyView, view_of};
use crate::text::{Bytes, shown};
use resp::client::Value;
use serde::Deserialize;
use utoipa::ToSchema;

/// More members at once are a bulk load, not an edit.
const MEMBERS_MAX: usize = 10_000;
const PATH: &str = "/api/v1/databases/{name}/key";
const BASE: Route = Route { path: PATH, role: Some(Role::Operator), tag: "Keys", ..Route::BASE };

pub const ROUTES: &[Route] = &[
    Route {
        method: Method::Put,
        summary: "Sets a key to a value, and replaces any value that it had.",
        body: Some(one::<NewKey>),
        reply: Answer::Json(one::<KeyView>),
        action: "key.set",
        run: put,
        ..BASE
    },
    Route {
        method: Method::Patch,
        summary: "Changes a key's expiry, or members of its value.",
        body: Some(one::<KeyChange>),
        reply: Answer::Json(one::<KeyView>),
        action: "key.update",
        run: patch,
        ..BASE
    },
    Route { method: Method::Delete, summary: "Deletes a key.", query: KEY, action: "key.delete", run: delete, ..BASE },
];

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewKey {
    key: Bytes,
    #[serde(default)]
    db: u32,
    /// string, list, set, hash, zset or stream
    #[serde(rename = "type")]
    kind: String,
    /// As GET shows it: string: Bytes; list, set: list of Bytes; hash: [field, value]; zset: [member, score]; stream: [id, [[field,
    /// value]]], where * draws an id.
    #[schema(value_type = Object)]
    value: serde_json::Value,
    /// Missing or null: it does not expire.
    ttl_ms: Option<u64>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct KeyChange {
    key: Bytes,
    #[serde(default)]
    db: u32,
    /// null: it does not expire any more.
    #[serde(default, deserialize_with = "crate::cx::given")]
    #[schema(value_type = Option<u64>)]
    ttl_ms: Option<Option<u64>>,
    set: Option<Members>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Members {
    /// hash: [field, value]; set: member; zset: [member, score]; list: [index, value], where an index of its length appends;
    /// stream: [id, [[field, value]]], where * draws an id.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    put: Vec<serde_json::Value>,
    /// hash: field; set, zset: member; list: index; stream: id.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    remove: Vec<serde_json::Value>,
}

type Command = Vec<Vec<u8>>;

fn command(name: &str, key: &[u8]) -> Command {
    vec![name.as_bytes().to_vec(), key.to_vec()]
}

/// A part of the body, in the shape of the type.
fn read<T: serde::de::DeserializeOwned>(field: &str, value: serde_json::Value) -> Result<T, ApiError> {
    serde_json::from_value(value)
        .map_err(|error| ApiError::field(field, format!("does not have the format of this type: {error}")))
}

fn score(field: &str, score: &serde_json::Value) -> Result<Vec<u8>, ApiError> {
    match score {
        serde_json::Value::Number(number) => Ok(number.to_string().into_bytes()),
        serde_json::Value::String(text) if text.parse::<f64>().is_ok_and(|number| !number.is_nan()) => {
            Ok(text.clone().into_bytes())
        }
        _ => Err(ApiError::field(field, "a score is a number, inf or -inf")),
    }
}

type Entry = (String, Vec<(Bytes, Bytes)>);

fn entry(key: &[u8], (id, fields): Entry) -> Command {
    let mut add = command("XADD", key);
    add.push(id.into_bytes());
    fields.into_iter().for_each(|(field, value)| add.extend([field.0, value.0]));
    add
}

fn bounded(field: &str, count: usize) -> Result<(), ApiError> {
    match count {
        0..=MEMBERS_MAX => Ok(()),
        _ => Err(ApiError::field(field, format!("at most {MEMBERS_MAX} members are allowed at once"))),
    }
}

fn filled(field: &str, count: usize) -> Result<(), ApiError> {
    if count == 0 {
        return Err(ApiError::field(field, "a value must not be empty: delete the key instead"));
    }
    bounded(field, count)
}

fn new_value(kind: &str, key: &[u8], value: serde_json::Value) -> Result<Vec<Command>, ApiError> {
    let field = "value";
    Ok(match kind {
        "string" => {
            let Bytes(value) = read(field, value)?;
            let mut set = command("SET", key);
            set.push(value);
            vec![set]
        }
        "list" | "set" => {
            let members: Vec<Bytes> = read(field, value)?;
            filled(field, members.len())?;
            let mut add = command(if kind == "list" { "RPUSH" } else { "SADD" }, key);
            add.extend(members.into_iter().map(|member| member.0));
            vec![add]
        }
        "hash" => {
            let fields: Vec<(Bytes, Bytes)> = read(field, value)?;
            filled(field, fields.len())?;
            let mut add = command("HSET", key);
            fields.into_iter().for_each(|(name, value)| add.extend([name.0, value.0]));
            vec![add]
        }
        "zset" => {
            let members: Vec<(Bytes, serde_json::Value)> = read(field, value)?;
            filled(field, members.len())?;
            let mut add = command("ZADD", key);
            for (member, given) in members {
                add.extend([score(field, &given)?, member.0]);
            }
            vec![add]
        }
        "stream" => {
            let entries: Vec<Entry> = read(field, value)?;
            filled(field, entries.len())?;
            entries.into_iter().map(|one| entry(key, one)).collect()
        }
        _ => return Err(ApiError::field("type", "string, list, set, hash, zset or stream is expected")),
    })
}

fn put(cx: &Cx) -> Result<Reply, ApiError> {
    let NewKey { key: Bytes(key), db, kind, value, ttl_ms } = cx.body()?;
    cx.note(cx.param("name"), format!("db {db}, key \"{}\", {kind}", shown(&key)));
    let mut commands = vec![command("DEL", &key)];
    commands.extend(new_value(&kind, &key, value)?);
    if let Some(ms) = ttl_ms {
        commands.push(expire(&key, ms)?);
    }
    let mut link = Link::open(&*cx.database()?, cx.role().on_database(), db)?;
    transact(&mut link, &commands)?;
    Reply::json(&view_of(&mut link, &key, "", 100)?)
}

fn expire(key: &[u8], ms: u64) -> Result<Command, ApiError> {
    if ms == 0 || ms > i64::MAX as u64 / 4 {
        return Err(ApiError::field("ttl_ms", "a number above 0 is expected"));
    }
    let mut expire = command("PEXPIRE", key);
    expire.push(ms.to_string().into_bytes());
    Ok(expire)
}

/// Runs MULTI … EXEC. The first error is the answer. If a command is malformed, nothing is changed, because EXEC is
/// then refused. A value of another type was already found by the reads after WATCH.
fn transact(link: &mut Link, commands: &[Command]) -> Result<(), ApiError> {
    link.call(&[b"MULTI"])?;
    for command in commands {
        let args: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        link.call(&args)?;
    }
    match link.call(&[b"EXEC"])? {
        Value::Null | Value::NullArray => {
            Err(ApiError::busy("another client has changed the key").hint("read it again"))
        }
        replies => link::items(replies).into_iter().try_for_each(|reply| link::refused(reply).map(drop)),
    }
}

fn patch(cx: &Cx) -> Result<Reply, ApiError> {
    let KeyChange { key: Bytes(key), db, ttl_ms, set } = cx.body()?;
    cx.note(cx.param("name"), format!("db {db}, key \"{}\"", shown(&key)));
    if ttl_ms.is_none() && set.is_none() {
        return Err(ApiError::invalid("the request changes nothing").hint("send ttl_ms or set"));
    }
    let mut link = Link::open(&*cx.database()?, cx.role().on_database(), db)?;
    // The value must not change between the decision and the change.
    link.call(&[b"WATCH", &key])?;
    let kind = link::text(link.call(&[b"TYPE", &key])?);
    if kind == "none" {
        return Err(ApiError::not_found(format!("there is no key '{}'", shown(&key))));
    }
    let mut commands = Vec::new();
    if let Some(Members { put, remove }) = set {
        bounded("set", put.len() + remove.len())?;
        commands = members(&mut link, &kind, &key, put, remove)?;
    }
    match ttl_ms {
        None => {}
        Some(None) => commands.push(command("PERSIST", &key)),
        Some(Some(ms)) => commands.push(expire(&key, ms)?),
    }
    transact(&mut link, &commands)?;
    Reply::json(&view_of(&mut link, &key, "", 100)?)
}

fn members(
    link: &mut Link,
    kind: &str,
    key: &[u8],
    put: Vec<serde_json::Value>,
    remove: Vec<serde_json::Value>,
) -> Result<Vec<Command>, ApiError> {
    let (in_put, in_remove) = ("set.put", "set.remove");
    let mut commands = Vec::new();
    let mut push = |name: &str, args: Vec<Vec<u8>>| {
        if !args.is_empty() {
            let mut command = command(name, key);
            command.extend(args);
            commands.push(command);
        }
    };
    let names = |remove: Vec<serde_json::Value>| {
        let names: Result<Vec<Bytes>, ApiError> = remove.into_iter().map(|name| read(in_remove, name)).collect();
        names.map(|names| names.into_iter().map(|name| name.0).collect::<Vec<_>>())
    };
    match kind {
        "hash" => {
            push("HDEL", names(remove)?);
            let mut args = Vec::new();
            for pair in put {
                let (field, value): (Bytes, Bytes) = read(in_put, pair)?;
                args.extend([field.0, value.0]);
            }
            push("HSET", args);
        }
        "set" => {
            push("SREM", names(remove)?);
            let added: Result<Vec<Bytes>, ApiError> = put.into_iter().map(|member| read(in_put, member)).collect();
            push("SADD", added?.into_iter().map(|member| member.0).collect());
        }
        "zset" => {
            push("ZREM", names(remove)?);
            let mut args = Vec::new();
            for pair in put {
                let (member, given): (Bytes, serde_json::Value) = read(in_put, pair)?;
                args.extend([score(in_put, &given)?, member.0]);
            }
            push("ZADD", args);
        }
        "list" => {
            let length = int(&link.call(&[b"LLEN", key])?).unwrap_or(0);
            let mut appended = 0;
            for pair in put {
                let (index, value): (i64, Bytes) = read(in_put, pair)?;
                match index {
                    index if index == length + appended => {
                        appended += 1;
                        push("RPUSH", vec![value.0]);
                    }
                    index if (0..length).contains(&index) => {
                        push("LSET", vec![index.to_string().into_bytes(), value.0])
                    }
                    _ => return Err(ApiError::field(in_put, format!("an index from 0 to {length} is expected"))),
                }
            }
            // No command removes list elements by index, so mark them with a value that no other element has.
            let mark = crate::auth::random(24).into_bytes();
            let mut marked = false;
            for index in remove {
                let index: i64 = read(in_remove, index)?;
                if !(0..length).contains(&index) {
                    return Err(ApiError::field(in_remove, format!("an index below {length} is expected")));
                }
                push("LSET", vec![index.to_string().into_bytes(), mark.clone()]);
                marked = true;
            }
            if marked {
                push("LREM", vec![b"0".to_vec(), mark]);
            }
        }
        "stream" => {
            push("XDEL", names(remove)?);
            for one in put {
                let (id, fields): Entry = read(in_put, one)?;
                let mut args = vec![id.into_bytes()];
                fields.into_iter().for_each(|(field, value)| args.extend([field.0, value.0]));
                push("XADD", args);
            }
        }
        _ => return Err(ApiError::unsupported("a string has no members").hint("PUT the whole value")),
    }
    Ok(commands)
}

fn delete(cx: &Cx) -> Result<Reply, ApiError> {
    let key = cx.key()?;
    cx.note(cx.param("name"), format!("db {}, key \"{}\"", cx.query("db").unwrap_or("0"), shown(&key)));
    match int(&cx.link()?.call(&[b"UNLINK", &key])?) {
        Some(1..) => Ok(Reply::none()),
        _ => Err(ApiError::not_found(format!("there is no key '{}'", shown(&key)))),
    }
}
