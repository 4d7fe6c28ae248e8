//! Owns the view that a handler has of a request, and its reply. Never knows HTTP's bytes.

use crate::app::App;
use crate::auth::{Role, Who};
use crate::error::ApiError;
use crate::link::Link;
use crate::text::from_base64url;
use node::Database;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::Notify;

/// A connection of the console.
#[derive(Default)]
pub struct OpenConnection {
    /// A complete request has arrived and is being answered.
    pub works: AtomicBool,
    /// Ends the connection.
    pub end: Notify,
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub address: IpAddr,
    /// The request came over loopback, and not through a proxy.
    pub is_local: bool,
    pub is_tls: bool,
}

/// A request and what its handler needs.
pub struct Cx {
    pub app: Arc<App>,
    /// The requester. `None` only if the route needs no role.
    pub who: Option<Who>,
    pub peer: Peer,
    pub params: Vec<(String, String)>,
    pub query: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub note: Mutex<Note>,
}

/// What the audit log contains besides the user and the time. Never a secret.
#[derive(Clone, Debug, Default)]
pub struct Note {
    /// The user, if only the request itself names it, as in a login.
    pub user: Option<(String, Option<Role>)>,
    pub target: String,
    pub detail: String,
    /// Why the action failed although the HTTP answer is a success: an error reply of a command.
    pub failure: Option<String>,
    /// The request could not change anything, so it is not recorded.
    pub is_silent: bool,
}

impl Cx {
    /// The value of a `{name}` in the path.
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A number in the query, within bounds.
    pub fn number<T: FromStr + PartialOrd + std::fmt::Display + Copy>(
        &self,
        name: &str,
        default: T,
        (min, max): (T, T),
    ) -> Result<T, ApiError> {
        let Some(text) = self.query(name) else { return Ok(default) };
        let number = text.parse::<T>().ok().filter(|number| (min..=max).contains(number));
        number.ok_or_else(|| ApiError::field(name, format!("a number from {min} to {max} is expected")))
    }

    pub fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.query(name) {
            None | Some("false") => Ok(false),
            Some("true" | "") => Ok(true),
            Some(_) => Err(ApiError::field(name, "true or false is expected")),
        }
    }

    /// `key=` or `key64=`.
    pub fn key(&self) -> Result<Vec<u8>, ApiError> {
        match (self.query("key"), self.query("key64")) {
            (Some(key), None) => Ok(key.as_bytes().to_vec()),
            (None, Some(coded)) => from_base64url(coded).ok_or_else(|| ApiError::field("key64", "is not base64url")),
            _ => Err(ApiError::field("key", "either key= (UTF-8) or key64= (base64url) is expected")),
        }
    }

    /// The body. It must have exactly these fields.
    pub fn body<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        // serde would also accept a list of the fields' values.
        if self.body.trim_ascii_start().starts_with(b"[") {
            return Err(ApiError::invalid("the body has the wrong form: an object is expected, not a list"));
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            let text = error.to_string();
            // serde names the field: missing field `name`, unknown field `nam`
            let field = text.split('`').nth(1).filter(|_| text.contains("field `")).map(str::to_owned);
            match field {
                Some(field) => ApiError::field(&field, text),
                None => ApiError::invalid(format!("the body has the wrong form: {}", in_words(&text))),
            }
        })
    }

    pub fn database(&self) -> Result<Arc<Database>, ApiError> {
        self.database_named(self.param("name"))
    }

    /// The path's database, if it is one of this node alone.
    pub fn own_database(&self) -> Result<Arc<Database>, ApiError> {
        let database = self.database()?;
        match database.is_of_cluster() {
            true => Err(ApiError::unsupported(format!(
                "'{}' is a database of the cluster, for which this is not built yet",
                database.name()
            ))),
            false => Ok(database),
        }
    }

    pub fn database_named(&self, name: &str) -> Result<Arc<Database>, ApiError> {
        let found = self.app.node.database(name);
        found.ok_or_else(|| {
            ApiError::not_found(format!("there is no database '{name}'"))
                .hint("flintkv database list, or GET /api/v1/databases, lists the databases")
        })
    }

    pub fn role(&self) -> Role {
        self.who.as_ref().map_or(Role::Viewer, |who| who.role)
    }

    pub fn user(&self) -> String {
        self.who.as_ref().map_or(String::new(), |who| who.name.clone())
    }

    /// A connection to the path's database, with the rights of the requester, in the query's `db`.
    pub fn link(&self) -> Result<Link, ApiError> {
        let db = self.number("db", 0, (0, u32::MAX))?;
        Link::open(&*self.database()?, self.role().on_database(), db)
    }

    /// For the audit log.
    pub fn note(&self, target: impl Into<String>, detail: impl Into<String>) {
        let mut note = self.note.lock();
        (note.target, note.detail, note.is_silent) = (target.into(), detail.into(), false);
    }

    /// For the audit log: appends to the detail.
    pub fn note_more(&self, more: &str) {
        self.note.lock().detail.push_str(more);
    }

    /// For the audit log: who the request says to be, and their role once that is known.
    pub fn note_user(&self, user: impl Into<String>, role: Option<Role>) {
        self.note.lock().user = Some((user.into(), role));
    }

    /// For the audit log: the action failed although the HTTP answer is a success.
    pub fn note_failure(&self, why: impl Into<String>) {
        self.note.lock().failure = Some(why.into());
    }

    /// The request has no effect, so it is not recorded.
    pub fn unaudited(&self) {
        self.note.lock().is_silent = true;
    }

    pub fn now_ms(&self) -> u64 {
        (self.app.now_ms)()
    }
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub content_type: &'static str,
    pub body: Vec<u8>,
    /// A Set-Cookie header's value.
    pub cookie: Option<String>,
}

