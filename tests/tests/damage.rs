//! Every kind of file of a dataset × a flipped bit, a zeroed page, a truncated file, and a missing file: the tests check
//! what a start does, what `flintkv repair` finds, and what each of its forms recovers, as described in docs/durability.md.

use flintkv_tests::{Node, Random, binary, eventually, free_port};
use std::fs::{self, File};
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

const PAGE: u64 = 4096;
/// The offset of the data in a journal file and in a flash file.
const DATA_OFFSET: u64 = 1 << 20;
/// The numbers of keys on flash, in the checkpoint's dump, and only in the journal.
const ON_FLASH: u64 = 40;
const IN_DUMP: u64 = 2;
const LATER: u64 = 10;
const ALL: u64 = ON_FLASH + IN_DUMP + LATER;
/// The size of a value on flash.
const VALUE_BYTES: usize = 20_000;

const SETTINGS: &[(&str, &str)] = &[
    ("appendonly", "yes"),
    ("appendfsync", "always"),
    ("auto-aof-rewrite-percentage", "0"),
    ("memory-limit", "128mb"),
    ("ram-limit", "64mb"),
    ("flash-compression", "none"),
    ("scrub-interval", "0"),
];

#[derive(Clone, Copy, Debug)]
enum Harm {
    /// Flips a bit of this byte.
    Flip(u64),
    /// Zeroes the page from this offset on.
    Zero(u64),
    /// Truncates the file to this many bytes.
    Cut(u64),
    Missing,
}

/// What a start does.
#[derive(Clone, Copy, Debug)]
enum Start {
    Refuses(&'static str),
    /// The node starts, and this many keys answer with an error.
    GoesOn {
        damaged: u64,
    },
}

struct Case {
    harm: Harm,
    start: Start,
    /// The output of `repair` without `--to`.
    found: &'static str,
    /// The form of `repair` that recovers the most, and the number of keys that a node has afterwards.
    form: &'static [&'static str],
    saved: RangeInclusive<u64>,
}

/// The dataset of a killed node: values on flash, values in the dump of its checkpoint, and a journal.
struct Dataset(Arc<TempDir>);

impl Dataset {
    fn make() -> Dataset {
        let mut node = Node::start(&[SETTINGS, &[("debug-tier-mode", "cold")]].concat());
        let mut client = node.connect();
        let mut random = Random::new(1);
        for key in 0..ON_FLASH {
            client.call(&[b"SET", format!("~key:{key}~").as_bytes(), &random.noise(VALUE_BYTES)]);
        }
        eventually("they are on flash", || client.info_number("tiering", "values_in_flash") == ON_FLASH);
        client.run("CONFIG SET debug-tier-mode off");
        // Such values get no copy on flash before a checkpoint.
        for key in 0..IN_DUMP {
            client.call(&[b"SET", format!("big:{key}").as_bytes(), &random.noise(1_200_000)]);
        }
        let before = client.info("persistence", "aof_rewrites");
        client.run("BGREWRITEAOF");
        eventually("the checkpoint is written", || client.info("persistence", "aof_rewrites") != before);
        for key in 0..LATER {
            assert_eq!(client.run(&format!("SET later:{key} value")), "OK");
        }
        client.run("APPEND ~key:0~ more");
        client.run("RENAME ~key:1~ ~renamed~");
        node.signal(9);
        node.ended();
        Dataset(node.dir.clone())
    }

    /// A copy, in a new directory.
    fn copy(&self) -> PathBuf {
        let copy = tempfile::tempdir_in(self.0.path()).unwrap().keep();
        for folder in ["flintkv.journal", "flash"] {
            let copied =
                Command::new("cp").args(["-r", "--sparse=always"]).arg(self.0.path().join(folder)).arg(&copy).status();
            assert!(copied.unwrap().success());
        }
        copy
    }
}

