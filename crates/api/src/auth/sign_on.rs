//! Owns the sessions that count on this node: its own, or on a member of a cluster those that any of its members has signed. Never knows a
//! password or a header.
//!
//! A session of a cluster is on no disk: the cookie says whose it is and until when, and is signed with the key that all members have. It ends
//! with the *generation* of its user, which is drawn anew with a new password or role, or by itself, or when the user logs out, which the
//! members tell each other. So no request waits for etcd, and who is logged in stays so while it is away.

use super::random;
use super::sessions::{BRIEF_MS, SLIDING_MS, Session, Sessions, csrf_of};
use super::shared::{Known, Shared, Standing};
use super::users::{Users, unknown_users};
use crate::error::ApiError;
use crate::text::{base64url, from_base64url};
use cluster::ids::{ConsoleKey, SessionDigest};
use parking_lot::Mutex;
use ring::{digest, hmac};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The form of a signed cookie: this, the session in JSON as base64url, a dot, and the signature.
const PREFIX: &str = "c1.";
/// A cookie is renewed when it is so old, and not with each request.
const RENEWED_MS: u64 = 10 * 60 * 1000;

#[derive(Clone, Serialize, Deserialize)]
struct Signed {
    /// Of the session: it stays when the cookie is renewed.
    id: String,
    user: String,
    generation: String,
    ends_ms: u64,
    is_brief: bool,
}

impl Signed {
    fn cookie(&self, key: ConsoleKey) -> String {
        let text = base64url(&serde_json::to_vec(self).expect("it is plain data"));
        let signature = hmac::sign(&hmac_key(key), text.as_bytes());
        format!("{PREFIX}{text}.{}", base64url(signature.as_ref()))
    }

    /// `None`: it is none of this cluster's, or not whole.
    fn read(cookie: &str, key: ConsoleKey) -> Option<Signed> {
        let (text, signature) = cookie.strip_prefix(PREFIX)?.split_once('.')?;
        hmac::verify(&hmac_key(key), text.as_bytes(), &from_base64url(signature)?).ok()?;
        serde_json::from_slice(&from_base64url(text)?).ok()
    }

    fn lasting(is_brief: bool) -> u64 {
        if is_brief { BRIEF_MS } else { SLIDING_MS }
    }

    fn digest(&self) -> SessionDigest {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest::digest(&digest::SHA256, self.id.as_bytes()).as_ref());
        SessionDigest(bytes)
    }
}

fn hmac_key(key: ConsoleKey) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &key.0)
}

pub struct SignOn {
    own: Mutex<Sessions>,
    shared: Arc<Shared>,
    /// Those of the cluster that were ended here, until they would have ended by themselves.
    ended: Mutex<HashMap<SessionDigest, u64>>,
}

impl SignOn {
    pub fn new(own: Sessions, shared: Arc<Shared>) -> SignOn {
        SignOn { own: Mutex::new(own), shared, ended: Mutex::default() }
    }

    /// Returns the cookie's value, and the session.
    pub fn begin(&self, users: &Users, user: &str, is_brief: bool, now_ms: u64) -> Result<(String, Session), ApiError> {
        let Standing::Member(known) = self.shared.standing() else {
            return Ok(self.own.lock().begin(user, is_brief, now_ms));
        };
        let (Some(key), Some(generation)) = (known.key, users.generation(user)) else { return Err(unknown_users()) };
        let (id, ends_ms) = (random(32), now_ms + Signed::lasting(is_brief));
        let session = Session { user: user.to_owned(), csrf: csrf_of(&id), renewed: None };
        Ok((Signed { id, user: user.to_owned(), generation, ends_ms, is_brief }.cookie(key), session))
    }

    /// The session of a cookie.
    pub fn find(&self, users: &Users, cookie: &str, now_ms: u64) -> Option<Session> {
        let Standing::Member(known) = self.shared.standing() else { return self.own.lock().find(cookie, now_ms) };
        let signed = Signed::read(cookie, known.key?)?;
        let digest = signed.digest();
        let counts = signed.ends_ms > now_ms
            && !known.has_ended(&digest)
            && !self.ended.lock().contains_key(&digest)
            && users.generation(&signed.user)? == signed.generation;
        let is_old = signed.ends_ms < now_ms + SLIDING_MS - RENEWED_MS;
        counts.then(|| Session {
            csrf: csrf_of(&signed.id),
            renewed: (is_old && !signed.is_brief).then(|| self.renewed(users, cookie, now_ms)),
            user: signed.user,
        })
    }

