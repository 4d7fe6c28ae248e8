//! Owns which directories backups may have: those below `backup-path`, so that nobody can make the node write or read
//! elsewhere. Never reads a backup.

use std::path::{Component, Path};

/// The directory below `root` that an operator means: a path relative to `root`, or an absolute path below it.
pub fn below(root: &Path, given: &str) -> Result<String, String> {
    let refused = || format!("'{given}' is not below {}, the node's backup-path", root.display());
    let given_path = Path::new(given);
    let inner =
        if given_path.is_absolute() { given_path.strip_prefix(root).map_err(|_| refused())? } else { given_path };
    let mut names = Vec::new();
    for component in inner.components() {
        match component {
            Component::Normal(name) => {
                let name = name.to_str().ok_or_else(refused)?;
                if name.starts_with('.') {
                    return Err(format!(
                        "'{name}' begins with a dot: such names are reserved for backups that are still being written"
                    ));
                }
                names.push(name);
            }
            Component::CurDir => {}
            _ => return Err(refused()),
        }
    }
    if names.is_empty() {
        return Err(refused());
    }
    let path = names.join("/");
    // Nobody may lead the node elsewhere with a link. What does not exist yet is no link.
    let mut there = root.to_owned();
    for name in names {
        there.push(name);
        if there.is_symlink() {
            return Err(format!("{} is a symbolic link: give the directory itself", there.display()));
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_below_the_backup_path_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for (given, path) in [("a", "a"), ("orders/one", "orders/one"), ("./a/", "a"), ("a//b", "a/b")] {
            assert_eq!(below(root, given), Ok(path.to_owned()), "{given}");
        }
        assert_eq!(below(root, root.join("a/b").to_str().unwrap()), Ok("a/b".to_owned()));
        for given in ["", ".", "..", "a/../../b", "../b", "/etc", "/", ".a", "a/.b", root.to_str().unwrap()] {
            assert!(below(root, given).is_err(), "{given} was taken");
        }
        std::os::unix::fs::symlink("/tmp", root.join("away")).unwrap();
        assert!(below(root, "away/x").unwrap_err().ends_with("is a symbolic link: give the directory itself"));
    }
}