/// The file in one of the two directories whose name begins with `begin` and ends with `end`.
fn file(copy: &Path, begin: &str, end: &str) -> PathBuf {
    let files = ["flintkv.journal", "flash"].iter().flat_map(|folder| fs::read_dir(copy.join(folder)).unwrap());
    let mut found = files.map(|file| file.unwrap().path()).filter(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(begin) && name.ends_with(end)
    });
    found.next().expect("there is such a file")
}

fn harm(path: &Path, harm: Harm) {
    let open = || File::options().read(true).write(true).open(path).unwrap();
    match harm {
        Harm::Flip(at) => {
            let (file, mut byte) = (open(), [0]);
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 4], at).unwrap();
        }
        Harm::Zero(at) => {
            let bytes = open().metadata().unwrap().len().saturating_sub(at).min(PAGE);
            open().write_all_at(&vec![0; bytes as usize], at).unwrap();
        }
        Harm::Cut(bytes) => open().set_len(bytes).unwrap(),
        Harm::Missing => fs::remove_file(path).unwrap(),
    }
}

fn repair(copy: &Path, form: &[&str]) -> (bool, String) {
    let paths = |word: &&str| match *word {
        "NEW" => copy.join("new"),
        "FLASH" => {
            copy.join("flash").read_dir().unwrap().next().map_or(copy.join("flash"), |file| file.unwrap().path())
        }
        word => PathBuf::from(word),
    };
    let done =
        Command::new(binary()).arg("repair").arg(copy.join("flintkv.journal")).args(form.iter().map(paths)).output();
    let done = done.expect("the binary runs");
    (done.status.success(), String::from_utf8([done.stdout, done.stderr].concat()).expect("text"))
}

/// How many keys a node has in this directory, and how many of them answer with an error.
fn keys(dir: &Path, flash: &Path) -> (u64, u64) {
    let (path, flash) = (dir.display().to_string(), flash.display().to_string());
    let node = Node::start(&[SETTINGS, &[("dir", &path), ("flash-path", &flash)]].concat());
    let mut client = node.connect();
    eventually("the dataset is loaded", || client.info("persistence", "loading") == "0");
    let count = client.run("DBSIZE").trim_start_matches("(integer) ").parse().expect("a number");
    let names = (0..ON_FLASH).map(|key| format!("~key:{key}~")).chain(["~renamed~".to_owned()]);
    let damaged = names.filter(|name| client.run(&format!("STRLEN {name}")).contains("error")).count();
    for key in 0..LATER {
        let reply = client.run(&format!("GET later:{key}"));
        assert!(["\"value\"", "(nil)"].contains(&reply.as_str()), "{reply}");
    }
    (count, damaged as u64)
}

fn refusal(dir: &Path) -> String {
    let (path, flash) = (dir.display().to_string(), dir.join("flash").display().to_string());
    let directives = [SETTINGS, &[("dir", &path), ("flash-path", &flash)]].concat();
    Node::try_start_alone(free_port(), &directives).expect_err("it must not start")
}

