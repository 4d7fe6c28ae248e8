//! Owns the state of every rule: it compares rules with values, and says which messages are to be sent. Never knows a
//! receiver, a file or a clock.

use super::rule::Rule;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use utoipa::ToSchema;

const HISTORY_KEPT: usize = 500;
/// An alert whose metric is not known does not end before this: after a restart, rates are unknown for a moment.
const TIMEOUT_MS: u64 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stand {
    Ok,
    Pending,
    Firing,
    NoData,
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

/// An alert that fires. It is stored over a restart of the node, so that its message is not sent twice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alert {
    /// The rule as it was when the alert began to fire.
    pub rule: Rule,
    pub scope: String,
    pub since_ms: u64,
    /// A message about the alert was sent, so one about its end is due.
    pub is_told: bool,
    pub acknowledged: Option<Acknowledged>,
}

impl Alert {
    /// The same id for the message that the alert fires and for the one that it has ended.
    pub fn id(&self) -> String {
        format!("{}/{}/{}", self.rule.id, self.scope, self.since_ms)
    }

    fn is(&self, rule_id: &str, scope: &str) -> bool {
        self.rule.id == rule_id && self.scope == scope
    }
}

/// A note that somebody works on an alert.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Acknowledged {
    pub by: String,
    pub at_ms: u64,
    pub note: String,
}

/// Until `until_ms`, no messages are sent about the alerts of some rules and scopes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Silence {
    pub id: String,
    /// The rule whose alerts are silenced; null: every rule.
    pub rule_id: Option<String>,
    /// The scope in which they are silenced: `node` or `database:NAME`; null: every scope.
    pub scope: Option<String>,
    pub until_ms: u64,
    pub by: String,
    pub reason: String,
}

impl Silence {
    pub fn covers(&self, rule_id: &str, scope: &str) -> bool {
        self.rule_id.as_ref().is_none_or(|id| id == rule_id) && self.scope.as_ref().is_none_or(|known| known == scope)
    }
}

/// The state of alerts that is stored on disk beside the rules.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StoredAlerts {
    #[serde(default)]
    pub firing: Vec<Alert>,
    #[serde(default)]
    pub silences: Vec<Silence>,
    #[serde(default)]
    pub history: VecDeque<Change>,
}

/// The state of a rule in one scope.
#[derive(Clone, Debug)]
pub struct Standing {
    pub state: Stand,
    pub since_ms: u64,
    pub value: Option<f64>,
    /// The times at which its value was last known, and was last beyond the threshold.
    known_ms: u64,
    beyond_ms: u64,
}

/// The states, by the rule's id and the scope.
pub type Standings = BTreeMap<(String, String), Standing>;

/// A message that is due.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    pub alert: Alert,
    pub is_firing: bool,
    pub at_ms: u64,
    pub value: Option<f64>,
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Alerts that began or ended, with the rule.
    pub changes: Vec<(Change, Rule)>,
    pub told: Vec<Told>,
    /// The stored state has changed.
    pub is_changed: bool,
}

/// The states that follow from the alerts of an earlier run of the node.
pub fn resumed(kept: &StoredAlerts, now_ms: u64) -> Standings {
    let of = |alert: &Alert| {
        let standing = Standing {
            state: Stand::Firing,
            since_ms: alert.since_ms,
            value: None,
            known_ms: now_ms,
            beyond_ms: now_ms,
        };
        ((alert.rule.id.clone(), alert.scope.clone()), standing)
    };
    kept.firing.iter().map(of).collect()
}

