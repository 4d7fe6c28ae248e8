//! Owns the console's users and tokens: on disk in `users.json`, or in the records of the cluster that the node is a member of. Never knows a
//! session.
//!
//! In a cluster the users in `users.json` do not count; they stay there, and count again when the node is a member no more.
//!
//! Passwords are stored as Argon2id with 7 MiB and 5 passes, which OWASP's password storage cheat sheet calls equal to
//! 19 MiB and 2 passes: a login must take little memory, because the node keeps its RAM limit. Tokens are 256 random
//! bits, which nobody can guess, so a slow hash instead of SHA-256 would only cost time for every request.

use super::shared::{Known, Shared, Standing, is_conflict};
use super::{Role, random, same, sha256};
use crate::error::ApiError;
use crate::lines::replace;
use agent::ChangeError;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};
use cluster::records::ConsoleUsersRecord;
use parking_lot::{Mutex, RwLock};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use utoipa::ToSchema;

const NAME_BYTES_MAX: usize = 64;
const PASSWORD_BYTES_MIN: usize = 8;
/// A longer password would make a login expensive.
const PASSWORD_BYTES_MAX: usize = 1024;
const USERS_MAX: usize = 1000;
const TOKENS_MAX: usize = 1000;
pub const TOKEN_PREFIX: &str = "fkv_";
/// The user that the first start creates.
pub const ADMIN: &str = "admin";
/// How often a change of the cluster's users is made anew because somebody else has changed them.
const ATTEMPTS: usize = 5;

/// Fields of a newer version. Nodes of two versions write the cluster's record.
type Unknown = Map<String, Value>;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct User {
    name: String,
    role: Role,
    /// The hash of the password, as a PHC string.
    hash: String,
    created_ms: u64,
    last_login_ms: Option<u64>,
    #[serde(default)]
    must_change_password: bool,
    /// Who chose the password that must be changed. Empty: the node.
    #[serde(default)]
    password_by: String,
    /// Drawn anew in a cluster when the user's sessions are to end.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    generation: String,
    #[serde(flatten)]
    unknown: Unknown,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Token {
    id: String,
    name: String,
    role: Role,
    /// The hash of the whole token, in hexadecimal.
    sha256: String,
    created_ms: u64,
    expires_ms: Option<u64>,
    #[serde(default)]
    created_by: String,
    #[serde(flatten)]
    unknown: Unknown,
}

/// All users and tokens.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    users: Vec<User>,
    tokens: Vec<Token>,
    #[serde(flatten)]
    unknown: Unknown,
}

impl Stored {
    pub fn of_record(record: &ConsoleUsersRecord) -> serde_json::Result<Stored> {
        serde_json::from_value(Value::Object(record.0.clone()))
    }

    fn to_record(&self) -> Result<ConsoleUsersRecord, ApiError> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => Ok(ConsoleUsersRecord(fields)),
            other => Err(ApiError::failed(format!("a bug: users are {other:?}"))),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct UserInfo {
    pub name: String,
    pub role: Role,
    pub created_ms: u64,
    /// In a cluster: at this node, since it has started.
    pub last_login_ms: Option<u64>,
    /// Somebody else has chosen the user's password. Until the user changes it, every other request is refused.
    pub must_change_password: bool,
    /// The user who has chosen the password; empty: the node, at its first start.
    pub password_by: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct TokenInfo {
    pub id: String,
    pub name: String,
    pub role: Role,
    pub created_ms: u64,
    pub created_by: String,
    /// When the token ends; null: never.
    pub expires_ms: Option<u64>,
}

/// A password that is to be set.
pub struct ChosenPassword<'a> {
    pub password: &'a str,
    /// Who chooses it. If it is another user, the password is temporary.
    pub by: &'a str,
    /// Of the request that has it.
    pub field: &'static str,
}

pub struct Users {
    path: Option<PathBuf>,
    /// The node's own.
    own: RwLock<Arc<Stored>>,
    shared: Arc<Shared>,
    /// When users of the cluster have logged in here.
    logins: Mutex<BTreeMap<String, u64>>,
    /// The cluster of which the log says what becomes of the node's own users.
    told: Mutex<Option<String>>,
    /// Only one password is hashed at a time, which bounds the memory and the processor time of a flood of logins.
    hashing: Mutex<()>,
    /// The password of an unknown user is compared with this hash, so that the answer takes as long as for a known
    /// user.
    nobody: String,
}

impl Users {
    /// Reads `users.json`. Without that file, creates the first administrator and returns the password if it was
    /// generated; but not on a member of a cluster, whose users are the cluster's.
    pub fn open(
        path: Option<PathBuf>,
        given: Option<&str>,
        shared: Arc<Shared>,
        now_ms: u64,
    ) -> io::Result<(Users, Option<String>)> {
        let text = match &path {
            None => None,
            Some(path) => match std::fs::read(path) {
                Ok(text) => Some(text),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            },
        };
        let is_alone = matches!(shared.standing(), Standing::Alone);
        let nobody = hash(&random(16))?;
        let mut users = Users {
            path,
            own: RwLock::default(),
            shared,
            logins: Mutex::default(),
            told: Mutex::default(),
            hashing: Mutex::default(),
            nobody,
        };
        if let Some(text) = text {
            let stored: Stored = serde_json::from_slice(&text)
                .map_err(|error| io::Error::other(format!("users.json cannot be read: {error}")))?;
            users.own = RwLock::new(Arc::new(stored));
            return Ok((users, None));
        }
        if !is_alone {
            return Ok((users, None));
        }
        let made_up = users.make_admin(given, now_ms).map_err(|error| io::Error::other(error.message().to_owned()))?;
        Ok((users, made_up))
    }