/// Runs the cases on the file that `of` finds.
fn check(dataset: &Dataset, (begin, end): (&str, &str), cases: impl Fn(&Path) -> Vec<Case>) {
    for case in cases(dataset.0.path()) {
        let Case { harm: how, start, found, form, saved } = case;
        let copy = dataset.copy();
        harm(&file(&copy, begin, end), how);
        let with_flash = matches!(start, Start::GoesOn { .. }) || form.contains(&"--flash-path");
        let (whole, said) = repair(&copy, if with_flash { &["--flash-path", "FLASH"] } else { &[] });
        assert!(!whole && said.contains(found), "{begin} {how:?}: repair says: {said}");
        let before: Vec<_> = listing(&copy);
        let (done, said) = repair(&copy, form);
        assert!(done, "{begin} {how:?}: {form:?}: {said}");
        assert!(before == listing(&copy), "{begin} {how:?}: the damaged files are as they were");
        match start {
            Start::Refuses(why) => {
                let said = refusal(&copy);
                assert!(said.contains(why), "{begin} {how:?}: the start says: {said}");
            }
            Start::GoesOn { damaged } => {
                assert_eq!(keys(&copy, &copy.join("flash")), (ALL, damaged), "{begin} {how:?}: start");
            }
        }
        // The flash files stay, unless the result says that they must go.
        let new = copy.join("new");
        let target = tempfile::tempdir_in(&copy).unwrap().keep();
        match new.join("dump.rdb").exists() {
            true => _ = fs::copy(new.join("dump.rdb"), target.join("dump.rdb")).unwrap(),
            false => fs::rename(&new, target.join("flintkv.journal")).unwrap(),
        }
        let needs_flash = !said.contains("the flash files away") && !target.join("dump.rdb").exists();
        let flash = if needs_flash { copy.join("flash") } else { target.join("flash") };
        let (count, damaged) = keys(&target, &flash);
        assert!(saved.contains(&count), "{begin} {how:?}: {form:?} saves {count} keys: {said}");
        assert_eq!(damaged, 0, "{begin} {how:?}: {form:?}");
        fs::remove_dir_all(copy).unwrap();
    }
}

/// Names and sizes of all files of the dataset.
fn listing(copy: &Path) -> Vec<(PathBuf, u64)> {
    let files = ["flintkv.journal", "flash"].iter().flat_map(|folder| fs::read_dir(copy.join(folder)).unwrap());
    let mut files: Vec<_> =
        files.map(|file| file.unwrap()).map(|file| (file.path(), file.metadata().unwrap().len())).collect();
    files.sort();
    files
}

const CUT: &[&str] = &["--cut", "--to", "NEW"];

#[test]
fn a_damaged_journal() {
    let dataset = Dataset::make();
    let cases = |_: &Path| {
        let case = |harm, why, found, saved| Case { harm, start: Start::Refuses(why), found, form: CUT, saved };
        vec![
            case(Harm::Flip(20), "the checksum of the file's header is wrong", "--cut --to NEW", ALL..=ALL),
            case(Harm::Zero(0), "this is not a journal file", "--cut --to NEW", ALL..=ALL),
            case(
                Harm::Cut(DATA_OFFSET + 3 * PAGE),
                "the file is cut off",
                "the file is cut off",
                ON_FLASH + IN_DUMP..=ALL - 1,
            ),
            case(Harm::Cut(100), "this is not a journal file", "--cut --to NEW", ALL - LATER..=ALL - LATER),
            case(
                Harm::Missing,
                "is missing, but other files of the journal are there",
                "--cut --to NEW",
                ALL - LATER..=ALL - LATER,
            ),
        ]
    };
    check(&dataset, ("journal-0000", ""), cases);
    // Records that are on the device are also in the journal's files.
    let cases = |_: &Path| {
        let case = |harm, why, found| Case { harm, start: Start::Refuses(why), found, form: CUT, saved: ALL..=ALL };
        vec![
            case(Harm::Flip(20), "the checksum of the file's header is wrong", "--cut --to NEW"),
            case(Harm::Zero(0), "this is not a journal file", "--cut --to NEW"),
            case(Harm::Cut(2 * PAGE), "the file is cut off", "--cut --to NEW"),
            case(Harm::Missing, "journal-ring is missing", "--cut --to NEW"),
        ]
    };
    check(&dataset, ("journal-ring", ""), cases);
}

#[test]
fn a_damaged_manifest() {
    let cases = |_: &Path| {
        let case = |harm, why, found| Case {
            harm,
            start: Start::Refuses(why),
            found,
            form: &["--to", "NEW"],
            saved: ALL..=ALL,
        };
        vec![
            case(Harm::Flip(30), "the manifest is damaged", "--to NEW writes the dataset with a new manifest"),
            case(Harm::Zero(0), "the manifest is damaged", "the manifest is damaged"),
            case(Harm::Cut(40), "the manifest is damaged", "the manifest is damaged"),
            case(Harm::Missing, "has files but no manifest", "there is no manifest"),
        ]
    };
    check(&Dataset::make(), ("manifest", "manifest"), cases);
}

