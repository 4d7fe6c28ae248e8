//! Owns a real Redis that ends with its test. Never knows the commands.

use crate::{Client, TIMEOUT, free_port, is_installed, tool};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A real Redis without persistence. Dropping it ends it.
pub struct Redis {
    pub port: u16,
    _dir: TempDir,
    child: Child,
}

impl Redis {
    /// `None`, and a line that says so, where Debian's redis-server is not installed.
    pub fn if_installed(directives: &[&str]) -> Option<Redis> {
        if !is_installed("redis-server") {
            eprintln!("redis-server is not installed: nothing was compared with it");
            return None;
        }
        Some(Redis::start(directives))
    }

    /// [`Redis::if_installed`], with a connection to it.
    pub fn connected(directives: &[&str]) -> Option<(Client, Redis)> {
        Redis::if_installed(directives).map(|redis| (redis.connect(), redis))
    }

    pub fn start(directives: &[&str]) -> Redis {
        for _ in 0..5 {
            let port = free_port();
            let dir = tempfile::Builder::new().prefix("flintkv-test-").tempdir().expect("a directory");
            let child = tool("redis-server")
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"])
                .arg(dir.path())
                .args(directives)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("redis-server runs");
            let mut redis = Redis { port, _dir: dir, child };
            let deadline = Instant::now() + TIMEOUT;
            while redis.child.try_wait().unwrap().is_none() {
                if answers(port) {
                    return redis;
                }
                assert!(Instant::now() < deadline, "redis-server does not start");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        panic!("redis-server does not start");
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.port)
    }

    /// Stops the process, a moment later, until [`Redis::go_on`]. What is sent to it waits.
    pub fn pause(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).expect("redis-server lives");
    }

    pub fn go_on(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).expect("redis-server lives");
    }
}

/// Whether the server answers. A server that accepts connections may still exit, because the port of its cluster bus (its
/// port + 10,000) is in use.
fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let asked = stream.set_read_timeout(Some(TIMEOUT)).and_then(|()| stream.write_all(b"PING\r\n"));
    asked.is_ok() && stream.read(&mut [0; 1]).is_ok_and(|bytes| bytes == 1)
}

impl Drop for Redis {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