    /// Returns the password if it was generated.
    fn make_admin(&self, given: Option<&str>, now_ms: u64) -> Result<Option<String>, ApiError> {
        let made_up = given.is_none().then(|| random(15));
        let chosen = given.or(made_up.as_deref()).unwrap_or_default();
        let admin = User {
            name: ADMIN.to_owned(),
            role: Role::Admin,
            hash: hash(chosen).map_err(|error| ApiError::failed(error.to_string()))?,
            created_ms: now_ms,
            last_login_ms: None,
            must_change_password: made_up.is_some(),
            password_by: String::new(),
            generation: String::new(),
            unknown: Unknown::new(),
        };
        self.change_own(|stored| {
            stored.users.push(admin.clone());
            Ok(())
        })?;
        Ok(made_up)
    }

    /// Those who count now. On a member that does not know the cluster's users yet, nobody.
    fn stored(&self) -> Arc<Stored> {
        match self.shared.standing() {
            Standing::Alone => Arc::clone(&self.own.read()),
            Standing::Member(known) => known.users.unwrap_or_default(),
        }
    }

    /// If it cannot be written, nothing is changed. `change` may be called several times.
    fn change<T>(&self, change: impl Fn(&mut Stored) -> Result<T, ApiError>) -> Result<T, ApiError> {
        match self.shared.standing() {
            Standing::Alone => self.change_own(change),
            Standing::Member(_) => self.change_clusters(change),
        }
    }

    fn change_own<T>(&self, change: impl Fn(&mut Stored) -> Result<T, ApiError>) -> Result<T, ApiError> {
        let mut stored = self.own.write();
        let mut changed = Stored::clone(&stored);
        let outcome = change(&mut changed)?;
        if let Some(path) = &self.path {
            let text = serde_json::to_vec_pretty(&changed).map_err(|error| ApiError::failed(error.to_string()))?;
            replace(path, &text)
                .map_err(|error| ApiError::failed(format!("cannot write {}: {error}", path.display())))?;
        }
        *stored = Arc::new(changed);
        Ok(outcome)
    }

