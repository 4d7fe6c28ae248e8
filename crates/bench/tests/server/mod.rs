//! A small RESP server for the tests: a map, one thread per connection, and faults on request.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The faults of the server.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub password: Option<&'static str>,
    /// Every connection closes after this many commands.
    pub close_after: Option<u64>,
    /// The command with this number waits for this long, and all other commands wait with it.
    pub stall: Option<(u64, Duration)>,
    /// SETs are answered with this error.
    pub refuse_sets: Option<&'static str>,
}

#[derive(Default)]
pub struct ServerState {
    pub values: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    pub log: Mutex<Vec<Vec<String>>>,
    pub connections: AtomicU64,
    commands: AtomicU64,
    faults: Faults,
}

pub struct Server {
    pub port: u16,
    pub state: Arc<ServerState>,
}

impl Server {
    pub fn start() -> Server {
        Server::with(Faults::default())
    }

    pub fn with(faults: Faults) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(ServerState { faults, ..ServerState::default() });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = stream.set_nodelay(true);
                let reader = stream.try_clone().expect("a second handle");
                serve_in_thread(&shared, reader, stream);
            }
        });
        Server { port, state }
    }

    pub fn on_socket(path: &Path) -> Arc<ServerState> {
        let listener = UnixListener::bind(path).expect("a socket");
        let state = Arc::new(ServerState::default());
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let reader = stream.try_clone().expect("a second handle");
                serve_in_thread(&shared, reader, stream);
            }
        });
        state
    }

    pub fn keys(&self) -> usize {
        self.state.values.lock().expect("lock").len()
    }
}

fn serve_in_thread(state: &Arc<ServerState>, reader: impl Read + Send + 'static, writer: impl Write + Send + 'static) {
    let state = Arc::clone(state);
    state.connections.fetch_add(1, Ordering::Relaxed);
    std::thread::spawn(move || serve(&state, BufReader::new(reader), writer));
}

fn serve(state: &ServerState, mut reader: BufReader<impl Read>, mut writer: impl Write) {
    let mut authenticated = state.faults.password.is_none();
    let mut count = 0;
    while let Some(words) = read_command(&mut reader) {
        count += 1;
        if state.faults.close_after.is_some_and(|limit| count > limit) {
            return;
        }
        let number = state.commands.fetch_add(1, Ordering::Relaxed);
        let mut values = state.values.lock().expect("lock");
        if let Some((at, pause)) = state.faults.stall
            && number == at
        {
            std::thread::sleep(pause);
        }
        let mut reply = Vec::new();
        let name = String::from_utf8_lossy(&words[0]).to_ascii_uppercase();
        let text = |index: usize| String::from_utf8_lossy(&words[index]).into_owned();
        if !matches!(name.as_str(), "SET" | "GET") {
            state.log.lock().expect("lock").push((0..words.len()).map(text).collect());
        }
        if name == "AUTH" {
            authenticated = state.faults.password == Some(text(words.len() - 1).as_str());
            reply.extend_from_slice(if authenticated { b"+OK\r\n" } else { b"-WRONGPASS wrong password\r\n" });
        } else if !authenticated {
            reply.extend_from_slice(b"-NOAUTH Authentication required.\r\n");
        } else {
            answer(&name, &words, &mut values, &mut reply, state.faults.refuse_sets);
        }
        drop(values);
        if writer.write_all(&reply).is_err() {
            return;
        }
    }
}

fn answer(
    name: &str,
    words: &[Vec<u8>],
    values: &mut HashMap<Vec<u8>, Vec<u8>>,
    reply: &mut Vec<u8>,
    refuse_sets: Option<&str>,
) {
    let mut bulk = |value: Option<&Vec<u8>>| match value {
        Some(value) => {
            reply.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
            reply.extend_from_slice(value);
            reply.extend_from_slice(b"\r\n");
        }
        None => reply.extend_from_slice(b"$-1\r\n"),
    };
    match name {
        "SET" if refuse_sets.is_some() => {
            reply.extend_from_slice(format!("-{}\r\n", refuse_sets.unwrap_or_default()).as_bytes());
        }
        "SET" => {
            values.insert(words[1].clone(), words[2].clone());
            reply.extend_from_slice(b"+OK\r\n");
        }
        "GET" => bulk(values.get(&words[1])),
        "MGET" => {
            let keys = &words[1..];
            reply.extend_from_slice(format!("*{}\r\n", keys.len()).as_bytes());
            for key in keys {
                match values.get(key) {
                    Some(value) => {
                        reply.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
                        reply.extend_from_slice(value);
                        reply.extend_from_slice(b"\r\n");
                    }
                    None => reply.extend_from_slice(b"$-1\r\n"),
                }
            }
        }
        "HGETALL" => reply.extend_from_slice(if values.contains_key(&words[1]) {
            b"*2\r\n$1\r\nf\r\n$1\r\nv\r\n"
        } else {
            b"*0\r\n"
        }),
        // Three steps: 0 → 7 → 9 → 0.
        "SCAN" => {
            let next = match words[1].as_slice() {
                b"0" => "7",
                b"7" => "9",
                _ => "0",
            };
            reply.extend_from_slice(format!("*2\r\n$1\r\n{next}\r\n*1\r\n$1\r\nk\r\n").as_bytes());
        }
        "HELLO" => reply.extend_from_slice(b"%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n"),
        "WAIT" | "HSET" | "INCR" => reply.extend_from_slice(b":1\r\n"),
        _ => reply.extend_from_slice(b"+OK\r\n"),
    }
}

fn read_command(reader: &mut BufReader<impl Read>) -> Option<Vec<Vec<u8>>> {
    let count = read_number(reader, b'*')?;
    (0..count)
        .map(|_| {
            let bytes = read_number(reader, b'$')?;
            let mut word = vec![0; bytes + 2];
            reader.read_exact(&mut word).ok()?;
            word.truncate(bytes);
            Some(word)
        })
        .collect()
}

fn read_number(reader: &mut BufReader<impl Read>, kind: u8) -> Option<usize> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line).ok()?;
    let text = line.strip_prefix(&[kind])?.strip_suffix(b"\r\n")?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A port without a listener.
pub fn closed_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    port
}
