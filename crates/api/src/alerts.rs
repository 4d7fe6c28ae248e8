//! Owns alerts: rules on metrics, their states, their history, and the webhook. Never knows how a metric is measured.
//!
//! Every second, each rule is compared with the current values. A rule for all databases has a state for each of them:
//! ok → pending (beyond the threshold) → firing (for long enough) → ok, or no_data if the metric is unknown.

use crate::app::App;
use crate::auth::Role;
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::events::{Event, Severity};
use crate::lines::replace;
use crate::metrics::catalog;
use crate::route::{Answer, Method, Route, one};
use crate::webhook;
use parking_lot::Mutex;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use utoipa::ToSchema;

/// The rules that every node is offered, once: name, metric, threshold, seconds, severity. They tell of what endangers the data.
const DEFAULTS: &[(&str, &str, f64, u64, Severity)] = &[
    ("the journal cannot be written: writes are refused", "journal_failed", 0.0, 0, Severity::Critical),
    ("the journal's device is behind: writes wait", "journal_behind", 0.0, 5, Severity::Warning),
    ("the journal is nearly full again and again: writes wait", "journal_waiting", 0.1, 30, Severity::Warning),
    ("syncs of the journal are late", "journal_sync_us", 2_000_000.0, 10, Severity::Warning),
    ("no new base can be written: the journal grows", "base_failures", 0.0, 0, Severity::Warning),
    ("a restart takes longer than recovery-time-target", "recovery_late", 0.0, 120, Severity::Warning),
    ("the journal's file system has too little room", "journal_missing_bytes", 0.0, 10, Severity::Warning),
    ("the scrubber has found damage: replace the device", "rot", 0.0, 0, Severity::Critical),
    ("the last backup failed", "backup_failed", 0.0, 0, Severity::Critical),
    ("the journal is not archived: its moments cannot be restored", "archive_failed", 0.0, 120, Severity::Critical),
];
const RULES_MAX: usize = 200;
const NAME_BYTES_MAX: usize = 100;
const FOR_S_MAX: u64 = 7 * 24 * 3600;
const HISTORY_KEPT: usize = 500;
/// Messages that wait for a slow webhook. Further ones are dropped, and the log says so.
const QUEUE_MAX: usize = 64;

pub const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/alerts",
        tag: "Alerts",
        summary: "Rules, how they stand, what changed lately, and the webhook (its URL, which may hold a secret, for operators).",
        reply: Answer::Json(one::<All>),
        run: show,
        ..Route::BASE
    },
    Route {
        method: Method::Post,
        path: "/api/v1/alerts/rules",
        role: Some(Role::Operator),
        tag: "Alerts",
        summary: "Makes a rule.",
        body: Some(one::<NewRule>),
        reply: Answer::Created(one::<Rule>),
        action: "alert.create",
        run: create,
        ..Route::BASE
    },
    Route {
        method: Method::Put,
        path: "/api/v1/alerts/rules/{id}",
        role: Some(Role::Operator),
        tag: "Alerts",
        summary: "Replaces a rule; its state begins anew.",
        body: Some(one::<NewRule>),
        reply: Answer::Json(one::<Rule>),
        action: "alert.update",
        run: update,
        ..Route::BASE
    },
    Route {
        method: Method::Delete,
        path: "/api/v1/alerts/rules/{id}",
        role: Some(Role::Operator),
        tag: "Alerts",
        summary: "Deletes a rule.",
        action: "alert.delete",
        run: delete,
        ..Route::BASE
    },
    Route {
        path: "/api/v1/alerts/webhook",
        role: Some(Role::Operator),
        tag: "Alerts",
        summary: "Who is told of alerts that fire and end.",
        reply: Answer::Json(one::<Webhook>),
        run: |cx| Reply::json(&cx.app.alerts.webhook()),
        ..Route::BASE
    },
    Route {
        method: Method::Put,
        path: "/api/v1/alerts/webhook",
        role: Some(Role::Operator),
        tag: "Alerts",
        summary: "Sets who is told: an http:// or https:// URL that takes a POST with JSON.",
        body: Some(one::<WantedWebhook>),
        reply: Answer::Json(one::<Webhook>),
        action: "webhook.update",
        run: set_webhook,
        ..Route::BASE
    },
    Route {
        method: Method::Post,
        path: "/api/v1/alerts/webhook/test",
        role: Some(Role::Operator),
        tag: "Alerts",
        summary: "Sends a test message now and tells how it went.",
        reply: Answer::Json(one::<Delivery>),
        action: "webhook.test",
        run: test_webhook,
        ..Route::BASE
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Op {
    #[serde(rename = ">")]
    Above,
    #[serde(rename = "<")]
    Below,
}

#[derive(Clone, Debug, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewRule {
    name: String,
    /// One of the catalog's.
    metric: String,
    /// `node`, `databases` (each of them) or `database:NAME`.
    scope: String,
    op: Op,
    threshold: f64,
    /// The alert fires after the threshold was passed for this long without a break.
    #[serde(default)]
    for_s: u64,
    severity: Severity,
    #[serde(default = "yes")]
    enabled: bool,
}