    fn change_clusters<T>(&self, change: impl Fn(&mut Stored) -> Result<T, ApiError>) -> Result<T, ApiError> {
        for _ in 0..ATTEMPTS {
            let (Standing::Member(known), Some(records)) = (self.shared.standing(), self.shared.records()) else {
                return Err(ApiError::busy("this node is a member of its cluster no more"));
            };
            let users = known.users.clone().ok_or_else(unknown_users)?;
            let mut changed = Stored::clone(&users);
            let outcome = change(&mut changed)?;
            match records.put_users(known.revision, &changed.to_record()?) {
                Ok(()) => return Ok(outcome),
                Err(error) if is_conflict(&error) => {}
                Err(ChangeError::Records(error)) => {
                    return Err(ApiError::failed(format!("the cluster's users could not be changed: {error}"))
                        .hint("they can be changed while etcd answers; those that are known can log in meanwhile"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(ApiError::busy("others change the cluster's users all the time"))
    }

    /// Called every second: what a member has to do beside requests. A node that has left its cluster and never had users of its own gets the
    /// first administrator, as does a member of a cluster without users; returns the password if it was generated.
    pub fn look(&self, given: Option<&str>, now_ms: u64) -> Option<String> {
        let known = match self.shared.standing() {
            Standing::Alone => {
                if self.told.lock().take().is_some() {
                    tracing::info!("the console's users are this node's own again, those in users.json");
                }
                if !self.own.read().users.is_empty() {
                    return None;
                }
                return self.make_admin(given, now_ms).unwrap_or_else(|error| {
                    tracing::error!("the console has no users: {}", error.message());
                    None
                });
            }
            Standing::Member(known) => known,
        };
        let mut made_up = None;
        if let Some(records) = self.shared.records().filter(|_| known.is_read()) {
            // A node that was made a member before its console had users: somebody must be able to log in.
            if known.users.is_none() && self.own.read().users.is_empty() {
                made_up = self.make_admin(given, now_ms).unwrap_or_else(|error| {
                    tracing::error!("the console has no users: {}", error.message());
                    None
                });
            }
            self.bring(&known, records);
        }
        self.shared.keep();
        self.tell(&known);
        made_up
    }

    /// The first node's users become the cluster's: see `membership::init`. Without them, those of the first console do.
    fn bring(&self, known: &Known, records: &dyn super::shared::Records) {
        let own = Arc::clone(&self.own.read());
        let brought = match &known.users {
            None if !own.users.is_empty() => own.to_record().and_then(|users| Ok(records.put_users(0, &users)?)),
            _ => Ok(()),
        };
        let drawn = match known.key {
            None => records.put_key(super::shared::draw_key()).map_err(ApiError::from),
            Some(_) => Ok(()),
        };
        for error in [brought.err(), drawn.err()].into_iter().flatten() {
            tracing::debug!("the console's records were not made: {}", error.message());
        }
    }

    /// Says once which users do not count any more.
    fn tell(&self, known: &Known) {
        let Some(users) = &known.users else { return };
        let mut told = self.told.lock();
        if told.as_ref() == Some(&known.cluster) {
            return;
        }
        *told = Some(known.cluster.clone());
        let own = self.own.read();
        let is_clusters = |user: &&User| users.users.iter().any(|of| of.name == user.name && of.hash == user.hash);
        let aside: Vec<&str> =
            own.users.iter().filter(|user| !is_clusters(user)).map(|user| user.name.as_str()).collect();
        if !aside.is_empty() {
            tracing::warn!(
                "the console's users are the cluster's. Users that only this node had do not count while it is a member, and stay in users.json: {}",
                aside.join(", ")
            );
        }
        if !own.tokens.is_empty() {
            let names: Vec<&str> = own.tokens.iter().map(|token| token.name.as_str()).collect();
            let is_clusters = |token: &Token| users.tokens.iter().any(|of| of.id == token.id);
            if !own.tokens.iter().all(is_clusters) {
                tracing::warn!("API tokens that only this node had do not count either: {}", names.join(", "));
            }
        }
    }

    /// Whose sessions count. `None`: there is no such user.
    pub fn generation(&self, name: &str) -> Option<String> {
        self.stored().users.iter().find(|user| user.name == name).map(|user| user.generation.clone())
    }

    fn is_member(&self) -> bool {
        matches!(self.shared.standing(), Standing::Member(_))
    }

    fn with_login(&self, mut card: UserInfo) -> UserInfo {
        if self.is_member() {
            card.last_login_ms = self.logins.lock().get(&card.name).copied();
        }
        card
    }

    pub fn cards(&self) -> Vec<UserInfo> {
        self.stored().users.iter().map(|user| self.with_login(card(user))).collect()
    }

    pub fn card(&self, name: &str) -> Option<UserInfo> {
        self.stored().users.iter().find(|user| user.name == name).map(|user| self.with_login(card(user)))
    }

    /// The user, if the password is right. Blocks for some tens of milliseconds.
    pub fn verify(&self, name: &str, password: &str) -> Result<Option<UserInfo>, ApiError> {
        if password.len() > PASSWORD_BYTES_MAX {
            return Ok(None);
        }
        if let Standing::Member(Known { users: None, .. }) = self.shared.standing() {
            return Err(unknown_users());
        }
        let known = self.stored().users.iter().find(|user| user.name == name).cloned();
        let kept = known.as_ref().map_or(self.nobody.as_str(), |user| user.hash.as_str());
        let parsed =
            PasswordHash::new(kept).map_err(|error| ApiError::failed(format!("a hash in users.json: {error}")))?;
        let right = {
            let _one = self.hashing.lock();
            argon2()?.verify_password(password.as_bytes(), &parsed).is_ok()
        };
        Ok(known.filter(|_| right).map(|user| card(&user)))
    }

    pub fn logged_in(&self, name: &str, now_ms: u64) -> Result<(), ApiError> {
        if self.is_member() {
            // A login must not need etcd.
            self.logins.lock().insert(name.to_owned(), now_ms);
            return Ok(());
        }
        self.change(|stored| {
            find(stored, name)?.last_login_ms = Some(now_ms);
            Ok(())
        })
    }

    pub fn create(&self, name: &str, role: Role, password: &str, by: &str, now_ms: u64) -> Result<UserInfo, ApiError> {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(good) {
            return Err(ApiError::field("name", "1 to 64 letters, digits and -_.@ are expected"));
        }
        let hash = self.hash_of(password, "password")?;
        let generation = self.next_generation();
        self.change(|stored| {
            if stored.users.iter().any(|user| user.name == name) {
                return Err(ApiError::exists(format!("a user '{name}' exists already")));
            }
            if stored.users.len() >= USERS_MAX {
                return Err(ApiError::unsupported(format!("more than {USERS_MAX} users")));
            }
            let user = User {
                name: name.to_owned(),
                role,
                hash: hash.clone(),
                created_ms: now_ms,
                last_login_ms: None,
                must_change_password: true,
                password_by: by.to_owned(),
                generation: generation.clone(),
                unknown: Unknown::new(),
            };
            stored.users.push(user);
            stored.users.last().map(card).ok_or_else(|| ApiError::failed("no user"))
        })
    }

    /// In a cluster a user's sessions end with the generation. Outside of one each session is ended itself.
    fn next_generation(&self) -> String {
        if self.is_member() { random(12) } else { String::new() }
    }

    fn hash_of(&self, password: &str, field: &str) -> Result<String, ApiError> {
        if password.len() < PASSWORD_BYTES_MIN {
            return Err(ApiError::field(field, format!("at least {PASSWORD_BYTES_MIN} characters are expected")));
        }
        if password.len() > PASSWORD_BYTES_MAX {
            return Err(ApiError::field(field, format!("at most {PASSWORD_BYTES_MAX} bytes are allowed")));
        }
        let _one = self.hashing.lock();
        hash(password).map_err(|error| ApiError::failed(error.to_string()))
    }

    /// Changes what is given, or nothing if any of it is refused.
    pub fn set(&self, name: &str, role: Option<Role>, password: Option<ChosenPassword>) -> Result<(), ApiError> {
        let password = match password {
            Some(ChosenPassword { password, by, field }) => Some((self.hash_of(password, field)?, by)),
            None => None,
        };
        let generation = self.next_generation();
        self.change(|stored| {
            let user = find(stored, name)?;
            user.role = role.unwrap_or(user.role);
            user.generation.clone_from(&generation);
            if let Some((hash, by)) = &password {
                user.hash.clone_from(hash);
                user.must_change_password = *by != name;
                user.password_by = (*by).to_owned();
            }
            if role.is_some() { keeps_an_admin(stored) } else { Ok(()) }
        })
    }

    pub fn delete(&self, name: &str) -> Result<(), ApiError> {
        self.change(|stored| {
            find(stored, name)?;
            stored.users.retain(|user| user.name != name);
            keeps_an_admin(stored)
        })
    }

    pub fn tokens(&self) -> Vec<TokenInfo> {
        self.stored().tokens.iter().map(token_card).collect()
    }

    /// The token itself is returned once and never stored.
    pub fn create_token(
        &self,
        name: &str,
        role: Role,
        expires_ms: Option<u64>,
        by: &str,
        now_ms: u64,
    ) -> Result<(TokenInfo, String), ApiError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(ApiError::field("name", "1 to 64 bytes without control characters are expected"));
        }
        if expires_ms.is_some_and(|at| at <= now_ms) {
            return Err(ApiError::field("expires_ms", "must be in the future"));
        }
        let secret = format!("{TOKEN_PREFIX}{}", random(32));
        let token = Token {
            id: random(9),
            name: name.to_owned(),
            role,
            sha256: sha256(&secret),
            created_ms: now_ms,
            expires_ms,
            created_by: by.to_owned(),
            unknown: Unknown::new(),
        };
        let card = token_card(&token);
        self.change(|stored| {
            stored.tokens.retain(|token| token.expires_ms.is_none_or(|at| at > now_ms));
            if stored.tokens.len() >= TOKENS_MAX {
                return Err(ApiError::unsupported(format!("more than {TOKENS_MAX} tokens")));
            }
            stored.tokens.push(token.clone());
            Ok(())
        })?;
        Ok((card, secret))
    }

    pub fn delete_token(&self, id: &str) -> Result<TokenInfo, ApiError> {
        self.change(|stored| {
            let at = stored.tokens.iter().position(|token| token.id == id);
            let at = at.ok_or_else(|| ApiError::not_found(format!("there is no token '{id}'")))?;
            Ok(token_card(&stored.tokens.remove(at)))
        })
    }

    /// The owner of the token, if the token is valid.
    pub fn token(&self, secret: &str, now_ms: u64) -> Option<TokenInfo> {
        let sha256 = sha256(secret);
        let stored = self.stored();
        let token = stored.tokens.iter().find(|token| same(token.sha256.as_bytes(), sha256.as_bytes()))?;
        token.expires_ms.is_none_or(|at| at > now_ms).then(|| token_card(token))
    }
}

pub fn unknown_users() -> ApiError {
    ApiError::failed(
        "this node does not know the users of its cluster yet: etcd has not answered since the node has joined",
    )
    .hint("log in at another node of the cluster, or look at this node's log")
}

fn find<'s>(stored: &'s mut Stored, name: &str) -> Result<&'s mut User, ApiError> {
    let user = stored.users.iter_mut().find(|user| user.name == name);
    user.ok_or_else(|| ApiError::not_found(format!("there is no user '{name}'")))
}

fn keeps_an_admin(stored: &Stored) -> Result<(), ApiError> {
    if stored.users.iter().any(|user| user.role == Role::Admin) {
        return Ok(());
    }
    Err(ApiError::invalid("no administrator would be left").hint("make another user an admin first"))
}

fn card(user: &User) -> UserInfo {
    UserInfo {
        name: user.name.clone(),
        role: user.role,
        created_ms: user.created_ms,
        last_login_ms: user.last_login_ms,
        must_change_password: user.must_change_password,
        password_by: user.password_by.clone(),
    }
}

fn token_card(token: &Token) -> TokenInfo {
    TokenInfo {
        id: token.id.clone(),
        name: token.name.clone(),
        role: token.role,
        created_ms: token.created_ms,
        created_by: token.created_by.clone(),
        expires_ms: token.expires_ms,
    }
}

fn argon2() -> Result<Argon2<'static>, ApiError> {
    let params = Params::new(7 * 1024, 5, 1, None).map_err(|error| ApiError::failed(error.to_string()))?;
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

fn hash(password: &str) -> io::Result<String> {
    let mut salt = [0; 16];
    SystemRandom::new().fill(&mut salt).map_err(|_| io::Error::other("the system returned no random bytes"))?;
    let salt = SaltString::encode_b64(&salt).map_err(|error| io::Error::other(error.to_string()))?;
    let argon2 = argon2().map_err(|error| io::Error::other(error.message().to_owned()))?;
    let hash = argon2.hash_password(password.as_bytes(), &salt);
    Ok(hash.map_err(|error| io::Error::other(error.to_string()))?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn open(path: Option<PathBuf>, given: Option<&str>, now_ms: u64) -> io::Result<(Users, Option<String>)> {
        Users::open(path, given, Arc::new(Shared::open(None, None)), now_ms)
    }

    #[test]
    fn the_first_start_creates_an_administrator_and_the_second_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.json");
        let (users, password) = open(Some(path.clone()), None, 7).unwrap();
        let password = password.expect("made up");
        assert!(password.len() >= 20);
        let card = users.verify("admin", &password).unwrap().expect("it is right");
        assert_eq!((card.role, card.created_ms, card.must_change_password), (Role::Admin, 7, true));
        assert!(users.verify("admin", "other").unwrap().is_none());
        assert!(users.verify("nobody", &password).unwrap().is_none());

        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("$argon2id$v=19$m=7168,t=5,p=1$"), "{text}");
        assert!(!text.contains(&password));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let (users, made_up) = open(Some(path), Some("ignored now"), 8).unwrap();
        assert_eq!(made_up, None);
        assert!(users.verify("admin", &password).unwrap().is_some());
    }

