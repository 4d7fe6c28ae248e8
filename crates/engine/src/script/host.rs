//! Owns the server's answers to SCRIPT and FUNCTION. Never runs a script.

use crate::functions::{dump, library};
use crate::job;
use crate::scripts::What;
use crate::worker::Worker;
use crate::worker_handle::Message;
use base::glob;
use commands::host::{FunctionCard, FunctionStats, LibraryCard, RunningScript, Scripting};
use commands::job::{FunctionsChange, RestorePolicy, Task};
use commands::session::Session;
use commands::{Run, Stop};
use lua::{Libraries, Library, name_of};

impl Scripting for Worker {
    fn script_load(&self, body: &[u8]) -> Result<[u8; 40], String> {
        // A script that does not compile is not kept.
        self.with_interpreter(|interpreter| interpreter.engine.compile(body).map(drop))??;
        Ok(self.hub.scripts.add(body, true))
    }

    fn script_exists(&self, sha: &[u8]) -> bool {
        self.hub.scripts.has(sha)
    }

    fn script_flush(&self) {
        self.hub.scripts.flush();
        forget_everywhere(self);
    }

    fn script_kill(&self) -> Result<(), &'static str> {
        self.hub.scripts.kill(What::Script)
    }

    fn function_load(&self, me: &mut Session, code: &[u8], replace: bool) -> Result<String, Stop> {
        let name = name_of(code).map_err(error)?;
        if let Some(kept) = self.change_kept(me, || FunctionsChange::Load { code: code.into(), replaces: replace }) {
            return kept.map(|()| name);
        }
        let known = &self.hub.scripts.libraries;
        // Check before the library's code runs, as in Redis.
        if !replace && known.read().has(&name) {
            return Err(error(format!("ERR Library '{name}' already exists")));
        }
        let library = self.with_interpreter(|interpreter| library(&interpreter.engine, code));
        let library = library.and_then(|library| library).map_err(error)?;
        known.write().add(library, replace).map_err(error)?;
        Ok(name)
    }

    fn function_delete(&self, me: &mut Session, library: &[u8]) -> Result<bool, Stop> {
        if let Some(kept) = self.change_kept(me, || FunctionsChange::Delete { library: library.into() }) {
            return kept.map(|()| true);
        }
        let is_gone = std::str::from_utf8(library).is_ok_and(|name| self.hub.scripts.libraries.write().remove(name));
        forget_everywhere(self);
        Ok(is_gone)
    }

    fn function_flush(&self, me: &mut Session) -> Run {
        if let Some(kept) = self.change_kept(me, || FunctionsChange::Flush) {
            return kept;
        }
        *self.hub.scripts.libraries.write() = Libraries::default();
        forget_everywhere(self);
        Ok(())
    }

    fn function_list(&self, pattern: Option<&[u8]>) -> Vec<LibraryCard> {
        let libraries = self.hub.scripts.libraries.read();
        let fits = |name: &str| pattern.is_none_or(|pattern| glob::matches(pattern, name.as_bytes(), true));
        let client_infos = libraries.all().filter(|library| fits(&library.name)).map(|library| LibraryCard {
            name: library.name.clone(),
            code: library.code.clone(),
            functions: library
                .functions
                .iter()
                .map(|function| FunctionCard {
                    name: function.name.clone(),
                    description: function.description.clone(),
                    flags: function.flags.names().collect(),
                })
                .collect(),
        });
        client_infos.collect()
    }

    fn function_dump(&self) -> Vec<u8> {
        dump::encode(self.hub.scripts.libraries.read().all().map(|library| &*library.code))
    }

    fn function_restore(&self, me: &mut Session, payload: &[u8], policy: RestorePolicy) -> Run {
        if let Some(kept) = self.change_kept(me, || FunctionsChange::Restore { payload: payload.into(), policy }) {
            return kept;
        }
        let codes = dump::decode(payload).map_err(Stop::error)?;
        let libraries = self.with_interpreter(|interpreter| {
            codes.iter().map(|code| library(&interpreter.engine, code)).collect::<Result<Vec<Library>, String>>()
        });
        // All libraries or none.
        let mut known = self.hub.scripts.libraries.write();
        let mut changed = if policy == RestorePolicy::Flush { Libraries::default() } else { known.clone() };
        for library in libraries.and_then(|libraries| libraries).map_err(error)? {
            changed.add(library, policy == RestorePolicy::Replace).map_err(error)?;
        }
        *known = changed;
        Ok(())
    }

    fn function_kill(&self) -> Result<(), &'static str> {
        self.hub.scripts.kill(What::Function)
    }

    fn function_stats(&self) -> Result<FunctionStats, &'static str> {
        let scripts = &self.hub.scripts;
        if let Some(text) = scripts.busy_with_script() {
            return Err(text);
        }
        let running = scripts.running.iter().find_map(|running| {
            let about = running.about.lock();
            about.as_ref().map(|about| RunningScript {
                name: about.name.clone(),
                command: about.command.clone(),
                duration_ms: about.since.elapsed().as_millis() as u64,
            })
        });
        let libraries = scripts.libraries.read();
        Ok(FunctionStats { running, libraries: libraries.all().len(), functions: libraries.function_count() })
    }
}

/// This worker forgets what was flushed before the reply, and the others when they get to it.
fn forget_everywhere(worker: &Worker) {
    worker.forget_scripts();
    for worker_handle in &worker.hub.worker_handles {
        // A worker that has ended has nothing to forget.
        let _ = worker_handle.sender.send(Message::ForgetScripts);
    }
}

fn error(text: String) -> Stop {
    Stop::Error(text.into())
}

impl Worker {
    /// Leaves the change to who keeps the functions for all shards, or takes the outcome. `None`: they are this database's own.
    fn change_kept(&self, me: &mut Session, change: impl FnOnce() -> FunctionsChange) -> Option<Run> {
        self.hub.routes.get()?.functions.as_ref()?;
        Some(job::outcome(me).unwrap_or_else(|| job::leave(me, Task::ChangeFunctions(change()))))
    }
}
