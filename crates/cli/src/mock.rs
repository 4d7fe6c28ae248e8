//! Owns a mock of a node's HTTP API, for tests: sessions, tokens, and databases whose changes are complete only after a
//! few queries. Never opens a database.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::args::Connection;
use crate::client::Client;

pub const TOKEN: &str = "fkv_good";
pub const PASSWORD: &str = "correct horse";
/// Instead of a status: the connection is closed.
pub const NO_ANSWER: u16 = 0;

pub struct Mock {
    pub address: SocketAddr,
    inner: Arc<Mutex<Inner>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
pub struct Inner {
    /// Method, path with query, body.
    pub requests: Vec<(String, String, Value)>,
    pub databases: BTreeMap<String, Value>,
    /// The number of queries until a resize or a deletion is complete.
    pub looks_left: u32,
    /// A resize fails after these queries.
    pub resize_fails: bool,
    /// A backup fails.
    pub backup_fails: bool,
    pub sessions: Vec<String>,
    logins: u32,
    pub fail: Option<(u16, Value)>,
    /// What is answered to those who ask for operations, one after the other; the last one stays.
    pub operations: VecDeque<(u16, Value)>,
    ended: bool,
}

impl Mock {
    pub fn start() -> Mock {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let inner = Arc::new(Mutex::new(Inner::default()));
        inner.lock().unwrap().databases.insert("default".to_owned(), database("default", 6379, 10 << 30, 3 << 30));
        let shared = inner.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.lock().unwrap().ended {
                    return;
                }
                // Some tests have a client that disconnects early.
                let _ = stream.and_then(|stream| answer(stream, &shared));
            }
        });
        Mock { address, inner, thread: Some(thread) }
    }

    pub fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    pub fn connection(&self) -> Connection {
        Connection {
            url: format!("http://{}", self.address),
            token: Some(TOKEN.to_owned()),
            user: None,
            cacert: None,
            insecure: false,
            json: false,
        }
    }

    pub fn client(&self) -> Client {
        Client::new(&self.connection(), std::time::Duration::from_secs(20)).expect("a client")
    }

    /// The last body that was sent to this path.
    pub fn sent(&self, method: &str, path: &str) -> Value {
        let inner = self.inner();
        let found = inner.requests.iter().rev().find(|(how, to, _)| how == method && to == path);
        found.unwrap_or_else(|| panic!("no {method} {path} among {:?}", inner.requests)).2.clone()
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.inner().ended = true;
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub fn database(name: &str, port: u16, memory: u64, ram: u64) -> Value {
    json!({
        "name": name, "state": "active", "progress": null, "is_default": name == "default",
        "definition": { "port": port, "tls_port": 0, "unixsocket": null, "bind": [], "memory_limit_bytes": memory,
            "ram_limit_bytes": ram, "policy": "noeviction", "compression": "lz4", "has_password": false, "shards": 1,
            "replicas": 0, "persistence": "none", "zones": [] },
        "endpoints": [{ "kind": "tcp", "address": format!("127.0.0.1:{port}"), "command": format!("redis-cli -h 127.0.0.1 -p {port}") }],
        "now": { "ops": 1000.0, "hit_ratio": 0.9, "keys": 5, "used_ram_bytes": ram / 2, "ram_limit_bytes": ram,
            "used_flash_bytes": 0, "flash_limit_bytes": memory - ram, "latency_us": 12.5, "clients": 2 },
    })
}

pub fn error(code: &str, message: &str, hint: &str) -> Value {
    json!({ "error": { "code": code, "message": message, "hint": hint, "fields": [] } })
}

fn answer(mut stream: TcpStream, shared: &Mutex<Inner>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line == "\r\n" {
            break;
        }
        head.push(line.trim_end().to_owned());
    }
    let header = |name: &str| {
        let value = |line: &String| {
            line.split_once(": ")
                .filter(|(known, _)| known.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.to_owned())
        };
        head.iter().skip(1).find_map(value).unwrap_or_default()
    };
    let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut first = head[0].split(' ');
    let (method, path) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let path = path.strip_prefix("/api/v1").unwrap_or("?");
    let mut inner = shared.lock().unwrap();
    inner.requests.push((method.to_owned(), path.to_owned(), body.clone()));
    let (status, reply, cookie) = reply(&mut inner, method, path, &body, &header);
    drop(inner);
    if status == NO_ANSWER {
        return Ok(());
    }
    let text = if reply.is_null() { String::new() } else { reply.to_string() };
    let cookie = cookie.map(|cookie| format!("Set-Cookie: {cookie}; HttpOnly\r\n")).unwrap_or_default();
    write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n{cookie}\r\n{text}", text.len())
}

