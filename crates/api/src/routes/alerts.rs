//! Owns the answers about alerts: rules, acknowledgements, silences and the webhook. Never knows how a rule is compared.

use crate::alerts::{Acknowledged, All, Delivery, Format, NewRule, Rule, Silence, Webhook};
use crate::auth::{Role, random};
use crate::cx::{Cx, Reply, given};
use crate::error::ApiError;
use crate::relay::{self, MissingNode, Others};
use crate::route::{Answer, Method, Route, one};
use crate::webhook;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

const SILENCE_MS_MAX: u64 = 90 * 24 * 3600 * 1000;
const NOTE_BYTES_MAX: usize = 500;
const SECRET_BYTES_MAX: usize = 256;

const OPERATOR: Route = Route { role: Some(Role::Operator), tag: "Alerts", ..Route::BASE };

pub const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/alerts",
        tag: "Alerts",
        summary: "Rules, their states, silences, recent changes, and the webhook (its URL, which may hold a secret, for operators).",
        reply: Answer::Json(one::<All>),
        run: |cx| Reply::json(&all(cx)),
        ..Route::BASE
    },
    Route {
        path: "/api/v1/cluster/alerts",
        tag: "Alerts",
        summary: "The same of each node of the cluster. A node's rules and silences are its own: /api/v1/nodes/{node}/alerts/… changes them.",
        reply: Answer::Json(one::<ClusterAlerts>),
        run: of_cluster,
        ..Route::BASE
    },
    Route {
        method: Method::Post,
        path: "/api/v1/alerts/rules",
        summary: "Makes a rule.",
        body: Some(one::<NewRule>),
        reply: Answer::Created(one::<Rule>),
        action: "alert.create",
        run: create,
        ..OPERATOR
    },
    Route {
        method: Method::Put,
        path: "/api/v1/alerts/rules/{id}",
        summary: "Replaces a rule. Its state is reset; an alert that fires goes on or ends under the new rule.",
        body: Some(one::<NewRule>),
        reply: Answer::Json(one::<Rule>),
        action: "alert.update",
        run: update,
        ..OPERATOR
    },
    Route {
        method: Method::Delete,
        path: "/api/v1/alerts/rules/{id}",
        summary: "Deletes a rule.",
        action: "alert.delete",
        run: delete,
        ..OPERATOR
    },
    Route {
        method: Method::Post,
        path: "/api/v1/alerts/acknowledge",
        summary: "Records that somebody works on an alert that fires. The record ends with the alert.",
        body: Some(one::<Acknowledgement>),
        action: "alert.acknowledge",
        run: acknowledge,
        ..OPERATOR
    },
    Route {
        method: Method::Post,
        path: "/api/v1/alerts/silences",
        summary: "Silences alerts until a given time: no messages about them are sent to the webhook. Alerts that still fire at that time are reported then.",
        body: Some(one::<NewSilence>),
        reply: Answer::Created(one::<Silence>),
        action: "alert.silence",
        run: silence,
        ..OPERATOR
    },
    Route {
        method: Method::Delete,
        path: "/api/v1/alerts/silences/{id}",
        summary: "Ends a silence now.",
        action: "alert.unsilence",
        run: unsilence,
        ..OPERATOR
    },
    Route {
        path: "/api/v1/alerts/webhook",
        summary: "The webhook, to which messages are sent when alerts fire and end. The secret is not shown.",
        reply: Answer::Json(one::<Webhook>),
        run: |cx| Reply::json(&cx.app.alerts.webhook()),
        ..OPERATOR
    },
    Route {
        method: Method::Put,
        path: "/api/v1/alerts/webhook",
        summary: "Sets the webhook: an http:// or https:// URL that accepts a POST with JSON. docs/operations.md describes the messages and their signature.",
        body: Some(one::<WantedWebhook>),
        reply: Answer::Json(one::<Webhook>),
        action: "webhook.update",
        run: set_webhook,
        ..OPERATOR
    },
    Route {
        method: Method::Post,
        path: "/api/v1/alerts/webhook/test",
        summary: "Sends a test message now and returns the result.",
        reply: Answer::Json(one::<Delivery>),
        action: "webhook.test",
        run: test_webhook,
        ..OPERATOR
    },
];

#[derive(Serialize, ToSchema)]
struct ClusterAlerts {
    /// This node first.
    nodes: Vec<NodeAlerts>,
    /// Whose alerts are not among them.
    missing: Vec<MissingNode>,
}

