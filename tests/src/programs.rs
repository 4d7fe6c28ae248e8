//! Owns the paths of the programs under test, and their ports. Never knows what they do.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

static BINARY: OnceLock<PathBuf> = OnceLock::new();

/// The binary under test is this one. Call this before anything asks for it.
pub fn set_binary(path: &Path) {
    let set = BINARY.set(std::path::absolute(path).expect("a path"));
    assert!(set.is_ok(), "the binary under test is in use already");
}

/// The binary under test. Cargo does not build another package's binary for a test, so this builds it once.
pub fn binary() -> &'static Path {
    BINARY.get_or_init(|| {
        if let Some(named) = std::env::var_os("FLINTKV") {
            let named = PathBuf::from(named);
            assert!(named.is_file(), "FLINTKV names no binary: {}", named.display());
            // Absolute: nodes run in folders of their own.
            return std::path::absolute(named).expect("a path");
        }
        // target/PROFILE/deps/this-test
        let test = std::env::current_exe().expect("a path");
        let profile_dir = test.parent().and_then(Path::parent).expect("cargo's layout");
        let target_dir = profile_dir.parent().expect("cargo's layout");
        let profile = match profile_dir.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--quiet", "-p", "flintkv", "--profile", profile, "--target-dir"])
            .arg(target_dir)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::null())
            .status()
            .expect("cargo runs");
        assert!(built.success(), "cargo build -p flintkv failed: {built}");
        profile_dir.join("flintkv")
    })
}

/// A program of Debian's redis-server and redis-tools packages.
pub fn tool(name: &str) -> Command {
    assert!(is_installed(name), "{name} is missing: apt-get install redis-server redis-tools");
    let mut command = Command::new(name);
    command.stdin(Stdio::null());
    command
}

pub fn is_installed(name: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|dir| dir.join(name).is_file())
}

/// A port that no other test program uses while this one runs: a test program locks a file for each of its ports. The
/// ports are below those that the system gives to clients.
pub fn free_port() -> u16 {
    static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());
    // Ports are this far apart, because a database that is created without a port gets one of the next ports.
    const APART: u32 = 8;
    const COUNT: u32 = 20_000 / APART;
    let folder = std::env::temp_dir().join("flintkv-test-ports");
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    let from = std::process::id() * 97 + held.len() as u32;
    for number in (0..COUNT).map(|step| (from + step) % COUNT) {
        let port = (10_000 + number * APART) as u16;
        let file = File::options().create(true).append(true).open(folder.join(port.to_string())).expect("a file");
        if file.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            held.push(file);
            return port;
        }
    }
    panic!("all ports are taken")
}
