//! Owns what is asked at the terminal: passwords, and names that confirm. Never stores an answer.

use std::io::{self, BufRead, IsTerminal, Write};

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::failure::Failure;

/// A line that is not shown; without a terminal, the next line of standard input.
pub fn secret(question: &str) -> Result<String, Failure> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        let line = read_line()?;
        return if line.is_empty() {
            Err(Failure::refused("there is no password, and no terminal to ask at"))
        } else {
            Ok(line)
        };
    }
    eprint!("{question}");
    let _ = io::stderr().flush();
    let shown = tcgetattr(&stdin).map_err(|error| Failure::failed(format!("the terminal: {error}")))?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    // Ctrl-C at this moment leaves the terminal as it was: the line discipline's signal ends us, and shells restore it.
    tcsetattr(&stdin, OptionalActions::Flush, &hidden)
        .map_err(|error| Failure::failed(format!("the terminal: {error}")))?;
    let line = read_line();
    let _ = tcsetattr(&stdin, OptionalActions::Flush, &shown);
    eprintln!();
    line
}

/// A new password: twice at a terminal, so that a slip does not lock anybody out.
pub fn new_secret(whose: &str) -> Result<String, Failure> {
    let first = secret(&format!("New password of {whose}: "))?;
    if io::stdin().is_terminal() && secret("Once more: ")? != first {
        return Err(Failure::refused("the two are not the same; nothing was changed"));
    }
    Ok(first)
}

/// `yes` names the thing on the command line, or it is typed; what happens to it is said before.
pub fn confirm(what: &str, name: &str, yes: Option<&str>) -> Result<(), Failure> {
    match yes {
        Some(given) if given == name => return Ok(()),
        Some(given) => {
            return Err(Failure::refused(format!(
                "--yes {given} is not the name of what would be lost; nothing was changed"
            ))
            .hint(format!("to go on: --yes {name}")));
        }
        None if !io::stdin().is_terminal() => {
            return Err(Failure::refused(format!("{what}: not confirmed; nothing was changed"))
                .hint(format!("to go on: --yes {name}")));
        }
        None => {}
    }
    eprint!("{what}. Type {name} to go on: ");
    let _ = io::stderr().flush();
    if read_line()? == name { Ok(()) } else { Err(Failure::refused("that is something else; nothing was changed")) }
}

fn read_line() -> Result<String, Failure> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|error| Failure::failed(format!("standard input: {error}")))?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}
