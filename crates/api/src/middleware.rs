//! Owns the path of a request from its headers to its handler: it checks the origin, identifies the user, checks the
//! user's rights, and writes the audit log. Never knows what a route does.

use crate::app::App;
use crate::auth::users::TOKEN_PREFIX;
use crate::auth::{By, Role, Who, same};
use crate::cx::{Cx, JSON, Note, OpenConnection, Peer, Reply};
use crate::error::{ApiError, Failure};
use crate::events::Audited;
use crate::route::{BODY_BYTES_MAX, Method, Route};
use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::http::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, COOKIE, HOST, HeaderName, ORIGIN, RETRY_AFTER, SET_COOKIE,
    STRICT_TRANSPORT_SECURITY,
};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use base::size;
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Where sessions begin and end.
const SESSION: &str = "/api/v1/session";
const COOKIE_NAME: &str = "flintkv_session";
/// Of the cookie of a browser.
pub const LIFETIME_S: u64 = crate::auth::sessions::SLIDING_MS / 1000;
/// The time limit for receiving a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(20);
/// Longer than a command may take. The handler continues, and the audit log records its result.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The most characters of a path in the audit log.
const TARGET_CHARS_MAX: usize = 200;

const CSRF: HeaderName = HeaderName::from_static("x-csrf-token");

/// Scripts and styles only from here, nothing inline, never in a frame. The console draws into canvases and copies them
/// as images, so blob: and data: are needed.
const POLICY: &str = "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
                      connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Handles one request for a route. `turns` bounds the requests that wait for a thread.
pub async fn serve(app: Arc<App>, route: &'static Route, turns: Arc<Semaphore>, request: Request) -> Response<Body> {
    let mut renewed = None;
    match admitted(app, route, turns, request, &mut renewed).await {
        Ok(mut reply) => {
            reply.cookie = reply.cookie.or(renewed);
            answer(reply)
        }
        Err(error) => refuse(error),
    }
}

async fn admitted(
    app: Arc<App>,
    route: &'static Route,
    turns: Arc<Semaphore>,
    request: Request,
    renewed: &mut Option<String>,
) -> Result<Reply, ApiError> {
    let (mut parts, body) = request.into_parts();
    let peer = *parts.extensions.get::<Peer>().ok_or_else(|| ApiError::failed("the request has no peer address"))?;
    if app.node.is_stopping() && !route.path.starts_with("/health/") {
        return Err(ApiError::stopping());
    }
    let who = match parts.extensions.remove::<Who>() {
        Some(vouched) if route.path.starts_with(SESSION) => {
            let error = ApiError::unsupported(
                "sessions are asked of the node that is asked first, not of another one through it",
            );
            return Err(turned_away(&app, route, &vouched, peer, &parts, error));
        }
        Some(vouched) => Some(vouched),
        None => who(&app, &parts.headers)?,
    };
    *renewed = self::renewed(who.as_ref(), peer);
    if let Some(role) = route.role {
        let who = logged_in(who.as_ref())?;
        if who.role < role {
            let error = ApiError::role(role.name(), &who.name, who.role.name());
            return Err(turned_away(&app, route, who, peer, &parts, error));
        }
        if !route.path.starts_with(SESSION)
            && let Err(error) = has_own_password(who)
        {
            return Err(turned_away(&app, route, who, peer, &parts, error));
        }
    }
    let changes = route.method != Method::Get;
    // The login route has no session to protect, and an old cookie must not block a login.
    if changes && let Err(error) = is_meant(&parts.headers, who.as_ref(), route.role.is_some()) {
        return Err(match &who {
            Some(who) => turned_away(&app, route, who, peer, &parts, error),
            None => error,
        });
    }
    let params = RawPathParams::from_request_parts(&mut parts, &()).await;
    let params = params.map_err(|_| ApiError::invalid("the path is not valid UTF-8"))?;
    let params = params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let query = query(parts.uri.query().unwrap_or(""), route)?;
    let body = whole(body, route, &parts.headers).await?;
    if let Some(connection) = parts.extensions.get::<Arc<OpenConnection>>() {
        connection.works.store(true, Relaxed);
    }
    let cx = Cx { app, who, peer, params, query, body, note: Mutex::default() };

    if route.inline {
        return (route.run)(&cx);
    }
    let turn = turns.try_acquire_owned().map_err(|_| {
        ApiError::rate_limited("too many requests are under way", 1)
            .hint("requests of database clients have priority: try again")
    })?;
    let work = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        run(route, &cx)
    });
    match tokio::time::timeout(TIMEOUT, work).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => {
            tracing::error!("{} {}: {panic}", route.method.name(), route.path);
            Err(ApiError::failed("internal error of the server: see the log"))
        }
        Err(_) => Err(ApiError::timeout(format!("not done after {} s", TIMEOUT.as_secs()))
            .hint("the action continues: check again later, and look at the events")),
    }
}

