//! Owns the open sessions of a node that is in no cluster, on disk in `sessions.json` so that they survive a restart of the node. Never knows a password or a
//! cookie's value, and never reads the clock.
//!
//! A cookie is 256 random bits, which nobody can guess. Only its SHA-256 is stored, so that nobody can log in with the
//! content of the file. The CSRF token is another hash of the cookie, and is not stored.

use super::{random, sha256};
use crate::lines::replace;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

/// A session ends after this time without a request.
pub const SLIDING_MS: u64 = 12 * 3600 * 1000;
/// The same for a session that was opened for one `flintkv` command.
pub const BRIEF_MS: u64 = 10 * 60 * 1000;
/// The most open sessions of all users. The one that was idle longest is dropped for a new one.
const SESSIONS_MAX: usize = 1000;
/// How old the time of a session's last use in the file may be.
const KEEP_MS: u64 = 60 * 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub user: String,
    pub csrf: String,
    /// The cookie's next value, if it is to change.
    pub renewed: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Open {
    /// The hash of the cookie's value.
    sha256: String,
    user: String,
    used_ms: u64,
    #[serde(default)]
    is_brief: bool,
}

impl Open {
    fn ends_ms(&self) -> u64 {
        self.used_ms + if self.is_brief { BRIEF_MS } else { SLIDING_MS }
    }
}

#[derive(Default)]
pub struct Sessions {
    /// The key is the hash of the cookie's value, so that the duration of a look-up reveals nothing about the value.
    open: HashMap<String, Open>,
    path: Option<PathBuf>,
    /// The time of the first use of a session that is not in the file yet.
    unkept_ms: Option<u64>,
}

impl Sessions {
    pub fn open(path: PathBuf, now_ms: u64) -> io::Result<Sessions> {
        let stored: Vec<Open> = match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
                // All users must log in again.
                tracing::warn!("sessions.json cannot be read: {error}");
                Vec::new()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let open = stored.into_iter().take(SESSIONS_MAX).map(|session| (session.sha256.clone(), session)).collect();
        let mut sessions = Sessions { open, path: Some(path), unkept_ms: None };
        sessions.forget(now_ms);
        Ok(sessions)
    }

    /// Returns the cookie's value, and the session.
    pub fn begin(&mut self, user: &str, is_brief: bool, now_ms: u64) -> (String, Session) {
        self.forget(now_ms);
        if self.open.len() >= SESSIONS_MAX
            && let Some(quietest) = self.open.values().min_by_key(|open| open.used_ms).map(|open| open.sha256.clone())
        {
            self.open.remove(&quietest);
        }
        let id = random(32);
        let sha256 = sha256(&id);
        self.open.insert(sha256.clone(), Open { sha256, user: user.to_owned(), used_ms: now_ms, is_brief });
        self.keep();
        let session = Session { user: user.to_owned(), csrf: csrf_of(&id), renewed: None };
        (id, session)
    }

    /// The session of a cookie. Finding it extends it.
    pub fn find(&mut self, id: &str, now_ms: u64) -> Option<Session> {
        let open = self.open.get_mut(&sha256(id))?;
        if open.ends_ms() <= now_ms {
            self.end(id);
            return None;
        }
        open.used_ms = open.used_ms.max(now_ms);
        self.unkept_ms.get_or_insert(now_ms);
        Some(Session { user: open.user.clone(), csrf: csrf_of(id), renewed: None })
    }

    /// Returns whether it was a session for one command.
    pub fn end(&mut self, id: &str) -> bool {
        let ended = self.open.remove(&sha256(id));
        if ended.is_some() {
            self.keep();
        }
        ended.is_some_and(|open| open.is_brief)
    }

    /// Ends all sessions of a user except `kept`: changing the password ends the others.
    pub fn end_of(&mut self, user: &str, kept: Option<&str>) {
        let kept = kept.map(sha256);
        self.open.retain(|sha256, open| open.user != user || Some(sha256) == kept.as_ref());
        self.keep();
    }

    /// Called every second.
    pub fn look(&mut self, now_ms: u64) {
        if self.unkept_ms.is_some_and(|since_ms| now_ms >= since_ms + KEEP_MS) {
            self.forget(now_ms);
            self.keep();
        }
    }

