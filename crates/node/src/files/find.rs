//! Owns the choice of the files that are loaded at the start. Never loads them.
//!
//! As in Redis, `appendonly yes` means that the append-only file has the dataset, and `appendonly no` that the dump has.
//! But FlintKV writes no append-only file. So after SAVE the dump is newer, and it counts until Redis has written its
//! append-only file again.

use super::{about, aof};
use crate::capacity::DEFAULT_NAME;
use config::RedisFiles;
use rdb::{Item, Reader};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The remark in dumps that FlintKV has written.
pub const OURS: &str = "flintkv-ver";

/// What is loaded, in this order.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    pub files: Vec<PathBuf>,
    /// The last file may end in the middle of a command.
    pub is_aof: bool,
}

impl Plan {
    pub fn dump(path: &Path) -> Result<Plan, String> {
        fs::metadata(path).map_err(|error| about(path, error))?;
        Ok(Plan { files: vec![path.to_owned()], is_aof: false })
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().filter_map(|path| fs::metadata(path).ok()).map(|file| file.len()).sum()
    }

    /// For people.
    pub fn what(&self) -> String {
        let names: Vec<_> = self.files.iter().map(|path| path.display().to_string()).collect();
        names.join(", ")
    }
}

/// Where the files of a database are.
pub fn directory(name: &str, settings: &RedisFiles) -> PathBuf {
    if name == DEFAULT_NAME { settings.dir.clone() } else { settings.dir.join(name) }
}

/// What must be loaded. `None`: there is nothing.
pub fn plan(name: &str, settings: &RedisFiles) -> Result<Option<Plan>, String> {
    let folder = directory(name, settings);
    let dump = folder.join(&settings.dbfilename);
    let has_dump = dump.exists();
    let aof = append_only(&folder, settings)?;
    let is_ours = |path: &Path| has_dump && is_written_by_us(path);
    match aof {
        Some(aof) if !settings.appendonly => {
            tracing::warn!(
                "{} is not loaded, because appendonly is no: set appendonly yes if the append-only file has the dataset",
                aof.what()
            );
        }
        Some(aof) if is_ours(&dump) && newest(&aof.files) <= changed(&dump) => {
            tracing::info!("{} is loaded instead of {}, which is older", dump.display(), aof.what());
        }
        Some(aof) => return Ok(Some(aof)),
        None => {}
    }
    if has_dump { Plan::dump(&dump).map(Some) } else { Ok(None) }
}

/// The files of the append-only file: several since Redis 7.0, one before.
fn append_only(folder: &Path, settings: &RedisFiles) -> Result<Option<Plan>, String> {
    let parts = folder.join(&settings.appenddirname);
    let manifest = parts.join(format!("{}.manifest", settings.appendfilename));
    let files = if manifest.exists() {
        let text = fs::read_to_string(&manifest).map_err(|error| about(&manifest, error))?;
        let names = aof::manifest(&text).map_err(|why| about(&manifest, why))?;
        names.iter().map(|name| parts.join(name)).collect()
    } else {
        let single = folder.join(&settings.appendfilename);
        if single.is_file() { vec![single] } else { Vec::new() }
    };
    if let Some(missing) = files.iter().find(|path| !path.is_file()) {
        return Err(about(missing, "the manifest names this file, but it is missing"));
    }
    Ok((!files.is_empty()).then_some(Plan { files, is_aof: true }))
}

fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|file| file.modified()).ok()
}

fn newest(files: &[PathBuf]) -> Option<SystemTime> {
    files.iter().filter_map(|path| changed(path)).max()
}

/// Whether the remarks of a dump say so. They come before the first key.
fn is_written_by_us(dump: &Path) -> bool {
    let Some(mut reader) = File::open(dump).ok().and_then(|file| Reader::new(file, false).ok()) else { return false };
    while let Ok(Item::Aux(name, _)) = reader.next_item() {
        if name == OURS.as_bytes() {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn settings(dir: &Path, appendonly: bool) -> RedisFiles {
        RedisFiles {
            save_points: Vec::new(),
            stop_writes_on_bgsave_error: true,
            dir: dir.to_owned(),
            dbfilename: "dump.rdb".into(),
            appendonly,
            appendfilename: "appendonly.aof".into(),
            appenddirname: "appendonlydir".into(),
            aof_load_truncated: true,
            rdbcompression: true,
            rdbchecksum: true,
            rdb_version: 10,
            appendfsync: config::AppendFsync::EverySec,
            aof_rewrite_percentage: 100,
            aof_rewrite_min_bytes: 64 << 20,
            backlog_bytes: 1 << 30,
            recovery_target_s: 10,
        }
    }

    #[test]
    fn what_is_loaded_follows_from_the_directory() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let loaded =
            |appendonly| plan(DEFAULT_NAME, &settings(dir, appendonly)).map(|plan| plan.map(|plan| plan.files));
        assert_eq!(loaded(true), Ok(None));
        let (dump, single) = (dir.join("dump.rdb"), dir.join("appendonly.aof"));
        fs::write(&dump, "REDIS0010\u{7}").unwrap();
        assert_eq!(loaded(true), Ok(Some(vec![dump.clone()])));
        fs::write(&single, "").unwrap();
        assert_eq!(loaded(true), Ok(Some(vec![single.clone()])));
        assert_eq!(loaded(false), Ok(Some(vec![dump.clone()])));

        let parts = dir.join("appendonlydir");
        fs::create_dir(&parts).unwrap();
        fs::write(parts.join("appendonly.aof.manifest"), "file b seq 1 type b\nfile i seq 1 type i\n").unwrap();
        fs::write(parts.join("b"), "").unwrap();
        assert!(loaded(true).unwrap_err().ends_with("the manifest names this file, but it is missing"));
        fs::write(parts.join("i"), "").unwrap();
        assert_eq!(loaded(true), Ok(Some(vec![parts.join("b"), parts.join("i")])));

        // A dump of FlintKV counts if it is newer than the append-only file.
        let mut ours = rdb::Writer::new(Vec::new(), rdb::Options { version: 10, compresses: true, has_checksum: true });
        ours.aux("redis-ver", b"7.2.4").unwrap();
        ours.aux(OURS, b"1").unwrap();
        fs::write(&dump, ours.finish().unwrap()).unwrap();
        let later = SystemTime::now() + Duration::from_secs(10);
        let set = |path: &Path, at| File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
        set(&dump, later);
        assert_eq!(loaded(true), Ok(Some(vec![dump.clone()])));
        set(&parts.join("i"), later + Duration::from_secs(10));
        assert_eq!(loaded(true), Ok(Some(vec![parts.join("b"), parts.join("i")])));

        assert_eq!(plan("other", &settings(dir, false)), Ok(None), "another database has a directory of its own");
        fs::create_dir(dir.join("other")).unwrap();
        fs::write(dir.join("other/dump.rdb"), "").unwrap();
        let other = plan("other", &settings(dir, false)).unwrap().unwrap();
        assert_eq!(other.files, [dir.join("other/dump.rdb")]);
    }
}
