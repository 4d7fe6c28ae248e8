//! Owns the question whether the machine has started anew since a journal was written last: then its tail may be lost, although replicas
//! have it. A process that is killed loses nothing. Never knows what follows from that.

use journal::manifest;
use std::path::{Path, PathBuf};
use std::{fs, io};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Beside the manifest. The kernel's id of the boot in which the journal was opened.
fn file(folder: &Path) -> PathBuf {
    folder.join(format!("{}.boot", manifest::NAME))
}

/// A journal of an earlier release has no such file: it is not known, so the tail counts as lost.
pub fn is_another(folder: &Path) -> bool {
    differs(fs::read_to_string(file(folder)).ok().as_deref(), fs::read_to_string(BOOT_ID).ok().as_deref())
}

/// From now on this is the boot of the journal.
pub fn note(folder: &Path) {
    let noted = fs::read(BOOT_ID).and_then(|id| fs::write(file(folder), id));
    if let Err(error) = noted {
        tracing::warn!(
            "{}: {error}: the next start will assume that the machine has lost power",
            file(folder).display()
        );
    }
}

pub fn forget(folder: &Path) -> io::Result<()> {
    super::remove_if_there(&file(folder))
}

fn differs(noted: Option<&str>, now: Option<&str>) -> bool {
    noted.is_none_or(str::is_empty) || noted != now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_boot_is_the_same() {
        for (noted, now, is_another) in [
            (Some("a\n"), Some("a\n"), false),
            (Some("a\n"), Some("b\n"), true),
            (None, Some("a\n"), true),
            (Some("a\n"), None, true),
            // The file was cut by the loss of power.
            (Some(""), Some(""), true),
        ] {
            assert_eq!(differs(noted, now), is_another, "{noted:?} {now:?}");
        }
    }
}
