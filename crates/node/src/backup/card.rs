//! Owns the description of a backup, `backup.json`, and the list of all backups. Never reads a dump.
//!
//! ```json
//! {"format": 1, "database": "orders", "created": "2026-11-23T01:11:05.000Z", "created_ms": 1795396265000,
//!  "node_version": "0.9.0", "rdb_version": 12, "file": "dump.rdb", "keys": 10, "bytes": 1234, "sha256": "0f…",
//!  "scheduled": false, "journal": {"log": "0f…", "position": 4711, "at_ms": 1795396265017}}
//! ```
//!
//! `journal` tells where the journal goes on from the backup: null, or missing in backups of earlier releases, if there was none.

use crate::files::about;
use crate::progress::{Backup, Cut};
use base::time::instant;
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

pub const CARD: &str = "backup.json";
pub const DUMP: &str = "dump.rdb";
const FORMAT: u64 = 1;

/// Writes the description into a directory, and syncs it.
pub fn write(backup: &Backup, folder: &Path) -> Result<(), String> {
    let text = json!({
        "format": FORMAT,
        "database": backup.database,
        "created": instant(backup.created_ms),
        "created_ms": backup.created_ms,
        "node_version": backup.node_version,
        "rdb_version": backup.rdb_version,
        "file": DUMP,
        "keys": backup.keys,
        "bytes": backup.bytes,
        "sha256": backup.sha256,
        "scheduled": backup.is_scheduled,
        "journal": backup.cut.map(|cut| json!({
            "log": format!("{:032x}", u128::from_be_bytes(cut.log_id)),
            "position": cut.position,
            "at_ms": cut.at_ms,
        })),
    });
    let path = folder.join(CARD);
    let write = || {
        let mut file = fs::File::create(&path)?;
        writeln!(file, "{text:#}")?;
        file.sync_all()
    };
    write().map_err(|error| about(&path, error))
}

/// Reads the description of the backup at `path` below `root`. The size of the dump is compared, its bytes are not.
pub fn read(root: &Path, path: &str) -> Result<Backup, String> {
    let file = root.join(path).join(CARD);
    let text = fs::read(&file).map_err(|error| about(&file, error))?;
    let card: Value = serde_json::from_slice(&text).map_err(|error| about(&file, error))?;
    if card["format"] != FORMAT {
        let what = format!("its format is {}, but this release reads only format {FORMAT}", card["format"]);
        return Err(about(&file, what));
    }
    let missing = |name: &str| about(&file, format!("the field {name} is missing"));
    let text = |name: &str| card[name].as_str().map(str::to_owned).ok_or_else(|| missing(name));
    let number = |name: &str| card[name].as_u64().ok_or_else(|| missing(name));
    let backup = Backup {
        path: path.to_owned(),
        database: text("database")?,
        created_ms: number("created_ms")?,
        node_version: text("node_version")?,
        rdb_version: number("rdb_version")?.try_into().map_err(|_| missing("rdb_version"))?,
        keys: number("keys")?,
        bytes: number("bytes")?,
        sha256: text("sha256")?,
        is_scheduled: card["scheduled"].as_bool().unwrap_or(false),
        cut: cut(&card["journal"]),
    };
    let dump = root.join(path).join(DUMP);
    let bytes = fs::metadata(&dump).map_err(|error| about(&dump, error))?.len();
    if bytes != backup.bytes {
        return Err(about(&dump, format!("it has {bytes} bytes, but {CARD} says {}", backup.bytes)));
    }
    Ok(backup)
}

fn cut(journal: &Value) -> Option<Cut> {
    let log_id = u128::from_str_radix(journal["log"].as_str()?, 16).ok()?.to_be_bytes();
    Some(Cut { log_id, position: journal["position"].as_u64()?, at_ms: journal["at_ms"].as_u64()? })
}

/// All backups whose description can be read, newest first: directories directly below `root` and one level deeper.
pub fn list(root: &Path) -> Vec<Backup> {
    let mut found: Vec<Backup> = find(root).into_iter().filter_map(Result::ok).collect();
    found.sort_by(|a, b| (b.created_ms, &b.path).cmp(&(a.created_ms, &a.path)));
    found
}

/// All backups, for who deletes what no backup needs. An error tells why there may be others.
pub fn list_all(root: &Path) -> Result<Vec<Backup>, String> {
    find(root).into_iter().collect()
}

fn find(root: &Path) -> Vec<Result<Backup, String>> {
    let mut found = Vec::new();
    let mut take = |path: &str| {
        let backup = match is_backup(&root.join(path)) {
            Ok(false) => return false,
            Ok(true) => read(root, path),
            Err(why) => Err(why),
        };
        found.push(backup);
        true
    };
    let mut failed = Vec::new();
    for name in folders(root, &mut failed) {
        if !take(&name) {
            for inner in folders(&root.join(&name), &mut failed) {
                take(&format!("{name}/{inner}"));
            }
        }
    }
    found.extend(failed.into_iter().map(Err));
    found
}

fn is_backup(folder: &Path) -> Result<bool, String> {
    match fs::metadata(folder.join(CARD)) {
        Ok(_) => Ok(true),
        Err(error) if is_none_of_ours(&error) => Ok(false),
        Err(error) => Err(about(folder, error)),
    }
}

/// The directories in a directory, but for those that are being written. `failed` gets the reasons why there may be others.
fn folders(folder: &Path, failed: &mut Vec<String>) -> Vec<String> {
    let mut names = Vec::new();
    let mut list = || {
        for entry in fs::read_dir(folder)? {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            match fs::metadata(folder.join(&name)) {
                Ok(found) if found.is_dir() && !name.starts_with('.') => names.push(name),
                Err(error) if !is_none_of_ours(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    };
    if let Err(error) = list()
        && !is_none_of_ours(&error)
    {
        failed.push(about(folder, error));
    }
    names
}

/// A node may read its own backups. What it may not read belongs to others, as `lost+found` does.
fn is_none_of_ours(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The archive of a journal loses what no backup needs, so a backup that cannot be read for a moment must not be overlooked.
    #[test]
    fn only_a_complete_list_has_no_error() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(list_all(&root.join("none")).map(|all| all.len()), Ok(0));
        let backup = |path: &str| Backup {
            path: path.to_owned(),
            database: "orders".to_owned(),
            created_ms: 1,
            node_version: "1".to_owned(),
            rdb_version: 12,
            keys: 0,
            bytes: 3,
            sha256: String::new(),
            is_scheduled: false,
            cut: None,
        };
        for path in ["one", "orders/two", "orders/three"] {
            fs::create_dir_all(root.join(path)).unwrap();
            fs::write(root.join(path).join(DUMP), "abc").unwrap();
            write(&backup(path), &root.join(path)).unwrap();
        }
        fs::create_dir_all(root.join("orders/journal")).unwrap();
        fs::create_dir_all(root.join("orders/.four.part")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        assert_eq!(list_all(root).unwrap().len(), 3);

        // It is there, and cannot be read.
        let card = root.join("orders/two").join(CARD);
        fs::remove_file(&card).unwrap();
        fs::create_dir(&card).unwrap();
        assert!(list_all(root).unwrap_err().starts_with(&card.display().to_string()));
        assert_eq!(list(root).len(), 2);
    }
}
