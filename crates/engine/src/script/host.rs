//! Owns the server's answers to SCRIPT and FUNCTION. Never runs a script.

use crate::functions::{self, dump};
use crate::job;
use crate::scripts::What;
use crate::worker::Worker;
use crate::worker_handle::Message;
use base::glob;
use commands::host::{FunctionCard, FunctionStats, LibraryCard, RunningScript, Scripting};
use commands::job::{FunctionsChange, Task};
use commands::session::Session;
use commands::{Run, Stop};
use lua::name_of;

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

    fn library_name(&self, code: &[u8]) -> Result<String, String> {
        name_of(code)
    }

    fn change_functions(&self, me: &mut Session, change: FunctionsChange) -> Run {
        if self.hub.routes.get().is_some_and(|routes| routes.functions.is_some()) {
            return job::outcome(me).unwrap_or_else(|| job::leave(me, Task::ChangeFunctions(change)));
        }
        let (libraries, error) = (&self.hub.scripts.libraries, |text: String| Stop::Error(text.into()));
        functions::check(&libraries.read(), &change).map_err(error)?;
        let loaded = match change.has_code() {
            true => self.with_interpreter(|interpreter| functions::load(&interpreter.engine, &change)),
            false => Ok(Ok(Vec::new())),
        };
        let loaded = loaded.and_then(|loaded| loaded).map_err(error)?;
        {
            let mut known = libraries.write();
            *known = functions::changed(&known, &change, loaded).map_err(error)?;
        }
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
