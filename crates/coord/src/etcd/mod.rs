//! Owns etcd as a [`Coord`]: which member is asked, for how long, and when a request is sent again. Never knows what the entries mean.
//!
//! A call goes to the member that answered last. A member that cannot be reached, or that does not answer in its share of the
//! timeout, is left for the next one. A request that changes something is sent again only if it was certainly not sent before. So it is sent
//! only to a member that has just answered: at one whose packets are lost it would wait for the whole timeout.

mod connection;
mod latency;
pub mod maintenance;
mod messages;
mod watch;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, sleep, timeout};

use crate::error::{Error, Failure};
use crate::types::{Entry, Found, Lease, LeaseId, Listing, Operation, Outcome, Probe, Revision, Transaction};
use crate::{Answer, Coord, Watch};
use connection::{Connection, Token, failure, wants_new_token};
use latency::Latency;
use messages::*;

/// Between two attempts of a call.
const PAUSE: Duration = Duration::from_millis(50);
/// No further attempt has less time than this: it would end without an answer, and what is known not to be sent would become unknown.
const ATTEMPT_MIN: Duration = Duration::from_millis(100);
/// A member that was silent for so long is asked whether it is there, before it gets a request that is not sent again.
const SILENCE: Duration = Duration::from_millis(300);
/// How long it may take to say so, when the members are asked for the first time. In each further round it may take twice as long.
const SIGN_OF_LIFE: Duration = Duration::from_millis(300);

#[derive(Debug, Clone)]
pub struct Options {
    /// `http://host:port` or `https://host:port`, of one member or of several.
    pub endpoints: Vec<String>,
    /// For how long a call tries.
    pub timeout: Duration,
    /// Present exactly if the endpoints are https.
    pub tls: Option<Tls>,
    pub user: Option<User>,
}

impl Options {
    /// Without TLS and user.
    pub fn new(endpoints: Vec<String>) -> Options {
        Options { endpoints, timeout: Duration::from_secs(5), tls: None, user: None }
    }
}

/// All in PEM.
#[derive(Clone)]
pub struct Tls {
    pub ca: Vec<u8>,
    /// The client's certificate and its key.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
    /// The name that etcd's certificate must have; `None`: the endpoint's host.
    pub server_name: Option<String>,
}

#[derive(Clone)]
pub struct User {
    pub name: String,
    pub password: String,
}

/// Keys and passwords stay out of logs.
impl fmt::Debug for Tls {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Tls")
    }
}

impl fmt::Debug for User {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.name)
    }
}

/// Calls are made inside of a tokio runtime, always the same: the connections belong to it.
#[derive(Clone)]
pub struct Etcd {
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    /// One for each endpoint.
    connections: Vec<Connection>,
    /// The connection that calls use.
    current: AtomicUsize,
    /// How often a watch was begun.
    watches: AtomicUsize,
    /// Of the user. etcd forgets it after some minutes without a call.
    token: Mutex<Option<Token>>,
    latency: Arc<Latency>,
}

/// Whether a request that may have been executed is sent again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// Executing it twice is as good as once.
    Always,
    UnlessSent,
}

impl Etcd {
    /// Reads no file and connects to nothing yet.
    pub fn new(options: Options) -> Result<Etcd, Error> {
        Etcd::measured_by(options, Arc::default())
    }

    fn measured_by(options: Options, latency: Arc<Latency>) -> Result<Etcd, Error> {
        if options.endpoints.is_empty() {
            return Err(Error::Local("no address of etcd is given".to_owned()));
        }
        let connections =
            options.endpoints.iter().map(|url| Connection::new(url, &options)).collect::<Result<_, _>>()?;
        let shared = Shared {
            options,
            connections,
            current: AtomicUsize::new(0),
            watches: AtomicUsize::new(0),
            token: Mutex::new(None),
            latency,
        };
        Ok(Etcd { shared: Arc::new(shared) })
    }

    /// The same etcd, with connections of its own, for another runtime.
    pub fn apart(&self) -> Etcd {
        let latency = Arc::clone(&self.shared.latency);
        Etcd::measured_by(self.shared.options.clone(), latency).expect("the options were accepted before")
    }

    /// How long the slowest request of the last 10 to 20 seconds took, here and through those that are [`Etcd::apart`]. One that was
    /// given up counts with the time until then. `None`: there was none.
    pub fn slowest(&self) -> Option<Duration> {
        self.shared.latency.slowest(Instant::now())
    }

    fn call<C: Call, T>(
        &self,
        request: C,
        repeat: Repeat,
        read: impl FnOnce(C::Answer) -> Result<T, Error> + Send + 'static,
    ) -> Answer<T> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { read(shared.call(request, repeat, shared.options.timeout).await?) })
    }
}

