//! Owns the functions of a database with several shards: a change is made from what is known here, agreed upon with whoever keeps them for
//! all shards and proxies, and comes back from there. Never knows who that is, and runs on no worker's thread.

use super::dump;
use crate::hub::Hub;
use crate::routes::{Functions, NotReplaced};
use crate::worker_handle::Message;
use commands::host::REDIS_VERSION;
use commands::job::{FunctionsChange, RestorePolicy};
use lua::{Engine, Libraries, Library, name_of, plain};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How long a change that was made may take to get here.
const NEWER_TIMEOUT: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(10);

/// Changes the functions of all shards. The error is the whole reply.
pub fn change(hub: &Hub, keeper: &dyn Functions, change: &FunctionsChange) -> Result<(), String> {
    let engine = engine(hub)?;
    let begun = Instant::now();
    loop {
        let (seen, known) = {
            let known = hub.scripts.libraries.read();
            (hub.scripts.agreed.load(Relaxed), known.clone())
        };
        check(&known, change)?;
        let libraries = changed(&known, change, load(&engine, change)?)?;
        let codes: Vec<&[u8]> = libraries.all().map(|library| &*library.code).collect();
        match keeper.replace(seen, &codes) {
            Ok(revision) => return wait_until_here(hub, revision),
            Err(NotReplaced::Newer) if begun.elapsed() < NEWER_TIMEOUT => std::thread::sleep(AGAIN),
            Err(NotReplaced::Newer) => {
                return Err("ERR others change the functions at the same time: try again".to_owned());
            }
            Err(NotReplaced::Error(text)) => return Err(text),
        }
    }
}

/// A client that asks at once which functions there are shall see its change.
fn wait_until_here(hub: &Hub, revision: i64) -> Result<(), String> {
    let begun = Instant::now();
    while hub.scripts.agreed.load(Relaxed) < revision {
        if begun.elapsed() > NEWER_TIMEOUT {
            return Err("ERR the functions are changed, and this node does not have them yet".to_owned());
        }
        std::thread::sleep(AGAIN);
    }
    Ok(())
}

fn engine(hub: &Hub) -> Result<Engine, String> {
    let mut engine =
        Engine::new(REDIS_VERSION).map_err(|error| format!("ERR Lua does not start: {}", plain(&error)))?;
    engine.limit_memory(hub.dataset.memory.script_bytes_max(hub.worker_handles.len()));
    Ok(engine)
}

/// What is refused before code runs, as in Redis.
pub fn check(known: &Libraries, change: &FunctionsChange) -> Result<(), String> {
    let FunctionsChange::Load { code, replaces: false } = change else { return Ok(()) };
    let name = name_of(code)?;
    if known.has(&name) { Err(format!("ERR Library '{name}' already exists")) } else { Ok(()) }
}

/// The libraries that a change brings.
pub fn load(engine: &Engine, change: &FunctionsChange) -> Result<Vec<Library>, String> {
    match change {
        FunctionsChange::Load { code, .. } => Ok(vec![library(engine, code)?]),
        FunctionsChange::Restore { payload, .. } => {
            dump::decode(payload)?.iter().map(|code| library(engine, code)).collect()
        }
        FunctionsChange::Delete { .. } | FunctionsChange::Flush => Ok(Vec::new()),
    }
}

/// The libraries after a change that brings `loaded`: all of them or none.
pub fn changed(known: &Libraries, change: &FunctionsChange, loaded: Vec<Library>) -> Result<Libraries, String> {
    let (mut libraries, replaces) = match change {
        FunctionsChange::Flush | FunctionsChange::Restore { policy: RestorePolicy::Flush, .. } => {
            (Libraries::default(), false)
        }
        FunctionsChange::Load { replaces, .. } => (known.clone(), *replaces),
        FunctionsChange::Restore { policy, .. } => (known.clone(), *policy == RestorePolicy::Replace),
        FunctionsChange::Delete { .. } => (known.clone(), false),
    };
    if let FunctionsChange::Delete { library } = change
        && !std::str::from_utf8(library).is_ok_and(|name| libraries.remove(name))
    {
        return Err("ERR Library not found".to_owned());
    }
    loaded.into_iter().try_for_each(|library| libraries.add(library, replaces))?;
    Ok(libraries)
}

/// Runs a library's code to learn its functions.
fn library(engine: &Engine, code: &[u8]) -> Result<Library, String> {
    let name = name_of(code)?;
    let (mut functions, _) = engine.load(code)?;
    functions.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Library { name, code: code.into(), functions })
}

impl Hub {
    /// Takes the functions that all shards of its database have, as of this revision. The journal does not have them: whoever keeps them
    /// says them again at the next start. A library that cannot be loaded is left out, and told.
    pub fn take_functions(&self, revision: i64, codes: &[Vec<u8>]) -> Result<(), String> {
        let is_known = {
            let known = self.scripts.libraries.read();
            known.all().len() == codes.len() && codes.iter().all(|code| known.all().any(|one| *one.code == **code))
        };
        let (mut libraries, mut failed) = (Libraries::default(), Vec::new());
        if !is_known {
            let engine = engine(self)?;
            for code in codes {
                if let Err(text) = library(&engine, code).and_then(|library| libraries.add(library, false)) {
                    failed.push(text);
                }
            }
        }
        let mut known = self.scripts.libraries.write();
        if !is_known {
            *known = libraries;
        }
        self.scripts.agreed.store(revision, Relaxed);
        drop(known);
        for worker_handle in &self.worker_handles {
            // A worker that has ended has nothing to forget.
            let _ = worker_handle.sender.send(Message::ForgetScripts);
        }
        if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
    }
}