    /// The cookie of a session that has just been found, with its user's present generation.
    pub fn renewed(&self, users: &Users, cookie: &str, now_ms: u64) -> String {
        let renewed = || {
            let Standing::Member(Known { key: Some(key), .. }) = self.shared.standing() else { return None };
            let signed = Signed::read(cookie, key)?;
            let generation = users.generation(&signed.user)?;
            Some(Signed { generation, ends_ms: now_ms + Signed::lasting(signed.is_brief), ..signed }.cookie(key))
        };
        renewed().unwrap_or_else(|| cookie.to_owned())
    }

    /// Returns whether it was a session for one command.
    pub fn end(&self, cookie: &str, now_ms: u64) -> bool {
        let Standing::Member(known) = self.shared.standing() else { return self.own.lock().end(cookie) };
        let Some(signed) = known.key.and_then(|key| Signed::read(cookie, key)) else { return false };
        // Its cookies of a moment ago end no later.
        let lasting_ms = Signed::lasting(signed.is_brief);
        let mut ended = self.ended.lock();
        ended.retain(|_, ends_ms| *ends_ms > now_ms);
        ended.insert(signed.digest(), now_ms + lasting_ms);
        // A command has its cookie from this node and keeps it to itself, and commands are many: etcd is spared.
        if let Some(records) = self.shared.records().filter(|_| !signed.is_brief) {
            records.end_session(signed.digest(), now_ms, Duration::from_millis(lasting_ms));
        }
        signed.is_brief
    }

    /// Ends all sessions of a user except `kept`. In a cluster the user's generation has ended them, and `kept` is to be renewed.
    pub fn end_of(&self, user: &str, kept: Option<&str>) {
        self.own.lock().end_of(user, kept);
    }

    /// Called every second.
    pub fn look(&self, now_ms: u64) {
        self.own.lock().look(now_ms);
    }