impl Shared {
    async fn call<C: Call>(&self, request: C, repeat: Repeat, limit: Duration) -> Result<C::Answer, Failure> {
        let until = Instant::now() + limit;
        let share = limit / self.connections.len() as u32;
        let (mut was_sent, mut attempts) = (false, 0);
        loop {
            let index = self.current.load(Relaxed);
            let left = until.saturating_duration_since(Instant::now());
            let begun = Instant::now();
            let answer = match repeat {
                Repeat::Always => self.attempt(&self.connections[index], request.clone(), left.min(share)).await,
                Repeat::UnlessSent => {
                    let patience = SIGN_OF_LIFE * (1 << (attempts / self.connections.len()).min(8));
                    match self.is_there(&self.connections[index], patience.min(left)).await {
                        Ok(()) => {
                            let left = until.saturating_duration_since(Instant::now());
                            self.attempt(&self.connections[index], request.clone(), left).await
                        }
                        Err(why) => Err(Failure::NotSent(why)),
                    }
                }
            };
            // A member that cannot be reached says nothing about how fast etcd is.
            if !matches!(answer, Err(Failure::NotSent(_))) {
                self.latency.note(begun, Instant::now());
            }
            let (why, is_sent) = match answer {
                Ok(answer) => return Ok(answer),
                Err(Failure::Refused(error)) => return Err(Failure::Refused(error)),
                Err(Failure::NotSent(why)) => (why, false),
                Err(Failure::Lost(why)) => (why, true),
            };
            // Unless another call has left this member already.
            let _ = self.current.compare_exchange(index, (index + 1) % self.connections.len(), Relaxed, Relaxed);
            was_sent |= is_sent;
            if (was_sent && repeat == Repeat::UnlessSent) || Instant::now() + PAUSE + ATTEMPT_MIN >= until {
                return Err(if was_sent { Failure::Lost(why) } else { Failure::NotSent(why) });
            }
            attempts += 1;
            sleep(PAUSE).await;
        }
    }

    /// The error says why it seems to be away.
    async fn is_there(&self, connection: &Connection, patience: Duration) -> Result<(), String> {
        if self.connections.len() == 1 || connection.has_answered_within(SILENCE) {
            return Ok(());
        }
        match self.attempt(connection, StatusRequest {}, patience).await {
            Ok(_) | Err(Failure::Refused(_)) => Ok(()),
            Err(Failure::NotSent(why) | Failure::Lost(why)) => Err(why),
        }
    }

    /// One call to one member.
    async fn attempt<C: Call>(
        &self,
        connection: &Connection,
        request: C,
        wait: Duration,
    ) -> Result<C::Answer, Failure> {
        let asked = async {
            let token = self.token(connection).await?;
            match connection.ask(request.clone(), token.clone()).await {
                Err(status) if self.options.user.is_some() && wants_new_token(&status) => {
                    self.forget(token);
                    let token = self.token(connection).await?;
                    connection.ask(request, token).await.map_err(|status| failure(&status))
                }
                answer => answer.map_err(|status| failure(&status)),
            }
        };
        timeout(wait, asked).await.unwrap_or_else(|_| {
            connection.give_up();
            Err(Failure::Lost(format!("no answer within {} ms", wait.as_millis())))
        })
    }

    async fn token(&self, connection: &Connection) -> Result<Option<Token>, Failure> {
        let Some(user) = &self.options.user else { return Ok(None) };
        if let Some(token) = self.token.lock().clone() {
            return Ok(Some(token));
        }
        let request = AuthenticateRequest { name: user.name.clone(), password: user.password.clone() };
        // What was sent is not the caller's request.
        let answer = connection.ask(request, None).await.map_err(|status| match failure(&status) {
            Failure::Lost(why) => Failure::NotSent(why),
            other => other,
        })?;
        let token: Token = answer.token.parse().map_err(|_| Failure::NotSent("etcd's token is no text".to_owned()))?;
        *self.token.lock() = Some(token.clone());
        Ok(Some(token))
    }

    /// Unless another call has a newer one already.
    fn forget(&self, stale: Option<Token>) {
        let mut token = self.token.lock();
        if *token == stale {
            *token = None;
        }
    }
}

impl Coord for Etcd {
    fn get(&self, key: &str) -> Answer<Found> {
        let request = RangeRequest { key: key.as_bytes().to_vec(), ..RangeRequest::default() };
        self.call(request, Repeat::Always, |mut answer| {
            let entry = answer.kvs.pop().map(entry).transpose()?;
            Ok(Found { entry, revision: revision(answer.header) })
        })
    }

    fn list(&self, prefix: &str) -> Answer<Listing> {
        let (key, range_end) = range(prefix);
        self.call(RangeRequest { key, range_end, ..RangeRequest::default() }, Repeat::Always, |answer| {
            let entries = answer.kvs.into_iter().map(entry).collect::<Result<_, _>>()?;
            Ok(Listing { entries, revision: revision(answer.header) })
        })
    }

