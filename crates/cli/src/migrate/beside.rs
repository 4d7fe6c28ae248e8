//! Owns everything of a server except its keys: it moves functions and users, and lists what is not moved, such as settings
//! and cached scripts. Never moves a key.

use std::collections::BTreeMap;

use resp::client::Value;
use survey::{Server, bytes, list};

use super::Ends;
use crate::failure::Failure;

/// The most users that are listed by name.
const NAMED: usize = 5;

/// The code of each library, by its name.
type Libraries = BTreeMap<Vec<u8>, Vec<u8>>;

/// Replaces the target's functions by those of the source.
pub fn copy_functions(ends: &mut Ends) -> Result<(), Failure> {
    let Some(theirs) = libraries(&mut ends.source)? else { return Ok(()) };
    let ours = libraries(&mut ends.target)?;
    if ours.as_ref().is_some_and(|ours| *ours == theirs) || (ours.is_none() && theirs.is_empty()) {
        return Ok(());
    }
    let dump = ends.source.ask(&["FUNCTION", "DUMP"])?;
    match ends.target.call(&[b"FUNCTION", b"RESTORE", bytes(&dump).unwrap_or_default(), b"FLUSH"])? {
        Value::Error(text) => {
            let text = String::from_utf8_lossy(&text).into_owned();
            Err(Failure::failed(format!("the target does not accept the source's functions: {text}")))
        }
        _ => Ok(()),
    }
}

/// Whether both have the same functions, and the number of libraries. `None`: the source has no functions, or does not show
/// them.
pub fn are_same(ends: &mut Ends) -> Result<Option<(bool, usize)>, Failure> {
    let Some(theirs) = libraries(&mut ends.source)? else { return Ok(None) };
    let ours = libraries(&mut ends.target)?.unwrap_or_default();
    Ok((!theirs.is_empty() || !ours.is_empty()).then_some((ours == theirs, theirs.len())))
}

/// `None`: the server has no functions (before Redis 7.0), or the user may not see them.
fn libraries(server: &mut Server) -> Result<Option<Libraries>, Failure> {
    let reply = server.call(&[b"FUNCTION", b"LIST", b"WITHCODE"])?;
    if matches!(reply, Value::Error(_)) {
        return Ok(None);
    }
    let library = |card: Value| {
        let words = list(card);
        let field = |name: &[u8]| {
            let pair = words.chunks(2).find(|pair| bytes(&pair[0]) == Some(name))?;
            Some(bytes(pair.get(1)?)?.to_vec())
        };
        Some((field(b"library_name")?, field(b"library_code")?))
    };
    Ok(Some(list(reply).into_iter().filter_map(library).collect()))
}

/// A user, and the rules that make it.
struct User {
    name: String,
    rules: Vec<String>,
}

/// All users but 'default', whose password the tool itself may need. The inner error says why they could not be read.
fn users(server: &mut Server) -> Result<Result<Vec<User>, String>, Failure> {
    let lines = match server.call(&[b"ACL", b"LIST"])? {
        Value::Error(text) => return Ok(Err(String::from_utf8_lossy(&text).into_owned())),
        lines => list(lines),
    };
    let lines = lines.iter().filter_map(bytes).map(String::from_utf8_lossy);
    Ok(Ok(lines.filter_map(|line| user(&line)).filter(|user| user.name != "default").collect()))
}

/// `user NAME RULE ...`
fn user(line: &str) -> Option<User> {
    let mut words = line.split(' ').map(str::to_owned);
    let name = words.nth(1)?;
    let mut rules: Vec<String> = words.collect();
    // Before Redis 6.2, users had no rules for channels.
    if !rules.iter().any(|rule| rule.starts_with('&') || rule.ends_with("channels")) {
        rules.push("allchannels".to_owned());
    }
    Some(User { name, rules })
}

