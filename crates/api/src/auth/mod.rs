//! Owns access to the console: users, tokens, sessions, and the limit on password tries. Never knows a route.
//!
//! `users` and `sessions` are on disk, `shared` is what the nodes of a cluster have together, `sign_on` the sessions that count, `tries` the
//! limit on guessing.

pub mod sessions;
pub mod shared;
pub mod sign_on;
pub mod tries;
pub mod users;

use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Each role includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Viewer,
    Operator,
    Admin,
}

impl Role {
    pub const ALL: [Role; 3] = [Role::Viewer, Role::Operator, Role::Admin];

    pub fn name(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }

    /// The role on the database.
    pub fn on_database(self) -> node::Role {
        match self {
            Role::Viewer => node::Role::Viewer,
            Role::Operator => node::Role::Operator,
            Role::Admin => node::Role::Admin,
        }
    }
}

/// Who sent a request.
#[derive(Clone, Debug)]
pub struct Who {
    pub name: String,
    pub role: Role,
    pub by: By,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// A cookie. Browsers send it automatically, so requests that change something also need `csrf`.
    Session {
        /// The cookie's value.
        cookie: String,
        /// What the cookie is to be from now on, if it is to be changed.
        renewed: Option<String>,
        csrf: String,
        /// Who chose the password that must be changed, if it must; empty: the node.
        password_by: Option<String>,
    },
    Token {
        id: String,
    },
    /// Another node of the cluster vouches for the request: it has checked the session, or the token.
    Node {
        /// The node's name.
        through: String,
        /// The token's id; `None`: it is a session.
        token: Option<String>,
    },
}

impl Who {
    /// The node that vouches for the request; empty: it came to this node.
    pub fn through(&self) -> &str {
        match &self.by {
            By::Node { through, .. } => through,
            By::Session { .. } | By::Token { .. } => "",
        }
    }

    /// The token with which the request was made; `None`: a user is logged in.
    pub fn token(&self) -> Option<&str> {
        match &self.by {
            By::Session { .. } => None,
            By::Token { id } => Some(id),
            By::Node { token, .. } => token.as_deref(),
        }
    }
}

/// `count` random bytes as base64url.
pub fn random(count: usize) -> String {
    let mut bytes = vec![0; count];
    // This fails only if the system has no random generator.
    SystemRandom::new().fill(&mut bytes).expect("the system gives random bytes");
    crate::text::base64url(&bytes)
}

/// In hexadecimal.
pub fn sha256(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Takes the same time for a wrong secret and for the right one.
#[allow(deprecated, reason = "the comparison in constant time has no other public name in ring 0.17")]
pub fn same(a: &[u8], b: &[u8]) -> bool {
    ring::constant_time::verify_slices_are_equal(a, b).is_ok()
}