/// Compares every rule with the current values.
pub fn step(
    rules: &[Rule],
    kept: &mut StoredAlerts,
    standings: &mut Standings,
    databases: &[String],
    value: impl Fn(&str, &str) -> Option<f64>,
    now_ms: u64,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut seen = BTreeSet::new();
    for rule in rules.iter().filter(|rule| rule.enabled) {
        let scopes: Vec<String> = match rule.scope.as_str() {
            "databases" => databases.iter().map(|name| format!("database:{name}")).collect(),
            scope => vec![scope.to_owned()],
        };
        for scope in scopes {
            let key = (rule.id.clone(), scope.clone());
            let value = value(&scope, &rule.metric);
            let found = standings.entry(key.clone()).or_insert(Standing {
                state: Stand::NoData,
                since_ms: now_ms,
                value,
                known_ms: 0,
                beyond_ms: 0,
            });
            seen.insert(key);
            let next = found.next(rule, value, now_ms);
            if next == found.state {
                continue;
            }
            let change = Change {
                at_ms: now_ms,
                rule_id: rule.id.clone(),
                name: rule.name.clone(),
                scope,
                from: found.state,
                to: next,
                value,
            };
            (found.state, found.since_ms) = (next, now_ms);
            // Pending is only a step on the way to firing, so it is not recorded.
            if change.to == Stand::Firing || change.from == Stand::Firing {
                kept.record(&change, rule, &mut outcome);
                outcome.changes.push((change, rule.clone()));
            }
        }
    }
    standings.retain(|key, _| seen.contains(key));
    kept.forget(&seen, now_ms, &mut outcome);
    kept.report(standings, now_ms, &mut outcome);
    outcome
}

impl Standing {
    fn next(&mut self, rule: &Rule, value: Option<f64>, now_ms: u64) -> Stand {
        self.value = value;
        let Some(value) = value else {
            let waits = self.state == Stand::Firing && now_ms < self.known_ms + TIMEOUT_MS.max(rule.keep_s * 1000);
            return if waits { Stand::Firing } else { Stand::NoData };
        };
        self.known_ms = now_ms;
        if !rule.is_beyond(value) {
            let stays = self.state == Stand::Firing && now_ms < self.beyond_ms + rule.keep_s * 1000;
            return if stays { Stand::Firing } else { Stand::Ok };
        }
        self.beyond_ms = now_ms;
        match self.state {
            Stand::Firing => Stand::Firing,
            // `for_s` counts from the start of pending.
            Stand::Pending if now_ms >= self.since_ms + rule.for_s * 1000 => Stand::Firing,
            _ if rule.for_s == 0 => Stand::Firing,
            _ => Stand::Pending,
        }
    }
}

impl StoredAlerts {
    fn record(&mut self, change: &Change, rule: &Rule, outcome: &mut Outcome) {
        outcome.is_changed = true;
        if self.history.len() >= HISTORY_KEPT {
            self.history.pop_front();
        }
        self.history.push_back(change.clone());
        if change.to == Stand::Firing {
            self.firing.push(Alert {
                rule: rule.clone(),
                scope: change.scope.clone(),
                since_ms: change.at_ms,
                is_told: false,
                acknowledged: None,
            });
        } else if let Some(at) = self.firing.iter().position(|alert| alert.is(&rule.id, &change.scope)) {
            let alert = self.firing.remove(at);
            outcome.ended(alert, change.at_ms, change.value);
        }
    }

    /// Removes alerts whose rule or database is gone, and silences that have ended.
    fn forget(&mut self, seen: &BTreeSet<(String, String)>, now_ms: u64, outcome: &mut Outcome) {
        let is_seen = |alert: &Alert| seen.contains(&(alert.rule.id.clone(), alert.scope.clone()));
        let (here, gone) = std::mem::take(&mut self.firing).into_iter().partition(is_seen);
        self.firing = here;
        let gone: Vec<Alert> = gone;
        gone.into_iter().for_each(|alert| outcome.ended(alert, now_ms, None));
        let count = self.silences.len();
        self.silences.retain(|silence| silence.until_ms > now_ms);
        outcome.is_changed |= self.silences.len() != count;
    }

    /// Reports each alert once, as soon as no silence covers it.
    fn report(&mut self, standings: &Standings, now_ms: u64, outcome: &mut Outcome) {
        let silences = &self.silences;
        let is_silent = |alert: &Alert| silences.iter().any(|silence| silence.covers(&alert.rule.id, &alert.scope));
        for alert in self.firing.iter_mut().filter(|alert| !alert.is_told && !is_silent(alert)) {
            alert.is_told = true;
            outcome.is_changed = true;
            let value = standings.get(&(alert.rule.id.clone(), alert.scope.clone())).and_then(|found| found.value);
            outcome.told.push(Told { alert: alert.clone(), is_firing: true, at_ms: now_ms, value });
        }
    }