/// Creates the source's users at the target, and saves them there. Returns a text that says what was done.
pub fn move_users(ends: &mut Ends) -> Result<String, Failure> {
    let users = users(&mut ends.source)?.map_err(|why| {
        Failure::failed(format!("{}: ACL LIST: {why}", ends.from))
            .hint("allow the source's user to run ACL LIST, or leave out --users")
    })?;
    for User { name, rules } in &users {
        let words: Vec<&str> =
            ["ACL", "SETUSER", name, "reset"].into_iter().chain(rules.iter().map(String::as_str)).collect();
        let words: Vec<&[u8]> = words.into_iter().map(str::as_bytes).collect();
        if let Value::Error(text) = ends.target.call(&words)? {
            let text = String::from_utf8_lossy(&text).into_owned();
            return Err(Failure::failed(format!("the target does not accept the user '{name}': {text}")).hint(
                "nothing was switched: change the user at the source, or create the users by hand and leave out --users",
            ));
        }
    }
    if users.is_empty() {
        return Ok(String::new());
    }
    // With an `aclfile` the first command saves the users, without one the second.
    let is_kept = [&[&b"ACL"[..], b"SAVE"][..], &[&b"CONFIG"[..], b"REWRITE"]]
        .into_iter()
        .any(|command| ends.target.call(command).is_ok_and(|reply| !matches!(reply, Value::Error(_))));
    let but = if is_kept {
        ""
    } else {
        ", but a restart of the target forgets them: neither ACL SAVE nor CONFIG REWRITE works there"
    };
    let names: Vec<&str> = users.iter().map(|user| &*user.name).collect();
    Ok(format!("{} ACL users are moved ({}){but}\n", names.len(), some_of(&names)))
}

fn some_of(names: &[&str]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let named = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

/// A text that lists what is not moved.
pub fn left_behind(source: &mut Server, moves_users: bool) -> Result<String, Failure> {
    let mut left = vec!["the settings (CONFIG GET *) and the rights of the user 'default'".to_owned()];
    match users(source)? {
        Ok(users) if moves_users || users.is_empty() => {}
        Ok(users) => {
            let names: Vec<&str> = users.iter().map(|user| &*user.name).collect();
            left.push(format!("{} ACL users ({}), unless --users is given", names.len(), some_of(&names)));
        }
        // Redis before 6.0 has no ACL command.
        Err(why) if why.contains("unknown command") => {}
        Err(why) => left.push(format!("ACL users, which this user does not see ({why})")),
    }
    if let Value::Error(text) = source.call(&[b"FUNCTION", b"LIST"])?
        && text.starts_with(b"NOPERM")
    {
        left.push(format!(
            "functions with --method copy, which this user does not see ({})",
            String::from_utf8_lossy(&text)
        ));
    }
    let cached =
        source.info("memory")?.get("number_of_cached_scripts").and_then(|count| count.parse().ok()).unwrap_or(0u64);
    if cached > 0 {
        left.push(format!("{cached} cached scripts, which clients load again after NOSCRIPT"));
    }
    Ok(format!("not moved: {}\n", left.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_made_of_its_line() {
        let rules = |line: &str| user(line).map(|user| (user.name, user.rules.join(" ")));
        let is = |name: &str, rules: &str| Some((name.to_owned(), rules.to_owned()));
        assert_eq!(
            rules("user ann on #ab ~a:* resetchannels -@all +get"),
            is("ann", "on #ab ~a:* resetchannels -@all +get")
        );
        assert_eq!(rules("user bob off ~* &* +@all (~x -@all +get)"), is("bob", "off ~* &* +@all (~x -@all +get)"));
        assert_eq!(rules("user old on nopass ~* +@all"), is("old", "on nopass ~* +@all allchannels"));
        assert_eq!(rules("user"), None);
    }

    #[test]
    fn many_names_are_some_and_a_number() {
        assert_eq!(some_of(&["a", "b"]), "a, b");
        assert_eq!(some_of(&["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
    }
}