    pub fn keep(&self) {
        self.own.lock().keep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Role;
    use crate::auth::shared::Records;
    use crate::auth::users::ChosenPassword;
    use agent::ChangeError;
    use cluster::keys::Key;
    use cluster::records::{ConsoleEndedRecord, ConsoleKeyRecord, ConsoleUsersRecord, Record, Unknown, encode};
    use cluster::view::View;
    use membership::records::RecordsError;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    const MINUTE_MS: u64 = 60_000;

    /// The records of a cluster, and whether etcd is away.
    #[derive(Default)]
    struct Etcd {
        view: Mutex<(View, i64)>,
        is_away: AtomicBool,
    }

    impl Etcd {
        fn put<R: Record>(&self, key: Key, record: &R) {
            let (view, revision) = &mut *self.view.lock();
            *revision += 1;
            view.apply(&key.to_string(), Some(&encode(key, record).unwrap()), *revision);
        }
    }

    /// A node's way to them.
    struct Member {
        etcd: Arc<Etcd>,
        cluster: Mutex<Option<String>>,
        /// It has read the records since it started.
        has_read: AtomicBool,
    }

    impl Records for Member {
        fn cluster(&self) -> Option<String> {
            self.cluster.lock().clone()
        }

        fn view(&self) -> Option<Arc<View>> {
            self.has_read.load(Relaxed).then(|| Arc::new(self.etcd.view.lock().0.clone()))
        }

        fn put_users(&self, revision: i64, users: &ConsoleUsersRecord) -> Result<(), ChangeError> {
            if self.etcd.is_away.load(Relaxed) {
                return Err(ChangeError::Records(RecordsError::Unknown("it does not answer".to_owned())));
            }
            let found = self.etcd.view.lock().0.console.users.as_ref().map_or(0, |users| users.revision);
            if found != revision {
                return Err(ChangeError::Records(RecordsError::Conflict));
            }
            self.etcd.put(Key::ConsoleUsers, users);
            Ok(())
        }

        fn put_key(&self, key: ConsoleKey) -> Result<(), ChangeError> {
            if self.etcd.view.lock().0.console.key.is_none() {
                self.etcd.put(Key::ConsoleKey, &ConsoleKeyRecord { key, unknown: Unknown::new() });
            }
            Ok(())
        }

        fn end_session(&self, digest: SessionDigest, ended_ms: u64, _: Duration) {
            self.etcd.put(Key::ConsoleEnded(digest), &ConsoleEndedRecord { ended_ms, unknown: Unknown::new() });
        }
    }

    struct Console {
        member: Arc<Member>,
        users: Users,
        sign_on: SignOn,
    }

    /// A node's console, which has its own administrator with this password. It is in no cluster yet.
    fn console(etcd: &Arc<Etcd>, folder: &Path, password: &str, cluster: Option<&str>) -> Console {
        let member = Arc::new(Member {
            etcd: Arc::clone(etcd),
            cluster: Mutex::new(cluster.map(str::to_owned)),
            has_read: AtomicBool::new(false),
        });
        let records = Some(Arc::clone(&member) as Arc<dyn Records>);
        let shared = Arc::new(Shared::open(records, Some(folder.join("console-of-cluster.json"))));
        let (users, _) = Users::open(Some(folder.join("users.json")), Some(password), Arc::clone(&shared), 0).unwrap();
        let own = Sessions::open(folder.join("sessions.json"), 0).unwrap();
        Console { member, users, sign_on: SignOn::new(own, shared) }
    }

    impl Console {
        fn joins(&self) {
            *self.member.cluster.lock() = Some("c1".to_owned());
            self.member.has_read.store(true, Relaxed);
            assert_eq!(self.users.look(Some("an own word"), 0), None);
        }

        fn begin(&self, user: &str, now_ms: u64) -> String {
            self.sign_on.begin(&self.users, user, false, now_ms).unwrap().0
        }

        fn user_of(&self, cookie: &str, now_ms: u64) -> Option<String> {
            self.sign_on.find(&self.users, cookie, now_ms).map(|session| session.user)
        }

        fn knows(&self, password: &str) -> bool {
            self.users.verify("admin", password).unwrap().is_some()
        }
    }

    /// Two nodes of a cluster that the first one began.
    fn two() -> (Arc<Etcd>, [tempfile::TempDir; 2], Console, Console) {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let etcd = Arc::new(Etcd::default());
        let first = console(&etcd, folders[0].path(), "first word", None);
        let second = console(&etcd, folders[1].path(), "second word", None);
        first.joins();
        second.joins();
        (etcd, folders, first, second)
    }

    #[test]
    fn a_session_of_one_node_counts_at_the_other_until_it_ends() {
        let (_etcd, _folders, first, second) = two();
        let (cookie, session) = first.sign_on.begin(&first.users, "admin", false, 0).unwrap();
        let found = second.sign_on.find(&second.users, &cookie, 1).unwrap();
        assert_eq!((found.user.as_str(), &found.csrf, found.renewed), ("admin", &session.csrf, None));
        assert_eq!(second.user_of(&cookie, SLIDING_MS), None);
        // It slides with a new cookie, of which the old one's end is no concern.
        let found = second.sign_on.find(&second.users, &cookie, 11 * MINUTE_MS).unwrap();
        let renewed = found.renewed.expect("it is old enough");
        assert_eq!(found.csrf, session.csrf);
        assert_eq!(first.user_of(&renewed, SLIDING_MS + MINUTE_MS).as_deref(), Some("admin"));
        // Logging out at one node ends both cookies at both.
        assert!(!second.sign_on.end(&cookie, 12 * MINUTE_MS));
        for one in [&first, &second] {
            assert_eq!(one.user_of(&cookie, 12 * MINUTE_MS), None);
            assert_eq!(one.user_of(&renewed, 12 * MINUTE_MS), None);
        }
    }

    #[test]
    fn nobody_else_makes_a_session() {
        let (_etcd, _folders, first, _second) = two();
        let cookie = first.begin("admin", 0);
        let (_, signature) = cookie.rsplit_once('.').unwrap();
        let other = Signed {
            id: random(32),
            user: "admin".to_owned(),
            generation: String::new(),
            ends_ms: u64::MAX,
            is_brief: false,
        };
        let forged = other.cookie(ConsoleKey([0; 32]));
        let (text, _) = forged.rsplit_once('.').unwrap();
        let cut = &cookie[..cookie.len() - 1];
        for wrong in [&forged, &format!("{text}.{signature}"), cut, "c1.", "c1..", "c1.%.%", "", "\u{e9}"] {
            assert_eq!(first.user_of(wrong, 0), None, "{wrong}");
            assert!(!first.sign_on.end(wrong, 0));
        }
        // Without the key, as after a node was removed that knew it, all users log in anew.
        first.member.etcd.view.lock().0.console.key = None;
        assert_eq!(first.user_of(&cookie, 0), None);
        assert_eq!(first.users.look(None, 0), None);
        assert_eq!(first.user_of(&cookie, 0), None, "another key was drawn");
        assert!(first.user_of(&first.begin("admin", 0), 0).is_some());
    }

    fn password(password: &str) -> ChosenPassword<'_> {
        ChosenPassword { password, by: "admin", field: "password" }
    }

