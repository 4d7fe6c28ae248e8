//! After a node was killed, the next one can start at once.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;

use flash::io::{Op, OpKind, PageBuf};
use flash::{DATA_OFFSET, FlashFiles, FlashIo, ThreadPool, open_driver};

const MIB: u64 = 1 << 20;
const DIR: &str = "FLASH_TEST_DIR";

/// The process to be killed. It keeps reads and large writes in flight for ever.
fn child(dir: &str) {
    let files = Arc::new(FlashFiles::open(&[dir.into()], "log", 32 * MIB).unwrap());
    let mut driver = open_driver(&files, FlashIo::Uring, &ThreadPool::new(1)).unwrap();
    let mut done = Vec::new();
    for round in 0.. {
        for token in 0..8 {
            let offset = DATA_OFFSET + token * 4 * MIB;
            driver.push(Op { token, path: 0, offset, kind: OpKind::Write(PageBuf::new(512)) });
            driver.push(Op { token: 8 + token, path: 0, offset, kind: OpKind::Read(PageBuf::new(1)) });
        }
        driver.submit();
        if round == 1 {
            println!("in flight");
        }
        while driver.in_flight() > 0 {
            driver.wait();
            driver.reap(&mut done);
        }
    }
}

/// The kernel destroyed a killed process's ring, and released the lock, after the parent was told of the death. An
/// immediate restart was refused because of a process that no longer existed.
#[test]
fn a_killed_process_does_not_block_the_next_one() {
    if let Ok(dir) = std::env::var(DIR) {
        return child(&dir);
    }
    let scratch = tempfile::tempdir().unwrap();
    for _ in 0..5 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["a_killed_process_does_not_block_the_next_one", "--exact", "--nocapture"])
            .env(DIR, scratch.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b"in flight\n") {
            let mut byte = [0];
            output.read_exact(&mut byte).expect("the child lives until it is killed");
            said.push(byte[0]);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        FlashFiles::open(&[scratch.path().to_owned()], "log", 32 * MIB).unwrap();
    }
}
