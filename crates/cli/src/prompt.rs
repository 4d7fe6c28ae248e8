//! Owns questions at the terminal: passwords, and names as confirmation. Never stores an answer.

use std::io::{self, BufRead, IsTerminal, Write};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};

use crate::failure::Failure;

const CTRL_C: u8 = 3;

/// Reads a line without showing it. Without a terminal: the next line of standard input.
pub fn secret(question: &str) -> Result<String, Failure> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        let line = read_line()?;
        return if line.is_empty() {
            Err(Failure::refused("no password was given, and there is no terminal to ask for it"))
        } else {
            Ok(line)
        };
    }
    eprint!("{question}");
    let _ = io::stderr().flush();
    let failed = |error| Failure::failed(format!("the terminal: {error}"));
    let shown = tcgetattr(&stdin).map_err(failed)?;
    let mut hidden = shown.clone();
    // With ISIG, Ctrl-C would end the process while the terminal still hides input. Without it, Ctrl-C ends the line.
    hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
    hidden.special_codes[SpecialCodeIndex::VEOL] = CTRL_C;
    tcsetattr(&stdin, OptionalActions::Flush, &hidden).map_err(failed)?;
    let line = hidden_line(&mut stdin.lock());
    let _ = tcsetattr(&stdin, OptionalActions::Flush, &shown);
    eprintln!();
    line
}

/// Reads up to the end of the line, or Ctrl-C.
fn hidden_line(input: &mut impl BufRead) -> Result<String, Failure> {
    let mut line = Vec::new();
    loop {
        let read = input.fill_buf().map_err(|error| Failure::failed(format!("standard input: {error}")))?;
        let end = read.iter().position(|&byte| byte == b'\n' || byte == CTRL_C);
        let taken = end.map_or(read.len(), |end| end + 1);
        let ending = end.map(|end| read[end]);
        line.extend_from_slice(&read[..end.unwrap_or(taken)]);
        input.consume(taken);
        match ending {
            Some(CTRL_C) => return Err(Failure::interrupted("interrupted; nothing was changed")),
            None if taken > 0 => continue,
            _ => {
                return String::from_utf8(line)
                    .map_err(|_| Failure::refused("the input is not UTF-8; nothing was changed"));
            }
        }
    }
}

/// Asks for a new password: twice at a terminal, so that a typing mistake does not lock the user out.
pub fn new_secret(whose: &str) -> Result<String, Failure> {
    let first = secret(&format!("New password of {whose}: "))?;
    if io::stdin().is_terminal() && secret("Once more: ")? != first {
        return Err(Failure::refused("the two passwords differ; nothing was changed"));
    }
    Ok(first)
}

/// `yes` is the name from the command line; otherwise the user types it. The question says what will happen.
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
    if read_line()? == name { Ok(()) } else { Err(Failure::refused("the name does not match; nothing was changed")) }
}

fn read_line() -> Result<String, Failure> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|error| Failure::failed(format!("standard input: {error}")))?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hidden_line_ends_at_its_end_or_at_ctrl_c() {
        // Reads in pieces, as from a terminal.
        let read = |text: &[u8]| hidden_line(&mut io::BufReader::with_capacity(2, text));
        assert_eq!(read(b"secret\nmore"), Ok("secret".to_owned()));
        assert_eq!(read(b"secret"), Ok("secret".to_owned()), "the terminal was closed");
        assert_eq!(read(b"sec\x03").unwrap_err().code, 130);
        assert_eq!(read(b"\xff\n").unwrap_err().code, 2);
    }
}