pub const JSON: &str = "application/json";

impl Reply {
    pub fn json<T: Serialize>(value: &T) -> Result<Reply, ApiError> {
        let body = serde_json::to_vec(value).map_err(|error| ApiError::failed(error.to_string()))?;
        Ok(Reply { status: 200, content_type: JSON, body, cookie: None })
    }

    pub fn created<T: Serialize>(value: &T) -> Result<Reply, ApiError> {
        Ok(Reply { status: 201, ..Reply::json(value)? })
    }

    pub fn none() -> Reply {
        Reply { status: 204, content_type: "", body: Vec::new(), cookie: None }
    }

    pub fn text(content_type: &'static str, body: impl Into<Vec<u8>>) -> Reply {
        Reply { status: 200, content_type, body: body.into(), cookie: None }
    }
}

/// For a field of a body that may be null: `Some(None)` is null, `None` is a field that is missing.
pub fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// serde's error text without Rust's types, and for wrong values without the line and column, which mean nothing to a
/// user who does not see the body as lines.
fn in_words(text: &str) -> String {
    let Some((found, wanted)) = text.rsplit_once(", expected ") else { return text.to_owned() };
    let wanted = wanted.split(" at line ").next().unwrap_or(wanted);
    let wanted = match wanted {
        "u8" | "u16" | "u32" => {
            let bits: u32 = wanted[1..].parse().unwrap_or(64);
            format!("a whole number up to {}", (1_u64 << bits) - 1)
        }
        "u64" | "usize" => "a whole number".to_owned(),
        "f64" => "a number".to_owned(),
        wanted => wanted.to_owned(),
    };
    format!("{found}, expected {wanted}")
}

#[cfg(test)]
mod tests {
    use super::in_words;

    #[test]
    fn errors_of_a_body_name_no_types_of_rust() {
        let of = |text: &str| in_words(&serde_json::from_str::<u16>(text).unwrap_err().to_string());
        assert_eq!(of("99999"), "invalid value: integer `99999`, expected a whole number up to 65535");
        assert_eq!(of(r#""abc""#), r#"invalid type: string "abc", expected a whole number up to 65535"#);
        assert_eq!(of("{"), "invalid type: map, expected a whole number up to 65535");
        assert_eq!(of(""), "EOF while parsing a value at line 1 column 0");
    }
}
