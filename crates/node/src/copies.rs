//! Owns the copies of shards that this node keeps: databases that no client reaches by a socket of its own. They are none of the node's
//! databases: consoles and metrics do not list them, and only who opened one can close it. Never knows who decides which copies there are.
//!
//! ```text
//! state-dir/copies/NAME.SHARD.conf   a copy's configuration, written anew at each opening
//! ```

use crate::database::Database;
use crate::definition::{NodeError, check};
use crate::node::{Node, io_error, write_secret};
use crate::open::{self, Part};
use crate::shard::HashSecret;
use commands::host::Unblock;
use config::ConfigStore;
use config::definition::Definition;
use engine::{Entry, Role, SessionStream, Users};
use std::any::Any;
use std::fs;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::DuplexStream;

/// How long a copy may take to delete its keys, and to write that down.
const EMPTY_TIMEOUT: Duration = Duration::from_secs(10);
const EMPTY_PAUSE: Duration = Duration::from_millis(2);

/// A copy's name. No database can have one with a dot.
pub fn copy_name(database: &str, shard: u16) -> String {
    format!("{database}.{shard}")
}

impl Node {
    pub fn copies(&self) -> Vec<Arc<Database>> {
        self.copies.read().values().cloned().collect()
    }

    pub fn copy(&self, name: &str) -> Option<Arc<Database>> {
        self.copies.read().get(name).cloned()
    }

    /// The databases, and behind them the copies: what the clock and the end of the node are for.
    pub(crate) fn datasets(&self) -> Vec<Arc<Database>> {
        let mut all = self.databases();
        all.extend(self.copies());
        all
    }

    /// Opens a copy with what is on its files; nothing, if it is new. It owns no stripe: see [`Database::set_owned`]. `definition`: the
    /// copy's limits, under the database's name. Its ports do not matter. `proxy`: the database whose clients it serves. `secret`: that
    /// of all copies; a copy that has values on flash has it already.
    pub fn open_copy(
        self: &Arc<Self>,
        definition: &Definition,
        shard: u16,
        proxy: Option<&Database>,
        secret: Option<HashSecret>,
    ) -> Result<Arc<Database>, NodeError> {
        let _changes = self.begin_change()?;
        check(definition)?;
        let name = copy_name(&definition.name, shard);
        if self.copy(&name).is_some() {
            return Err(NodeError::Exists(name));
        }
        let alone = Definition { port: 0, tls_port: 0, unixsocket: None, bind: Vec::new(), ..definition.clone() };
        // A copy that is as large as its RAM has no flash.
        let has_flash = definition.memory_limit_bytes > definition.ram_limit_bytes;
        let (ram, flash) = self.check_file_of(&alone, has_flash)?;
        let file = self.copy_file(&name);
        // A copy that is opened again has its files. What other files took of the disk meanwhile does not keep it from its data.
        self.check_room(&name, (ram, if file.exists() { 0 } else { flash }))?;
        write_secret(&file, &alone.file()).map_err(|error| io_error(&file, &error))?;
        let part = Part::Copy { proxy: proxy.map(|proxy| Arc::clone(&proxy.hub)), secret, has_flash };
        let opened = self.open_from(&name, &file, None, part);
        let copy = opened.map_err(|error| NodeError::Io(format!("copy '{name}' cannot be opened: {error}")))?;
        self.copies.write().insert(name, Arc::clone(&copy));
        self.add_to_ledger(&copy);
        Ok(copy)
    }

    /// Closes a copy. Its files stay.
    pub fn close_copy(&self, name: &str) -> Result<(), NodeError> {
        let _changes = self.begin_change()?;
        self.end_copy(name).map(drop)
    }

    /// Removes the files of a copy that is not open. If this fails, it can be called again.
    pub fn discard_copy(&self, name: &str) -> Result<(), NodeError> {
        let _changes = self.begin_change()?;
        if self.copy(name).is_some() {
            return Err(NodeError::Busy(format!("the copy '{name}' is open")));
        }
        let file = self.copy_file(name);
        // This file is removed last, so nothing else is there.
        if !file.exists() {
            return Ok(());
        }
        let alone =
            ConfigStore::from_file_and(&file, &[]).map_err(|error| NodeError::Io(error.to_string()))?.snapshot();
        let has_flash = alone.memory_limit_bytes > alone.ram_limit_bytes;
        let config = self.config_of(&file, has_flash).map_err(|error| io_error(&file, &error))?;
        open::remove_files(name, &config.snapshot()).map_err(NodeError::Io)?;
        fs::remove_file(&file).map_err(|error| io_error(&file, &error))
    }

