//! Owns the open sessions: in memory, lost with the process. Never knows a password, and never reads the clock.

use super::random;
use std::collections::HashMap;

/// A session ends after this time without a request.
pub const SLIDING_MS: u64 = 12 * 3600 * 1000;
/// The most open sessions of all users. The one that was idle longest is dropped for a new one.
const SESSIONS_MAX: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub user: String,
    pub csrf: String,
    used_ms: u64,
}

#[derive(Default)]
pub struct Sessions {
    /// By the cookie's value: 256 random bits, so that the time of a look-up reveals nothing.
    open: HashMap<String, Session>,
}

impl Sessions {
    /// Returns the cookie's value, and the session.
    pub fn begin(&mut self, user: &str, now_ms: u64) -> (String, Session) {
        self.open.retain(|_, session| session.used_ms + SLIDING_MS > now_ms);
        if self.open.len() >= SESSIONS_MAX
            && let Some(quietest) =
                self.open.iter().min_by_key(|(_, session)| session.used_ms).map(|(id, _)| id.clone())
        {
            self.open.remove(&quietest);
        }
        let session = Session { user: user.to_owned(), csrf: random(24), used_ms: now_ms };
        let id = random(32);
        self.open.insert(id.clone(), session.clone());
        (id, session)
    }

    /// The session of a cookie. Finding it extends it by twelve hours from now.
    pub fn find(&mut self, id: &str, now_ms: u64) -> Option<Session> {
        let session = self.open.get_mut(id)?;
        if session.used_ms + SLIDING_MS <= now_ms {
            self.open.remove(id);
            return None;
        }
        session.used_ms = session.used_ms.max(now_ms);
        Some(session.clone())
    }

    pub fn end(&mut self, id: &str) {
        self.open.remove(id);
    }

    /// Ends all sessions of a user except `kept`: changing the password ends the others.
    pub fn end_of(&mut self, user: &str, kept: Option<&str>) {
        self.open.retain(|id, session| session.user != user || Some(id.as_str()) == kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_lives_twelve_hours_from_its_last_use() {
        let mut sessions = Sessions::default();
        let (id, session) = sessions.begin("ann", 0);
        assert_eq!(sessions.find(&id, SLIDING_MS - 1).map(|session| session.csrf), Some(session.csrf));
        assert!(sessions.find(&id, 2 * SLIDING_MS - 2).is_some(), "it slides");
        assert!(sessions.find(&id, 3 * SLIDING_MS - 2).is_none());
        assert!(sessions.find(&id, 0).is_none(), "what has ended stays ended");
        assert!(sessions.find("", 0).is_none());
    }

    #[test]
    fn ids_are_new_each_time_and_the_table_is_bounded() {
        let mut sessions = Sessions::default();
        let (first, _) = sessions.begin("ann", 0);
        let (second, _) = sessions.begin("ann", 1);
        assert_ne!(first, second);
        (0..SESSIONS_MAX as u64).for_each(|at| drop(sessions.begin("bob", 2 + at)));
        assert_eq!(sessions.open.len(), SESSIONS_MAX);
        assert!(sessions.find(&first, 10).is_none(), "the quietest made room");
    }

    #[test]
    fn a_users_sessions_end_together() {
        let mut sessions = Sessions::default();
        let (kept, _) = sessions.begin("ann", 0);
        let (ended, _) = sessions.begin("ann", 0);
        let (other, _) = sessions.begin("bob", 0);
        sessions.end_of("ann", Some(&kept));
        assert!(sessions.find(&kept, 0).is_some());
        assert!(sessions.find(&ended, 0).is_none());
        assert!(sessions.find(&other, 0).is_some());
        sessions.end(&other);
        assert!(sessions.find(&other, 0).is_none());
    }
}
