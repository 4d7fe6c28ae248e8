//! Owns the answers to the commands about users, and the check whether a connection may run a command. Never knows a
//! rule.

use crate::acl::{Catalog, Role, Selector, User, Users, hex, is_console, with_rules};
use crate::clients::ClientInfo;
use crate::directory::{Command, bit};
use crate::hub::Hub;
use crate::worker::Worker;
use base::clock::wall_ms;
use commands::Args;
use commands::host::{Access, AclDenial, AclSelector, AclUser, ClientFilter, Denial, Killed, Rights, Space};
use commands::session::{Forwarded, Replica, Session};
use std::borrow::Cow;
use std::sync::Arc;

/// Where a refused command came from, in the words of ACL LOG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    TopLevel,
    /// The command is refused instead of queued.
    Queued,
    /// EXEC runs it.
    Multi,
    Script,
}

impl Context {
    fn text(self) -> &'static str {
        match self {
            Context::TopLevel => "toplevel",
            Context::Queued | Context::Multi => "multi",
            Context::Script => "lua",
        }
    }
}

/// Updates the session's rights to the current users. Call this before a batch and after a command that changes
/// users.
#[inline]
pub fn refresh(hub: &Hub, session: &mut Session) {
    if session.user_version != hub.users.version() {
        look_up(hub, session);
    }
}

#[cold]
fn look_up(hub: &Hub, session: &mut Session) {
    session.user_version = hub.users.version();
    if session.forwarded.is_some() || session.replica.as_ref().is_some_and(|replica| replica.is_of_shard) {
        // A node of the cluster says who it is.
        return;
    }
    session.rights = match hub.users.get(session.user.as_bytes()) {
        Some(user) => rights(&user),
        // The user was deleted, and its connections are being ended: they may do nothing more.
        None => Some(Arc::new(User::new(&session.user, false))),
    };
}

fn rights(user: &Arc<User>) -> Option<Arc<dyn Rights>> {
    (!user.is_unlimited()).then(|| Arc::clone(user) as Arc<dyn Rights>)
}

/// Sets a session to its state after connecting.
pub fn begin(hub: &Hub, session: &mut Session) {
    // Read the version before the user. If the user changes in between, it is looked up again.
    session.user_version = hub.users.version();
    let user = hub.users.default_user();
    session.user = Cow::Borrowed("default");
    session.authenticated = user.is_open();
    session.rights = rights(&user);
    session.changed = true;
}

/// Starts a session of a console user.
pub fn begin_as(hub: &Hub, session: &mut Session, role: Role) {
    session.user_version = hub.users.version();
    session.user = Cow::Borrowed(role.user_name());
    session.authenticated = true;
    session.repeats = role == Role::Loader;
    session.rights = rights(&role.user());
    session.set_proto(resp::Proto::Resp3);
    session.changed = true;
}

/// Starts a session of a proxy, which has authenticated its client, and says who it is if it may not do everything.
pub fn begin_for(hub: &Hub, session: &mut Session, is_divided: bool) {
    session.user_version = hub.users.version();
    session.user = Cow::Borrowed("default");
    session.authenticated = true;
    session.forwarded = Some(Forwarded { is_divided, rejects: false, may_lack_writes: false });
    session.changed = true;
}

/// What a replica of the same shard may do.
const REPLICA_RULES: [&str; 4] = ["-@all", "+ping", "+replconf", "+psync"];

/// Starts a session of a copy of the same shard, at a node of the cluster.
pub fn begin_for_replica(hub: &Hub, session: &mut Session) {
    session.user_version = hub.users.version();
    session.user = Cow::Borrowed("(replica)");
    session.authenticated = true;
    let rules = REPLICA_RULES.map(|rule| rule.as_bytes().to_vec());
    session.rights = Some(Arc::new(with_rules("(replica)", &rules).expect("the rules are right")));
    session.replica = Some(Box::new(Replica { is_of_shard: true, ..Replica::default() }));
}

/// From now on a proxy's session has this user's rights: those by these rules, or all if there are none. The proxy says which, because
/// users that were changed at another node are known here a moment later.
pub fn run_as(session: &mut Session, user: &str, rules: &[Vec<u8>]) {
    session.rights = match rules {
        [] => None,
        // A proxy of another version may know a command that is not known here: then the user may do nothing.
        rules => Some(Arc::new(with_rules(user, rules).unwrap_or_else(|why| {
            tracing::error!("a proxy gives user {user} rights that are not known here: {why}");
            User::new(user, false)
        }))),
    };
    session.user = Cow::Owned(user.to_owned());
    session.changed = true;
}

