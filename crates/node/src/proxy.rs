//! Owns how a database's endpoint becomes a proxy: its clients' commands go to the copies that own the keys. Never knows how a command
//! is distributed (`engine::Routes`), or which nodes there are.
//!
//! ```text
//! state-dir/proxies/NAME.conf   a proxy's configuration, written anew at each opening
//! ```

use crate::database::Database;
use crate::definition::{NodeError, check};
use crate::node::{Node, io_error, write_secret};
use crate::open::{self, Part};
use crate::shard::HashSecret;
use crate::shared_settings::{OF_COPIES, SHARED};
use commands::host::{Space, Unblock};
use config::definition::Definition;
use engine::{Hub, Routes, SessionStream, Shard};
use std::any::Any;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use store::STRIPES;

/// A shard whose copy is in this process.
#[derive(Debug)]
struct LocalShard {
    name: String,
    copy: Weak<Database>,
    is_divided: bool,
}

impl Shard for LocalShard {
    fn name(&self) -> &str {
        &self.name
    }

    fn connect(&self) -> io::Result<SessionStream> {
        self.copy.upgrade().ok_or(io::ErrorKind::NotConnected)?.connect_proxy(self.is_divided)
    }

    fn local(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(self.copy.upgrade()?.as_hub())
    }

    fn unblock(&self, client: u64, how: Unblock) -> bool {
        self.copy.upgrade().is_some_and(|copy| copy.unblock(client, how))
    }
}

/// Sets a directive of the proxy at its copies.
fn pass_on(proxy: &Hub, copies: &[Weak<Database>], name: &str) {
    for (name, value) in proxy.config.get(&[name]) {
        for copy in copies.iter().filter_map(Weak::upgrade) {
            if let Err(error) = copy.hub.config.set(&[(&name, &value)]) {
                tracing::warn!("{} does not take {name} of its database: {error}", copy.name());
            }
        }
    }
}

impl Node {
    /// Opens a proxy: an endpoint without data for the clients of a database whose shards are elsewhere. `definition`: its ports, and as
    /// limits the RAM for clients; `users`: the text after `user` of their directives.
    pub fn open_proxy(
        self: &Arc<Self>,
        definition: &Definition,
        users: &[String],
        secret: HashSecret,
        routes: Routes,
    ) -> Result<Arc<Database>, NodeError> {
        let _changes = self.begin_change()?;
        check(definition)?;
        let mut definition = definition.clone();
        if definition.bind.is_empty() {
            definition.bind = self.config().words("bind");
        }
        let name = &definition.name;
        if self.database(name).is_some() || self.failed().contains_key(name) {
            return Err(NodeError::Exists(name.clone()));
        }
        let limits = self.check_file_of(&definition, false)?;
        self.check_room(name, limits)?;
        let file = self.state_dir().join("proxies").join(format!("{name}.conf"));
        let users: String = users.iter().map(|line| format!("user {line}\n")).collect();
        write_secret(&file, &(definition.file() + &users)).map_err(|error| io_error(&file, &error))?;
        let opened = self.open_from(name, &file, None, Part::Proxy { secret, routes });
        let proxy =
            opened.map_err(|error| NodeError::Io(format!("the proxy of '{name}' cannot be opened: {error}")))?;
        self.enter(&proxy);
        Ok(proxy)
    }

    /// Closes a proxy with its clients.
    pub fn close_proxy(&self, name: &str) -> Result<(), NodeError> {
        let _changes = self.begin_change()?;
        let proxy = self.database(name).filter(|database| database.is_of_cluster());
        let proxy = proxy.ok_or_else(|| NodeError::NotFound(name.to_owned()))?;
        open::close(&proxy);
        self.leave(&proxy);
        let file = self.state_dir().join("proxies").join(format!("{name}.conf"));
        // Best effort: the file is written anew when it is needed.
        let _ = std::fs::remove_file(file);
        Ok(())
    }
}