type Reply = (u16, Value, Option<String>);

fn reply(inner: &mut Inner, method: &str, path: &str, body: &Value, header: &dyn Fn(&str) -> String) -> Reply {
    let plain = |status, value| (status, value, None);
    if (method, path) == ("POST", "/session") {
        if body["password"] != PASSWORD {
            return plain(401, error("unauthenticated", "user or password is wrong", ""));
        }
        inner.logins += 1;
        let session = format!("flintkv_session=s{}", inner.logins);
        inner.sessions.push(session.clone());
        return (
            200,
            json!({ "user": body["user"], "role": "admin", "csrf": format!("c{}", inner.logins) }),
            Some(session),
        );
    }
    let by_token = header("authorization") == format!("Bearer {TOKEN}");
    let cookie = header("cookie");
    if !by_token && !inner.sessions.contains(&cookie) {
        return plain(401, error("unauthenticated", "log in first", "POST /api/v1/session"));
    }
    if !by_token && method != "GET" && header("x-csrf-token") != cookie.replace("flintkv_session=s", "c") {
        return plain(403, error("forbidden", "the CSRF token is missing", ""));
    }
    if let Some((status, value)) = inner.fail.take() {
        return plain(status, value);
    }
    let path = path.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match (method, &parts[..]) {
        ("DELETE", ["session"]) => {
            inner.sessions.retain(|known| known != &cookie);
            plain(204, Value::Null)
        }
        ("GET", ["node"]) => plain(200, node()),
        ("GET", ["databases"]) => {
            let databases: Vec<&Value> = inner.databases.values().collect();
            plain(200, json!({ "databases": databases, "room": node()["room"] }))
        }
        ("POST", ["databases"]) => {
            let name = body["name"].as_str().unwrap_or_default();
            let limit = |field: &str| body[field].as_u64().unwrap_or(0);
            let made = database(name, 7001, limit("memory_limit_bytes"), limit("ram_limit_bytes"));
            inner.databases.insert(name.to_owned(), made.clone());
            plain(201, made)
        }
        (_, ["databases", name, ..]) if !inner.databases.contains_key(*name) => {
            plain(404, error("not_found", &format!("there is no database {name}"), ""))
        }
        (_, ["databases", name, rest @ ..]) => {
            let mut known = inner.databases[*name].clone();
            match (method, rest) {
                ("GET", []) if known["state"] == "resizing" || known["state"] == "deleting" => {
                    inner.looks_left = inner.looks_left.saturating_sub(1);
                    if inner.looks_left == 0 && known["state"] == "deleting" {
                        inner.databases.remove(*name);
                        return plain(404, error("not_found", &format!("there is no database {name}"), ""));
                    }
                    if inner.looks_left == 0 {
                        (known["state"], known["progress"]) = (json!("active"), Value::Null);
                    }
                }
                ("PATCH", []) => {
                    for (field, value) in body.as_object().into_iter().flatten().filter(|_| !inner.resize_fails) {
                        known["definition"][field] = value.clone();
                    }
                    if inner.looks_left > 0 {
                        known["state"] = json!("resizing");
                        known["progress"] = json!({ "done_bytes": 1, "total_bytes": 4 });
                    }
                }
                ("DELETE", []) if inner.looks_left > 0 => {
                    known["state"] = json!("deleting");
                    inner.databases.insert((*name).to_owned(), known);
                    return plain(204, Value::Null);
                }
                ("DELETE", []) => {
                    inner.databases.remove(*name);
                    return plain(204, Value::Null);
                }
                ("POST", ["backups"]) => return plain(201, json!({ "path": "ads/1", "phase": "writing" })),
                ("GET", ["backups"]) => {
                    inner.looks_left = inner.looks_left.saturating_sub(1);
                    return plain(200, backups(inner.looks_left > 0, inner.backup_fails));
                }
                ("POST", ["pause" | "resume"]) if !body.is_null() => {
                    return plain(400, error("invalid", "no body is expected", ""));
                }
                ("POST", ["pause"]) => known["state"] = json!("paused"),
                ("POST", ["resume"]) => known["state"] = json!("active"),
                _ => {}
            }
            inner.databases.insert((*name).to_owned(), known.clone());
            plain(200, known)
        }
        ("POST", ["cluster", "restart"]) => {
            plain(201, json!({ "id": "7", "kind": "restart", "target": "all nodes", "steps": [], "notes": [] }))
        }
        ("GET", ["operations"]) => {
            let next = match inner.operations.len() {
                0 | 1 => inner.operations.front().cloned(),
                _ => inner.operations.pop_front(),
            };
            next.map_or_else(|| plain(200, json!([])), |(status, reply)| plain(status, reply))
        }
        ("GET", ["events"]) => plain(
            200,
            json!([{ "database": "other", "severity": "warning", "message": "something else" },
                { "database": "default", "severity": "warning", "message": "the resize failed: the disk is full" }]),
        ),
        ("GET", ["users"]) => {
            plain(200, json!([{ "name": "admin", "role": "admin", "created_ms": 0, "last_login_ms": null }]))
        }
        ("GET", ["tokens"]) => {
            plain(200, json!([{ "id": "t1", "name": "ci", "role": "viewer", "created_ms": 0, "expires_ms": null }]))
        }
        ("POST", ["tokens"]) => {
            plain(201, json!({ "id": "t2", "name": body["name"], "role": body["role"], "token": "fkv_new" }))
        }
        _ => plain(200, json!({})),
    }
}