    /// Closes a copy and removes its files. If this fails, it can be called again.
    pub fn delete_copy(&self, name: &str) -> Result<(), NodeError> {
        let _changes = self.begin_change()?;
        let file = self.copy_file(name);
        let copy = self.end_copy(name)?;
        let removed = open::delete_files(&copy).map_err(NodeError::Io);
        removed.and_then(|()| fs::remove_file(&file).map_err(|error| io_error(&file, &error))).inspect_err(|_| {
            self.copies.write().insert(name.to_owned(), copy);
        })
    }

    fn end_copy(&self, name: &str) -> Result<Arc<Database>, NodeError> {
        let copy = self.copies.write().remove(name).ok_or_else(|| NodeError::NotFound(name.to_owned()))?;
        open::close(&copy);
        self.remove_from_ledger(name);
        Ok(copy)
    }

    fn copy_file(&self, name: &str) -> PathBuf {
        self.state_dir().join("copies").join(format!("{name}.conf"))
    }
}

/// The users of a new database with this password (`config::word`'s form), as the text after `user` of their directives.
pub fn first_users(password: Option<&str>) -> Vec<String> {
    let users = Users::default();
    users.require_password(password.map(config::word_bytes).as_deref());
    users.all_directives()
}

/// These users, with another password of the default one (`config::word`'s form).
pub fn users_with_password(lines: &[String], password: Option<&str>) -> Result<Vec<String>, String> {
    let users = Users::default();
    users.replace(Users::of_directives(lines, false)?);
    users.require_password(password.map(config::word_bytes).as_deref());
    Ok(users.all_directives())
}

impl Database {
    /// Sets which stripes its clients reach; a database outside of a cluster owns all. A command for another stripe comes back
    /// unexecuted, with the error `NOTOWNED`, and so does what waits for a key. When this returns, no client's command runs in a stripe
    /// that is not owned.
    pub fn set_owned(&self, owns: impl Fn(usize) -> bool) {
        self.hub.set_owned(owns);
    }

    /// Deletes all keys of a copy that owns no stripe, and waits until they do not come back after a crash.
    pub fn empty(&self) -> Result<(), String> {
        let failed = |error: io::Error| format!("{} was not emptied: {error}", self.name());
        let mut connection = self.connect_to(0, Role::Loader).map_err(failed)?;
        connection.set_read_timeout(Some(EMPTY_TIMEOUT)).map_err(failed)?;
        connection.write_all(b"FLUSHALL ASYNC\r\n").map_err(failed)?;
        let mut reply = [0; 128];
        let length = connection.read(&mut reply).map_err(failed)?;
        if reply[..length] != *b"+OK\r\n" {
            return Err(failed(io::Error::other(String::from_utf8_lossy(&reply[..length]).trim().to_owned())));
        }
        let (journaling, begun) = (self.journaling(), Instant::now());
        let position = journaling.position();
        // With `no`, the journal is not synchronised for hours; what is written survives the end of the process.
        let is_synchronised = self.definition().persistence != "no";
        while !journaling.is_journal_safe(position) || is_synchronised && journaling.is_durable(position) == Some(false)
        {
            if begun.elapsed() > EMPTY_TIMEOUT {
                return Err(failed(io::Error::other("the journal is behind")));
            }
            std::thread::sleep(EMPTY_PAUSE);
        }
        Ok(())
    }

    /// Opens a session for a proxy of this process. Call this on a worker's thread.
    pub fn connect_proxy(&self, is_divided: bool) -> io::Result<SessionStream> {
        engine::connect(&self.hub, Entry::Proxy { is_divided }, "proxy").map(SessionStream::Memory)
    }

    /// Serves a session of another node's proxy. Call this on a worker's thread.
    pub fn serve_proxy(&self, session: SessionStream, is_divided: bool, name: &str) -> io::Result<()> {
        engine::attend_session(&self.hub, session, Entry::Proxy { is_divided }, name)
    }

    /// For a proxy's short way to a copy of the same process (`engine::Shard::local`).
    pub fn as_hub(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.hub) as Arc<dyn Any + Send + Sync>
    }

    /// Ends the wait of a client. False: it does not wait.
    pub fn unblock(&self, client: u64, how: Unblock) -> bool {
        self.hub.clients.unblock(client, how)
    }

    /// Connects a client in this process, which begins like one that comes by a socket. On a worker's thread, the worker of the same
    /// thread serves it.
    pub fn connect_in_memory(&self) -> io::Result<DuplexStream> {
        engine::connect(&self.hub, Entry::Client, "memory")
    }
}
