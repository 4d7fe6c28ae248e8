//! Owns the users: which users exist, who may log in, and which commands were refused. Never knows a socket.
//!
//! `rules` is what a user may do, `catalog` the commands as rules name them, `file` the stored form of users, `role`
//! the users of the console.

mod catalog;
mod file;
mod role;
mod rules;

pub use catalog::Catalog;
pub use role::{Role, is_console, is_loader};
pub use rules::{Selector, User, hex};

use commands::Args;
use commands::host::{AclDenial, Rights};
use parking_lot::{Mutex, RwLock};
use resp::Span;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Within this time, denials of the same kind share one entry of the log.
const SAME_DENIAL_MS: u64 = 60_000;

#[derive(Debug)]
pub struct Users {
    users: RwLock<BTreeMap<Box<str>, Arc<User>>>,
    /// Grows with every change. A connection that sees a new version looks up its user again.
    version: AtomicU64,
    log: Mutex<VecDeque<AclDenial>>,
    log_entries: AtomicU64,
}

impl Default for Users {
    fn default() -> Users {
        let default = User::default_user();
        Users {
            users: RwLock::new(BTreeMap::from([(default.name.clone(), Arc::new(default))])),
            version: AtomicU64::new(1),
            log: Mutex::default(),
            log_entries: AtomicU64::new(0),
        }
    }
}

impl Users {
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn moved(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    pub fn get(&self, name: &[u8]) -> Option<Arc<User>> {
        self.users.read().get(std::str::from_utf8(name).ok()?).cloned().or_else(|| role::find(name))
    }

    pub fn default_user(&self) -> Arc<User> {
        self.get(b"default").expect("the default user cannot be removed")
    }

    /// Whether a new connection is the default user's without authentication.
    pub fn default_is_open(&self) -> bool {
        self.default_user().is_open()
    }

    pub fn all(&self) -> Vec<Arc<User>> {
        self.users.read().values().cloned().collect()
    }

    /// The user, if the password is right. The time does not reveal whether the user exists.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        match self.get(name).filter(|user| !is_console(&user.name)) {
            Some(user) => user.accepts(password).then_some(user),
            None => {
                self.default_user().accepts(password);
                None
            }
        }
    }

    /// ACL SETUSER: applies all rules or none. Returns the changed user.
    pub fn set(&self, name: &[u8], rules: &[Vec<u8>], all_channels: bool) -> Result<Arc<User>, String> {
        let name = std::str::from_utf8(name).ok().filter(|name| is_name(name));
        let name = name.ok_or("ERR Usernames can't contain spaces or null characters")?;
        let mut users = self.users.write();
        let mut user = users.get(name).map_or_else(|| User::new(name, all_channels), |user| User::clone(user));
        apply(&mut user, rules, all_channels)?;
        let user = Arc::new(user);
        users.insert(name.into(), Arc::clone(&user));
        drop(users);
        self.moved();
        Ok(user)
    }

    pub fn remove(&self, name: &[u8]) -> bool {
        let name = std::str::from_utf8(name);
        let removed = name.is_ok_and(|name| self.users.write().remove(name).is_some());
        self.moved();
        removed
    }

    /// `requirepass`: sets the default user's only password, or removes the need for one.
    pub fn require_password(&self, password: Option<&[u8]>) {
        let rules = match password {
            Some(password) => vec![b"resetpass".to_vec(), [b">", password].concat()],
            None => vec![b"nopass".to_vec()],
        };
        self.set(b"default", &rules, true).expect("plain rules");
    }

    /// Replaces all users. The user `default` always exists.
    pub fn replace(&self, new: Vec<User>) {
        let mut users: BTreeMap<Box<str>, Arc<User>> =
            new.into_iter().map(|user| (user.name.clone(), Arc::new(user))).collect();
        let default = User::default_user();
        users.entry(default.name.clone()).or_insert_with(|| Arc::new(default));
        *self.users.write() = users;
        self.moved();
    }

    /// Records a denial. A repetition increases the count of its entry.
    pub fn log(&self, mut denial: AclDenial, max: usize) {
        let mut log = self.log.lock();
        let same = log.iter().position(|known| {
            known.reason == denial.reason
                && known.context == denial.context
                && known.object == denial.object
                && known.user == denial.user
                && denial.updated_ms.saturating_sub(known.created_ms) <= SAME_DENIAL_MS
        });
        if let Some(mut known) = same.and_then(|at| log.remove(at)) {
            known.count += 1;
            known.updated_ms = denial.updated_ms;
            known.client = denial.client;
            log.push_front(known);
        } else {
            denial.id = self.log_entries.fetch_add(1, Ordering::Relaxed);
            log.push_front(denial);
        }
        log.truncate(max);
    }

    pub fn logged(&self, count: usize) -> Vec<AclDenial> {
        self.log.lock().iter().take(count).cloned().collect()
    }

    pub fn clear_log(&self) {
        self.log.lock().clear();
    }
}

