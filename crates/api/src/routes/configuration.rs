//! Owns the configuration of a database as a table: the directives, their values, and which can change. Never knows
//! what a directive does.

use crate::auth::Role;
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::link;
use crate::route::{Answer, Method, Route, list, plain};
use config::{Change, ConfigStore, Effect, Group, ROWS, is_secret};
use resp::client::Value;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use utoipa::ToSchema;

const PATH: &str = "/api/v1/databases/{name}/config";

pub const ROUTES: &[Route] = &[
    Route {
        path: PATH,
        tag: "Configuration",
        summary: "Every directive: value, default, whether it can change now, and its meaning.",
        reply: Answer::Json(list::<Directive>),
        run: all,
        ..Route::BASE
    },
    Route {
        method: Method::Patch,
        path: PATH,
        role: Some(Role::Admin),
        tag: "Configuration",
        summary: "Changes directives, all of them or none. Lost at a restart unless rewritten.",
        body: Some(plain::<BTreeMap<String, String>>),
        reply: Answer::Json(list::<Directive>),
        action: "config.set",
        run: set,
        ..Route::BASE
    },
    Route {
        method: Method::Post,
        path: "/api/v1/databases/{name}/config/rewrite",
        role: Some(Role::Admin),
        tag: "Configuration",
        summary: "Writes the current configuration to the database's file.",
        action: "config.rewrite",
        run: |cx| {
            cx.link()?.call(&[b"CONFIG", b"REWRITE"])?;
            Ok(Reply::none())
        },
        ..Route::BASE
    },
];

#[derive(Serialize, ToSchema)]
struct Directive {
    name: &'static str,
    /// null: secret.
    value: Option<String>,
    default: String,
    /// Whether it differs from the default.
    changed: bool,
    /// live, start (only in the file) or protected (if enable-protected-configs lets a client)
    change: &'static str,
    group: &'static str,
    doc: &'static str,
    /// Why it has no effect; null if it has one.
    effect: Option<&'static str>,
    secret: bool,
}

fn all(cx: &Cx) -> Result<Reply, ApiError> {
    let database = cx.database()?;
    let values: HashMap<String, String> = database.config().get(&["*"]).into_iter().collect();
    let defaults = ConfigStore::from_directives(&[]).map_err(|error| ApiError::failed(error.to_string()))?;
    let defaults: HashMap<String, String> = defaults.get(&["*"]).into_iter().collect();
    let shown = ROWS.iter().filter(|row| row.change != Change::FileOnly && row.group != Group::Hidden);
    let directive = |row: &'static config::Row| {
        let value = values.get(row.name)?;
        let default = defaults.get(row.name).cloned().unwrap_or_else(|| row.default.to_owned());
        let secret = is_secret(row.name);
        Some(Directive {
            name: row.name,
            changed: *value != default,
            value: (!secret).then(|| value.clone()),
            default,
            change: match row.change {
                Change::Live => "live",
                Change::Protected => "protected",
                Change::Start | Change::FileOnly => "start",
            },
            group: row.group.as_str(),
            doc: row.about,
            effect: match row.effect {
                Effect::Used => None,
                Effect::Inert(why) => Some(why),
            },
            secret,
        })
    };
    Reply::json(&shown.filter_map(directive).collect::<Vec<_>>())
}

fn set(cx: &Cx) -> Result<Reply, ApiError> {
    let wanted: BTreeMap<String, String> = cx.body()?;
    if wanted.is_empty() {
        return Err(ApiError::invalid("the request changes nothing").hint("send {\"maxclients\": \"1000\"}"));
    }
    let named: Vec<String> = wanted
        .iter()
        .map(|(name, value)| if is_secret(name) { format!("{name} (secret)") } else { format!("{name} {value}") })
        .collect();
    cx.note(cx.param("name"), named.join(", "));
    let mut args: Vec<&[u8]> = vec![b"CONFIG", b"SET"];
    wanted.iter().for_each(|(name, value)| args.extend([name.as_bytes(), value.as_bytes()]));
    if let Value::Error(text) = cx.link()?.ask(&args)? {
        let text = crate::text::lossy(&text);
        // "… (possibly related to argument 'maxclients') - why" or "… - 'nosuch'"
        let blamed = text.split('\'').nth(1).filter(|name| wanted.contains_key(*name));
        return Err(match blamed {
            Some(name) => ApiError::field(name, text.rsplit(" - ").next().unwrap_or(&text)),
            None => link::refused(Value::Error(text.clone().into())).err().unwrap_or_else(|| ApiError::invalid(text)),
        });
    }
    all(cx)
}