    fn probe(&self, prefix: &str) -> Answer<Probe> {
        let (key, range_end) = range(prefix);
        let request = RangeRequest {
            key,
            range_end,
            limit: 1,
            sort_order: DESCEND,
            sort_target: BY_MOD_REVISION,
            keys_only: true,
        };
        self.call(request, Repeat::Always, |answer| {
            let newest = answer.kvs.first().map_or(0, |kv| kv.mod_revision);
            Ok(Probe { newest, count: answer.count as usize, revision: revision(answer.header) })
        })
    }

    fn transact(&self, transaction: Transaction) -> Answer<Outcome> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            transaction.check()?;
            match shared.call(txn(transaction), Repeat::UnlessSent, shared.options.timeout).await {
                Ok(answer) if answer.succeeded => Ok(Outcome::Committed(revision(answer.header))),
                Ok(_) => Ok(Outcome::Conflict),
                Err(Failure::Lost(why)) => Ok(Outcome::Unknown(why)),
                Err(failure) => Err(failure.into()),
            }
        })
    }

    /// Each watch begins at another member than the last one, because the last one may have been left for its silence.
    fn watch(&self, prefix: &str, from: Revision) -> Watch {
        let (key, range_end) = range(prefix);
        watch::begin(Arc::clone(&self.shared), WatchCreateRequest { key, range_end, start_revision: from })
    }

    fn grant(&self, ttl: Duration) -> Answer<Lease> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let request = LeaseGrantRequest { ttl_seconds: ttl.as_secs_f64().ceil() as i64 };
            let asked_at = boottime();
            // A lease that nobody hears of ends by itself.
            let answer = shared.call(request, Repeat::Always, shared.options.timeout).await?;
            Ok(Lease { id: LeaseId(answer.id), ttl: Duration::from_secs(answer.ttl_seconds as u64), asked_at })
        })
    }

    fn keep_alive(&self, id: LeaseId, timeout: Duration) -> Answer<Lease> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let asked_at = boottime();
            let answer = shared.call(LeaseKeepAliveRequest { id: id.0 }, Repeat::Always, timeout).await?;
            match u64::try_from(answer.ttl_seconds) {
                Ok(seconds @ 1..) => Ok(Lease { id, ttl: Duration::from_secs(seconds), asked_at }),
                _ => Err(Error::LeaseGone),
            }
        })
    }

    fn revoke(&self, id: LeaseId) -> Answer<()> {
        self.call(LeaseRevokeRequest { id: id.0 }, Repeat::Always, |_| Ok(()))
    }

    fn compact(&self, revision: Revision) -> Answer<()> {
        self.call(CompactionRequest { revision, physical: true }, Repeat::UnlessSent, |_| Ok(()))
    }

    fn now(&self) -> Duration {
        boottime()
    }

    fn sleep_until(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move { sleep(at.saturating_sub(boottime())).await })
    }
}

fn boottime() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn revision(header: Option<Header>) -> Revision {
    header.unwrap_or_default().revision
}

fn entry(kv: KeyValue) -> Result<Entry, Error> {
    let key = text(kv.key)?;
    let lease = (kv.lease != 0).then_some(LeaseId(kv.lease));
    Ok(Entry { key, value: kv.value, mod_revision: kv.mod_revision, lease })
}

fn text(key: Vec<u8>) -> Result<String, Error> {
    String::from_utf8(key).map_err(|error| Error::Foreign(String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// etcd's range of the keys with this prefix: up to the prefix with its last byte increased. 0 stands for the first key and for no
/// end. The text of a key has no byte 255.
fn range(prefix: &str) -> (Vec<u8>, Vec<u8>) {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        Some(last) => {
            *last += 1;
            (prefix.as_bytes().to_vec(), end)
        }
        None => (vec![0], vec![0]),
    }
}

fn txn(transaction: Transaction) -> TxnRequest {
    let compare = |(key, mod_revision): (String, Revision)| Compare {
        target: MOD_REVISION,
        key: key.into_bytes(),
        mod_revision: Some(mod_revision),
    };
    let operation = |operation| match operation {
        Operation::Put { key, value, lease } => {
            let lease = lease.map_or(0, |lease| lease.0);
            RequestOp { put: Some(PutRequest { key: key.into_bytes(), value, lease }), delete: None }
        }
        Operation::Delete { key } => {
            RequestOp { put: None, delete: Some(DeleteRangeRequest { key: key.into_bytes() }) }
        }
    };
    TxnRequest {
        compare: transaction.compare.into_iter().map(compare).collect(),
        success: transaction.operations.into_iter().map(operation).collect(),
    }
}