/// The user of a request that needs one.
pub fn logged_in(who: Option<&Who>) -> Result<&Who, ApiError> {
    who.ok_or_else(|| {
        ApiError::unauthenticated("log in first")
            .hint("POST /api/v1/session with user and password, or send Authorization: Bearer fkv_…")
    })
}

/// Somebody else chose the password and knows it, so until it is changed it does not prove who is logged in.
pub fn has_own_password(who: &Who) -> Result<(), ApiError> {
    match &who.by {
        By::Session { password_by: Some(_), .. } => Err(ApiError::password(&who.name)),
        _ => Ok(()),
    }
}

/// The header's value, if the session's cookie is to be another one from now on.
pub fn renewed(who: Option<&Who>, peer: Peer) -> Option<String> {
    match who.map(|who| &who.by) {
        Some(By::Session { renewed: Some(cookie), .. }) => Some(set_cookie(cookie, LIFETIME_S, peer.is_tls)),
        _ => None,
    }
}

/// Records in the audit log that a request was refused before its handler ran.
fn turned_away(
    app: &App,
    route: &Route,
    who: &Who,
    peer: Peer,
    parts: &axum::http::request::Parts,
    error: ApiError,
) -> ApiError {
    if !route.action.is_empty() {
        app.audit(Audited {
            at_ms: (app.now_ms)(),
            user: who.name.clone(),
            role: who.role.name().to_owned(),
            address: peer.address.to_string(),
            through: who.through().to_owned(),
            action: route.action.to_owned(),
            target: parts.uri.path().trim_start_matches("/api/v1/").chars().take(TARGET_CHARS_MAX).collect(),
            detail: error.message().to_owned(),
            ok: false,
        });
    }
    error
}

/// Runs the handler and writes the line in the audit log.
fn run(route: &'static Route, cx: &Cx) -> Result<Reply, ApiError> {
    let outcome = (route.run)(cx);
    let Note { user, target, mut detail, failure, is_silent } = cx.note.lock().clone();
    if !route.action.is_empty() && !is_silent {
        // The line has what was requested, and why it was not done.
        let why = outcome.as_ref().err().map(|error| error.message().to_owned()).or(failure);
        if let Some(why) = &why {
            detail = if detail.is_empty() { why.clone() } else { format!("{detail}: {why}") };
        }
        let target =
            if target.is_empty() { cx.params.first().map_or("", |(_, value)| value).to_owned() } else { target };
        let (user, role) = user.unwrap_or_else(|| (cx.user(), cx.who.as_ref().map(|who| who.role)));
        cx.app.audit(Audited {
            at_ms: cx.now_ms(),
            user,
            role: role.map_or("", Role::name).to_owned(),
            address: cx.peer.address.to_string(),
            through: cx.who.as_ref().map_or("", Who::through).to_owned(),
            action: route.action.to_owned(),
            target,
            detail,
            ok: why.is_none(),
        });
    }
    outcome
}