fn yes() -> bool {
    true
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Rule {
    pub id: String,
    pub name: String,
    pub metric: String,
    pub scope: String,
    pub op: Op,
    pub threshold: f64,
    pub for_s: u64,
    pub severity: Severity,
    pub enabled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stand {
    Ok,
    Pending,
    Firing,
    NoData,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct RuleState {
    pub rule_id: String,
    /// `node` or `database:NAME`.
    pub scope: String,
    pub state: Stand,
    pub since_ms: u64,
    pub value: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    pub at_ms: u64,
    pub rule_id: String,
    pub name: String,
    pub scope: String,
    pub from: Stand,
    pub to: Stand,
    pub value: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Webhook {
    pub url: String,
    pub enabled: bool,
    /// Of this run of the node: what is stored is not read back.
    #[serde(default, deserialize_with = "nothing")]
    pub last: Option<Delivery>,
}

fn nothing<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Delivery>, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| None)
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Delivery {
    pub at_ms: u64,
    pub ok: bool,
    pub message: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct WantedWebhook {
    url: String,
    enabled: bool,
}

#[derive(Debug, Serialize, ToSchema)]
struct All {
    rules: Vec<Rule>,
    states: Vec<RuleState>,
    /// Newest first.
    history: Vec<Change>,
    webhook: Webhook,
}

/// alerts.json.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Stored {
    rules: Vec<Rule>,
    /// The rules of [`DEFAULTS`] that were added, by their ids. Those that an operator deletes stay away; those of a later release are
    /// added.
    #[serde(default)]
    offered: BTreeSet<String>,
    webhook: Webhook,
    #[serde(default)]
    history: VecDeque<Change>,
}

/// The state of a rule in one scope.
#[derive(Clone, Debug)]
struct Standing {
    state: Stand,
    since_ms: u64,
    value: Option<f64>,
}

#[derive(Default)]
struct State {
    stored: Stored,
    standing: BTreeMap<(String, String), Standing>,
}

pub struct Alerts {
    path: Option<PathBuf>,
    state: Arc<Mutex<State>>,
    queue: SyncSender<(u64, Vec<u8>)>,
}

impl Alerts {
    pub fn open(path: Option<PathBuf>) -> io::Result<Alerts> {
        let mut stored = match path.as_ref().map(std::fs::read) {
            None => Stored::default(),
            Some(Ok(text)) => serde_json::from_slice(&text)
                .map_err(|error| io::Error::other(format!("alerts.json cannot be read: {error}")))?,
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => Stored::default(),
            Some(Err(error)) => return Err(error),
        };
        for rule in defaults() {
            if stored.offered.insert(rule.id.clone()) && stored.rules.iter().all(|known| known.id != rule.id) {
                stored.rules.push(rule);
            }
        }
        let state = Arc::new(Mutex::new(State { stored, standing: BTreeMap::new() }));
        let (queue, messages) = sync_channel(QUEUE_MAX);
        let shared = Arc::clone(&state);
        // The thread ends with the queue. Nobody waits for a message in progress.
        std::thread::Builder::new().name("flintkv-webhook".to_owned()).spawn(move || deliver(&shared, &messages))?;
        Ok(Alerts { path, state, queue })
    }

    pub fn firing(&self) -> u64 {
        self.state.lock().standing.values().filter(|standing| standing.state == Stand::Firing).count() as u64
    }

    fn webhook(&self) -> Webhook {
        self.state.lock().stored.webhook.clone()
    }

    fn all(&self) -> All {
        let state = self.state.lock();
        let states = state.standing.iter().map(|((rule_id, scope), standing)| RuleState {
            rule_id: rule_id.clone(),
            scope: scope.clone(),
            state: standing.state,
            since_ms: standing.since_ms,
            value: standing.value,
        });
        let mut history: Vec<Change> = state.stored.history.iter().cloned().collect();
        history.reverse();
        let Stored { rules, webhook, .. } = state.stored.clone();
        All { rules, states: states.collect(), history, webhook }
    }

    /// If the file cannot be written, nothing changes.
    fn change<T>(&self, change: impl FnOnce(&mut Stored) -> Result<T, ApiError>) -> Result<T, ApiError> {
        let mut state = self.state.lock();
        let mut changed = state.stored.clone();
        let outcome = change(&mut changed)?;
        self.write(&changed).map_err(|error| ApiError::failed(format!("cannot write alerts.json: {error}")))?;
        state.stored = changed;
        Ok(outcome)
    }

    fn write(&self, stored: &Stored) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        replace(path, &serde_json::to_vec_pretty(stored)?)
    }

    /// Every second.
    pub fn look(&self, app: &App, now_ms: u64) {
        let databases: Vec<String> = app.node.databases().iter().map(|database| database.name().to_owned()).collect();
        let value = |scope: &str, metric: &str| {
            let now = match scope.strip_prefix("database:") {
                Some(name) => app.watch.now(name),
                None => app.watch.node_now(),
            };
            now.get(metric).copied().flatten()
        };
        let changes = step(&mut self.state.lock(), &databases, value, now_ms);
        if changes.is_empty() {
            return;
        }
        let stored = self.state.lock().stored.clone();
        if let Err(error) = self.write(&stored) {
            tracing::error!("alerts.json cannot be written: {error}");
        }
        for (change, rule) in changes {
            let told = change.to == Stand::Firing || change.from == Stand::Firing;
            if !told {
                continue;
            }
            let text = text(&change, &rule);
            let severity = if change.to == Stand::Firing { rule.severity } else { Severity::Info };
            let database = change.scope.strip_prefix("database:").unwrap_or("");
            app.event(Event::info("alert", database, text.clone()).severity(severity));
            if stored.webhook.enabled && !stored.webhook.url.is_empty() {
                let message = message(&app.node, &change, &rule, &text);
                if self.queue.try_send((now_ms, message)).is_err() {
                    tracing::warn!("the webhook is too slow: a message about '{}' was dropped", rule.name);
                }
            }
        }
    }
}

fn defaults() -> impl Iterator<Item = Rule> {
    DEFAULTS.iter().map(|&(name, metric, threshold, for_s, severity)| Rule {
        id: metric.replace('_', "-"),
        name: name.to_owned(),
        metric: metric.to_owned(),
        scope: "databases".to_owned(),
        op: Op::Above,
        threshold,
        for_s,
        severity,
        enabled: true,
    })
}

/// Compares every rule with the current values. Returns what changed.
fn step(
    state: &mut State,
    databases: &[String],
    value: impl Fn(&str, &str) -> Option<f64>,
    now_ms: u64,
) -> Vec<(Change, Rule)> {
    let mut changes = Vec::new();
    let mut seen = Vec::new();
    let State { stored, standing } = state;
    for rule in stored.rules.iter().filter(|rule| rule.enabled) {
        let scopes: Vec<String> = match rule.scope.as_str() {
            "databases" => databases.iter().map(|name| format!("database:{name}")).collect(),
            scope => vec![scope.to_owned()],
        };
        for scope in scopes {
            let key = (rule.id.clone(), scope.clone());
            let value = value(&scope, &rule.metric);
            let found =
                standing.entry(key.clone()).or_insert(Standing { state: Stand::NoData, since_ms: now_ms, value });
            seen.push(key);
            found.value = value;
            let next = next(rule, found, now_ms);
            if next == found.state {
                continue;
            }
            // Pending is part of the way to firing: firing counts from the start of pending, and pending alone is not
            // recorded.
            let change = Change {
                at_ms: now_ms,
                rule_id: rule.id.clone(),
                name: rule.name.clone(),
                scope,
                from: found.state,
                to: next,
                value,
            };
            found.state = next;
            found.since_ms = now_ms;
            if change.to == Stand::Firing || change.from == Stand::Firing {
                if stored.history.len() >= HISTORY_KEPT {
                    stored.history.pop_front();
                }
                stored.history.push_back(change.clone());
                changes.push((change, rule.clone()));
            }
        }
    }
    standing.retain(|key, _| seen.contains(key));
    changes
}

fn next(rule: &Rule, standing: &Standing, now_ms: u64) -> Stand {
    let Some(value) = standing.value else { return Stand::NoData };
    let beyond = match rule.op {
        Op::Above => value > rule.threshold,
        Op::Below => value < rule.threshold,
    };
    match (beyond, standing.state) {
        (false, _) => Stand::Ok,
        (true, Stand::Firing) => Stand::Firing,
        (true, Stand::Pending) if now_ms >= standing.since_ms + rule.for_s * 1000 => Stand::Firing,
        (true, _) if rule.for_s == 0 => Stand::Firing,
        (true, _) => Stand::Pending,
    }
}

fn text(change: &Change, rule: &Rule) -> String {
    let value = change.value.map_or("no data".to_owned(), |value| format!("{value}"));
    let op = if rule.op == Op::Above { ">" } else { "<" };
    let what = if change.to == Stand::Firing { "fires" } else { "has ended" };
    format!(
        "{} {what} for {}: {} is {value} ({op} {} for {} s)",
        rule.name, change.scope, rule.metric, rule.threshold, rule.for_s
    )
}

fn message(node: &node::Node, change: &Change, rule: &Rule, text: &str) -> Vec<u8> {
    let message = serde_json::json!({
        "kind": "alert", "at_ms": change.at_ms, "node": node.run_id(), "version": node.version(),
        "rule": rule, "scope": change.scope, "from": change.from, "to": change.to, "value": change.value, "text": text,
    });
    serde_json::to_vec(&message).unwrap_or_default()
}

/// The webhook's thread: one message after the other, with three attempts each.
fn deliver(state: &Mutex<State>, messages: &Receiver<(u64, Vec<u8>)>) {
    for (at_ms, message) in messages {
        let webhook = state.lock().stored.webhook.clone();
        if !webhook.enabled {
            continue;
        }
        let outcome = [1, 5, 0].into_iter().find_map(|pause_s| match send(&webhook.url, &message) {
            Err(_) if pause_s > 0 => {
                std::thread::sleep(std::time::Duration::from_secs(pause_s));
                None
            }
            outcome => Some(outcome),
        });
        let outcome = outcome.unwrap_or_else(|| Err("not tried".to_owned()));
        if let Err(why) = &outcome {
            tracing::warn!("the webhook was not told of an alert: {why}");
        }
        state.lock().stored.webhook.last = Some(delivery(at_ms, &outcome));
    }
}

fn send(url: &str, message: &[u8]) -> Result<(), String> {
    let target = webhook::parse(url).map_err(|error| error.message().to_owned())?;
    webhook::post(&target, message)
}

fn delivery(at_ms: u64, outcome: &Result<(), String>) -> Delivery {
    let message = outcome.as_ref().map_or_else(String::clone, |()| "delivered".to_owned());
    Delivery { at_ms, ok: outcome.is_ok(), message }
}

fn checked(wanted: NewRule, id: String) -> Result<Rule, ApiError> {
    if wanted.name.trim().is_empty() || wanted.name.len() > NAME_BYTES_MAX {
        return Err(ApiError::field("name", format!("1 to {NAME_BYTES_MAX} bytes are expected")));
    }
    let known = match wanted.scope.as_str() {
        "node" => catalog::NODE.iter().any(|metric| metric.name == wanted.metric),
        scope if scope == "databases" || scope.strip_prefix("database:").is_some_and(|name| !name.is_empty()) => {
            catalog::DATABASE.iter().any(|metric| metric.name == wanted.metric)
        }
        _ => return Err(ApiError::field("scope", "node, databases or database:NAME is expected")),
    };
    if !known {
        return Err(ApiError::field("metric", format!("there is no metric '{}' in this scope", wanted.metric))
            .hint("GET /api/v1/metrics-catalog lists them"));
    }
    if !wanted.threshold.is_finite() {
        return Err(ApiError::field("threshold", "a finite number is expected"));
    }
    if wanted.for_s > FOR_S_MAX {
        return Err(ApiError::field("for_s", "at most a week is taken"));
    }
    let NewRule { name, metric, scope, op, threshold, for_s, severity, enabled } = wanted;
    Ok(Rule { id, name, metric, scope, op, threshold, for_s, severity, enabled })
}

fn create(cx: &Cx) -> Result<Reply, ApiError> {
    let rule = checked(cx.body()?, crate::auth::random(9))?;
    cx.note(rule.name.clone(), format!("{} on {}", rule.metric, rule.scope));
    cx.app.alerts.change(|stored| {
        if stored.rules.len() >= RULES_MAX {
            return Err(ApiError::unsupported(format!("more than {RULES_MAX} rules")));
        }
        stored.rules.push(rule.clone());
        Ok(())
    })?;
    Reply::created(&rule)
}

fn position(stored: &Stored, id: &str) -> Result<usize, ApiError> {
    let at = stored.rules.iter().position(|rule| rule.id == id);
    at.ok_or_else(|| ApiError::not_found(format!("there is no rule '{id}'")))
}

fn update(cx: &Cx) -> Result<Reply, ApiError> {
    let id = cx.param("id").to_owned();
    let rule = checked(cx.body()?, id.clone())?;
    cx.note(rule.name.clone(), format!("{} on {}", rule.metric, rule.scope));
    let alerts = &cx.app.alerts;
    alerts.change(|stored| {
        let at = position(stored, &id)?;
        stored.rules[at] = rule.clone();
        Ok(())
    })?;
    alerts.state.lock().standing.retain(|(rule_id, _), _| *rule_id != id);
    Reply::json(&rule)
}

fn delete(cx: &Cx) -> Result<Reply, ApiError> {
    let id = cx.param("id").to_owned();
    let alerts = &cx.app.alerts;
    let name = alerts.change(|stored| {
        let at = position(stored, &id)?;
        Ok(stored.rules.remove(at).name)
    })?;
    cx.note(name, "");
    alerts.state.lock().standing.retain(|(rule_id, _), _| *rule_id != id);
    Ok(Reply::none())
}

fn show(cx: &Cx) -> Result<Reply, ApiError> {
    let mut all = cx.app.alerts.all();
    if cx.who.as_ref().is_none_or(|who| who.role < Role::Operator) {
        all.webhook.url.clear();
    }
    Reply::json(&all)
}

fn set_webhook(cx: &Cx) -> Result<Reply, ApiError> {
    let WantedWebhook { url, enabled } = cx.body()?;
    // An empty URL turns the webhook off.
    let shown = match url.is_empty() {
        true if enabled => return Err(ApiError::field("url", "a URL is expected when it is enabled")),
        true => "off".to_owned(),
        false => webhook::parse(&url).map(|_| if enabled { "on".to_owned() } else { "off".to_owned() })?,
    };
    cx.note("", shown);
    let webhook = Webhook { url, enabled, last: None };
    cx.app.alerts.change(|stored| {
        stored.webhook = webhook.clone();
        Ok(())
    })?;
    Reply::json(&webhook)
}

fn test_webhook(cx: &Cx) -> Result<Reply, ApiError> {
    let alerts = &cx.app.alerts;
    let url = alerts.webhook().url;
    if url.is_empty() {
        return Err(ApiError::invalid("there is no webhook").hint("PUT /api/v1/alerts/webhook sets one"));
    }
    let message = serde_json::json!({
        "kind": "test", "at_ms": cx.now_ms(), "node": cx.app.node.run_id(), "version": cx.app.node.version(),
        "text": "a test of FlintKV's webhook",
    });
    let outcome = send(&url, &serde_json::to_vec(&message).unwrap_or_default());
    let delivery = delivery(cx.now_ms(), &outcome);
    cx.note("", delivery.message.clone());
    alerts.state.lock().stored.webhook.last = Some(delivery.clone());
    Reply::json(&delivery)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(scope: &str, for_s: u64) -> Rule {
        Rule {
            id: "r".into(),
            name: "slow".into(),
            metric: "latency_us".into(),
            scope: scope.into(),
            op: Op::Above,
            threshold: 100.0,
            for_s,
            severity: Severity::Warning,
            enabled: true,
        }
    }

    fn of(rules: Vec<Rule>) -> State {
        State { stored: Stored { rules, ..Stored::default() }, ..State::default() }
    }

    fn stand(state: &State, scope: &str) -> Stand {
        state.standing[&("r".to_owned(), scope.to_owned())].state
    }

    #[test]
    fn a_rule_fires_after_its_time_without_a_break_and_ends_at_once() {
        let mut state = of(vec![rule("node", 3)]);
        let mut told = Vec::new();
        for (second, value) in
            [50.0, 200.0, 200.0, 50.0, 200.0, 200.0, 200.0, 200.0, 200.0, 90.0].into_iter().enumerate()
        {
            let changes = step(&mut state, &[], |_, _| Some(value), second as u64 * 1000);
            told.extend(changes.into_iter().map(|(change, _)| (second, change.from, change.to)));
        }
        assert_eq!(told, [(7, Stand::Pending, Stand::Firing), (9, Stand::Firing, Stand::Ok)]);
        assert_eq!(state.stored.history.len(), 2);
    }

    #[test]
    fn every_database_has_its_own_state_and_a_deleted_one_is_forgotten() {
        let mut state = of(vec![rule("databases", 0)]);
        let names = ["a".to_owned(), "b".to_owned()];
        let value = |scope: &str, _: &str| if scope == "database:a" { Some(200.0) } else { None };
        assert_eq!(step(&mut state, &names, value, 0).len(), 1);
        assert_eq!((stand(&state, "database:a"), stand(&state, "database:b")), (Stand::Firing, Stand::NoData));
        step(&mut state, &names[1..], value, 1000);
        assert_eq!(state.standing.len(), 1);
    }

    #[test]
    fn no_data_is_not_ok_and_a_disabled_rule_has_no_state() {
        let mut state = of(vec![Rule { op: Op::Below, ..rule("node", 0) }]);
        step(&mut state, &[], |_, _| Some(1.0), 0);
        assert_eq!(stand(&state, "node"), Stand::Firing);
        assert_eq!(step(&mut state, &[], |_, _| None, 1000)[0].0.to, Stand::NoData);
        state.stored.rules[0].enabled = false;
        step(&mut state, &[], |_, _| Some(1.0), 2000);
        assert!(state.standing.is_empty());
    }

    #[test]
    fn the_rules_of_the_beginning_are_those_of_the_api_and_come_once() {
        for Rule { name, metric, scope, op, threshold, for_s, severity, enabled, id } in defaults() {
            let wanted = NewRule { name, metric, scope, op, threshold, for_s, severity, enabled };
            assert!(checked(wanted, id).is_ok());
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("alerts.json");
        // A file of an earlier release.
        std::fs::write(&path, "{\"rules\":[],\"webhook\":{\"url\":\"\",\"enabled\":false}}").unwrap();
        let alerts = Alerts::open(Some(path.clone())).unwrap();
        assert_eq!(alerts.all().rules.len(), DEFAULTS.len());
        alerts
            .change(|stored| {
                stored.rules.clear();
                Ok(())
            })
            .unwrap();
        assert!(Alerts::open(Some(path)).unwrap().all().rules.is_empty());
    }

    #[test]
    fn a_rule_of_a_later_release_is_added_and_a_deleted_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("alerts.json");
        let known: Vec<Rule> = defaults().collect();
        let (new, deleted) = (&known[0], &known[1]);
        let mut stored = Stored { rules: known[2..].to_vec(), ..Stored::default() };
        stored.rules[0].threshold = 17.0;
        stored.offered = known[1..].iter().map(|rule| rule.id.clone()).collect();
        std::fs::write(&path, serde_json::to_vec(&stored).unwrap()).unwrap();
        let rules = Alerts::open(Some(path)).unwrap().all().rules;
        assert!(rules.contains(new) && !rules.iter().any(|rule| rule.id == deleted.id));
        assert_eq!((rules.len(), rules[0].threshold), (known.len() - 1, 17.0), "what the operator changed stays");
    }

    #[test]
    fn history_is_bounded() {
        let mut state = of(vec![rule("node", 0)]);
        for second in 0..2000 {
            step(&mut state, &[], |_, _| Some((second % 2) as f64 * 200.0), second * 1000);
        }
        assert_eq!(state.stored.history.len(), HISTORY_KEPT);
    }
}
