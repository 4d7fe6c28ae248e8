//! Owns how families are run and reported, and the styles that they run in. Never knows what a family asserts.

use redis::aio::{ConnectionLike as _, ConnectionManager, MultiplexedConnection};
use redis::{
    Client, Cmd, Connection, ConnectionInfo, ConnectionLike, IntoConnectionInfo, ProtocolVersion, RedisResult, Value,
};
use std::cell::RefCell;
use std::sync::{LazyLock, mpsc};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// A family that takes longer is reported as hanging; its thread is left behind.
const FAMILY_MAX: Duration = Duration::from_secs(180);
/// The longest wait for the effect of another connection.
const TIMEOUT: Duration = Duration::from_secs(60);

pub static ASYNC: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
});

pub fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A connection of the library, and the protocol it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Sync2,
    Sync3,
    Many2,
    Many3,
    Managed,
}

const EVERY: &[Style] = &[Style::Sync2, Style::Sync3, Style::Many2, Style::Many3, Style::Managed];

impl Style {
    pub fn protocol(self) -> ProtocolVersion {
        match self {
            Style::Sync2 | Style::Many2 => ProtocolVersion::RESP2,
            _ => ProtocolVersion::RESP3,
        }
    }
}

/// Any connection behind the trait of the sync ones, so that one source of a family drives them all.
pub enum Link {
    Sync(Box<Connection>),
    Many(MultiplexedConnection),
    Managed(ConnectionManager),
}

impl ConnectionLike for Link {
    fn req_command(&mut self, cmd: &Cmd) -> RedisResult<Value> {
        match self {
            Link::Sync(link) => link.req_command(cmd),
            Link::Many(link) => ASYNC.block_on(link.req_packed_command(cmd)),
            Link::Managed(link) => ASYNC.block_on(link.req_packed_command(cmd)),
        }
    }

    /// Iterators call this with the command's bytes.
    fn req_packed_command(&mut self, cmd: &[u8]) -> RedisResult<Value> {
        if let Link::Sync(link) = self {
            return link.req_packed_command(cmd);
        }
        let words: Vec<Vec<u8>> = redis::from_redis_value(redis::parse_redis_value(cmd)?)?;
        let mut command = Cmd::new();
        command.arg(words);
        self.req_command(&command)
    }

    fn req_packed_commands(&mut self, cmd: &[u8], offset: usize, count: usize) -> RedisResult<Vec<Value>> {
        self.sync().req_packed_commands(cmd, offset, count)
    }

    fn get_db(&self) -> i64 {
        0
    }

    fn check_connection(&mut self) -> bool {
        redis::cmd("PING").exec(self).is_ok()
    }

    fn is_open(&self) -> bool {
        true
    }
}

impl Link {
    /// For features of a sync connection only.
    pub fn sync(&mut self) -> &mut Connection {
        match self {
            Link::Sync(link) => link,
            _ => panic!("a family of the sync styles only"),
        }
    }

    pub fn many(&self) -> MultiplexedConnection {
        match self {
            Link::Many(link) => link.clone(),
            _ => panic!("a family of the async styles only"),
        }
    }
}

pub struct Session {
    pub style: Style,
    pub r: Link,
    /// Whether the server has features newer than Debian's 7.0.
    pub since72: bool,
}

impl Session {
    fn new(style: Style, since72: bool) -> RedisResult<Session> {
        Ok(Session { style, r: connect(style)?, since72 })
    }

    /// A second connection.
    pub fn another(&self) -> RedisResult<Link> {
        connect(self.style)
    }

    pub fn is_resp3(&self) -> bool {
        self.style.protocol() == ProtocolVersion::RESP3
    }

    pub fn client(&self) -> Client {
        client(self.style.protocol())
    }

    /// Waits until this many clients are blocked.
    pub fn blocked(&mut self, clients: usize) {
        soon(|| {
            redis::cmd("INFO").arg("clients").query::<redis::InfoDict>(&mut self.r).unwrap().get("blocked_clients")
                == Some(clients)
        });
    }
}

