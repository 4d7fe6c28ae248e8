//! Owns the answers about measuring another server, and checks what is asked. Never measures.

use crate::auth::Role;
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::route::{Answer, Method, Route, one};
use crate::surveys::SurveyInfo;
use serde::Deserialize;
use std::time::Duration;
use survey::Address;
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
        run: |cx| Reply::json(&cx.app.surveys.last()),
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

fn start(cx: &Cx) -> Result<Reply, ApiError> {
    let order: SurveyOrder = cx.body()?;
    let (address, watched) = checked(&order)?;
    let details = match order.monitor_seconds {
        0 => "without MONITOR".to_owned(),
        seconds => format!("{seconds} s of MONITOR"),
    };
    cx.note(address.to_string(), details);
    Reply::created(&cx.app.surveys.start(address, watched)?)
}

/// The address with the password, and for how long commands are monitored.
fn checked(order: &SurveyOrder) -> Result<(Address, Option<Duration>), ApiError> {
    let wrong = |why: &str| ApiError::field("url", why.to_owned());
    if order.url.len() > URL_BYTES_MAX {
        return Err(wrong("longer than 2048 bytes"));
    }
    // Because the URL is shown and logged, it must not contain a password.
    if order.url.contains('@') {
        return Err(wrong("must not contain a user or password: give them in the fields user and password"));
    }
    let mut address: Address = order.url.trim().parse().map_err(|why: String| wrong(&why))?;
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    for (field, text) in [("user", &order.user), ("password", &order.password)] {
        // Control characters could end a line and begin another command if the server does not speak RESP.
        if text.as_ref().is_some_and(|text| text.contains(char::is_control)) {
            return Err(ApiError::field(field, "must not contain control characters"));
        }
    }
    (address.user, address.password) = (given(&order.user), given(&order.password));
    if address.user.is_some() && address.password.is_none() {
        return Err(ApiError::field("password", "is required when a user is given"));
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
    let server = cx.app.surveys.stop().ok_or_else(|| ApiError::not_found("no server is being measured"))?;
    cx.note(server, String::new());
    Ok(Reply::none())
}
