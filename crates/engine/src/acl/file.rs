//! Owns the stored form of users: the lines of the ACL file and of the configuration's `user` directives. Never knows
//! who is connected.

use super::{User, Users, apply, is_name};
use config::{join_words, split_words, word_bytes};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Makes a user from the words after `user`.
fn parse(words: &[String], all_channels: bool) -> Result<User, String> {
    let Some((name, rules)) = words.split_first().filter(|(name, _)| is_name(name)) else {
        return Err("a user needs a name without spaces".to_owned());
    };
    let mut user = User::new(name, all_channels);
    let rules: Vec<Vec<u8>> = rules.iter().map(|rule| word_bytes(rule)).collect();
    apply(&mut user, &rules, all_channels).map_err(|text| text.trim_start_matches("ERR ").to_owned())?;
    Ok(user)
}

/// The text after `user` in the configuration file, where words may be quoted.
fn directive(user: &User) -> String {
    let mut words = vec![user.name.to_string()];
    words.extend(user.rules().iter().flat_map(|rule| rule.split(' ')).map(str::to_owned));
    join_words(&words)
}

impl Users {
    /// Takes the configuration's `user` directives; each line is the text after `user`.
    pub fn take_directives(&self, lines: &[String], all_channels: bool) -> Result<(), String> {
        let mut seen = Vec::new();
        for line in lines {
            let user = split_words(line).map_err(str::to_owned).and_then(|words| parse(&words, all_channels));
            // Name only the user: the line contains passwords.
            let name = line.split(' ').next().unwrap_or_default();
            let user = user.map_err(|why| format!("user {name}: {why}"))?;
            if seen.contains(&user.name) {
                return Err(format!("user {}: a user can only be defined once", user.name));
            }
            seen.push(user.name.clone());
            self.users.write().insert(user.name.clone(), user.into());
        }
        self.moved();
        Ok(())
    }

    /// The directives that describe these users, without what `requirepass` alone already says.
    pub fn directives(&self, password: Option<&[u8]>) -> Vec<String> {
        let alone = Users::default();
        alone.require_password(password);
        let implied = alone.default_user();
        self.all().iter().filter(|user| ***user != *implied).map(|user| directive(user)).collect()
    }

    /// The directives of all users, whatever else says.
    pub fn all_directives(&self) -> Vec<String> {
        self.all().iter().map(|user| directive(user)).collect()
    }

    /// The users that these directives describe, and no others. Nothing is taken yet.
    pub fn of_directives(lines: &[String], all_channels: bool) -> Result<Vec<User>, String> {
        let alone = Users::default();
        alone.take_directives(lines, all_channels)?;
        Ok(alone.all().iter().map(|user| User::clone(user)).collect())
    }

    /// Like [`Users::directives`], but with `requirepass` set to this password.
    pub fn directives_with(&self, password: Option<&[u8]>) -> Vec<String> {
        let later = Users::default();
        later.replace(self.all().iter().map(|user| User::clone(user)).collect());
        later.require_password(password);
        later.directives(password)
    }

    /// Reads an ACL file. If lines are wrong, the error lists all of them and nothing is taken.
    pub fn read_file(path: &Path, all_channels: bool) -> Result<Vec<User>, String> {
        let shown = path.display();
        let text =
            fs::read_to_string(path).map_err(|error| format!("Error loading ACLs, opening file '{shown}': {error}"))?;
        let mut users: Vec<User> = Vec::new();
        let mut errors = String::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // As Redis reads the file: no word has spaces, and quotes have no meaning.
            let words: Vec<String> = line.split_ascii_whitespace().map(str::to_owned).collect();
            let user = match words.split_first() {
                Some((first, rest)) if first == "user" && !rest.is_empty() => parse(rest, all_channels),
                _ => Err("line should start with user keyword followed by the username".to_owned()),
            };
            let user = user.and_then(|user| match users.iter().any(|other| other.name == user.name) {
                true => Err(format!("user '{}' is duplicated", user.name)),
                false => Ok(user),
            });
            match user {
                Ok(user) => users.push(user),
                Err(why) => errors.push_str(&format!("{shown}:{}: {why}. ", number + 1)),
            }
        }
        if errors.is_empty() {
            return Ok(users);
        }
        Err(format!("{errors}WARNING: ACL errors detected, no change to the previously active ACL rules was performed"))
    }

    /// Writes all users. The file is complete at every moment.
    pub fn write_file(&self, path: &Path) -> io::Result<()> {
        let temporary = path.with_extension(format!("tmp-{}", std::process::id()));
        // The file contains hashes of passwords. So a new file is readable only by its owner.
        let mode = fs::metadata(path).map_or(0o600, |known| known.permissions().mode() & 0o777);
        let text: String = self.all().iter().map(|user| user.line() + "\n").collect();
        let written = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode)
            .open(&temporary)
            .and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            // Best effort: the file may not exist.
            let _ = fs::remove_file(&temporary);
        }
        written
    }
}
