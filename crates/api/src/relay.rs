//! Owns requests to the APIs of the cluster's other nodes: `/api/v1/nodes/NODE/…` is answered by that node as its own `/api/v1/…`. The node that
//! is asked first checks who asks, and vouches for it; the other one checks what the role may do, does it, and writes the audit log. Never knows
//! a route.

use crate::app::App;
use crate::auth::{By, Role, Who};
use crate::cx::{Cx, OpenConnection, Peer};
use crate::error::ApiError;
use crate::middleware;
use crate::route::BODY_BYTES_MAX;
use crate::text::{base64url, from_base64url};
use agent::{Agent, ApiUnreachable};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use cluster::ids::NodeId;
use cluster::records;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use utoipa::ToSchema;

const PREFIX: &str = "/api/v1/nodes/";
/// Who asks, as the node says that was asked first. It counts only on a connection of another member, and is taken out of all other requests.
const VOUCHER: HeaderName = HeaderName::from_static("x-flintkv-voucher");
/// Requests to other nodes that are under way.
pub const RELAYS_MAX: usize = 32;
/// A little more than the other node takes at most. With the time for the connection, less than the console waits.
const TIMEOUT: Duration = Duration::from_secs(31);
/// For what several nodes are asked together: one that does not answer must not keep the others' answers back for long.
const GLANCE_TIMEOUT: Duration = Duration::from_secs(3);
/// Of an answer. The largest is the reply of a command, as JSON.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Of an answer's headers, those that say something to whoever has asked.
const PASSED: [HeaderName; 3] = [CONTENT_TYPE, RETRY_AFTER, ALLOW];

/// Who asks, and from where.
#[derive(Serialize, Deserialize)]
struct Voucher {
    user: String,
    role: Role,
    /// The id of the token, if it is a program that asks.
    token: Option<String>,
    address: IpAddr,
}

impl Voucher {
    fn of(who: &Who, address: IpAddr) -> Voucher {
        Voucher { user: who.name.clone(), role: who.role, token: who.token().map(str::to_owned), address }
    }

    fn header(&self) -> Result<HeaderValue, ApiError> {
        let failed = |error: &dyn std::fmt::Display| ApiError::failed(error.to_string());
        let text = serde_json::to_vec(self).map_err(|error| failed(&error))?;
        HeaderValue::from_str(&base64url(&text)).map_err(|error| failed(&error))
    }
}

/// Takes the voucher out of a request, whoever has sent it.
pub fn take(headers: &mut HeaderMap) -> Option<HeaderValue> {
    let voucher = headers.get(VOUCHER).cloned();
    headers.remove(VOUCHER);
    voucher
}

/// Who asks, and from where, by the voucher of a node of this name.
pub fn believed(voucher: Option<&HeaderValue>, through: &str) -> Result<(Who, IpAddr), ApiError> {
    let text = voucher.and_then(|voucher| from_base64url(voucher.to_str().ok()?));
    let read = text.and_then(|text| serde_json::from_slice(&text).ok());
    let Voucher { user, role, token, address } =
        read.ok_or_else(|| ApiError::invalid(format!("node '{through}' does not say who asks")))?;
    Ok((Who { name: user, role, by: By::Node { through: through.to_owned(), token } }, address))
}

/// What becomes of a request.
pub enum Relayed {
    /// It is for this node.
    Own(Request),
    Answered(Response<Body>),
}

/// Has another node answer, if the path names one. `room`: for [`RELAYS_MAX`].
pub async fn relay(app: &App, room: &Semaphore, peer: Peer, mut request: Request) -> Relayed {
    let Some((node, path)) = named(request.uri()) else { return Relayed::Own(request) };
    if request.extensions().get::<Who>().is_some() {
        let error = ApiError::invalid("a request that came through a node is not sent to a third one");
        return Relayed::Answered(middleware::refuse(error));
    }
    if is_own(app, node) {
        return match Uri::try_from(path) {
            Ok(uri) => {
                *request.uri_mut() = uri;
                Relayed::Own(request)
            }
            Err(error) => Relayed::Answered(middleware::refuse(ApiError::invalid(error.to_string()))),
        };
    }
    let node = node.to_owned();
    let mut renewed = None;
    let mut response = match admitted(app, room, peer, request, &node, path, &mut renewed).await {
        Ok(response) => response.map(Body::from),
        Err(error) => middleware::refuse(error),
    };
    middleware::renew(&mut response, renewed);
    Relayed::Answered(response)
}

