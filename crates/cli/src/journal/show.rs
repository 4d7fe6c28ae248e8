//! Owns the output of a journal as text, and the check of all its bytes. Never writes a file.

use base::size::human;
use std::fmt::Write;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ::journal::{Record, stored_bytes};
use rdb::Item;

use super::{ADVICE, IN_USE, Opened, check_values, commands, describe, open, open_index, read_checkpoint};
use crate::Flash;
use crate::failure::Failure;
use crate::table::{Align, pairs, table};
use crate::timestamp;

/// The most bytes that are shown of one argument.
const SHOWN_BYTES_MAX: usize = 64;

pub fn show(dir: &Path, from: u64, limit: u64) -> Result<String, Failure> {
    let opened = open(dir)?;
    let mut text = head(dir, &opened);
    let rows: Vec<Vec<String>> = opened
        .view
        .held()
        .iter()
        .map(|held| {
            let (file, frames) = (format!("journal-{:04}", held.file), held.frames.to_string());
            vec![file, held.start.to_string(), held.end.to_string(), frames]
        })
        .collect();
    let columns = [("FILE", Align::Left), ("FROM", Align::Right), ("TO", Align::Right), ("FRAMES", Align::Right)];
    let _ = write!(text, "\n{}\n", table(&columns, &rows));
    let mut shown = 0;
    let mut is_cut = false;
    let read = opened.view.records(&mut |end, record| {
        let start = end - stored_bytes(record.resp.len());
        if start < from {
            return ControlFlow::Continue(());
        }
        if shown == limit {
            is_cut = true;
            let _ = writeln!(text, "more records follow: --from {start}");
            return ControlFlow::Break(());
        }
        shown += 1;
        text.push_str(&line(start, record));
        ControlFlow::Continue(())
    });
    read.map_err(|error| Failure::failed(error.to_string()).hint(ADVICE))?;
    if !is_cut {
        let _ = writeln!(text, "{shown} records");
    }
    Ok(text)
}

pub fn check(dir: &Path, (flash, flash_paths): (&Flash, &[PathBuf])) -> Result<String, Failure> {
    let opened = open(dir)?;
    let (mut keys, mut libraries) = (0_u64, 0_u64);
    read_checkpoint(dir, &opened, |item| {
        keys += u64::from(matches!(item, Item::Key(_)));
        libraries += u64::from(matches!(item, Item::Function(_)));
        Ok(())
    })?;
    let mut on_flash = 0;
    if let Some(mut index) = open_index(dir, &opened)? {
        on_flash = index.entries;
        let read = index.read::<io::Error>(&mut |_, _, _| Ok(()));
        read.map_err(|error| Failure::failed(format!("{}: the index: {error}", dir.display())).hint(ADVICE))?;
    }
    let (mut records, mut count) = (0_u64, 0_u64);
    let mut bad = None;
    let read = opened.view.records(&mut |end, record| match commands(record.resp) {
        Some(commands) => {
            records += 1;
            count += commands.len() as u64;
            ControlFlow::Continue(())
        }
        None => {
            bad = Some(end - stored_bytes(record.resp.len()));
            ControlFlow::Break(())
        }
    });
    read.map_err(|error| Failure::failed(error.to_string()).hint(ADVICE))?;
    if let Some(position) = bad {
        let what = format!("{}: the record at position {position} is not a valid command", dir.display());
        return Err(Failure::failed(what).hint(ADVICE));
    }
    let frames: u64 = opened.view.held().iter().map(|held| held.frames).sum();
    let counts = format!(
        "{keys} keys and {libraries} libraries in the checkpoint, {on_flash} values on flash; {records} records with {count} commands in {frames} frames"
    );
    let mut values = String::new();
    if on_flash > 0 && flash_paths.is_empty() {
        values = "the values on flash were not read: --flash-path PATH, with the node stopped, reads them\n".to_owned();
    } else if on_flash > 0 {
        let (unreadable, lost) = check_values(dir, (&opened.manifest, &opened.view), (flash, flash_paths))?;
        if !unreadable.entries.is_empty() || !unreadable.files.is_empty() {
            let what = format!("{}{counts}\n{}", head(dir, &opened), describe(&unreadable, &lost));
            let hint = match unreadable.files.is_empty() {
                true => "a start serves everything else, and these keys answer with errors until they are set again",
                false => "restore the flash files; flintkv repair --lose-keys saves what can be read",
            };
            return Err(Failure::failed(what).hint(hint));
        }
    }
    Ok(format!("{}{counts}\n{values}ok\n", head(dir, &opened)))
}

fn head(dir: &Path, opened: &Opened) -> String {
    let manifest = &opened.manifest;
    let checkpoint = manifest.checkpoint.as_ref().map_or("none".to_owned(), |checkpoint| {
        format!("{}, {} bytes ({})", checkpoint.name, checkpoint.bytes, human(checkpoint.bytes))
    });
    let mut text = pairs(&[
        ("directory", dir.display().to_string()),
        ("log", format!("{:032x}", u128::from_be_bytes(manifest.log_id))),
        ("checkpoint", checkpoint),
        ("positions", format!("{} to {}", manifest.position, opened.view.end())),
    ]);
    if opened.view.is_in_use() {
        let _ = writeln!(text, "{IN_USE}");
    }
    text
}

/// A record: a line for each command.
fn line(start: u64, record: &Record) -> String {
    let mut text = String::new();
    let head = format!("{start}  {}  db {}  ", timestamp::instant(record.time_ms), record.db);
    match commands(record.resp) {
        Some(commands) => {
            for (nth, (args, _)) in commands.iter().enumerate() {
                let args: Vec<String> = args.iter().map(|arg| typed(arg)).collect();
                let head = if nth == 0 { head.clone() } else { " ".repeat(head.len()) };
                let _ = writeln!(text, "{head}{}", args.join(" "));
            }
        }
        None => {
            let _ = writeln!(text, "{head}not a valid command: {}", typed(record.resp));
        }
    }
    text
}

/// An argument, written as in redis-cli.
fn typed(arg: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\".contains(byte);
    let shown = &arg[..arg.len().min(SHOWN_BYTES_MAX)];
    let mut text = String::new();
    if !shown.is_empty() && shown.iter().all(is_plain) {
        text.extend(shown.iter().map(|&byte| char::from(byte)));
    } else {
        text.push('"');
        for &byte in shown {
            match byte {
                b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
                b'\n' => text.push_str("\\n"),
                b'\r' => text.push_str("\\r"),
                b'\t' => text.push_str("\\t"),
                b' '..=b'~' => text.push(char::from(byte)),
                _ => {
                    let _ = write!(text, "\\x{byte:02x}");
                }
            }
        }
        text.push('"');
    }
    if arg.len() > shown.len() {
        let _ = write!(text, "… ({} bytes)", arg.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_shown_as_they_are_typed() {
        assert_eq!(typed(b"key:1"), "key:1");
        assert_eq!(typed(b""), "\"\"");
        assert_eq!(typed(b"a b\"\\\n\x00\xff"), r#""a b\"\\\n\x00\xff""#);
        assert_eq!(typed(&[b'x'; 70]), format!("{}… (70 bytes)", "x".repeat(64)));
    }
}
