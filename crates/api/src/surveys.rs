//! Owns measuring another server for the planner: one at a time, on a thread of its own, with progress. The sample is kept
//! until the next survey, or until the node ends. Never keeps, shows or logs a password, and never changes anything on that
//! server.

use crate::clock::Clock;
use crate::error::ApiError;
use parking_lot::Mutex;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use survey::plan::{MonitorInfo, SampleInfo, UsageInfo};
use survey::{Address, SampledWorkload, Stage};
use utoipa::ToSchema;

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
pub struct SurveyInfo {
    state: SurveyState,
    /// Host and port.
    server: String,
    started_ms: u64,
    ended_ms: Option<u64>,
    stage: SurveyStage,
    /// The progress of the stage, 0 to 1.
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

pub struct Surveys {
    now_ms: Clock,
    last: Arc<LastSurvey>,
}

/// The state of the last survey, shared with the thread that measures.
#[derive(Default)]
struct LastSurvey(Mutex<Option<Survey>>);

struct Survey {
    /// The number of the survey, which distinguishes it from earlier ones.
    number: u64,
    card: SurveyInfo,
    sampled: Option<Arc<SampledWorkload>>,
}

impl Surveys {
    pub fn new(now_ms: Clock) -> Surveys {
        Surveys { now_ms, last: Arc::default() }
    }

    /// The last survey, with its progress.
    pub fn last(&self) -> Option<SurveyInfo> {
        self.last.0.lock().as_ref().map(|survey| survey.card.clone())
    }

    /// The sample of the last survey.
    pub fn sampled(&self) -> Option<Arc<SampledWorkload>> {
        self.last.0.lock().as_ref().and_then(|survey| survey.sampled.clone())
    }

    /// Starts a survey of the server at `address`. `watched`: for how long its commands are watched by MONITOR.
    pub fn start(&self, address: Address, watched: Option<Duration>) -> Result<SurveyInfo, ApiError> {
        let card = SurveyInfo {
            state: SurveyState::Running,
            server: address.to_string(),
            started_ms: (self.now_ms)(),
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
            let mut last = self.last.0.lock();
            if last.as_ref().is_some_and(|survey| survey.card.state == SurveyState::Running) {
                return Err(ApiError::busy("a server is being measured").hint("wait until it has ended, or stop it"));
            }
            let number = last.as_ref().map_or(0, |survey| survey.number + 1);
            *last = Some(Survey { number, card: card.clone(), sampled: None });
            number
        };
        let (last, now_ms) = (Arc::clone(&self.last), Arc::clone(&self.now_ms));
        let work = move || {
            let go_on = |stage: Stage, part: f64| {
                last.change(number, |survey| {
                    survey.card.progress = part;
                    survey.card.stage = match stage {
                        Stage::Watching => SurveyStage::Watching,
                        Stage::Looking => SurveyStage::Looking,
                    };
                })
            };
            let sampled = SampledWorkload::from_server(&address, None, watched, &go_on);
            let ended_ms = now_ms();
            // A stopped survey leaves no sample.
            last.change(number, |survey| survey.end(ended_ms, sampled));
        };
        let thread = std::thread::Builder::new().name("flintkv-survey".to_owned()).spawn(work);
        if let Err(error) = thread {
            *self.last.0.lock() = None;
            return Err(ApiError::failed(format!("cannot start a thread: {error}")));
        }
        Ok(card)
    }

    /// Stops the survey if it still runs. Returns the server's address; `None`: there was no survey.
    pub fn stop(&self) -> Option<String> {
        let mut last = self.last.0.lock();
        let card = &mut last.as_mut()?.card;
        if card.state == SurveyState::Running {
            card.state = SurveyState::Stopped;
            card.ended_ms = Some((self.now_ms)());
        }
        Some(card.server.clone())
    }
}

impl LastSurvey {
    /// Changes the survey of this number, if it still runs.
    fn change(&self, number: u64, change: impl FnOnce(&mut Survey)) -> bool {
        let mut last = self.0.lock();
        let running = |survey: &&mut Survey| survey.number == number && survey.card.state == SurveyState::Running;
        last.as_mut().filter(running).map(change).is_some()
    }
}

impl Survey {
    fn end(&mut self, ended_ms: u64, sampled: Result<SampledWorkload, survey::Error>) {
        let card = &mut self.card;
        card.ended_ms = Some(ended_ms);
        let failed = match sampled {
            Ok(sampled) if sampled.sample.as_ref().is_none_or(|sample| sample.keys == 0) => {
                survey::Error::new(format!("{} has no keys to measure", card.server))
                    .hint("give the numbers yourself if the data do not exist yet")
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
