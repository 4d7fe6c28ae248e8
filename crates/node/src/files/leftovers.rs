//! Owns the removal of temporary files whose process was killed before it could remove them. Never knows what is in them.

use super::about;
use std::fs;
use std::path::Path;

/// How a temporary file's name begins, how many numbers follow, of which the first is the process, and how the name ends.
const NAMES: [(&str, usize, &str); 6] = [
    ("temp-", 1, ".rdb"),
    ("temp-sync-", 3, ".rdb"),
    ("temp-pending-", 3, ".rdb"),
    ("replica-", 2, ".tmp"),
    ("backlog-", 2, ".tmp"),
    ("check-", 2, ".tmp"),
];

/// Removes what dead processes have left in the directory of a database that is being opened, so this process has no such file there yet.
/// Redis names the file of BGSAVE in the same way.
pub fn remove_leftovers(folder: &Path) {
    let Ok(files) = fs::read_dir(folder) else { return };
    for name in files.filter_map(|file| file.ok()?.file_name().into_string().ok()) {
        if process_of(&name).is_none_or(lives) {
            continue;
        }
        let path = folder.join(name);
        match fs::remove_file(&path) {
            Ok(()) => tracing::info!("{} is removed: its process was killed while it wrote it", path.display()),
            Err(error) => tracing::warn!("{}", about(&path, error)),
        }
    }
}

/// Whether another process has this number. A process that was started anew, or in another container, may have the number of the one before.
fn lives(process: u32) -> bool {
    process != std::process::id()
        && (Path::new(&format!("/proc/{process}")).exists() || !Path::new("/proc/self").exists())
}

/// `None`: it is not the name of a temporary file.
fn process_of(name: &str) -> Option<u32> {
    NAMES.iter().find_map(|&(begin, count, end)| {
        let numbers: Vec<&str> = name.strip_prefix(begin)?.strip_suffix(end)?.split('-').collect();
        let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        (numbers.len() == count && numbers.iter().all(is_number)).then(|| numbers[0].parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_temporary_files_of_dead_processes_go() {
        let folder = tempfile::tempdir().unwrap();
        // No process has a number beyond 2^22.
        let dead = [
            "temp-4194305.rdb",
            "temp-sync-4194305-17-0.rdb",
            "temp-pending-4194305-17-0.rdb",
            "replica-4194305-17.tmp",
        ];
        let own = format!("temp-{}.rdb", std::process::id());
        let stay = [
            "temp-1.rdb",
            "replica-1-17.tmp",
            "temp-4194305.rdb.deleted",
            "temp-x-4194305.rdb",
            "temp-sync-4194305-17.rdb",
            "temp-.rdb",
            "replica-4194305-.tmp",
            "replica-4194305-1x.tmp",
            "dump.rdb",
        ];
        dead.iter().chain(&stay).chain([&&*own]).for_each(|name| fs::write(folder.path().join(name), "").unwrap());
        remove_leftovers(folder.path());
        remove_leftovers(&folder.path().join("none"));
        let names = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let (mut found, mut stay) = (names.collect::<Vec<_>>(), stay.map(str::to_owned));
        found.sort();
        stay.sort();
        assert_eq!(found, stay);
    }
}