    pub fn firing_mut(&mut self, rule_id: &str, scope: &str) -> Option<&mut Alert> {
        self.firing.iter_mut().find(|alert| alert.is(rule_id, scope))
    }

    pub fn acknowledged(&self, rule_id: &str, scope: &str) -> Option<Acknowledged> {
        self.firing.iter().find(|alert| alert.is(rule_id, scope)).and_then(|alert| alert.acknowledged.clone())
    }

    pub fn silenced_until_ms(&self, rule_id: &str, scope: &str) -> Option<u64> {
        let covering = self.silences.iter().filter(|silence| silence.covers(rule_id, scope));
        covering.map(|silence| silence.until_ms).max()
    }
}

impl Outcome {
    fn ended(&mut self, alert: Alert, at_ms: u64, value: Option<f64>) {
        self.is_changed = true;
        if alert.is_told {
            self.told.push(Told { alert, is_firing: false, at_ms, value });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rule::Op;
    use super::*;
    use crate::events::Severity;

    const NOTHING: [bool; 0] = [];

    fn rule(scope: &str, for_s: u64) -> Rule {
        Rule {
            id: "r".into(),
            name: "slow".into(),
            metric: "latency_us".into(),
            scope: scope.into(),
            op: Op::Above,
            threshold: 100.0,
            for_s,
            keep_s: 0,
            severity: Severity::Warning,
            enabled: true,
        }
    }

    struct Bench {
        rules: Vec<Rule>,
        kept: StoredAlerts,
        standings: Standings,
    }

    impl Bench {
        fn new(rule: Rule) -> Bench {
            Bench { rules: vec![rule], kept: StoredAlerts::default(), standings: Standings::new() }
        }

        /// One step with this value for every rule, at this second. Returns the messages that are due: whether each
        /// says that an alert fires.
        fn at(&mut self, second: u64, value: Option<f64>) -> Vec<bool> {
            let told = self.step(&[], second, |_| value).told;
            told.into_iter().map(|told| told.is_firing).collect()
        }

        fn step(&mut self, names: &[String], second: u64, value: impl Fn(&str) -> Option<f64>) -> Outcome {
            let value = |scope: &str, _: &str| value(scope);
            step(&self.rules, &mut self.kept, &mut self.standings, names, value, second * 1000)
        }

        fn stand(&self, scope: &str) -> Stand {
            self.standings[&("r".to_owned(), scope.to_owned())].state
        }

        fn silence(&mut self, until_s: u64) {
            self.kept.silences.push(Silence {
                id: "s".into(),
                rule_id: None,
                scope: Some("node".into()),
                until_ms: until_s * 1000,
                by: String::new(),
                reason: String::new(),
            });
        }
    }

    #[test]
    fn a_rule_fires_after_its_time_without_a_break_and_ends_at_once() {
        let mut bench = Bench::new(rule("node", 3));
        let values = [50.0, 200.0, 200.0, 50.0, 200.0, 200.0, 200.0, 200.0, 200.0, 90.0];
        let told: Vec<(u64, Vec<bool>)> =
            (0..).zip(values).map(|(second, value)| (second, bench.at(second, Some(value)))).collect();
        let told: Vec<_> = told.into_iter().filter(|(_, told)| !told.is_empty()).collect();
        assert_eq!(told, [(7, vec![true]), (9, vec![false])]);
        let history: Vec<_> = bench.kept.history.iter().map(|change| (change.from, change.to)).collect();
        assert_eq!(history, [(Stand::Pending, Stand::Firing), (Stand::Firing, Stand::Ok)]);
    }

    #[test]
    fn an_alert_that_is_kept_is_told_once_however_often_its_cause_returns() {
        let mut bench = Bench::new(Rule { keep_s: 5, ..rule("node", 0) });
        let told: Vec<bool> =
            (0..20).flat_map(|second| bench.at(second, Some(if second % 4 == 0 { 200.0 } else { 0.0 }))).collect();
        assert_eq!(told, [true]);
        assert_eq!(bench.at(20, Some(0.0)), NOTHING);
        assert_eq!(bench.at(21, Some(0.0)), [false]);
    }

    #[test]
    fn every_database_has_its_own_state_and_a_deleted_one_ends_its_alerts() {
        let mut bench = Bench::new(rule("databases", 0));
        let names = ["a".to_owned(), "b".to_owned()];
        let value = |scope: &str| if scope == "database:a" { Some(200.0) } else { None };
        assert_eq!(bench.step(&names, 0, value).changes.len(), 1);
        assert_eq!((bench.stand("database:a"), bench.stand("database:b")), (Stand::Firing, Stand::NoData));
        let told = bench.step(&names[1..], 1, value).told;
        assert_eq!((told.len(), told[0].is_firing, told[0].alert.scope.as_str()), (1, false, "database:a"));
        assert_eq!(bench.standings.len(), 1);
    }

    #[test]
    fn no_data_is_not_ok_and_a_disabled_rule_has_no_state() {
        let mut bench = Bench::new(Rule { op: Op::Below, ..rule("node", 0) });
        assert_eq!(bench.at(0, Some(1.0)), [true]);
        assert_eq!(bench.at(1, None), NOTHING, "it waits for data");
        assert_eq!(bench.at(10, None), [false]);
        assert_eq!(bench.stand("node"), Stand::NoData);
        bench.rules[0].enabled = false;
        bench.at(11, Some(1.0));
        assert!(bench.standings.is_empty());
    }

    #[test]
    fn a_silence_holds_the_message_back_until_it_is_over() {
        let mut bench = Bench::new(rule("node", 0));
        bench.silence(5);
        assert_eq!(bench.at(0, Some(200.0)), NOTHING);
        assert_eq!((bench.stand("node"), bench.kept.silenced_until_ms("r", "node")), (Stand::Firing, Some(5000)));
        assert_eq!(bench.kept.silenced_until_ms("r", "database:a"), None);
        assert_eq!(bench.at(4, Some(200.0)), NOTHING);
        assert_eq!(bench.at(5, Some(200.0)), [true]);
        assert!(bench.kept.silences.is_empty());
        // The end of an alert is reported only if its beginning was.
        bench.silence(9);
        assert_eq!(bench.at(6, Some(0.0)), [false]);
        assert_eq!([bench.at(7, Some(200.0)), bench.at(8, Some(0.0)), bench.at(9, Some(0.0))].concat(), NOTHING);
    }

    #[test]
    fn a_restart_tells_nobody_again_and_keeps_who_works_on_it() {
        let mut bench = Bench::new(rule("node", 0));
        assert_eq!(bench.at(0, Some(200.0)), [true]);
        let by_ann = Acknowledged { by: "ann".into(), at_ms: 1000, note: String::new() };
        bench.kept.firing_mut("r", "node").unwrap().acknowledged = Some(by_ann.clone());
        let mut again = Bench::new(rule("node", 0));
        again.kept = serde_json::from_slice(&serde_json::to_vec(&bench.kept).unwrap()).unwrap();
        again.standings = resumed(&again.kept, 100_000);
        assert_eq!([again.at(100, None), again.at(101, Some(200.0))].concat(), NOTHING);
        assert_eq!(again.kept.acknowledged("r", "node"), Some(by_ann));
        assert_eq!(again.at(102, Some(0.0)), [false]);
        assert_eq!(again.kept.acknowledged("r", "node"), None);
    }

    #[test]
    fn history_is_bounded() {
        let mut bench = Bench::new(rule("node", 0));
        for second in 0..2000 {
            bench.at(second, Some((second % 2) as f64 * 200.0));
        }
        assert_eq!(bench.kept.history.len(), HISTORY_KEPT);
    }
}