/// The user of the request. An error if the credentials in the headers are wrong.
pub fn who(app: &App, headers: &HeaderMap) -> Result<Option<Who>, ApiError> {
    let now_ms = (app.now_ms)();
    if let Some(given) = headers.get(AUTHORIZATION) {
        let secret = given.to_str().ok().and_then(|text| text.strip_prefix("Bearer ")).unwrap_or("");
        let token = Some(secret)
            .filter(|secret| secret.starts_with(TOKEN_PREFIX))
            .and_then(|secret| app.users.token(secret, now_ms));
        let token = token.ok_or_else(|| {
            ApiError::unauthenticated("the token is unknown or has expired")
                .hint("an administrator can create one with POST /api/v1/tokens")
        })?;
        return Ok(Some(Who { name: token.name, role: token.role, by: By::Token { id: token.id } }));
    }
    let Some(cookie) = cookie(headers) else { return Ok(None) };
    let Some(session) = app.sign_on.find(&app.users, cookie, now_ms) else { return Ok(None) };
    // The role is the user's current one, not that at login.
    let Some(user) = app.users.card(&session.user) else { return Ok(None) };
    let by = By::Session {
        cookie: cookie.to_owned(),
        renewed: session.renewed,
        csrf: session.csrf,
        password_by: user.must_change_password.then_some(user.password_by),
    };
    Ok(Some(Who { name: user.name, role: user.role, by }))
}

/// The header's value.
pub fn set_cookie(value: &str, seconds: u64, is_tls: bool) -> String {
    let secure = if is_tls { "; Secure" } else { "" };
    format!("{COOKIE_NAME}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}")
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let texts = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE_NAME).map(|(_, value)| value)
}

/// Checks that a request that changes something comes from a page of this console or from a program, not from a page of
/// another site. `has_session`: it counts for the route who asks.
pub fn is_meant(headers: &HeaderMap, who: Option<&Who>, has_session: bool) -> Result<(), ApiError> {
    same_origin(headers)?;
    if let (Some(Who { by: By::Session { csrf, .. }, .. }), true) = (who, has_session) {
        let given = headers.get(CSRF).map_or(&b""[..], HeaderValue::as_bytes);
        if !same(given, csrf.as_bytes()) {
            return Err(ApiError::forbidden("the header X-CSRF-Token does not match the session")
                .hint("GET /api/v1/session returns the session's csrf"));
        }
    }
    Ok(())
}

/// A page of another origin must not change anything, even if the browser adds a cookie.
fn same_origin(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().ok().and_then(|text| text.split_once("://")).map(|(_, host)| host);
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    if origin.is_some() && origin == host {
        return Ok(());
    }
    Err(ApiError::forbidden("the request comes from a page of another origin"))
}

/// Against DNS rebinding: a page whose own name resolves to this machine must not read what is open on loopback. An IP
/// address is nobody's name; a console on a network may have any name.
pub fn check_host(headers: &HeaderMap, bound_to_loopback: bool) -> Result<(), ApiError> {
    let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else {
        return Err(ApiError::invalid("the Host header is missing"));
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let is_address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
    let is_local = name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost");
    if !bound_to_loopback || is_address || is_local {
        return Ok(());
    }
    Err(ApiError::invalid("the Host header does not name this machine")
        .hint("use localhost or 127.0.0.1; a proxy in front of the console must send Host: localhost"))
}

/// The query's pairs. A name that the route does not know is an error, because it is a mistake.
fn query(text: &str, route: &Route) -> Result<Vec<(String, String)>, ApiError> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (decoded(name), decoded(value)) else {
            return Err(
                ApiError::invalid("the query is not valid UTF-8").hint("use key64= for keys that are not UTF-8")
            );
        };
        if !route.query.iter().any(|param| param.name == name) {
            let known: Vec<&str> = route.query.iter().map(|param| param.name).collect();
            let known = if known.is_empty() { "none is".to_owned() } else { format!("{} are", known.join(", ")) };
            return Err(ApiError::field(&name, format!("unknown parameter: {known} known here")));
        }
        if pairs.iter().any(|(known, _)| *known == name) {
            return Err(ApiError::field(&name, "given twice"));
        }
        pairs.push((name, value));
    }
    Ok(pairs)
}

/// `%41+b` is `A b`.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let (high, low) = (rest.next()?, rest.next()?);
                let digit = |byte: u8| (byte as char).to_digit(16);
                (digit(high)? * 16 + digit(low)?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn too_large(bytes_max: usize) -> ApiError {
    ApiError::too_large(format!("the body is larger than {}", size::human(bytes_max as u64)))
}

/// The whole body, if it has at most so many bytes.
pub async fn received(body: Body, bytes_max: usize) -> Result<Bytes, ApiError> {
    let read = tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, bytes_max)).await;
    let read = read.map_err(|_| ApiError::timeout("the body did not arrive in time"))?;
    read.map_err(|error| {
        use std::error::Error;
        // axum distinguishes a limit from a broken connection only by the error's source.
        if error.source().is_some_and(|source| source.to_string().contains("length limit")) {
            too_large(bytes_max)
        } else {
            ApiError::invalid("the body did not arrive completely")
        }
    })
}

