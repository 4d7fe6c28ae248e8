//! Owns measuring another server for the planner: one at a time, on a thread of its own, with progress. The sample is kept
//! until the next survey, or until the node ends. Never keeps, shows or logs a password, and never changes anything on that
//! server.

use crate::auth::Role;
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::route::{Answer, Method, Route, one};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use survey::plan::{MonitorInfo, SampleInfo, UsageInfo};
use survey::{Address, SampledWorkload, Stage};
use utoipa::ToSchema;

const PATH: &str = "/api/v1/survey";
const URL_BYTES_MAX: usize = 2048;
/// MONITOR costs the other server some of its speed.
const WATCHED_S_MAX: u32 = 300;

pub const ROUTES: &[Route] = &[
    Route {
        path: PATH,
        role: Some(Role::Admin),
        tag: "Node",
        summary: "The last measurement of another server for the planner, with its progress; null if there is none.",
        reply: Answer::Json(one::<SurveyInfo>),
        run: |cx| Reply::json(&cx.app.surveys.0.lock().as_ref().map(|survey| &survey.card)),
        ..Route::BASE
    },
    Route {
        method: Method::Post,
        path: PATH,
        role: Some(Role::Admin),
        tag: "Node",
        summary: "Measures a running Redis for the planner. This node connects to it, and only reads: INFO, names, sizes and some values, and \
                  MONITOR for a time if that is asked for.",
        body: Some(one::<SurveyOrder>),
        reply: Answer::Created(one::<SurveyInfo>),
        action: "survey",
        run: start,
        ..Route::BASE
    },
    Route {
        method: Method::Delete,
        path: PATH,
        role: Some(Role::Admin),
        tag: "Node",
        summary: "Stops the measurement of another server.",
        action: "survey.stop",
        run: stop,
        ..Route::BASE
    },
];

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SurveyOrder {
    /// redis://HOST[:PORT][/DB], or rediss:// with TLS and a certificate that this machine trusts. Without a user or password.
    url: String,
    user: Option<String>,
    /// Used for this measurement only, and kept nowhere.
    password: Option<String>,
    /// For how long the server's commands are watched by MONITOR, at most 300. Missing or 0: not at all.
    #[serde(default)]
    monitor_seconds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum SurveyState {
    Running,
    Done,
    Stopped,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum SurveyStage {
    Connecting,
    /// The server's commands are watched.
    Watching,
    /// Its keys are looked at.
    Looking,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
struct SurveyInfo {
    state: SurveyState,
    /// Host and port.
    server: String,
    started_ms: u64,
    ended_ms: Option<u64>,
    stage: SurveyStage,
    /// Of the stage, 0 to 1.
    progress: f64,
    /// Why it failed.
    failure: String,
    /// What to do about it; may be empty.
    hint: String,
    sample: Option<SampleInfo>,
    usage: Option<UsageInfo>,
    monitor: Option<MonitorInfo>,
    reads_per_second: f64,
    writes_per_second: f64,
}

/// The state of the last survey.
#[derive(Default)]
pub struct Surveys(Mutex<Option<Survey>>);

struct Survey {
    /// The number of the survey, which distinguishes it from earlier ones.
    number: u64,
    card: SurveyInfo,
    sampled: Option<Arc<SampledWorkload>>,
}

impl Surveys {
    /// The sample of the last survey.
    pub fn sampled(&self) -> Option<Arc<SampledWorkload>> {
        self.0.lock().as_ref().and_then(|survey| survey.sampled.clone())
    }

    /// Stops the survey, because the node ends.
    pub fn stop(&self) {
        if let Some(survey) = &mut *self.0.lock() {
            survey.card.state = SurveyState::Stopped;
        }
    }

    /// Changes the survey of this number, if it still runs.
    fn change(&self, number: u64, change: impl FnOnce(&mut Survey)) -> bool {
        let mut last = self.0.lock();
        let running = |survey: &&mut Survey| survey.number == number && survey.card.state == SurveyState::Running;
        last.as_mut().filter(running).map(change).is_some()
    }
}

fn start(cx: &Cx) -> Result<Reply, ApiError> {
    let order: SurveyOrder = cx.body()?;
    let (address, watched) = checked(&order)?;
    let details = match order.monitor_seconds {
        0 => "without MONITOR".to_owned(),
        seconds => format!("{seconds} s of MONITOR"),
    };
    cx.note(address.to_string(), details);
    let started_ms = cx.now_ms();
    let card = SurveyInfo {
        state: SurveyState::Running,
        server: address.to_string(),
        started_ms,
        ended_ms: None,
        stage: SurveyStage::Connecting,
        progress: 0.0,
        failure: String::new(),
        hint: String::new(),
        sample: None,
        usage: None,
        monitor: None,
        reads_per_second: 0.0,
        writes_per_second: 0.0,
    };
    let number = {
        let mut last = cx.app.surveys.0.lock();
        if last.as_ref().is_some_and(|survey| survey.card.state == SurveyState::Running) {
            return Err(ApiError::busy("a server is being measured").hint("wait for its end, or stop it"));
        }
        let number = last.as_ref().map_or(0, |survey| survey.number + 1);
        *last = Some(Survey { number, card: card.clone(), sampled: None });
        number
    };
    let app = Arc::clone(&cx.app);
    let work = move || {
        let go_on = |stage: Stage, part: f64| {
            app.surveys.change(number, |survey| {
                survey.card.progress = part;
                survey.card.stage = match stage {
                    Stage::Watching => SurveyStage::Watching,
                    Stage::Looking => SurveyStage::Looking,
                };
            })
        };
        let sampled = SampledWorkload::from_server(&address, None, watched, &go_on);
        let ended_ms = (app.now_ms)();
        // A stopped survey leaves no sample.
        app.surveys.change(number, |survey| survey.end(ended_ms, sampled));
    };
    let thread = std::thread::Builder::new().name("flintkv-survey".to_owned()).spawn(work);
    if let Err(error) = thread {
        *cx.app.surveys.0.lock() = None;
        return Err(ApiError::failed(format!("no thread for it: {error}")));
    }
    Reply::created(&card)
}

impl Survey {
    fn end(&mut self, ended_ms: u64, sampled: Result<SampledWorkload, survey::Error>) {
        let card = &mut self.card;
        card.ended_ms = Some(ended_ms);
        let failed = match sampled {
            Ok(sampled) if sampled.sample.as_ref().is_none_or(|sample| sample.keys == 0) => {
                survey::Error::new(format!("{} has no keys to measure", card.server))
                    .hint("describe the data in numbers if they are still to come")
            }
            Ok(sampled) => {
                card.state = SurveyState::Done;
                card.sample = sampled.sample.as_ref().map(SampleInfo::of);
                card.usage = sampled.uses.as_ref().map(UsageInfo::of);
                card.monitor = sampled.cost.as_ref().map(MonitorInfo::of);
                let traffic = sampled.traffic.unwrap_or_default();
                (card.reads_per_second, card.writes_per_second) = (traffic.reads_per_second, traffic.writes_per_second);
                self.sampled = Some(Arc::new(sampled));
                return;
            }
            Err(error) => error,
        };
        card.state = SurveyState::Failed;
        (card.failure, card.hint) = (failed.message, failed.hint);
    }
}

/// The address with the password, and for how long commands are monitored.
fn checked(order: &SurveyOrder) -> Result<(Address, Option<Duration>), ApiError> {
    let wrong = |why: &str| ApiError::field("url", why.to_owned());
    if order.url.len() > URL_BYTES_MAX {
        return Err(wrong("longer than 2048 bytes"));
    }
    // Because the URL is shown and logged, it must not contain a password.
    if order.url.contains('@') {
        return Err(wrong("must not hold a user or password: they have fields of their own"));
    }
    let mut address: Address = order.url.trim().parse().map_err(|why: String| wrong(&why))?;
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    for (field, text) in [("user", &order.user), ("password", &order.password)] {
        // Control characters could end a line and begin another command if the server does not speak RESP.
        if text.as_ref().is_some_and(|text| text.contains(char::is_control)) {
            return Err(ApiError::field(field, "must not hold control characters"));
        }
    }
    (address.user, address.password) = (given(&order.user), given(&order.password));
    if address.user.is_some() && address.password.is_none() {
        return Err(ApiError::field("password", "is missing: the user has one"));
    }
    if address.host.contains(char::is_control) {
        return Err(wrong("is not a URL"));
    }
    if order.monitor_seconds > WATCHED_S_MAX {
        return Err(ApiError::field("monitor_seconds", format!("must be at most {WATCHED_S_MAX}")));
    }
    let watched = (order.monitor_seconds > 0).then(|| Duration::from_secs(order.monitor_seconds.into()));
    Ok((address, watched))
}

fn stop(cx: &Cx) -> Result<Reply, ApiError> {
    let mut last = cx.app.surveys.0.lock();
    let survey = last.as_mut().ok_or_else(|| ApiError::not_found("no server is being measured"))?;
    cx.note(survey.card.server.clone(), String::new());
    if survey.card.state == SurveyState::Running {
        survey.card.state = SurveyState::Stopped;
        survey.card.ended_ms = Some(cx.now_ms());
    }
    Ok(Reply::none())
}