    fn forget(&mut self, now_ms: u64) {
        self.open.retain(|_, open| open.ends_ms() > now_ms);
    }

    /// Writes the file. If that fails, sessions continue, but end with the node.
    pub fn keep(&mut self) {
        self.unkept_ms = None;
        let Some(path) = &self.path else { return };
        let open: Vec<&Open> = self.open.values().collect();
        let outcome = serde_json::to_vec(&open).map_err(io::Error::from).and_then(|text| replace(path, &text));
        if let Err(error) = outcome {
            tracing::error!("sessions.json cannot be written: {error}");
        }
    }
}

pub fn csrf_of(id: &str) -> String {
    sha256(&format!("csrf of {id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_lives_twelve_hours_from_its_last_use() {
        let mut sessions = Sessions::default();
        let (id, session) = sessions.begin("ann", false, 0);
        assert_eq!(sessions.find(&id, SLIDING_MS - 1), Some(session));
        assert!(sessions.find(&id, 2 * SLIDING_MS - 2).is_some(), "it slides");
        assert!(sessions.find(&id, 3 * SLIDING_MS - 2).is_none());
        assert!(sessions.find(&id, 0).is_none(), "what has ended stays ended");
        assert!(sessions.find("", 0).is_none());
    }

    #[test]
    fn a_brief_session_ends_ten_minutes_after_its_last_use() {
        let mut sessions = Sessions::default();
        let (id, _) = sessions.begin("ann", true, 0);
        assert!(sessions.find(&id, BRIEF_MS - 1).is_some());
        assert!(sessions.find(&id, 2 * BRIEF_MS - 1).is_none());
    }

    #[test]
    fn ids_are_new_each_time_and_the_table_is_bounded() {
        let mut sessions = Sessions::default();
        let (first, one) = sessions.begin("ann", false, 0);
        let (second, other) = sessions.begin("ann", false, 1);
        assert_ne!(first, second);
        assert_ne!(one.csrf, other.csrf);
        (0..SESSIONS_MAX as u64).for_each(|at| drop(sessions.begin("bob", false, 2 + at)));
        assert_eq!(sessions.open.len(), SESSIONS_MAX);
        assert!(sessions.find(&first, 10).is_none(), "the quietest made room");
    }

    #[test]
    fn a_users_sessions_end_together() {
        let mut sessions = Sessions::default();
        let (kept, _) = sessions.begin("ann", false, 0);
        let (ended, _) = sessions.begin("ann", false, 0);
        let (other, _) = sessions.begin("bob", false, 0);
        sessions.end_of("ann", Some(&kept));
        assert!(sessions.find(&kept, 0).is_some());
        assert!(sessions.find(&ended, 0).is_none());
        assert!(sessions.find(&other, 0).is_some());
        sessions.end(&other);
        assert!(sessions.find(&other, 0).is_none());
    }

    #[test]
    fn sessions_survive_a_restart_and_their_cookies_are_not_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.json");
        let mut sessions = Sessions::open(path.clone(), 0).unwrap();
        let (kept, session) = sessions.begin("ann", false, 0);
        let (ended, _) = sessions.begin("ann", false, 0);
        let (late, _) = sessions.begin("bob", false, 0);
        sessions.end(&ended);
        assert!(sessions.find(&late, 1000).is_some());
        // After a kill, the file has the uses up to a minute before.
        sessions.look(1000 + KEEP_MS - 1);
        assert!(Sessions::open(path.clone(), SLIDING_MS).unwrap().open.is_empty());
        sessions.look(1000 + KEEP_MS);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&kept) && !text.contains(&session.csrf), "{text}");

        let mut again = Sessions::open(path.clone(), 5000).unwrap();
        assert_eq!(again.find(&kept, 5000), Some(session));
        assert!(again.find(&ended, 5000).is_none());
        let mut later = Sessions::open(path.clone(), SLIDING_MS).unwrap();
        assert!(later.find(&kept, SLIDING_MS).is_none() && later.find(&late, SLIDING_MS).is_some());
        std::fs::write(&path, "no JSON").unwrap();
        assert!(Sessions::open(path, 0).unwrap().open.is_empty());
    }
}