    #[test]
    fn a_new_password_a_new_role_and_a_removal_end_sessions_at_all_nodes() {
        let (_etcd, _folders, first, second) = two();
        first.users.create("ann", Role::Admin, "long enough", "admin", 0).unwrap();
        let changes: [fn(&Console); 3] = [
            |node| node.users.set("ann", None, Some(password("another word"))).unwrap(),
            |node| node.users.set("ann", Some(Role::Viewer), None).unwrap(),
            |node| node.users.delete("ann").unwrap(),
        ];
        for change in changes {
            let (cookie, kept) = (first.begin("ann", 0), second.begin("admin", 0));
            assert!(second.user_of(&cookie, 0).is_some());
            change(&second);
            for one in [&first, &second] {
                assert_eq!(one.user_of(&cookie, 0), None);
                assert!(one.user_of(&kept, 0).is_some(), "another user's");
            }
        }
        // A user of the same name is another one.
        let cookie = first.begin("admin", 0);
        let renewed = |node: &Console| node.sign_on.renewed(&node.users, &cookie, 0);
        first.users.set("admin", None, Some(password("third word"))).unwrap();
        assert_eq!(second.user_of(&cookie, 0), None);
        assert!(second.user_of(&renewed(&first), 0).is_some(), "the session that has changed it goes on");
    }

    #[test]
    fn a_joining_nodes_own_users_do_not_count_until_it_leaves() {
        let (_etcd, folders, first, second) = two();
        assert!(first.knows("first word") && second.knows("first word"), "the first node's users are the cluster's");
        assert!(!second.knows("second word"));
        let (_, token) = first.users.create_token("ci", Role::Viewer, None, "admin", 0).unwrap();
        assert!(second.users.token(&token, 1).is_some());
        let cookie = second.begin("admin", 0);
        *second.member.cluster.lock() = None;
        assert!(second.knows("second word") && !second.knows("first word"));
        assert_eq!((second.user_of(&cookie, 0), second.users.token(&token, 1)), (None, None));
        // One that never had users of its own gets its first one.
        std::fs::remove_file(folders[1].path().join("users.json")).unwrap();
        let third = console(&first.member.etcd, folders[1].path(), "third word", Some("c1"));
        *third.member.cluster.lock() = None;
        assert_eq!(third.users.look(Some("third word"), 0), None);
        assert!(third.knows("third word"));
    }

    /// `flintkv cluster init` runs on the directory of a node that has not started yet.
    #[test]
    fn a_cluster_that_has_no_users_gets_the_first_administrator() {
        let (folder, etcd) = (tempfile::tempdir().unwrap(), Arc::new(Etcd::default()));
        let first = console(&etcd, folder.path(), "first word", Some("c1"));
        assert_eq!(first.users.look(Some("first word"), 0), None);
        assert!(first.users.verify("admin", "first word").is_err(), "the records were not read");
        first.member.has_read.store(true, Relaxed);
        assert_eq!(first.users.look(Some("first word"), 0), None);
        assert!(first.knows("first word"));
        assert!(first.user_of(&first.begin("admin", 0), 1).is_some());
    }

    #[test]
    fn without_etcd_those_who_are_known_log_in_and_changes_are_refused() {
        let (etcd, folders, first, second) = two();
        let cookie = first.begin("admin", 0);
        etcd.is_away.store(true, Relaxed);
        let refused = second.users.create("bob", Role::Viewer, "long enough", "admin", 0).unwrap_err();
        assert!(refused.message().contains("the cluster's users could not be changed: etcd"), "{refused:?}");
        assert!(second.knows("first word") && second.user_of(&cookie, 1).is_some());
        // A node that starts meanwhile has what it knew before.
        let again = console(&etcd, folders[1].path(), "ignored", Some("c1"));
        assert!(again.knows("first word") && again.user_of(&cookie, 1).is_some());
        assert!(again.user_of(&again.begin("admin", 0), 1).is_some());
        // What was known of another cluster is nothing.
        *again.member.cluster.lock() = Some("c2".to_owned());
        assert_eq!(again.user_of(&cookie, 1), None);
        let refused = again.users.verify("admin", "first word").unwrap_err();
        assert!(refused.message().contains("does not know the users of its cluster yet"), "{refused:?}");
    }
}