pub fn address() -> ConnectionInfo {
    let host = env("REDIS_HOST").unwrap_or("127.0.0.1".into());
    let port = env("REDIS_PORT").unwrap_or("6379".into());
    format!("redis://{host}:{port}").into_connection_info().expect("an address")
}

pub fn client(protocol: ProtocolVersion) -> Client {
    let info = address();
    let settings = info.redis_settings().clone().set_protocol(protocol);
    Client::open(info.set_redis_settings(settings)).expect("a client")
}

fn connect(style: Style) -> RedisResult<Link> {
    let client = client(style.protocol());
    // The library limits the wait for a reply to 500 ms; blocking commands take longer.
    Ok(match style {
        Style::Sync2 | Style::Sync3 => Link::Sync(Box::new(client.get_connection()?)),
        Style::Many2 | Style::Many3 => {
            let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
            Link::Many(ASYNC.block_on(client.get_multiplexed_async_connection_with_config(&config))?)
        }
        Style::Managed => {
            let config = redis::aio::ConnectionManagerConfig::new().set_response_timeout(None);
            Link::Managed(ASYNC.block_on(client.get_connection_manager_with_config(config))?)
        }
    })
}

pub fn soon(mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < end, "it did not happen within {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The error's text, as the server sent it.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(reply: RedisResult<T>, text: &str) {
    let error = reply.expect_err("an error");
    let said = format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default());
    assert!(said.contains(text), "expected an error with '{text}', got {error:?}");
}

pub type Family = fn(&mut Session) -> RedisResult<()>;

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

pub struct Run {
    wanted: Vec<String>,
    since72: bool,
    passed: usize,
    failed: usize,
}

impl Run {
    pub fn new() -> Run {
        std::panic::set_hook(Box::new(|info| {
            let message = info.to_string().replace('\n', " ");
            PANIC.with(|place| *place.borrow_mut() = message);
        }));
        let mut link = connect(Style::Sync2).expect("a server");
        let info: String = redis::cmd("INFO").arg("server").query(&mut link).expect("INFO");
        let since72 = !info.contains("redis_version:7.0");
        Run { wanted: std::env::args().skip(1).collect(), since72, passed: 0, failed: 0 }
    }

    pub fn every(&mut self, name: &str, family: Family) {
        self.each(EVERY, name, family);
    }

    /// Runs a family once in each style, with an empty database 0.
    pub fn each(&mut self, styles: &'static [Style], name: &str, family: Family) {
        if !self.wanted.is_empty() && !self.wanted.iter().any(|wanted| wanted == name) {
            return;
        }
        let since72 = self.since72;
        let (done, outcome) = mpsc::channel();
        let start = Instant::now();
        std::thread::spawn(move || {
            for style in styles {
                if let Err(why) = once(*style, since72, family) {
                    let _ = done.send(Err(format!("{style:?}: {why}")));
                    return;
                }
            }
            let _ = done.send(Ok(()));
        });
        match outcome.recv_timeout(FAMILY_MAX).unwrap_or(Err("still running".into())) {
            Ok(()) => {
                self.passed += 1;
                println!("{name}: ok, {} ms", start.elapsed().as_millis());
            }
            Err(why) => {
                self.failed += 1;
                println!("FAIL {name}: {why}");
            }
        }
    }

    pub fn end(self) -> ! {
        println!("passed {}, failed {}", self.passed, self.failed);
        std::process::exit((self.failed > 0) as i32);
    }
}

fn once(style: Style, since72: bool, family: Family) -> Result<(), String> {
    let run = move || -> RedisResult<()> {
        let mut session = Session::new(style, since72)?;
        redis::cmd("FLUSHDB").exec(&mut session.r)?;
        family(&mut session)
    };
    match std::panic::catch_unwind(run) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("{error:?}")),
        Err(_) => Err(PANIC.with(|place| place.take())),
    }
}
