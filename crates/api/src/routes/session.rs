//! Owns logging in and out. Never knows how a password is stored.

use crate::auth::users::ChosenPassword;
use crate::auth::{By, Role};
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::middleware::{LIFETIME_S, set_cookie};
use crate::route::{Answer, Method, Route, one};
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering::Relaxed;
use utoipa::ToSchema;

/// The most passwords that are checked at the same time. Further logins are told to retry, so that a flood of logins
/// leaves threads for other requests.
const LOGINS_MAX: usize = 4;
const BRIEF_S: u64 = crate::auth::sessions::BRIEF_MS / 1000;

pub const ROUTES: &[Route] = &[
    Route {
        method: Method::Post,
        path: "/api/v1/session",
        role: None,
        tag: "Session",
        summary: "Logs in: sets the session's cookie and returns its CSRF token. At most five failures a minute for a user and address.",
        body: Some(one::<Login>),
        reply: Answer::Json(one::<SessionInfo>),
        action: "session.login",
        run: login,
        ..Route::BASE
    },
    Route {
        path: "/api/v1/session",
        tag: "Session",
        summary: "The user who is logged in.",
        reply: Answer::Json(one::<SessionInfo>),
        run: show,
        ..Route::BASE
    },
    Route {
        method: Method::Delete,
        path: "/api/v1/session",
        tag: "Session",
        summary: "Logs out.",
        action: "session.logout",
        run: logout,
        ..Route::BASE
    },
    Route {
        method: Method::Put,
        path: "/api/v1/session/password",
        tag: "Session",
        summary: "Changes the user's own password, and ends the user's other sessions.",
        body: Some(one::<NewPassword>),
        action: "session.password",
        run: change_password,
        ..Route::BASE
    },
];

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Login {
    user: String,
    password: String,
    /// For a program that logs in for a single command. The session ends after ten minutes without a request. The audit log records what
    /// the session changes, but neither its login nor its logout. A refused login is always recorded.
    #[serde(default)]
    brief: bool,
}

#[derive(Serialize, ToSchema)]
struct SessionInfo {
    user: String,
    role: Role,
    /// The value for the header X-CSRF-Token. Empty if the request was made with a token, which needs no such header.
    csrf: String,
    /// Somebody else has chosen the user's password. Until the user changes it, every other route fails with the code `password`.
    must_change_password: bool,
    /// The user who has chosen the password; empty: the node, at its first start.
    password_by: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewPassword {
    old: String,
    new: String,
}

/// A password check under way.
struct LoginPermit<'a>(&'a Cx);

impl LoginPermit<'_> {
    fn take(cx: &Cx) -> Result<LoginPermit<'_>, ApiError> {
        let turn = LoginPermit(cx);
        if cx.app.logins.fetch_add(1, Relaxed) >= LOGINS_MAX {
            return Err(ApiError::rate_limited("too many logins at the same time", 1));
        }
        Ok(turn)
    }
}

impl Drop for LoginPermit<'_> {
    fn drop(&mut self) {
        self.0.app.logins.fetch_sub(1, Relaxed);
    }
}

/// Whether the password is right. An error if there were too many tries.
fn check(cx: &Cx, user: &str, password: &str) -> Result<bool, ApiError> {
    let address = cx.peer.address.to_string();
    let _turn = LoginPermit::take(cx)?;
    if let Err(wait_ms) = cx.app.tries.lock().admit(user, &address, cx.now_ms()) {
        let seconds = wait_ms.div_ceil(1000);
        return Err(ApiError::rate_limited(format!("too many wrong passwords: wait {seconds} s"), seconds));
    }
    let is_right = cx.app.users.verify(user, password)?.is_some();
    let mut tries = cx.app.tries.lock();
    if is_right {
        tries.succeeded(user, &address);
    } else {
        tries.failed(user, &address, cx.now_ms());
    }
    Ok(is_right)
}

fn login(cx: &Cx) -> Result<Reply, ApiError> {
    let Login { user, password, brief } = cx.body()?;
    let named: String = user.chars().take(64).collect();
    cx.note_user(named.clone(), None);
    cx.note(named, "");
    if !check(cx, &user, &password)? {
        return Err(ApiError::unauthenticated("the user or the password is wrong"));
    }
    cx.app.users.logged_in(&user, cx.now_ms())?;
    let card = cx.app.users.card(&user).ok_or_else(|| ApiError::unauthenticated("the user no longer exists"))?;
    cx.note_user(&user, Some(card.role));
    let (id, session) = cx.app.sign_on.begin(&cx.app.users, &user, brief, cx.now_ms())?;
    if brief {
        cx.unaudited();
    }
    let (must_change_password, password_by) = (card.must_change_password, card.password_by);
    let card = SessionInfo { user, role: card.role, csrf: session.csrf, must_change_password, password_by };
    let mut reply = Reply::json(&card)?;
    reply.cookie = Some(cookie(cx, &id, if brief { BRIEF_S } else { LIFETIME_S }));
    Ok(reply)
}

fn cookie(cx: &Cx, value: &str, seconds: u64) -> String {
    set_cookie(value, seconds, cx.peer.is_tls)
}

/// The cookie of the session that asks, which goes on.
pub fn renewed(cx: &Cx, value: &str) -> String {
    cookie(cx, &cx.app.sign_on.renewed(&cx.app.users, value, cx.now_ms()), LIFETIME_S)
}

fn show(cx: &Cx) -> Result<Reply, ApiError> {
    let who = cx.who.as_ref().ok_or_else(|| ApiError::unauthenticated("log in first"))?;
    let (csrf, by) = match &who.by {
        By::Session { csrf, password_by, .. } => (csrf.clone(), password_by.clone()),
        By::Token { .. } | By::Node { .. } => (String::new(), None),
    };
    let must_change_password = by.is_some();
    let password_by = by.unwrap_or_default();
    let user = who.name.clone();
    let mut reply = Reply::json(&SessionInfo { user, role: who.role, csrf, must_change_password, password_by })?;
    if let By::Session { cookie, .. } = &who.by {
        // The browser's cookie is extended with the session.
        reply.cookie = Some(renewed(cx, cookie));
    }
    Ok(reply)
}

fn logout(cx: &Cx) -> Result<Reply, ApiError> {
    let Some(By::Session { cookie: value, .. }) = cx.who.as_ref().map(|who| &who.by) else {
        return Err(ApiError::invalid("a token has no session").hint("DELETE /api/v1/tokens/{id} ends a token"));
    };
    if cx.app.sign_on.end(value, cx.now_ms()) {
        cx.unaudited();
    }
    Ok(Reply { cookie: Some(cookie(cx, "", 0)), ..Reply::none() })
}

fn change_password(cx: &Cx) -> Result<Reply, ApiError> {
    let NewPassword { old, new } = cx.body()?;
    let Some(By::Session { cookie, .. }) = cx.who.as_ref().map(|who| &who.by) else {
        return Err(ApiError::invalid("a token has no password"));
    };
    let user = cx.user();
    cx.note(user.clone(), "");
    if !check(cx, &user, &old)? {
        return Err(ApiError::field("old", "the password is wrong"));
    }
    if old == new {
        return Err(ApiError::field("new", "must differ from the old password"));
    }
    cx.app.users.set(&user, None, Some(ChosenPassword { password: &new, by: &user, field: "new" }))?;
    cx.app.sign_on.end_of(&user, Some(cookie));
    Ok(Reply { cookie: Some(renewed(cx, cookie)), ..Reply::none() })
}