/// Checks whether the session's user may run a command. A denial goes into ACL LOG and is returned. This is the only
/// check: for commands as they arrive, for those of a transaction, and for those that were blocked.
#[cold]
pub fn check(
    worker: &Worker,
    session: &Session,
    command: &Command,
    args: Args<'_>,
    context: Context,
) -> Result<(), Denial> {
    let Some(rights) = &session.rights else { return Ok(()) };
    let mut positions = Vec::new();
    command.row.keys.positions(&args, &mut positions);
    let checked = match () {
        // A console user must not become another user of the database, who might have more rights.
        () if is_console(&session.user) && command.is(bit::CHANGES_USER) => Err(Denial::Command),
        () => rights.check(command.id, command.row, args, &positions),
    };
    if let Err(denial) = checked {
        let (stats, quoted) = (worker.stats(), |at: usize| args.get(at).unwrap_or_default().to_vec());
        let (counter, reason, object) = match denial {
            Denial::Command => (&stats.acl_denied_commands, "command", command.name.as_bytes().to_vec()),
            Denial::Key(at) => (&stats.acl_denied_keys, "key", quoted(at)),
            Denial::Channel(at) => (&stats.acl_denied_channels, "channel", quoted(at)),
        };
        counter.add(1);
        // The entry shows the client with the command that it gave: EXEC or the script, or else the refused one.
        if matches!(context, Context::TopLevel | Context::Queued)
            && let Some(client_info) = worker.hub.clients.client_info(session.id)
        {
            client_info.note_command(command.id);
        }
        note(worker, session, reason, context, object, session.user.as_bytes());
    }
    checked
}

/// The error for a refused command.
pub fn refusal(session: &Session, command: &Command, denial: Denial) -> String {
    format!("NOPERM {}", why_not(&session.user, command.name, denial, None))
}

/// The error for a command that was refused inside a script.
pub fn refusal_in_script(session: &Session, command: &Command, denial: Denial) -> String {
    format!("ERR ACL failure in script: {}", why_not(&session.user, command.name, denial, None))
}

/// With `args`, the text also names the key or channel.
fn why_not(user: &str, command: &str, denial: Denial, args: Option<Args<'_>>) -> String {
    let quoted = |args: Args<'_>, at: usize| String::from_utf8_lossy(args.get(at).unwrap_or_default()).into_owned();
    match (denial, args) {
        (Denial::Command, _) => format!("User {user} has no permissions to run the '{command}' command"),
        (Denial::Key(_), None) => "No permissions to access a key".to_owned(),
        (Denial::Channel(_), None) => "No permissions to access a channel".to_owned(),
        (Denial::Key(at), Some(args)) => {
            format!("User {user} has no permissions to access the '{}' key", quoted(args, at))
        }
        (Denial::Channel(at), Some(args)) => {
            format!("User {user} has no permissions to access the '{}' channel", quoted(args, at))
        }
    }
}

fn note(worker: &Worker, session: &Session, reason: &'static str, context: Context, object: Vec<u8>, user: &[u8]) {
    let now_ms = wall_ms();
    let me = ClientFilter { ids: vec![session.id], ..ClientFilter::default() };
    let client = worker.hub.clients.list(&me, now_ms, &|id| worker.hub.directory.name(id)).trim_end().to_owned();
    let denial = AclDenial {
        id: 0,
        count: 1,
        reason,
        context: context.text(),
        object,
        user: user.to_vec(),
        client,
        created_ms: now_ms,
        updated_ms: now_ms,
    };
    worker.hub.users.log(denial, worker.config_snapshot().config.acllog_max_len);
}

pub fn context(session: &Session) -> Context {
    if session.multi.is_some() { Context::Queued } else { Context::TopLevel }
}

/// Ends the connections of a user that are subscribed to channels which the user may not use any more. Returns
/// whether the caller is one of them; the caller's connection ends after its reply.
fn end_listeners(hub: &Hub, me: u64, user: &User) -> bool {
    let mut ends_me = false;
    for space in Space::ALL {
        for name in hub.pubsub.names(space, None) {
            if user.allows_channel(&name, space == Space::Pattern) {
                continue;
            }
            let of_user =
                hub.pubsub.subscribers(space, &name).into_iter().filter(|client_info| client_info.is_of(&user.name));
            of_user.for_each(|client_info| ends_me |= end(hub, me, &client_info));
        }
    }
    ends_me
}

/// Ends a connection. Returns true if it is the caller's, which ends after its reply.
fn end(hub: &Hub, me: u64, client_info: &ClientInfo) -> bool {
    if client_info.id != me {
        hub.clients.end_where(|other| other.id == client_info.id);
    }
    client_info.id == me
}

/// Replaces all users, and ends the connections of those that have changed. Returns true if the caller's is one of them.
fn replace_users(hub: &Hub, me: u64, users: Vec<User>) -> bool {
    let before = hub.users.all();
    hub.users.replace(users);
    let is_as_before =
        |user: &&Arc<User>| hub.users.get(user.name.as_bytes()).is_some_and(|now| now.line() == user.line());
    let mut ends_me = false;
    // As in Redis, the connections of the default user stay, whatever it may do now.
    for user in before.iter().filter(|user| &*user.name != "default" && !is_as_before(user)) {
        for client_info in hub.clients.cards_where(|client_info| client_info.is_of(&user.name)) {
            ends_me |= end(hub, me, &client_info);
        }
    }
    end_listeners(hub, me, &hub.users.default_user()) | ends_me
}

/// No client has this id.
const NOBODY: u64 = 0;

