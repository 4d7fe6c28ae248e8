//! Owns the messages about alerts: FlintKV's own JSON, Slack's format, and the signature. docs/operations.md describes them.
//! Never knows where they go.

use super::rule::Op;
use super::standing::Told;
use crate::auth::hex;
use crate::events::Severity;
use ring::hmac;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    #[default]
    Json,
    /// Of Slack's incoming webhooks, which Mattermost and others take as well.
    Slack,
}

/// The sender, as messages name it.
#[derive(Clone, Debug)]
pub struct Sender {
    pub host: String,
    pub run_id: String,
    pub version: &'static str,
}

#[derive(Clone, Debug)]
pub enum Message {
    Alert(Box<Told>),
    Test { at_ms: u64 },
}

impl Message {
    /// Identifies the message: the receiver may drop a message whose text it has seen before. An attempt is repeated if
    /// its answer was lost.
    pub fn delivery(&self) -> String {
        match self {
            Message::Alert(told) => format!("{}/{}", told.alert.id(), status(told)),
            Message::Test { at_ms } => format!("test/{at_ms}"),
        }
    }

    pub fn at_ms(&self) -> u64 {
        match self {
            Message::Alert(told) => told.at_ms,
            Message::Test { at_ms } => *at_ms,
        }
    }

    pub fn body(&self, format: Format, sender: &Sender) -> Vec<u8> {
        let value = match format {
            Format::Json => self.json(sender),
            Format::Slack => self.slack(sender),
        };
        value.to_string().into_bytes()
    }

    fn json(&self, sender: &Sender) -> Value {
        let Sender { host, run_id, version } = sender;
        match self {
            Message::Test { at_ms } => json!({
                "kind": "test", "at_ms": at_ms, "host": host, "node": run_id, "version": version, "text": TEST,
            }),
            Message::Alert(told) => json!({
                "kind": "alert", "id": told.alert.id(), "status": status(told), "at_ms": told.at_ms, "since_ms": told.alert.since_ms,
                "host": host, "node": run_id, "version": version, "rule": told.alert.rule, "scope": told.alert.scope,
                "value": told.value, "text": text(told),
            }),
        }
    }

    fn slack(&self, sender: &Sender) -> Value {
        let told = match self {
            Message::Test { .. } => return json!({ "text": format!("{TEST} on {}", escaped(&sender.host)) }),
            Message::Alert(told) => told,
        };
        let colour = match (told.is_firing, told.alert.rule.severity) {
            (false, _) => "good",
            (true, Severity::Critical) => "danger",
            (true, Severity::Warning) => "warning",
            (true, Severity::Info) => "#439fe0",
        };
        let head = if told.is_firing { "Firing" } else { "Resolved" };
        let title = format!("{head}: {} ({}, {})", told.alert.rule.name, of(&told.alert.scope), sender.host);
        let text = text(told);
        json!({
            "text": escaped(&title),
            "attachments": [{ "color": colour, "text": escaped(&text), "fallback": escaped(&text), "ts": told.at_ms / 1000 }],
        })
    }
}

const TEST: &str = "a test of FlintKV's webhook";

fn status(told: &Told) -> &'static str {
    if told.is_firing { "firing" } else { "resolved" }
}

fn of(scope: &str) -> &str {
    scope.strip_prefix("database:").unwrap_or(scope)
}

/// The sentence about an alert, for events and messages.
pub fn text(told: &Told) -> String {
    let rule = &told.alert.rule;
    let value = told.value.map_or("no data".to_owned(), |value| format!("{value}"));
    let op = if rule.op == Op::Above { ">" } else { "<" };
    let what = if told.is_firing { "fires" } else { "has ended" };
    let (name, scope) = (&rule.name, &told.alert.scope);
    format!("{name} {what} for {scope}: {} is {value} ({op} {} for {} s)", rule.metric, rule.threshold, rule.for_s)
}

/// Escapes the three characters that have a meaning in Slack's format.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The signature of a message: it proves that the sender knows the secret, and that the message was neither changed nor
/// replayed later.
pub fn signature(secret: &str, at_s: u64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let mut signing = hmac::Context::with_key(&key);
    signing.update(at_s.to_string().as_bytes());
    signing.update(b".");
    signing.update(body);
    format!("v1={}", hex(signing.sign().as_ref()))
}

#[cfg(test)]
mod tests {
    use super::super::rule::{GIVEN, Rule};
    use super::super::standing::Alert;
    use super::*;

    fn example(is_firing: bool) -> Told {
        let rule = Rule { name: "a <b> & c".into(), ..Rule::from(&GIVEN[0]) };
        let alert = Alert { rule, scope: "database:shop".into(), since_ms: 5000, is_told: true, acknowledged: None };
        Told { alert, is_firing, at_ms: 9000, value: Some(1.0) }
    }

    fn sender() -> Sender {
        Sender { host: "h".into(), run_id: "r".into(), version: "v" }
    }

    fn body(is_firing: bool, format: Format) -> Value {
        serde_json::from_slice(&Message::Alert(Box::new(example(is_firing))).body(format, &sender())).unwrap()
    }

    #[test]
    fn firing_and_resolved_have_one_id_and_two_deliveries() {
        let (first, second) = (body(true, Format::Json), body(false, Format::Json));
        assert_eq!(
            (&first["id"], &first["status"], &first["since_ms"]),
            (&second["id"], &json!("firing"), &json!(5000))
        );
        assert_eq!(second["status"], "resolved");
        let delivery = |is_firing| Message::Alert(Box::new(example(is_firing))).delivery();
        assert_eq!(delivery(true), "journal-failed/database:shop/5000/firing");
        assert_ne!(delivery(true), delivery(false));
    }

    #[test]
    fn slack_gets_its_own_form() {
        let (first, second) = (body(true, Format::Slack), body(false, Format::Slack));
        assert_eq!(first["text"], "Firing: a &lt;b&gt; &amp; c (shop, h)");
        assert_eq!((&first["attachments"][0]["color"], &first["attachments"][0]["ts"]), (&json!("danger"), &json!(9)));
        assert_eq!(
            (&second["text"], &second["attachments"][0]["color"]),
            (&json!("Resolved: a &lt;b&gt; &amp; c (shop, h)"), &json!("good"))
        );
    }

    #[test]
    fn a_signature_is_that_of_the_moment_and_the_body() {
        // From: printf '1700000000.{}' | openssl dgst -sha256 -hmac secret
        let right = "v1=b8569b78799ff9e3cbff0fc2d63a33a2b57f3282abd07c37ae5e8e7d79a5f163";
        assert_eq!(signature("secret", 1_700_000_000, b"{}"), right);
        for (secret, at_s, body) in
            [("Secret", 1_700_000_000, b"{}"), ("secret", 1_700_000_001, b"{}"), ("secret", 1_700_000_000, b"{ ")]
        {
            assert_ne!(signature(secret, at_s, body), right);
        }
    }
}
