//! Owns `flintkv user` and `flintkv token`. Never keeps a password.

use base::clock::wall_ms;
use serde_json::{Map, Value, json};

use crate::args::{TokenAction, UserAction};
use crate::client::{Client, segment};
use crate::database::{pretty, said};
use crate::failure::Failure;
use crate::prompt;
use crate::table::{Align, table};
use crate::timestamp;

pub fn users(client: &Client, action: &UserAction, as_json: bool) -> Result<String, Failure> {
    match action {
        UserAction::List => {
            let reply = client.get("/users")?;
            let row = |user: &Value| {
                vec![text(&user["name"]), text(&user["role"]), date(&user["created_ms"]), date(&user["last_login_ms"])]
            };
            Ok(listed(&reply, &["NAME", "ROLE", "CREATED", "LAST LOGIN"], row, as_json))
        }
        UserAction::Create { name, role } => {
            let password = prompt::new_secret(name)?;
            let reply = client.post("/users", &json!({ "name": name, "role": role.name(), "password": password }))?;
            let text = format!("{name} may log in as {}, and must then change the password", role.name());
            Ok(said(&reply, &text, as_json))
        }
        UserAction::Passwd { name } => {
            let reply = match client.user() {
                // Any user may change their own password, and must change a temporary one.
                Some((user, old)) if user == name => {
                    let new = prompt::new_secret(name)?;
                    client.put("/session/password", &json!({ "old": old, "new": new }))?
                }
                _ => {
                    let new = prompt::new_secret(name)?;
                    client.patch(&format!("/users/{}", segment(name)), &json!({ "password": new }))?
                }
            };
            Ok(said(&reply, &format!("{name} has a new password"), as_json))
        }
        UserAction::Delete { name, yes } => {
            prompt::confirm(&format!("User {name} will be deleted"), name, yes.as_deref())?;
            let reply = client.delete(&format!("/users/{}", segment(name)))?;
            Ok(said(&reply, &format!("{name} is deleted"), as_json))
        }
    }
}

pub fn tokens(client: &Client, action: &TokenAction, as_json: bool) -> Result<String, Failure> {
    match action {
        TokenAction::List => {
            let reply = client.get("/tokens")?;
            let expires = |token: &Value| {
                if token["expires_ms"].is_null() { "never".to_owned() } else { date(&token["expires_ms"]) }
            };
            let row = |token: &Value| {
                vec![
                    text(&token["id"]),
                    text(&token["name"]),
                    text(&token["role"]),
                    date(&token["created_ms"]),
                    expires(token),
                ]
            };
            Ok(listed(&reply, &["ID", "NAME", "ROLE", "CREATED", "EXPIRES"], row, as_json))
        }
        TokenAction::Create { name, role, expires } => {
            let mut body = Map::new();
            body.insert("name".to_owned(), json!(name));
            body.insert("role".to_owned(), json!(role.name()));
            if let Some(span_ms) = expires {
                body.insert("expires_ms".to_owned(), json!(wall_ms() + span_ms));
            }
            let reply = client.post("/tokens", &Value::Object(body))?;
            let token = text(&reply["token"]);
            Ok(said(&reply, &format!("{token}\nIt is shown only once. Use it as FLINTKV_TOKEN."), as_json))
        }
        TokenAction::Delete { id } => {
            let reply = client.delete(&format!("/tokens/{}", segment(id)))?;
            Ok(said(&reply, &format!("{id} is deleted"), as_json))
        }
    }
}

fn listed(reply: &Value, head: &[&str], row: impl Fn(&Value) -> Vec<String>, as_json: bool) -> String {
    if as_json {
        return pretty(reply);
    }
    let rows: Vec<Vec<String>> = reply.as_array().into_iter().flatten().map(row).collect();
    let head: Vec<(&str, Align)> = head.iter().map(|&title| (title, Align::Left)).collect();
    table(&head, &rows)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

fn date(value: &Value) -> String {
    value.as_u64().map_or_else(|| "never".to_owned(), timestamp::date)
}