#[derive(Serialize, ToSchema)]
struct NodeAlerts {
    node: String,
    /// As the node's own version says it.
    #[schema(value_type = All)]
    alerts: serde_json::Value,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct WantedWebhook {
    url: String,
    enabled: bool,
    /// Missing: json.
    #[serde(default)]
    format: Format,
    /// The key that signs messages, 1 to 256 bytes. Missing: the present key stays; null: messages are not signed.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    secret: Option<Option<String>>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Acknowledgement {
    rule_id: String,
    /// `node` or `database:NAME`.
    scope: String,
    #[serde(default)]
    note: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewSilence {
    /// The rule whose alerts are silenced. Missing: every rule.
    rule_id: Option<String>,
    /// The scope in which they are silenced: `node` or `database:NAME`. Missing: every scope.
    scope: Option<String>,
    /// When the silence ends: at most 90 days from now.
    until_ms: u64,
    #[serde(default)]
    reason: String,
}

fn all(cx: &Cx) -> All {
    let mut all = cx.app.alerts.all();
    if cx.role() < Role::Operator {
        all.webhook.url.clear();
    }
    all
}

fn of_cluster(cx: &Cx) -> Result<Reply, ApiError> {
    let failed = |error: serde_json::Error| ApiError::failed(error.to_string());
    let own = NodeAlerts { node: relay::own_name(&cx.app)?, alerts: serde_json::to_value(all(cx)).map_err(failed)? };
    let Others { answers, missing } = relay::read_others(cx, "/api/v1/alerts")?;
    let of_others = answers.into_iter().map(|(node, alerts)| NodeAlerts { node, alerts });
    Reply::json(&ClusterAlerts { nodes: std::iter::once(own).chain(of_others).collect(), missing })
}

fn create(cx: &Cx) -> Result<Reply, ApiError> {
    let wanted: NewRule = cx.body()?;
    let rule = wanted.checked(random(9))?;
    cx.note(rule.name.clone(), format!("{} on {}", rule.metric, rule.scope));
    cx.app.alerts.add_rule(&rule)?;
    Reply::created(&rule)
}

fn update(cx: &Cx) -> Result<Reply, ApiError> {
    let wanted: NewRule = cx.body()?;
    let rule = wanted.checked(cx.param("id").to_owned())?;
    cx.note(rule.name.clone(), format!("{} on {}", rule.metric, rule.scope));
    cx.app.alerts.replace_rule(&rule)?;
    Reply::json(&rule)
}

fn delete(cx: &Cx) -> Result<Reply, ApiError> {
    let name = cx.app.alerts.delete_rule(cx.param("id"))?;
    cx.note(name, "");
    Ok(Reply::none())
}

fn bounded(field: &str, text: &str) -> Result<(), ApiError> {
    match text.len() > NOTE_BYTES_MAX {
        true => Err(ApiError::field(field, format!("at most {NOTE_BYTES_MAX} bytes are allowed"))),
        false => Ok(()),
    }
}

fn acknowledge(cx: &Cx) -> Result<Reply, ApiError> {
    let Acknowledgement { rule_id, scope, note } = cx.body()?;
    cx.note(format!("{rule_id} of {scope}"), note.clone());
    bounded("note", &note)?;
    cx.app.alerts.acknowledge(&rule_id, &scope, Acknowledged { by: cx.user(), at_ms: cx.now_ms(), note })?;
    Ok(Reply::none())
}

fn silence(cx: &Cx) -> Result<Reply, ApiError> {
    let NewSilence { rule_id, scope, until_ms, reason } = cx.body()?;
    cx.note(scope.clone().unwrap_or_else(|| "everything".to_owned()), base::time::instant(until_ms));
    bounded("reason", &reason)?;
    let now_ms = cx.now_ms();
    if until_ms <= now_ms || until_ms > now_ms + SILENCE_MS_MAX {
        return Err(ApiError::field("until_ms", "a time within the next 90 days is expected"));
    }
    let silence = Silence { id: random(9), rule_id, scope, until_ms, by: cx.user(), reason };
    cx.app.alerts.add_silence(&silence)?;
    Reply::created(&silence)
}

fn unsilence(cx: &Cx) -> Result<Reply, ApiError> {
    cx.app.alerts.end_silence(cx.param("id"))?;
    Ok(Reply::none())
}

fn set_webhook(cx: &Cx) -> Result<Reply, ApiError> {
    let WantedWebhook { url, enabled, format, secret } = cx.body()?;
    // An empty URL turns the webhook off.
    let shown = match url.is_empty() {
        true if enabled => return Err(ApiError::field("url", "a URL is expected when it is enabled")),
        true => "off".to_owned(),
        false => webhook::parse(&url).map(|_| if enabled { "on".to_owned() } else { "off".to_owned() })?,
    };
    if secret.iter().flatten().any(|secret| secret.is_empty() || secret.len() > SECRET_BYTES_MAX) {
        return Err(ApiError::field("secret", format!("1 to {SECRET_BYTES_MAX} bytes are expected")));
    }
    cx.note("", shown);
    Reply::json(&cx.app.alerts.set_webhook(url, enabled, format, secret)?)
}

fn test_webhook(cx: &Cx) -> Result<Reply, ApiError> {
    let delivery = cx.app.alerts.test_webhook(cx.now_ms())?;
    cx.note("", delivery.message.clone());
    Reply::json(&delivery)
}
