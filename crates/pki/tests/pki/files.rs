//! The files of keys: whole, and only their owner's.

use crate::common::NOW_MS;
use pki::{Authority, FileError, SecretText, read_secret, write_public, write_secret};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_authority_lies_in_a_file_that_only_its_owner_reads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("authority.pem");
    let authority = Authority::create("east", NOW_MS).unwrap();
    write_secret(&path, &authority.to_pem()).unwrap();
    assert_eq!((mode(&path), names(folder.path())), (0o600, vec!["authority.pem".to_owned()]));
    let again = Authority::from_pem(&read_secret(&path).unwrap()).unwrap();
    assert_eq!(again.certificate(), authority.certificate());
    for open in [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o777] {
        fs::set_permissions(&path, Permissions::from_mode(open)).unwrap();
        let error = read_secret(&path).unwrap_err();
        assert!(matches!(error, FileError::TooOpen { mode, .. } if mode == open), "{open:o}: {error}");
        assert!(error.to_string().contains(&format!("{open:04o}")), "{error}");
    }
    for closed in [0o600, 0o400, 0o700] {
        fs::set_permissions(&path, Permissions::from_mode(closed)).unwrap();
        read_secret(&path).unwrap();
    }
    // Writing again closes it.
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    write_secret(&path, &authority.to_pem()).unwrap();
    assert_eq!(mode(&path), 0o600);
    let public = folder.path().join("authority.crt");
    write_public(&public, authority.certificate().pem().as_bytes()).unwrap();
    assert_eq!(fs::read_to_string(&public).unwrap(), authority.certificate().pem());
}

#[test]
fn a_crash_before_leaves_nothing_that_opens_the_next_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.pem");
    let (draft, elsewhere) = (folder.path().join("node.pem.new"), folder.path().join("elsewhere"));
    fs::write(&draft, "half of a k").unwrap();
    fs::set_permissions(&draft, Permissions::from_mode(0o666)).unwrap();
    write_secret(&path, &SecretText::new("a key".to_owned())).unwrap();
    assert_eq!((mode(&path), fs::read_to_string(&path).unwrap()), (0o600, "a key".to_owned()));
    // A draft that leads elsewhere is not followed.
    fs::write(&elsewhere, "untouched").unwrap();
    symlink(&elsewhere, &draft).unwrap();
    write_secret(&path, &SecretText::new("another".to_owned())).unwrap();
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "untouched");
    assert_eq!(names(folder.path()), ["elsewhere", "node.pem"]);
}

#[test]
fn a_file_that_cannot_be_written_stays_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.pem");
    write_secret(&path, &SecretText::new("a key".to_owned())).unwrap();
    // The draft's name is taken by a directory.
    fs::create_dir(folder.path().join("node.pem.new")).unwrap();
    let error = write_secret(&path, &SecretText::new("another".to_owned())).unwrap_err();
    assert!(matches!(error, FileError::Io { .. }) && error.to_string().contains("node.pem: "), "{error}");
    assert_eq!(read_secret(&path).unwrap().expose(), "a key");
    // The name itself is: no draft stays behind.
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    assert!(write_secret(&inner, &SecretText::new("a key".to_owned())).is_err());
    assert_eq!(names(folder.path()), ["inner", "node.pem", "node.pem.new"]);
    assert!(matches!(
        write_secret(&folder.path().join("no/where"), &SecretText::new(String::new())),
        Err(FileError::Io { .. })
    ));
}

#[test]
fn what_is_no_key_file_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.pem");
    let private = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        read_secret(&path)
    };
    assert!(matches!(private(&vec![b'x'; (64 << 10) + 1]), Err(FileError::Unreadable(_))));
    assert_eq!(private(&vec![b'x'; 64 << 10]).unwrap().expose().len(), 64 << 10);
    assert!(matches!(private(&[0xff, 0xfe]), Err(FileError::Unreadable(_))));
    assert!(matches!(read_secret(&folder.path().join("none")), Err(FileError::Io { .. })));
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::set_permissions(&inner, Permissions::from_mode(0o700)).unwrap();
    assert!(read_secret(&inner).is_err());
}