/// The node that the path names, and the path that the node is asked for, with the query.
fn named(uri: &Uri) -> Option<(&str, String)> {
    let (node, rest) = uri.path().strip_prefix(PREFIX)?.split_once('/')?;
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    Some((node, format!("/api/v1/{rest}{query}")))
}

fn is_own(app: &App, node: &str) -> bool {
    let status = app.agent.as_ref().and_then(|agent| agent.status().ok());
    status.is_some_and(|status| status.member.name.as_str() == node || status.member.node.to_string() == node)
}

async fn admitted(
    app: &App,
    room: &Semaphore,
    peer: Peer,
    request: Request,
    node: &str,
    path: String,
    renewed: &mut Option<String>,
) -> Result<Response<Bytes>, ApiError> {
    if app.node.is_stopping() {
        return Err(ApiError::stopping());
    }
    let (parts, body) = request.into_parts();
    let who = middleware::who(app, &parts.headers)?;
    *renewed = middleware::renewed(who.as_ref(), peer);
    let who = middleware::logged_in(who.as_ref())?;
    middleware::has_own_password(who)?;
    if parts.method != Method::GET {
        middleware::is_meant(&parts.headers, Some(who), true)?;
    }
    let target = Target::named(app, node)?;
    let _turn = room.try_acquire().map_err(|_| {
        ApiError::rate_limited("too many requests to other nodes are under way", 1).hint("try again in a moment")
    })?;
    let body = middleware::received(body, BODY_BYTES_MAX).await?;
    if let Some(connection) = parts.extensions.get::<Arc<OpenConnection>>() {
        connection.works.store(true, Relaxed);
    }
    let mut asked = Request::new(Body::from(body));
    *asked.method_mut() = parts.method;
    *asked.uri_mut() = Uri::try_from(path).map_err(|error| ApiError::invalid(error.to_string()))?;
    if let Some(kind) = parts.headers.get(CONTENT_TYPE) {
        asked.headers_mut().insert(CONTENT_TYPE, kind.clone());
    }
    let answer = target.ask(&Voucher::of(who, peer.address), asked, TIMEOUT).await?;
    let mut response = Response::new(answer.body);
    *response.status_mut() = answer.status;
    for name in PASSED {
        if let Some(value) = answer.headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// A node that does not answer, so what is shown lacks its part.
#[derive(Serialize, ToSchema)]
pub struct MissingNode {
    pub node: String,
    pub why: String,
}

/// What the other nodes have answered, by their names, and those that have not.
pub struct Others<T> {
    pub answers: Vec<(String, T)>,
    pub missing: Vec<MissingNode>,
}

/// The name of this node in its cluster.
pub fn own_name(app: &App) -> Result<String, ApiError> {
    let status = app.agent.as_ref().and_then(|agent| agent.status().ok());
    status.map(|status| status.member.name.to_string()).ok_or_else(no_member)
}

/// What the other nodes answer to the request at hand, asked for this path instead. Waits, so it is for the thread of a handler.
pub fn read_others<T: DeserializeOwned + Send + 'static>(cx: &Cx, path: &str) -> Result<Others<T>, ApiError> {
    let who = middleware::logged_in(cx.who.as_ref())?;
    let query: Vec<String> = cx.query.iter().map(|(name, value)| format!("{name}={}", percent(value))).collect();
    let uri = Uri::try_from(format!("{path}?{}", query.join("&")));
    let uri = uri.map_err(|error| ApiError::invalid(error.to_string()))?;
    let runtime = Handle::current();
    let mut asked = JoinSet::new();
    for (target, role) in Target::all(&cx.app)? {
        if role == records::Role::Data && !is_own(&cx.app, &target.name) {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = uri.clone();
            let voucher = Voucher::of(who, cx.peer.address);
            let answered = async move {
                let answer = target.ask(&voucher, request, GLANCE_TIMEOUT).await;
                (target.name, answer.and_then(Answer::read::<T>))
            };
            asked.spawn_on(answered, &runtime);
        }
    }
    let (mut answers, mut missing) = (Vec::new(), Vec::new());
    for (node, answer) in runtime.block_on(asked.join_all()) {
        match answer {
            Ok(answer) => answers.push((node, answer)),
            Err(error) => missing.push(MissingNode { node, why: error.message().to_owned() }),
        }
    }
    answers.sort_by(|(a, _), (b, _)| a.cmp(b));
    missing.sort_by(|a, b| a.node.cmp(&b.node));
    Ok(Others { answers, missing })
}

/// A value as it is in a query.
fn percent(value: &str) -> String {
    let of = |byte: u8| match byte {
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    value.bytes().map(of).collect()
}

fn no_member() -> ApiError {
    ApiError::unsupported("this node is a member of no cluster")
        .hint("flintkv cluster init NAME begins one, flintkv cluster join joins one")
}

/// What a node has answered.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    /// The body of a success.
    fn read<T: DeserializeOwned>(self) -> Result<T, ApiError> {
        if self.status != StatusCode::OK {
            let refused: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
            let message = refused["error"]["message"].as_str();
            return Err(ApiError::failed(message.map_or_else(|| self.status.to_string(), str::to_owned)));
        }
        serde_json::from_slice(&self.body).map_err(|error| ApiError::failed(error.to_string()))
    }
}

/// Another node with an API.
struct Target {
    agent: Arc<Agent>,
    id: NodeId,
    name: String,
    is_live: bool,
}

impl Target {
    /// By its name or id.
    fn named(app: &App, node: &str) -> Result<Target, ApiError> {
        let all = Target::all(app)?;
        let found = all.into_iter().find(|(target, _)| target.name == node || target.id.to_string() == node);
        match found {
            Some((target, records::Role::Data)) => Ok(target),
            Some((target, records::Role::Quorum)) => {
                Err(ApiError::unsupported(format!("node '{}' only votes: it has no API", target.name)))
            }
            None => Err(ApiError::not_found(format!("the cluster has no node '{node}'"))
                .hint("flintkv cluster nodes, or GET /api/v1/cluster, lists the nodes")),
        }
    }

    fn all(app: &App) -> Result<Vec<(Target, records::Role)>, ApiError> {
        let agent = app.agent.as_ref().ok_or_else(no_member)?;
        let view = agent.status().map_err(|_| no_member())?.view;
        let targets = view.nodes.iter().map(|(id, node)| {
            let (agent, name) = (Arc::clone(agent), node.name.to_string());
            (Target { agent, id: *id, name, is_live: view.live.contains_key(id) }, node.role)
        });
        Ok(targets.collect())
    }

    /// What the node answers. The request has a path with its query.
    async fn ask(&self, voucher: &Voucher, mut request: Request, within: Duration) -> Result<Answer, ApiError> {
        let is_change = request.method() != Method::GET;
        let host = HeaderValue::from_str(&self.name).map_err(|error| ApiError::failed(error.to_string()))?;
        request.headers_mut().insert(HOST, host);
        request.headers_mut().insert(VOUCHER, voucher.header()?);
        let stream = self.agent.open_api(self.id).await.map_err(|why| self.unreachable(&why))?;
        let answered = timeout(within, self.exchange(stream, request)).await.unwrap_or_else(|_| {
            Err(ApiError::timeout(format!("node '{}' has not answered within {} s", self.name, within.as_secs())))
        });
        // From here on the request may have left.
        answered.map_err(|error| match is_change {
            true => error.hint("what was asked for may have happened: look at that node's audit log"),
            false => error,
        })
    }

    async fn exchange(&self, stream: agent::ApiStream, request: Request) -> Result<Answer, ApiError> {
        let failed = |error: &hyper::Error| {
            ApiError::unreachable(format!("node '{}': {}", self.name, agent::api_failure(error)))
        };
        let (mut sender, connection) =
            http1::handshake::<_, Body>(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        // It ends with the sender, or with the answer's body.
        tokio::spawn(connection);
        let (parts, body) = sender.send_request(request).await.map_err(|error| failed(&error))?.into_parts();
        let body = to_bytes(Body::new(body), ANSWER_BYTES_MAX).await.map_err(|error| {
            let text = format!("the answer of node '{}' did not arrive: {error}", self.name);
            ApiError::unreachable(text)
        })?;
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }

    fn unreachable(&self, why: &ApiUnreachable) -> ApiError {
        let text = format!("node '{}' cannot be asked: {why}", self.name);
        let error = match why {
            ApiUnreachable::Silent => ApiError::timeout(text),
            _ => ApiError::unreachable(text),
        };
        match self.is_live {
            true => error,
            false => error.hint("the cluster sees that the node does not run"),
        }
    }
}