async fn whole(body: Body, route: &Route, headers: &HeaderMap) -> Result<Vec<u8>, ApiError> {
    let bytes_max = route.body_bytes_max();
    // Clients that may send a large body are not cut off at its beginning: many read the answer only after they have sent it.
    if bytes_max < BODY_BYTES_MAX && body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large(bytes_max));
    }
    let body = received(body, bytes_max).await?;
    match route.body {
        Some(_) => {
            let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
            // A form of another site cannot send this content type without a preflight request.
            if kind.split(';').next().is_none_or(|kind| !kind.trim().eq_ignore_ascii_case(JSON)) {
                return Err(ApiError::invalid("the body must be JSON").hint("send Content-Type: application/json"));
            }
        }
        None if !body.is_empty() => return Err(ApiError::invalid("no body is expected")),
        None => {}
    }
    Ok(body.into())
}

fn answer(reply: Reply) -> Response<Body> {
    let mut response = Response::new(Body::from(reply.body));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if !reply.content_type.is_empty() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(reply.content_type));
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    renew(&mut response, reply.cookie);
    response
}

/// Sets the cookie.
pub fn renew(response: &mut Response<Body>, cookie: Option<String>) {
    if let Some(cookie) = cookie.and_then(|cookie| HeaderValue::from_str(&cookie).ok()) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
}

pub fn refuse(error: ApiError) -> Response<Body> {
    let body = serde_json::to_vec(&Failure { error: *error.body }).unwrap_or_default();
    let mut response = answer(Reply { status: error.status, content_type: JSON, body, cookie: None });
    if let Some(seconds) = error.retry_after_s {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// The answer to a request for an existing path with a wrong method.
pub fn refuse_method(allowed: &str) -> Response<Body> {
    let mut error = ApiError::invalid(format!("this path allows {allowed}"));
    error.status = 405;
    let mut response = refuse(error);
    if let Ok(allowed) = HeaderValue::from_str(allowed) {
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}

/// The headers of every response.
pub fn secure(response: &mut Response<Body>, is_tls: bool) {
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if is_tls {
        headers.insert(STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn on_loopback_only_addresses_and_localhost_are_hosts() {
        for host in ["localhost", "LOCALHOST:8379", "127.0.0.1:8379", "[::1]:8379", "[::1]", "console.localhost:1"] {
            assert!(check_host(&headers(&[("host", host)]), true).is_ok(), "{host}");
        }
        for host in ["evil.example", "evil.example:8379", "localhost.evil.example", "127.0.0.1.evil.example", ""] {
            assert!(check_host(&headers(&[("host", host)]), true).is_err(), "{host}");
            assert!(check_host(&headers(&[("host", host)]), false).is_ok(), "{host}");
        }
        assert!(check_host(&headers(&[]), false).is_err());
    }

    #[test]
    fn an_origin_must_be_the_host() {
        let check = |origin| same_origin(&headers(&[("host", "localhost:8379"), ("origin", origin)])).is_ok();
        assert!(check("http://localhost:8379"));
        assert!(check("https://localhost:8379"));
        assert!(!check("http://localhost:80"));
        assert!(!check("http://evil.example"));
        assert!(!check("null"));
        assert!(same_origin(&headers(&[("host", "localhost")])).is_ok(), "curl has none");
    }

    #[test]
    fn a_cookie_among_others() {
        assert_eq!(cookie(&headers(&[("cookie", "a=b; flintkv_session=x-y; c=d")])), Some("x-y"));
        assert_eq!(cookie(&headers(&[("cookie", "not_flintkv_session=x")])), None);
    }

    #[test]
    fn percent_decoding() {
        assert_eq!(decoded("a%20b+c%C3%A9").as_deref(), Some("a b cé"));
        for wrong in ["%", "%4", "%zz", "%ff"] {
            assert_eq!(decoded(wrong), None, "{wrong}");
        }
    }
}