#[test]
fn a_damaged_dump() {
    let cases = |dir: &Path| {
        let bytes = file(dir, "base-", ".rdb").metadata().unwrap().len();
        let case = |harm, why, found, saved| Case {
            harm,
            start: Start::Refuses(why),
            found,
            form: &["--flash-path", "FLASH", "--to", "NEW"],
            saved,
        };
        let one = ON_FLASH + 1;
        vec![
            case(Harm::Flip(bytes * 3 / 4), "base-", "keys before the damage can be read", one..=one + 1),
            case(Harm::Zero(0), "base-", "0 keys before the damage can be read", ON_FLASH..=ON_FLASH),
            case(Harm::Cut(bytes * 3 / 4), "the manifest says", "1 keys before the damage can be read", one..=one),
            case(
                Harm::Missing,
                "the manifest names this file",
                "0 keys before the damage can be read",
                ON_FLASH..=ON_FLASH,
            ),
        ]
    };
    check(&Dataset::make(), ("base-", ".rdb"), cases);
}

#[test]
fn a_damaged_index() {
    let cases = |dir: &Path| {
        let bytes = file(dir, "base-", ".index").metadata().unwrap().len();
        let case = |harm, why, found, saved| Case {
            harm,
            start: Start::Refuses(why),
            found,
            form: &["--from-segments", "--flash-path", "FLASH", "--to", "NEW"],
            saved,
        };
        // A key that was changed or renamed after the checkpoint, and whose entry is lost, is removed.
        vec![
            case(Harm::Flip(14), "the index is damaged", "--from-segments", ALL - 2..=ALL),
            case(Harm::Zero(0), "the index is damaged", "--from-segments", ALL - 2..=ALL),
            case(Harm::Cut(bytes / 2), "the manifest says", "--from-segments", ALL - 2..=ALL),
            case(Harm::Missing, "the manifest names this file", "--from-segments", ALL - 2..=ALL),
        ]
    };
    check(&Dataset::make(), ("base-", ".index"), cases);
}

#[test]
fn damaged_flash() {
    let cases = |dir: &Path| {
        let mut bytes = vec![0; 8 << 20];
        File::open(file(dir, "flintkv-", ".log")).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        // The offset of the middle of a key's record.
        let record = |key: &str| {
            let name = format!("~key:{key}~");
            let is_it = |at: &usize| bytes[*at] == b'~' && bytes[*at..].starts_with(name.as_bytes());
            ((0..bytes.len()).find(is_it).expect("it is on flash") + VALUE_BYTES / 2) as u64
        };
        let case = |harm, start, found, saved| Case {
            harm,
            start,
            found,
            form: &["--lose-keys", "--flash-path", "FLASH", "--to", "NEW"],
            saved,
        };
        let goes_on = Start::GoesOn { damaged: 1 };
        let one = "1 values on flash cannot be read";
        vec![
            case(Harm::Flip(record("7")), goes_on, one, ALL - 1..=ALL - 1),
            case(Harm::Zero(record("7") / PAGE * PAGE), goes_on, one, ALL - 1..=ALL - 1),
            // Changed and renamed by the journal.
            case(Harm::Flip(record("0")), goes_on, "1 keys are lost", ALL - 1..=ALL - 1),
            case(Harm::Flip(record("1")), goes_on, "0:~renamed~", ALL - 1..=ALL - 1),
            // The first superblock is damaged, but there is a second one.
            case(
                Harm::Cut(record("7")),
                Start::Refuses("but its superblock says"),
                "it is cut off",
                IN_DUMP + LATER..=ALL - 1,
            ),
            case(
                Harm::Missing,
                Start::Refuses("the dataset's values on flash are missing"),
                "No such file",
                IN_DUMP + LATER..=IN_DUMP + LATER,
            ),
        ]
    };
    let dataset = Dataset::make();
    check(&dataset, ("flintkv-", ".log"), cases);
    // Both superblocks are damaged, but no page of the data.
    let copy = dataset.copy();
    let flash = file(&copy, "flintkv-", ".log");
    [0, PAGE].iter().for_each(|&at| harm(&flash, Harm::Zero(at)));
    assert!(refusal(&copy).contains("not a FlintKV log"));
    let (whole, said) = repair(&copy, &["--flash-path", "FLASH"]);
    assert!(
        !whole && said.contains("not a FlintKV log") && said.contains("0 values on flash cannot be read"),
        "{said}"
    );
    let (done, said) = repair(&copy, &["--lose-keys", "--flash-path", "FLASH", "--to", "NEW"]);
    assert!(done && said.contains("move the flash files away"), "{said}");
    let target = copy.join("target");
    fs::create_dir(&target).unwrap();
    fs::rename(copy.join("new"), target.join("flintkv.journal")).unwrap();
    assert_eq!(keys(&target, &target.join("flash")), (ALL, 0));
}

