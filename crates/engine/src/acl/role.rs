//! Owns the ACL users that stand for console users in a database, one per role. Never knows who the console users
//! are.

use super::{User, apply};
use commands::session::LOADER;
use std::sync::{Arc, LazyLock};

/// What a console user may do. Each role includes the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads values and figures.
    Viewer,
    /// Changes values, ends clients, empties databases. Sees no passwords, so it has no CONFIG GET; the API shows it all other settings.
    Operator,
    /// Everything.
    Admin,
    /// The node itself, while it loads the dataset from a file.
    Loader,
}

/// The prefix of console users' names. A database's own users cannot have such a name.
const PREFIX: &str = "(console:";

const VIEWER: &str = "on nopass ~* &* +@read -@dangerous -@blocking -@scripting +ping +echo +select +time +dbsize +info \
    +command +memory|usage +memory|stats +memory|doctor +object +type +ttl +slowlog|get +slowlog|len +latency|latest \
    +latency|history +latency|histogram +client|list +client|id +client|info +lolwut +pubsub +role";
const OPERATOR: &str = "on nopass ~* &* +@all -@admin -@dangerous +@read +@write -@blocking +flushdb +flushall +keys +sort +info \
    +role +restore +swapdb +slowlog +latency +memory +client|list +client|kill +client|unblock +config|resetstat \
    -debug -migrate";
const ADMIN: &str = "on nopass ~* &* +@all";

static USERS: LazyLock<[Arc<User>; 4]> = LazyLock::new(|| {
    [Role::Viewer, Role::Operator, Role::Admin, Role::Loader].map(|role| {
        let rules = match role {
            Role::Viewer => VIEWER,
            Role::Operator => OPERATOR,
            Role::Admin | Role::Loader => ADMIN,
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
            Role::Loader => LOADER,
        }
    }

    pub fn user(self) -> Arc<User> {
        Arc::clone(&USERS[self as usize])
    }
}

/// Whether this is the name of a console user.
pub fn is_console(user: &str) -> bool {
    user.starts_with(PREFIX)
}

/// Whether this is the name under which the node loads the dataset.
pub fn is_loader(user: &str) -> bool {
    user == LOADER
}

/// The console user with this name.
pub fn find(name: &[u8]) -> Option<Arc<User>> {
    USERS.iter().find(|user| user.name.as_bytes() == name).cloned()
}
