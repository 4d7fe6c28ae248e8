//! Owns the connection to one member: when it is made and made anew, and what a failure says about whether the request was executed.
//! Never knows which member is asked, or how often.

use std::error::Error as _;
use std::time::Duration;

use http::uri::PathAndQuery;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_stream::Stream;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, ConnectError, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::error::{Error, Failure};
use crate::etcd::Options;
use crate::etcd::messages::Call;

/// A list of all that FlintKV keeps in etcd is far smaller.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// A connection on which a watch or a call waits is asked for a sign of life when it was silent for so long. etcd closes connections
/// that ask more often than each 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

pub type Token = MetadataValue<Ascii>;

pub struct Connection {
    endpoint: Endpoint,
    /// Made by the first call, because the task that drives it belongs to the caller's runtime.
    channel: Mutex<Option<Channel>>,
    /// When it last answered on this channel.
    answered: Mutex<Option<Instant>>,
}

impl Connection {
    pub fn new(url: &str, options: &Options) -> Result<Connection, Error> {
        let wrong = |why: &str| Error::Local(format!("etcd's address {url}: {why}"));
        let mut endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| wrong(&error.to_string()))?;
        let timeout = options.timeout / options.endpoints.len().max(1) as u32;
        match (endpoint.uri().scheme_str(), &options.tls) {
            (Some("http"), None) => {}
            (Some("https"), Some(tls)) => {
                let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca)).timeout(timeout);
                if let Some(name) = &tls.server_name {
                    config = config.domain_name(name);
                }
                if let Some((certificate, key)) = &tls.client {
                    config = config.identity(Identity::from_pem(certificate, key));
                }
                endpoint = endpoint.tls_config(config).map_err(|error| wrong(&root_cause(&error)))?;
            }
            (Some("http"), Some(_)) => return Err(wrong("certificates are given, so it must begin with https://")),
            (Some("https"), None) => return Err(wrong("the certificate of etcd's CA is missing")),
            _ => return Err(wrong("it must begin with http:// or https://")),
        }
        endpoint = endpoint
            .connect_timeout(timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        Ok(Connection { endpoint, channel: Mutex::new(None), answered: Mutex::new(None) })
    }

    /// The next call makes a new connection: this one may wait long for packets that nobody answers.
    pub fn give_up(&self) {
        *self.channel.lock() = None;
        *self.answered.lock() = None;
    }

    pub fn has_answered_within(&self, limit: Duration) -> bool {
        self.answered.lock().is_some_and(|at| at.elapsed() < limit)
    }

    pub async fn ask<C: Call>(&self, request: C, token: Option<Token>) -> Result<C::Answer, Status> {
        let request = framed(request, token, C::WANTS_LEADER);
        let path = PathAndQuery::from_static(C::PATH);
        let mut grpc = self.grpc();
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let answer = grpc.unary(request, path, ProstCodec::<C, C::Answer>::default()).await?.into_inner();
        *self.answered.lock() = Some(Instant::now());
        Ok(answer)
    }

    /// A call with several requests, several answers or both.
    pub async fn stream<C: Call>(
        &self,
        requests: impl Stream<Item = C> + Send + 'static,
        token: Option<Token>,
    ) -> Result<Streaming<C::Answer>, Status> {
        let requests = framed(requests, token, C::WANTS_LEADER);
        let path = PathAndQuery::from_static(C::PATH);
        let mut grpc = self.grpc();
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        Ok(grpc.streaming(requests, path, ProstCodec::<C, C::Answer>::default()).await?.into_inner())
    }

    fn grpc(&self) -> Grpc<Channel> {
        let mut channel = self.channel.lock();
        let channel = channel.get_or_insert_with(|| self.endpoint.connect_lazy());
        Grpc::new(channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }
}

fn framed<T>(message: T, token: Option<Token>, wants_leader: bool) -> Request<T> {
    let mut request = Request::new(message);
    if wants_leader {
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    }
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
    request
}

/// etcd's words about a token that it does not know any more, or that is older than the last change of its users.
pub fn wants_new_token(status: &Status) -> bool {
    ["etcdserver: invalid auth token", "etcdserver: revision of auth store is old"].contains(&status.message())
}

/// Only etcd's own words prove that a request was not executed. Whatever else came (a reset connection, a proxy's answer, an election)
/// proves nothing.
pub fn failure(status: &Status) -> Failure {
    if never_connected(status) {
        return Failure::NotSent(root_cause(status));
    }
    let Some(said) = status.message().strip_prefix("etcdserver: ") else {
        let why = root_cause(status);
        return if status.code() == Code::Unimplemented {
            Failure::Refused(Error::Refused(why))
        } else {
            Failure::Lost(why)
        };
    };
    let said = said.to_owned();
    Failure::Refused(match (status.code(), &*said) {
        (Code::NotFound, "requested lease not found") => Error::LeaseGone,
        (Code::ResourceExhausted, "mvcc: database space exceeded") => Error::NoSpace,
        (Code::Unauthenticated | Code::PermissionDenied, _)
        | (Code::InvalidArgument, "authentication failed, invalid user ID or password" | "user name is empty")
        | (Code::FailedPrecondition, "authentication is not enabled") => Error::Denied(said),
        (
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented,
            _,
        ) => Error::Refused(said),
        _ => return Failure::Lost(said),
    })
}

fn never_connected(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// "transport error" and the like say nothing; the last source does.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.downcast_ref::<Status>().map_or_else(|| cause.to_string(), |status| status.message().to_owned())
}
