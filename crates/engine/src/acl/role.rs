//! Owns the users that the console's people are to a database, by their roles. Never knows who those people are.

use super::{User, apply};
use std::sync::{Arc, LazyLock};

/// What a user of the console may do, each more than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Looks at values and figures.
    Viewer,
    /// Changes values, ends clients, empties databases.
    Operator,
    /// Everything.
    Admin,
}

/// Names of users of the console begin so; no user of a database's own can have such a name.
const PREFIX: &str = "(console:";

const VIEWER: &str = "on nopass ~* &* +@read -@dangerous -@blocking -@scripting +ping +echo +select +time +dbsize +info \
    +command +memory|usage +memory|stats +memory|doctor +object +type +ttl +slowlog|get +slowlog|len +latency|latest \
    +latency|history +latency|histogram +client|list +client|id +client|info +lolwut +pubsub +role";
const OPERATOR: &str = "on nopass ~* &* +@all -@admin -@dangerous +@read +@write -@blocking +flushdb +flushall +keys +sort +info \
    +role +restore +swapdb +slowlog +latency +memory +client|list +client|kill +client|unblock +config|get +config|resetstat \
    -debug -migrate";
const ADMIN: &str = "on nopass ~* &* +@all";

static USERS: LazyLock<[Arc<User>; 3]> = LazyLock::new(|| {
    [Role::Viewer, Role::Operator, Role::Admin].map(|role| {
        let rules = match role {
            Role::Viewer => VIEWER,
            Role::Operator => OPERATOR,
            Role::Admin => ADMIN,
        };
        let rules: Vec<Vec<u8>> = rules.split_whitespace().map(|rule| rule.as_bytes().to_vec()).collect();
        let mut user = User::new(role.user_name(), true);
        apply(&mut user, &rules, true).expect("the rules of roles are right");
        Arc::new(user)
    })
});

impl Role {
    pub const fn user_name(self) -> &'static str {
        match self {
            Role::Viewer => "(console:viewer)",
            Role::Operator => "(console:operator)",
            Role::Admin => "(console:admin)",
        }
    }

    pub fn user(self) -> Arc<User> {
        Arc::clone(&USERS[self as usize])
    }
}

/// Whether a session is of the console.
pub fn is_console(user: &str) -> bool {
    user.starts_with(PREFIX)
}

/// The user of the console with this name.
pub fn find(name: &[u8]) -> Option<Arc<User>> {
    USERS.iter().find(|user| user.name.as_bytes() == name).cloned()
}