impl Database {
    /// Whether it is the endpoint of a cluster's database, whose data are in shards.
    pub fn is_of_cluster(&self) -> bool {
        self.hub.routes.get().is_some_and(|routes| routes.others.is_some())
    }

    /// Grows whenever its users change.
    pub fn users_version(&self) -> u64 {
        self.hub.users.version()
    }

    /// Its users, as the text after `user` of their directives.
    pub fn user_lines(&self) -> Vec<String> {
        self.hub.users.all_directives()
    }

    /// Takes exactly these users.
    pub fn set_users(&self, lines: &[String]) -> Result<(), String> {
        self.hub.set_users(lines)
    }

    /// Changes the default user's password (`config::word`'s form), as `requirepass` does.
    pub fn require_password(&self, password: Option<&str>) {
        self.hub.users.require_password(password.map(config::word_bytes).as_deref());
    }

    /// The settings that all proxies of a database share, as CONFIG GET shows them.
    pub fn shared_settings(&self) -> Vec<(String, String)> {
        self.hub.config.get(SHARED)
    }

    /// Gives a copy of the database the settings that say how values are kept and commands run.
    pub fn pass_settings_on(&self, copy: &Arc<Database>) {
        let copy = [Arc::downgrade(copy)];
        OF_COPIES.iter().for_each(|name| pass_on(&self.hub, &copy, name));
    }

    /// Takes the functions that the shards of its database have, as of this revision; of a proxy or a copy.
    pub fn take_functions(&self, revision: i64, codes: &[Vec<u8>]) -> Result<(), String> {
        self.hub.take_functions(revision, codes)
    }

    /// The revision of the functions that it has taken; -1: none yet.
    pub fn functions_revision(&self) -> i64 {
        self.hub.scripts.agreed.load(Relaxed)
    }

    /// Says that a copy has the settings of its database as of this revision.
    pub fn note_settings(&self, revision: i64) {
        self.hub.settings_revision.store(revision, Relaxed);
    }

    /// A message of another node's proxy, for the subscribers here.
    pub fn publish_here(&self, is_sharded: bool, channel: &[u8], message: &[u8]) {
        let space = if is_sharded { Space::Shard } else { Space::Channel };
        self.hub.publish_here(space, channel, message);
    }

    /// Refuses its clients' commands, or serves them again.
    pub fn set_paused(&self, is_paused: bool) {
        self.hub.clients.suspended.store(is_paused, Relaxed);
    }

    /// From now on the database keeps no data: each of the copies, which were opened for it in this process, owns an equal run of stripes.
    /// Only once, and before the first client.
    pub fn serve_from(&self, copies: &[Arc<Database>]) -> Result<(), String> {
        let count = copies.len();
        let owner = |stripe: usize| (stripe * count / STRIPES) as u16;
        for (number, copy) in copies.iter().enumerate() {
            copy.set_owned(|stripe| usize::from(owner(stripe)) == number);
        }
        let shard = |copy: &Arc<Database>| -> Arc<dyn Shard> {
            Arc::new(LocalShard { name: copy.name().to_owned(), copy: Arc::downgrade(copy), is_divided: count > 1 })
        };
        let routes = Routes::new(copies.iter().map(shard).collect(), owner);
        let copies: Vec<Weak<Database>> = copies.iter().map(Arc::downgrade).collect();
        OF_COPIES.iter().for_each(|name| pass_on(&self.hub, &copies, name));
        let proxy = Arc::downgrade(&self.hub);
        self.hub.config.subscribe(move |draft| {
            let Some(proxy) = proxy.upgrade() else { return };
            for name in OF_COPIES.iter().filter(|&&of_copies| draft.sets(|name| name == of_copies)) {
                pass_on(&proxy, &copies, name);
            }
        });
        self.hub.routes.set(routes).map_err(|_| format!("{} is a proxy already", self.name()))
    }
}