impl Hub {
    /// Takes the users that another node has, by the text of their directives: all or nothing.
    pub fn set_users(&self, lines: &[String]) -> Result<(), String> {
        let users = Users::of_directives(lines, self.config.snapshot().acl_pubsub_all)?;
        replace_users(self, NOBODY, users);
        Ok(())
    }
}

impl Access for Worker {
    fn is_open(&self) -> bool {
        self.hub.users.default_is_open()
    }

    fn authenticate(&self, me: &mut Session, by: &[u8], name: &[u8], password: &[u8]) -> bool {
        // Read the version before the user. If the user changes in between, it is looked up again.
        let version = self.hub.users.version();
        let Some(user) = self.hub.users.authenticate(name, password) else {
            self.stats().auth_failures.add(1);
            note(self, me, "auth", context(me), by.to_vec(), name);
            return false;
        };
        me.authenticated = true;
        me.user = if &*user.name == "default" { "default".into() } else { user.name.to_string().into() };
        me.user_version = version;
        me.rights = rights(&user);
        me.changed = true;
        true
    }

    fn start_over(&self, me: &mut Session) {
        begin(&self.hub, me);
    }

    fn set_user(&self, me: &Session, name: &[u8], rules: Vec<Vec<u8>>) -> Result<bool, String> {
        let all_channels = self.config_snapshot().config.acl_pubsub_all;
        let user = self.hub.users.set(name, &rules, all_channels)?;
        Ok(end_listeners(&self.hub, me.id, &user))
    }

    fn user(&self, name: &[u8]) -> Option<AclUser> {
        let user = self.hub.users.get(name)?;
        let selector = |selector: &Selector| AclSelector {
            commands: selector.command_rules(),
            keys: selector.key_rules(),
            channels: selector.channel_rules(),
        };
        Some(AclUser {
            flags: user.flags(),
            passwords: user.passwords.iter().map(|digest| hex(digest)).collect(),
            selectors: std::iter::once(user.own()).chain(user.others()).map(selector).collect(),
        })
    }

    fn delete_users(&self, me: &Session, names: &[&[u8]]) -> Killed {
        let mut killed = Killed { count: 0, me: false };
        for name in names.iter().filter(|name| self.hub.users.remove(name)) {
            killed.count += 1;
            let name = String::from_utf8_lossy(name);
            self.hub.clients.end_where(|client_info| client_info.id != me.id && client_info.is_of(&name));
            killed.me |= me.user == name;
        }
        killed
    }

    fn user_names(&self) -> Vec<String> {
        self.hub.users.all().iter().map(|user| user.name.to_string()).collect()
    }

    fn user_lines(&self) -> Vec<String> {
        self.hub.users.all().iter().map(|user| user.line()).collect()
    }

    fn dry_run(&self, name: &[u8], args: Args<'_>) -> Result<Option<String>, String> {
        let Some(user) = self.hub.users.get(name) else {
            return Err(format!("ERR User '{}' not found", String::from_utf8_lossy(name)));
        };
        let catalog = Catalog::get();
        let find = |name: &[u8]| catalog.find(name).filter(|&id| !catalog.entries[id].is_subcommand);
        let mut id =
            find(&args[0]).ok_or_else(|| format!("ERR Command '{}' not found", String::from_utf8_lossy(&args[0])))?;
        if let Some(word) = args.get(1) {
            let is_it = |&sub: &usize| catalog.entries[sub].row.name.as_bytes().eq_ignore_ascii_case(word);
            id = catalog.entries[id].subcommands.clone().find(is_it).unwrap_or(id);
        }
        let entry = &catalog.entries[id];
        if !entry.row.takes(args.len()) {
            return Err(format!("ERR wrong number of arguments for '{}' command", entry.name));
        }
        let mut positions = Vec::new();
        entry.row.keys.positions(&args, &mut positions);
        let denial = user.check(id, entry.row, args, &positions).err();
        Ok(denial.map(|denial| why_not(&user.name, &entry.name, denial, Some(args))))
    }

    fn denials(&self, count: usize) -> Vec<AclDenial> {
        self.hub.users.logged(count)
    }

    fn forget_denials(&self) {
        self.hub.users.clear_log();
    }

    fn load_users(&self, me: &Session) -> Result<bool, String> {
        let config = self.hub.config.snapshot();
        let path = config.aclfile.as_deref().ok_or(NO_FILE)?;
        let users = Users::read_file(path, config.acl_pubsub_all).map_err(|text| format!("ERR {text}"))?;
        Ok(replace_users(&self.hub, me.id, users))
    }

    fn save_users(&self) -> Result<(), String> {
        let config = self.hub.config.snapshot();
        let path = config.aclfile.as_deref().ok_or(NO_FILE)?;
        self.hub.users.write_file(path).map_err(|error| {
            tracing::error!("the ACL file {} cannot be written: {error}", path.display());
            "ERR There was an error trying to save the ACLs. Please check the server logs for more information"
                .to_owned()
        })
    }

    fn random(&self, bytes: &mut [u8]) {
        crate::random::fill(bytes);
    }
}

const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via \
                       the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration \
                       file set) in order to store users in the Redis configuration.";