/// Without the flash paths, the command says that the values were not read.
#[test]
fn what_was_not_looked_at_is_not_called_sound() {
    let dataset = Dataset::make();
    let copy = dataset.copy();
    let (whole, said) = repair(&copy, &[]);
    assert!(
        whole && said.contains("nothing is damaged. Its 40 values on flash were not read: give every --flash-path"),
        "{said}"
    );
    let (whole, said) = repair(&copy, &["--flash-path", "FLASH"]);
    assert!(whole && said.contains("nothing is damaged") && !said.contains("not read"), "{said}");
    let journal = |args: &[&str]| {
        let done = Command::new(binary()).arg("journal").args(args).output().expect("the binary runs");
        (done.status.success(), String::from_utf8([done.stdout, done.stderr].concat()).expect("text"))
    };
    let (folder, flash) =
        (copy.join("flintkv.journal").display().to_string(), copy.join("flash").display().to_string());
    let (done, said) = journal(&["check", &folder]);
    assert!(done && said.contains("the values on flash were not read") && said.ends_with("\nok\n"), "{said}");
    let (done, said) = journal(&["check", &folder, "--flash-path", &flash]);
    assert!(done && !said.contains("not read") && said.ends_with("\nok\n"), "{said}");

    // The command reports the same damage as a start.
    let mut bytes = vec![0; 8 << 20];
    let log = file(&copy, "flintkv-", ".log");
    File::open(&log).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    for name in [&b"~key:0~"[..], b"~key:1~", b"~key:2~"] {
        let at = bytes.windows(name.len()).position(|found| found == name).expect("it is on flash");
        harm(&log, Harm::Flip((at + VALUE_BYTES / 2) as u64));
    }
    let (done, said) = journal(&["check", &folder, "--flash-path", &flash]);
    assert!(!done && said.contains("3 values on flash cannot be read; 2 keys are lost"), "{said}");
    assert!(said.contains("0:~key:0~ 0:~renamed~\n"), "{said}");
    let to = copy.join("export.aof");
    let (done, said) = journal(&["export", &folder, "--flash-path", &flash, "--to", &to.display().to_string()]);
    assert!(done && said.contains("3 values on flash cannot be read") && said.contains("They are left out"), "{said}");
    let export = fs::read(&to).unwrap();
    let has = |text: &[u8]| export.windows(text.len()).any(|found| found == text);
    assert!(has(b"\r\n~key:3~\r\n") && !has(b"APPEND") && !has(b"RENAME"), "what needs the values is left out");
    assert!(has(b"DEL\r\n$7\r\n~key:0~\r\n") && has(b"DEL\r\n$9\r\n~renamed~\r\n"));
}
