//! Owns the console's users and tokens, on disk in `users.json`. Never knows a session.
//!
//! Passwords are stored as Argon2id with 7 MiB and 5 passes, which OWASP's password storage cheat sheet calls equal to
//! 19 MiB and 2 passes: a login must take little memory, because the node keeps its RAM limit. Tokens are 256 random
//! bits, which nobody can guess, so a slow hash instead of SHA-256 would only cost time for every request.

use super::{Role, random, same, sha256};
use crate::error::ApiError;
use crate::lines::replace;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};
use parking_lot::{Mutex, RwLock};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
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
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Stored {
    users: Vec<User>,
    tokens: Vec<Token>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct UserInfo {
    pub name: String,
    pub role: Role,
    pub created_ms: u64,
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

pub struct Users {
    path: Option<PathBuf>,
    stored: RwLock<Stored>,
    /// Only one password is hashed at a time, which bounds the memory and the processor time of a flood of logins.
    hashing: Mutex<()>,
    /// The password of an unknown user is compared with this hash, so that the answer takes as long as for a known
    /// user.
    nobody: String,
}

impl Users {
    /// Reads `users.json`. Without that file, creates the first administrator and returns the password if it was
    /// generated.
    pub fn open(path: Option<PathBuf>, given: Option<&str>, now_ms: u64) -> io::Result<(Users, Option<String>)> {
        let text = match &path {
            None => None,
            Some(path) => match std::fs::read(path) {
                Ok(text) => Some(text),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            },
        };
        let nobody = hash(&random(16))?;
        let mut users = Users { path, stored: RwLock::default(), hashing: Mutex::default(), nobody };
        if let Some(text) = text {
            let stored = serde_json::from_slice(&text)
                .map_err(|error| io::Error::other(format!("users.json cannot be read: {error}")))?;
            users.stored = RwLock::new(stored);
            return Ok((users, None));
        }
        let made_up = given.is_none().then(|| random(15));
        let password = given.or(made_up.as_deref()).unwrap_or_default();
        let admin = User {
            name: ADMIN.to_owned(),
            role: Role::Admin,
            hash: hash(password)?,
            created_ms: now_ms,
            last_login_ms: None,
            must_change_password: made_up.is_some(),
            password_by: String::new(),
        };
        users
            .change(|stored| {
                stored.users.push(admin);
                Ok(())
            })
            .map_err(|error| io::Error::other(error.message().to_owned()))?;
        Ok((users, made_up))
    }

    /// If the file cannot be written, nothing is changed.
    fn change<T>(&self, change: impl FnOnce(&mut Stored) -> Result<T, ApiError>) -> Result<T, ApiError> {
        let mut stored = self.stored.write();
        let mut changed = stored.clone();
        let outcome = change(&mut changed)?;
        if let Some(path) = &self.path {
            let text = serde_json::to_vec_pretty(&changed).map_err(|error| ApiError::failed(error.to_string()))?;
            replace(path, &text)
                .map_err(|error| ApiError::failed(format!("cannot write {}: {error}", path.display())))?;
        }
        *stored = changed;
        Ok(outcome)
    }

    pub fn cards(&self) -> Vec<UserInfo> {
        self.stored.read().users.iter().map(card).collect()
    }

    pub fn card(&self, name: &str) -> Option<UserInfo> {
        self.stored.read().users.iter().find(|user| user.name == name).map(card)
    }

    /// The user, if the password is right. Blocks for some tens of milliseconds.
    pub fn verify(&self, name: &str, password: &str) -> Result<Option<UserInfo>, ApiError> {
        if password.len() > PASSWORD_BYTES_MAX {
            return Ok(None);
        }
        let known = self.stored.read().users.iter().find(|user| user.name == name).cloned();
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
                hash,
                created_ms: now_ms,
                last_login_ms: None,
                must_change_password: true,
                password_by: by.to_owned(),
            };
            stored.users.push(user);
            stored.users.last().map(card).ok_or_else(|| ApiError::failed("no user"))
        })
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

    /// `by`: who chooses the password. If it is another user, the password is temporary.
    pub fn set_password(&self, name: &str, password: &str, by: &str, field: &str) -> Result<(), ApiError> {
        let hash = self.hash_of(password, field)?;
        self.change(|stored| {
            let user = find(stored, name)?;
            user.hash = hash;
            user.must_change_password = by != name;
            user.password_by = by.to_owned();
            Ok(())
        })
    }

    pub fn set_role(&self, name: &str, role: Role) -> Result<(), ApiError> {
        self.change(|stored| {
            find(stored, name)?.role = role;
            keeps_an_admin(stored)
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
        self.stored.read().tokens.iter().map(token_card).collect()
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
        };
        let card = token_card(&token);
        self.change(|stored| {
            stored.tokens.retain(|token| token.expires_ms.is_none_or(|at| at > now_ms));
            if stored.tokens.len() >= TOKENS_MAX {
                return Err(ApiError::unsupported(format!("more than {TOKENS_MAX} tokens")));
            }
            stored.tokens.push(token);
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
        let stored = self.stored.read();
        let token = stored.tokens.iter().find(|token| same(token.sha256.as_bytes(), sha256.as_bytes()))?;
        token.expires_ms.is_none_or(|at| at > now_ms).then(|| token_card(token))
    }
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

    #[test]
    fn the_first_start_creates_an_administrator_and_the_second_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.json");
        let (users, password) = Users::open(Some(path.clone()), None, 7).unwrap();
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
        let (users, made_up) = Users::open(Some(path), Some("ignored now"), 8).unwrap();
        assert_eq!(made_up, None);
        assert!(users.verify("admin", &password).unwrap().is_some());
    }

    #[test]
    fn a_given_password_need_not_be_changed_and_a_broken_file_is_no_new_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.json");
        let (users, made_up) = Users::open(None, Some("chosen word"), 0).unwrap();
        assert_eq!(made_up, None);
        assert!(!users.verify("admin", "chosen word").unwrap().unwrap().must_change_password);
        std::fs::write(&path, "{").unwrap();
        assert!(Users::open(Some(path), None, 0).is_err());
    }

    #[test]
    fn users_are_made_changed_and_deleted_and_an_administrator_stays() {
        let (users, _) = Users::open(None, Some("chosen word"), 0).unwrap();
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
        assert_eq!(code(users.set_role("admin", Role::Viewer).unwrap_err()), (400, String::new()));
        assert_eq!(code(users.delete("nobody").unwrap_err()), (404, String::new()));
        users.set_role("ann", Role::Admin).unwrap();
        users.set_password("ann", "another word", "ann", "new").unwrap();
        assert!(!users.verify("ann", "another word").unwrap().unwrap().must_change_password);
        users.delete("admin").unwrap();
        assert_eq!(users.cards().len(), 1);
    }

    #[test]
    fn a_token_is_shown_once_and_ends() {
        let (users, _) = Users::open(None, Some("chosen word"), 0).unwrap();
        let (card, secret) = users.create_token("ci", Role::Operator, Some(100), "admin", 10).unwrap();
        assert!(secret.starts_with("fkv_") && secret.len() > 40, "{secret}");
        assert_eq!(users.token(&secret, 99), Some(card.clone()));
        assert_eq!(users.token(&secret, 100), None);
        assert_eq!(users.token("fkv_", 50), None);
        assert!(!serde_json::to_string(&*users.stored.read()).unwrap().contains(&secret));
        assert_eq!(users.delete_token(&card.id).unwrap(), card);
        assert_eq!(users.token(&secret, 50), None);
        assert_eq!(users.delete_token(&card.id).unwrap_err().status, 404);
        assert_eq!(users.create_token("ci", Role::Viewer, Some(10), "admin", 10).unwrap_err().status, 400);
    }
}