fn is_name(name: &str) -> bool {
    !name.contains(|c: char| c.is_ascii_whitespace() || c == '\0') && !is_console(name)
}

/// Applies all rules. Words in parentheses are joined first. The error is the whole reply.
fn apply(user: &mut User, rules: &[Vec<u8>], all_channels: bool) -> Result<(), String> {
    for rule in joined(rules)? {
        user.apply(&rule, all_channels).map_err(|refusal| {
            // The text after `>` is a password.
            let shown = match rule.first() {
                Some(b'>') => ">(password)".to_owned(),
                _ => String::from_utf8_lossy(&rule).into_owned(),
            };
            format!("ERR Error in ACL SETUSER modifier '{shown}': {}", refusal.text())
        })?;
    }
    Ok(())
}

/// A user that only a session has. The error is the whole reply.
pub fn with_rules(name: &str, rules: &[Vec<u8>]) -> Result<User, String> {
    let mut user = User::new(name, false);
    apply(&mut user, rules, false)?;
    Ok(user)
}

/// A rule like `(+get ~a*)` may arrive as several words.
fn joined(words: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
    let mut rules: Vec<Vec<u8>> = Vec::new();
    let mut open: Option<Vec<u8>> = None;
    for word in words {
        match &mut open {
            Some(selector) => {
                selector.push(b' ');
                selector.extend_from_slice(word);
            }
            None if word.first() == Some(&b'(') => open = Some(word.clone()),
            None => rules.push(word.clone()),
        }
        if open.as_ref().is_some_and(|selector| selector.last() == Some(&b')')) {
            rules.extend(open.take());
        }
    }
    match open {
        None => Ok(rules),
        Some(selector) => {
            let shown = String::from_utf8_lossy(&selector);
            Err(format!("ERR Unmatched parenthesis in acl selector starting at '{shown}'."))
        }
    }
}

/// Takes any text as rules of a user, and checks any command line against them. The accepted rules make a line that
/// makes the same user again. For the fuzz target.
#[doc(hidden)]
pub fn try_rules(rules: &[u8], line: &[u8]) {
    let words = |text: &[u8]| -> Vec<Vec<u8>> { text.split(u8::is_ascii_whitespace).map(<[u8]>::to_vec).collect() };
    let mut user = User::new("fuzz", false);
    let Ok(rules) = joined(&words(rules)) else { return };
    for rule in rules {
        let before = user.clone();
        if user.apply(&rule, false).is_err() {
            user = before;
        }
    }
    let mut again = User::new("fuzz", false);
    let kept: Vec<Vec<u8>> = user.rules().iter().flat_map(|rule| words(rule.as_bytes())).collect();
    apply(&mut again, &kept, false).expect("a user's own line is accepted");
    assert_eq!(again.line(), user.line());
    let (mut bytes, mut spans) = (Vec::new(), Vec::new());
    for word in words(line) {
        spans.push(Span { start: bytes.len() as u32, len: word.len() as u32 });
        bytes.extend_from_slice(&word);
    }
    let args = Args::new(&bytes, &spans);
    let catalog = Catalog::get();
    let Some(id) = catalog.find(&args[0]) else { return };
    let mut positions = Vec::new();
    catalog.entries[id].row.keys.positions(&args, &mut positions);
    let may = |user: &User| user.check(id, catalog.entries[id].row, args, &positions);
    assert_eq!(may(&again), may(&user));
}

#[cfg(test)]
mod tests;