    #[test]
    fn a_given_password_need_not_be_changed_and_a_broken_file_is_no_new_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.json");
        let (users, made_up) = open(None, Some("chosen word"), 0).unwrap();
        assert_eq!(made_up, None);
        assert!(!users.verify("admin", "chosen word").unwrap().unwrap().must_change_password);
        std::fs::write(&path, "{").unwrap();
        assert!(open(Some(path), None, 0).is_err());
    }

    #[test]
    fn users_are_made_changed_and_deleted_and_an_administrator_stays() {
        let (users, _) = open(None, Some("chosen word"), 0).unwrap();
        users.create("ann", Role::Viewer, "long enough", "admin", 1).unwrap();
        let code =
            |error: ApiError| (error.status, error.body.fields.first().map_or(String::new(), |f| f.field.clone()));
        assert_eq!(
            code(users.create("ann", Role::Viewer, "long enough", "admin", 1).unwrap_err()),
            (409, String::new())
        );
        assert_eq!(
            code(users.create("a b", Role::Viewer, "long enough", "admin", 1).unwrap_err()),
            (400, "name".into())
        );
        assert_eq!(code(users.create("bob", Role::Viewer, "short", "admin", 1).unwrap_err()), (400, "password".into()));
        let long = "x".repeat(PASSWORD_BYTES_MAX + 1);
        assert_eq!(code(users.create("bob", Role::Viewer, &long, "admin", 1).unwrap_err()), (400, "password".into()));
        assert_eq!(code(users.delete("admin").unwrap_err()), (400, String::new()));
        assert_eq!(code(users.set("admin", Some(Role::Viewer), None).unwrap_err()), (400, String::new()));
        assert_eq!(code(users.delete("nobody").unwrap_err()), (404, String::new()));
        let password = |password| ChosenPassword { password, by: "ann", field: "new" };
        assert_eq!(
            code(users.set("ann", Some(Role::Admin), Some(password("short"))).unwrap_err()),
            (400, "new".into())
        );
        assert_eq!(users.card("ann").unwrap().role, Role::Viewer, "what is refused changes nothing");
        users.set("ann", Some(Role::Admin), Some(password("another word"))).unwrap();
        assert!(!users.verify("ann", "another word").unwrap().unwrap().must_change_password);
        users.delete("admin").unwrap();
        assert_eq!(users.cards().len(), 1);
    }

    #[test]
    fn a_token_is_shown_once_and_ends() {
        let (users, _) = open(None, Some("chosen word"), 0).unwrap();
        let (card, secret) = users.create_token("ci", Role::Operator, Some(100), "admin", 10).unwrap();
        assert!(secret.starts_with("fkv_") && secret.len() > 40, "{secret}");
        assert_eq!(users.token(&secret, 99), Some(card.clone()));
        assert_eq!(users.token(&secret, 100), None);
        assert_eq!(users.token("fkv_", 50), None);
        assert!(!serde_json::to_string(&*users.stored()).unwrap().contains(&secret));
        assert_eq!(users.delete_token(&card.id).unwrap(), card);
        assert_eq!(users.token(&secret, 50), None);
        assert_eq!(users.delete_token(&card.id).unwrap_err().status, 404);
        assert_eq!(users.create_token("ci", Role::Viewer, Some(10), "admin", 10).unwrap_err().status, 400);
    }
}