fn backups(runs: bool, has_failed: bool) -> Value {
    let running = json!({ "path": "ads/1", "phase": "verifying", "done": 1, "total": 4, "scheduled": false });
    let made = json!({ "path": "ads/1", "database": "ads", "created_ms": 0, "keys": 1234, "bytes": 1 << 20, "scheduled": true,
        "reaches_ms": 1_795_284_240_000_u64 });
    let error = if has_failed { json!("no space") } else { Value::Null };
    json!({
        "running": if runs { running } else { Value::Null },
        "last": if runs { Value::Null } else { json!({ "path": "ads/1", "error": error }) },
        "backups": if runs || has_failed { json!([]) } else { json!([made]) },
    })
}

pub fn node() -> Value {
    json!({
        "version": "0.1.0", "redis_version": "7.2.4", "run_id": "abc", "started_ms": 1_795_284_240_000_u64, "workers": 2, "cores": 2,
        "console_tls": false, "flash_driver": "uring", "flash_paths": ["/mnt/flash"],
        "room": { "ram_bytes": 16_u64 << 30, "ram_taken_bytes": 3_u64 << 30, "flash_bytes": 100_u64 << 30,
            "flash_taken_bytes": 7_u64 << 30, "by_database": [{ "name": "default", "ram_bytes": 3_u64 << 30, "flash_bytes": 7_u64 << 30 }] },
        "figures": { "cpu_user_us": 61_000_000, "cpu_system_us": 1_000_000, "resident_bytes": 1_u64 << 30, "open_files": 40,
            "uptime_s": 93_600, "system_ram_bytes": 16_u64 << 30, "system_ram_free_bytes": 8_u64 << 30, "cores": 2 },
        "now": { "cpu_percent": 123.4, "ops": 1000.0, "clients": 2 },
    })
}
