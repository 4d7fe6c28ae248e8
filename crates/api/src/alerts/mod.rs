//! Owns alerts as a resource: rules, their states, acknowledgements, silences and the webhook. Never knows how a metric is
//! measured.
//!
//! Every second, each rule is compared with the current values. A rule for all databases has a state for each of them: ok → pending
//! (beyond the threshold) → firing (for long enough) → ok, or no_data if the metric is unknown. `rule` has the rules,
//! including the default ones; `standing` compares them with values; `message` writes the messages; `outbox` sends them to
//! the webhook.

mod message;
mod outbox;
mod rule;
mod standing;

pub use message::Format;
pub use rule::{NewRule, Rule};
pub use standing::{Acknowledged, Silence};

use crate::error::ApiError;
use crate::events::{Event, Events, Severity};
use crate::lines::replace;
use crate::metrics::watch::Watch;
use message::{Message, Sender};
use node::Node;
use outbox::Outbox;
use parking_lot::Mutex;
use rule::GIVEN;
use serde::{Deserialize, Serialize};
use standing::{Change, Stand, Standings, StoredAlerts, Told, resumed, step};
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use utoipa::ToSchema;

const RULES_MAX: usize = 200;
const SILENCES_MAX: usize = 200;

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct RuleState {
    rule_id: String,
    /// `node` or `database:NAME`.
    scope: String,
    state: Stand,
    since_ms: u64,
    value: Option<f64>,
    /// Who works on the alert. null: nobody has said so, or the alert does not fire.
    acknowledged: Option<Acknowledged>,
    silenced_until_ms: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Webhook {
    pub url: String,
    pub enabled: bool,
    pub format: Format,
    /// Messages are signed with it.
    #[serde(skip)]
    pub secret: Option<String>,
    pub is_signed: bool,
    /// The last attempt to send a message since the node has started. null: there was none.
    pub last: Option<Delivery>,
}

impl Webhook {
    fn is_on(&self) -> bool {
        self.enabled && !self.url.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Delivery {
    pub at_ms: u64,
    pub ok: bool,
    pub message: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct All {
    rules: Vec<Rule>,
    states: Vec<RuleState>,
    silences: Vec<Silence>,
    /// Newest first.
    history: Vec<Change>,
    pub webhook: Webhook,
}

/// alerts.json.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Stored {
    rules: Vec<Rule>,
    /// The ids of the rules of [`GIVEN`] that were already added. So a default rule that an operator deletes is not added
    /// again, and the new ones of a later release are added.
    #[serde(default)]
    offered: BTreeSet<String>,
    webhook: StoredWebhook,
    #[serde(flatten)]
    kept: StoredAlerts,
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct StoredWebhook {
    url: String,
    enabled: bool,
    #[serde(default)]
    format: Format,
    #[serde(default)]
    secret: Option<String>,
}

impl StoredWebhook {
    fn shown(self) -> Webhook {
        let StoredWebhook { url, enabled, format, secret } = self;
        Webhook { url, enabled, format, is_signed: secret.is_some(), secret, last: None }
    }
}

struct AlertsState {
    stored: Stored,
    standings: Standings,
}

pub struct Alerts {
    path: Option<PathBuf>,
    state: Mutex<AlertsState>,
    outbox: Outbox,
}

impl Alerts {
    pub fn open(path: Option<PathBuf>, node: &Node, now_ms: u64) -> io::Result<Alerts> {
        let sender = Sender { host: host(), run_id: node.run_id().to_owned(), version: node.version() };
        Alerts::open_as(path, sender, now_ms)
    }

    fn open_as(path: Option<PathBuf>, sender: Sender, now_ms: u64) -> io::Result<Alerts> {
        let mut stored = match path.as_ref().map(std::fs::read) {
            None => Stored::default(),
            Some(Ok(text)) => serde_json::from_slice(&text)
                .map_err(|error| io::Error::other(format!("alerts.json cannot be read: {error}")))?,
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => Stored::default(),
            Some(Err(error)) => return Err(error),
        };
        for rule in GIVEN.iter().map(Rule::from) {
            if stored.offered.insert(rule.id.clone()) && stored.rules.iter().all(|known| known.id != rule.id) {
                stored.rules.push(rule);
            }
        }
        let outbox = Outbox::open(stored.webhook.clone().shown(), sender)?;
        let standings = resumed(&stored.kept, now_ms);
        Ok(Alerts { path, state: Mutex::new(AlertsState { stored, standings }), outbox })
    }

    pub fn firing(&self) -> u64 {
        self.state.lock().stored.kept.firing.len() as u64
    }

    pub fn all(&self) -> All {
        let state = self.state.lock();
        let kept = &state.stored.kept;
        let states = state.standings.iter().map(|((rule_id, scope), standing)| RuleState {
            rule_id: rule_id.clone(),
            scope: scope.clone(),
            state: standing.state,
            since_ms: standing.since_ms,
            value: standing.value,
            acknowledged: kept.acknowledged(rule_id, scope),
            silenced_until_ms: kept.silenced_until_ms(rule_id, scope),
        });
        All {
            rules: state.stored.rules.clone(),
            states: states.collect(),
            silences: kept.silences.clone(),
            history: kept.history.iter().rev().cloned().collect(),
            webhook: self.outbox.webhook(),
        }
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

    pub fn add_rule(&self, rule: &Rule) -> Result<(), ApiError> {
        self.change(|stored| {
            if stored.rules.len() >= RULES_MAX {
                return Err(ApiError::unsupported(format!("more than {RULES_MAX} rules")));
            }
            stored.rules.push(rule.clone());
            Ok(())
        })
    }

    /// Replaces the rule with the same id. Its states begin anew, except those of alerts that fire: the next step continues
    /// or ends these alerts under the new rule.
    pub fn replace_rule(&self, rule: &Rule) -> Result<(), ApiError> {
        self.change(|stored| {
            let at = position(stored, &rule.id)?;
            stored.rules[at] = rule.clone();
            Ok(())
        })?;
        let mut state = self.state.lock();
        state.standings.retain(|(rule_id, _), standing| *rule_id != rule.id || standing.state == Stand::Firing);
        Ok(())
    }

    /// Returns the name of the rule.
    pub fn delete_rule(&self, id: &str) -> Result<String, ApiError> {
        self.change(|stored| {
            let at = position(stored, id)?;
            Ok(stored.rules.remove(at).name)
        })
    }

    pub fn acknowledge(&self, rule_id: &str, scope: &str, acknowledged: Acknowledged) -> Result<(), ApiError> {
        self.change(|stored| {
            let alert = stored.kept.firing_mut(rule_id, scope);
            let alert =
                alert.ok_or_else(|| ApiError::not_found(format!("no alert of '{rule_id}' fires for {scope}")))?;
            alert.acknowledged = Some(acknowledged);
            Ok(())
        })
    }

    pub fn add_silence(&self, silence: &Silence) -> Result<(), ApiError> {
        self.change(|stored| {
            if let Some(id) = &silence.rule_id {
                position(stored, id)?;
            }
            if stored.kept.silences.len() >= SILENCES_MAX {
                return Err(ApiError::unsupported(format!("more than {SILENCES_MAX} silences")));
            }
            stored.kept.silences.push(silence.clone());
            Ok(())
        })
    }

    pub fn end_silence(&self, id: &str) -> Result<(), ApiError> {
        self.change(|stored| {
            let silences = &mut stored.kept.silences;
            let at = silences.iter().position(|silence| silence.id == id);
            silences.remove(at.ok_or_else(|| ApiError::not_found(format!("there is no silence '{id}'")))?);
            Ok(())
        })
    }

    pub fn webhook(&self) -> Webhook {
        self.outbox.webhook()
    }

    /// `secret`: `None` keeps the present one, `Some(None)` removes it.
    pub fn set_webhook(
        &self,
        url: String,
        enabled: bool,
        format: Format,
        secret: Option<Option<String>>,
    ) -> Result<Webhook, ApiError> {
        let webhook = self.change(|stored| {
            let secret = secret.unwrap_or_else(|| stored.webhook.secret.clone());
            stored.webhook = StoredWebhook { url, enabled, format, secret };
            Ok(stored.webhook.clone().shown())
        })?;
        self.outbox.set(webhook.clone());
        Ok(webhook)
    }

    /// Sends a test message now, and says how it went.
    pub fn test_webhook(&self, now_ms: u64) -> Result<Delivery, ApiError> {
        if self.webhook().url.is_empty() {
            return Err(ApiError::invalid("there is no webhook").hint("PUT /api/v1/alerts/webhook sets one"));
        }
        Ok(self.outbox.try_now(&Message::Test { at_ms: now_ms }))
    }

    /// Called every second, after the history has the values of this second.
    pub fn look(&self, node: &Node, watch: &Watch, events: &Events, now_ms: u64) {
        let databases: Vec<String> = node.databases().iter().map(|database| database.name().to_owned()).collect();
        let of_databases: Vec<_> = databases.iter().map(|name| (name, watch.now(name))).collect();
        let of_node = watch.node_now();
        let value = |scope: &str, metric: &str| match scope.strip_prefix("database:") {
            Some(name) => {
                let now = of_databases.iter().find(|(known, _)| *known == name);
                now.and_then(|(_, now)| now.get(metric).copied().flatten())
            }
            None => of_node.get(metric).copied().flatten(),
        };
        let outcome = {
            let mut state = self.state.lock();
            let AlertsState { stored, standings } = &mut *state;
            let outcome = step(&stored.rules, &mut stored.kept, standings, &databases, value, now_ms);
            // The state is written before messages are sent, so that no message is sent twice.
            if outcome.is_changed
                && let Err(error) = self.write(stored)
            {
                tracing::error!("alerts.json cannot be written: {error}");
            }
            outcome
        };
        for (change, rule) in outcome.changes {
            let is_firing = change.to == Stand::Firing;
            let severity = if is_firing { rule.severity } else { Severity::Info };
            let database = change.scope.strip_prefix("database:").unwrap_or("").to_owned();
            let Change { at_ms, scope, value, .. } = change;
            let alert = standing::Alert { rule, scope, since_ms: at_ms, is_told: false, acknowledged: None };
            let text = message::text(&Told { alert, is_firing, at_ms, value });
            events.push(Event::info("alert", &database, text).severity(severity));
        }
        outcome.told.into_iter().for_each(|told| self.outbox.push(Message::Alert(Box::new(told))));
    }
}

/// The machine's name, which tells a reader more than a run's id.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

fn position(stored: &Stored, id: &str) -> Result<usize, ApiError> {
    let at = stored.rules.iter().position(|rule| rule.id == id);
    at.ok_or_else(|| ApiError::not_found(format!("there is no rule '{id}'")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(path: &std::path::Path) -> Alerts {
        let sender = Sender { host: String::new(), run_id: String::new(), version: "" };
        Alerts::open_as(Some(path.to_owned()), sender, 0).unwrap()
    }

    #[test]
    fn the_rules_of_the_beginning_come_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("alerts.json");
        // A file of an earlier release.
        std::fs::write(&path, "{\"rules\":[],\"webhook\":{\"url\":\"\",\"enabled\":false,\"last\":null}}").unwrap();
        let alerts = opened(&path);
        assert_eq!(alerts.all().rules.len(), GIVEN.len());
        alerts
            .change(|stored| {
                stored.rules.clear();
                Ok(())
            })
            .unwrap();
        assert!(opened(&path).all().rules.is_empty());
    }

    #[test]
    fn a_rule_of_a_later_release_is_added_and_a_deleted_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("alerts.json");
        let known: Vec<Rule> = GIVEN.iter().map(Rule::from).collect();
        let (new, deleted) = (&known[0], &known[1]);
        let mut stored = Stored { rules: known[2..].to_vec(), ..Stored::default() };
        stored.rules[0].threshold = 17.0;
        stored.offered = known[1..].iter().map(|rule| rule.id.clone()).collect();
        std::fs::write(&path, serde_json::to_vec(&stored).unwrap()).unwrap();
        let rules = opened(&path).all().rules;
        assert!(rules.contains(new) && !rules.iter().any(|rule| rule.id == deleted.id));
        assert_eq!((rules.len(), rules[0].threshold), (known.len() - 1, 17.0), "what the operator changed stays");
    }
}
