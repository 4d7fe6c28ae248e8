//! Tests of CONFIG GET, SET and REWRITE as a client sees them, and of the checks between directives.

use std::path::PathBuf;

use super::*;

fn store(directives: &[(&str, &str)]) -> ConfigStore {
    ConfigStore::from_directives(directives).unwrap_or_else(|error| panic!("{directives:?}: {error}"))
}
fn args(words: &[&str]) -> Result<ConfigStore, LoadError> {
    ConfigStore::from_args(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
}
#[track_caller]
fn get(store: &ConfigStore, name: &str) -> String {
    let found = store.get(&[name]);
    assert_eq!(found.len(), 1, "{name} gives {found:?}");
    found[0].1.clone()
}
#[track_caller]
fn refused(store: &ConfigStore, pairs: &[(&str, &str)], argument: &str, why: &str) {
    let before = store.get(&["*"]);
    let expected = format!("ERR CONFIG SET failed (possibly related to argument '{argument}') - {why}");
    assert_eq!(store.set(pairs).unwrap_err(), expected);
    assert_eq!(store.get(&["*"]), before, "a refused CONFIG SET changed something");
}

struct Scratch(PathBuf);
impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("flintkv-config-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }
}
impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_defaults_are_those_of_redis() {
    let config = store(&[]).snapshot();
    assert_eq!(config.port, 6379);
    assert_eq!(config.bind.len(), 2);
    assert_eq!(config.bind[1], BindAddress { address: "::1".to_owned(), optional: true });
    assert!(config.protected_mode);
    assert_eq!((config.tcp_backlog, config.timeout_s, config.tcp_keepalive_s, config.maxclients), (511, 0, 300, 10000));
    assert_eq!(config.output_limit_normal, OutputLimit::default());
    assert_eq!(config.output_limit_replica, OutputLimit { hard_bytes: 256 << 20, soft_bytes: 64 << 20, soft_s: 60 });
    assert_eq!(config.output_limit_pubsub, OutputLimit { hard_bytes: 32 << 20, soft_bytes: 8 << 20, soft_s: 60 });
    assert_eq!(config.client_query_buffer_limit_bytes, 1 << 30);
    assert_eq!(config.proto_max_bulk_len_bytes, 512 << 20);
    assert_eq!((config.slowlog_log_slower_than_us, config.slowlog_max_len), (10000, 128));
    assert_eq!(config.latency_tracking_percentiles, [50.0, 99.0, 99.9]);
    assert_eq!((config.databases, config.hz), (16, 10));
    assert_eq!((config.hash_max_listpack_entries, config.hash_max_listpack_value), (512, 64));
    assert_eq!(config.maxmemory_policy, Policy::NoEviction);
    assert_eq!((config.memory_limit_bytes, config.ram_limit_bytes, config.flash_bytes), (0, 0, 0));
    assert_eq!(config.requirepass, None);
    assert_eq!(config.flash_compression, Codec::Lz4);
    assert!(config.io_threads >= 1);
}

#[test]
fn memory_limits_are_resolved() {
    let mb = |n: u64| n << 20;
    let (flash, unkept) = (("flash-path", "/flash"), ("appendonly", "no"));
    for (directives, expected) in [
        (vec![("memory-limit", "100mb")], (mb(100), mb(100), 0)),
        (vec![("maxmemory", "100mb")], (0, mb(100), 0)),
        (vec![("memory-limit", "100mb"), ("ram-limit", "25%")], (mb(100), mb(25), 0)),
        (vec![("memory-limit", "100mb"), flash, unkept], (mb(100), mb(30), mb(70))),
        (vec![("memory-limit", "100mb"), ("ram-limit", "20mb"), flash, unkept], (mb(100), mb(20), mb(80))),
        (vec![("memory-limit", "100mb"), ("maxmemory", "50%"), flash, unkept], (mb(100), mb(50), mb(50))),
    ] {
        let config = store(&directives).snapshot();
        let limits = (config.memory_limit_bytes, config.ram_limit_bytes, config.flash_bytes);
        assert_eq!(limits, expected, "{directives:?}");
    }
}

#[test]
fn what_is_on_flash_survives_unless_the_configuration_says_no() {
    let keeps = |directives: &[(&str, &str)]| store(directives).snapshot().redis_files.appendonly;
    let flash = [("memory-limit", "1gb"), ("flash-path", "/flash")];
    assert!(!keeps(&[]) && keeps(&flash));
    assert!(!keeps(&[&flash[..], &[("appendonly", "no")]].concat()));
    // A database's own file names the value of `appendonly`.
    let file = std::env::temp_dir().join(format!("flintkv-own-{}.conf", std::process::id()));
    std::fs::write(&file, "memory-limit 1gb\n").unwrap();
    let own = ConfigStore::from_file_and(&file, &[("flash-path", vec!["/flash".to_owned()])]).unwrap();
    std::fs::remove_file(file).unwrap();
    assert!(!own.snapshot().redis_files.appendonly);
}

#[test]
fn files_on_flash_have_a_limit() {
    let mb = |n: u64| n << 20;
    let flash = [("memory-limit", "10gb"), ("ram-limit", "4gb"), ("flash-path", "/flash")];
    for (more, expected) in [
        (vec![("appendonly", "no")], mb(6 << 10)),
        (vec![], mb(15 << 10)),
        // The least log, as RAM is half, beside two checkpoints of 5 GB.
        (vec![("appendonly", "yes"), ("ram-limit", "5gb")], mb(5 << 10) + 2 * mb(5 << 10) + mb(10 << 10) / 50),
        (vec![("appendonly", "yes"), ("flash-limit", "7gb")], mb(7 << 10)),
        (vec![("flash-limit", "6gb"), ("appendonly", "no")], mb(6 << 10)),
    ] {
        assert_eq!(store(&[&flash[..], &more].concat()).snapshot().flash_limit_bytes, expected, "{more:?}");
    }
    let small = [("memory-limit", "100mb"), ("ram-limit", "50mb"), ("flash-path", "/flash"), ("appendonly", "yes")];
    assert_eq!(store(&small).snapshot().flash_limit_bytes, mb(160 + 512));
    assert_eq!(store(&[("appendonly", "yes")]).snapshot().flash_limit_bytes, 0, "nothing is limited as in Redis");
    assert_eq!(store(&[("appendonly", "yes"), ("flash-limit", "1gb")]).snapshot().flash_limit_bytes, mb(1 << 10));
}

/// The log of a dataset that survives restarts is larger, because values in RAM have a copy there, and garbage waits there
/// for a checkpoint. A limit of all files says how large it is, but it is never smaller than the values need.
#[test]
fn the_log_of_what_survives_has_room_for_copies() {
    let mb = |n: u64| n << 20;
    let flash = [("memory-limit", "10gb"), ("ram-limit", "2gb"), ("flash-path", "/flash")];
    let kept = mb(4 << 10) + mb(10 << 10) / 50;
    for (more, log) in [
        (vec![("appendonly", "no")], mb(8 << 10)),
        (vec![("appendonly", "no"), ("flash-limit", "9gb")], mb(8 << 10)),
        (vec![], mb(15 << 10) - kept),
        (vec![("flash-limit", "8500mb")], mb(8 << 10)),
        (vec![("flash-limit", "17gb")], mb(17 << 10) - kept),
        (vec![("flash-limit", "1000gb")], mb(13 << 10)),
    ] {
        let config = store(&[&flash[..], &more].concat()).snapshot();
        assert_eq!(config.flash_bytes, log, "{more:?}");
    }
    let huge =
        [("memory-limit", "2048gb"), ("ram-limit", "100gb"), ("flash-path", "/flash"), ("flash-limit", "4096gb")];
    assert_eq!(store(&huge).snapshot().flash_bytes, 2 << 40, "a database does not address more");
    assert_eq!(store(&[("appendonly", "yes")]).snapshot().flash_bytes, 0);
}

#[test]
fn errors_about_contradictions_say_what_to_do() {
    let flash = [("memory-limit", "2gb"), ("ram-limit", "1gb"), ("flash-path", "/f")];
    let with = |more: &[(&'static str, &'static str)]| [&flash[..], more].concat();
    for (directives, parts) in [
        (
            with(&[("flash-limit", "1023mb"), ("appendonly", "no")]),
            vec!["flash-limit 1023mb is less than 1gb: memory-limit − ram-limit leaves 1gb for values on flash. Raise"],
        ),
        (
            with(&[("flash-limit", "1gb"), ("appendonly", "yes")]),
            vec![
                "less than 1280mb",
                "on flash and at least 256mb for the journal and the checkpoints. Raise flash-limit",
            ],
        ),
        (vec![("flash-path", "/f")], vec!["flash-path needs memory-limit", "set memory-limit 100gb"]),
        (vec![("ram-limit", "30%")], vec!["ram-limit 30% is a share of memory-limit, which is not set"]),
        (
            vec![("memory-limit", "1gb"), ("ram-limit", "2gb")],
            vec!["ram-limit 2gb is more than memory-limit 1gb", "raise it to at least 2gb"],
        ),
        (
            vec![("memory-limit", "8mb"), ("ram-limit", "6mb"), ("flash-path", "/f")],
            vec!["memory-limit 8mb − ram-limit 6mb leaves 2mb for flash, less than the 4mb"],
        ),
        (vec![("memory-limit", "1gb"), ("ram-limit", "100%"), ("flash-path", "/f")], vec!["leaves 0 for flash"]),
        (vec![("memory-limit", "1gb"), ("ram-limit", "0%")], vec!["ram-limit 0% leaves no RAM"]),
    ] {
        let error = ConfigStore::from_directives(&directives).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{directives:?}: {error}");
        }
    }
}

#[test]
fn paths_start_from_dir() {
    let config =
        store(&[("dir", "/tmp"), ("flash-path", "a"), ("memory-limit", "1gb"), ("logfile", "l.log")]).snapshot();
    let tmp = std::fs::canonicalize("/tmp").unwrap();
    assert_eq!(config.flash_paths, [tmp.join("a")]);
    assert_eq!(config.logfile, Some(tmp.join("l.log")));
    assert_eq!(config.pidfile, None);
}

#[test]
fn config_get_takes_several_patterns() {
    let store = store(&[("maxmemory", "1kb")]);
    assert_eq!(store.get(&["PORT"]), [("PORT".to_owned(), "6379".to_owned())]);
    let found = store.get(&["maxmemory*", "maxmemory", "nothing", "por?"]);
    let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "maxmemory",
            "maxmemory-policy",
            "maxmemory-samples",
            "maxmemory-eviction-tenacity",
            "maxmemory-clients",
            "port"
        ]
    );
    assert_eq!(found[0].1, "1024");
    assert!(store.get(&["rename-command", "user", "include", ""]).is_empty());
    assert!(store.get(&[&b"\xff*"[..]]).is_empty());
}

#[test]
fn config_get_all_shows_every_name_once_and_nothing_hidden() {
    let store = store(&[]);
    let all = store.get(&["*"]);
    let mut names: Vec<_> = all.iter().map(|(name, _)| name.clone()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all.len());
    assert!(names.iter().any(|name| name == "slaveof"));
    assert!(!names.iter().any(|name| name == "watchdog-period"));
    assert_eq!(get(&store, "watchdog-period"), "0");
}

#[test]
fn the_primary_is_changed_by_replicaof_alone() {
    let store = store(&[("replicaof", "10.0.0.1 6379")]);
    let primary = |store: &ConfigStore| store.snapshot().replica.primary.clone();
    assert_eq!(primary(&store), Some(("10.0.0.1".to_owned(), 6379)));
    assert!(store.set(&[("replicaof", "10.0.0.2 6379")]).unwrap_err().contains("can't set immutable config"));
    let turn = store.turn(Duration::ZERO).unwrap();
    store.keep_primary(&turn, Some(("10.0.0.2", 6380))).unwrap();
    assert_eq!(get(&store, "slaveof"), "10.0.0.2 6380");
    store.keep_primary(&turn, None).unwrap();
    assert_eq!((get(&store, "replicaof"), primary(&store)), (String::new(), None));
    drop(turn);
    let refused = store.set(&[("replica-read-only", "no")]).unwrap_err();
    assert!(
        refused
            .ends_with("replica-read-only must be yes: a replica with writes of its own would differ from its primary")
    );
}

#[test]
fn config_set_changes_all_or_nothing() {
    let store = store(&[]);
    store.set(&[("timeout", "5"), ("MaxMemory", "10mb"), ("save", "10 1")]).unwrap();
    assert_eq!(get(&store, "timeout"), "5");
    assert_eq!(get(&store, "ram-limit"), "10485760");
    assert_eq!(get(&store, "save"), "10 1");
    assert_eq!(store.snapshot().timeout_s, 5);
    store.set(&[("save", "20 2 30 3")]).unwrap();
    assert_eq!(get(&store, "save"), "20 2 30 3", "CONFIG SET replaces what lines of a file add up");

    refused(&store, &[("timeout", "6"), ("databases", "1")], "databases", "can't set immutable config");
    refused(&store, &[("timeout", "6"), ("dir", "/tmp")], "dir", "can't set protected config");
    refused(&store, &[("timeout", "6"), ("timeout", "7")], "timeout", "duplicate parameter");
    refused(&store, &[("timeout", "6"), ("hz", "x")], "hz", "argument couldn't be parsed into an integer");
    refused(&store, &[("timeout", "-1")], "timeout", "argument must be between 0 and 2147483647 inclusive");
    refused(
        &store,
        &[("maxmemory-policy", "no")],
        "maxmemory-policy",
        &format!("argument(s) must be one of the following: {}", Policy::WORDS.join(", ")),
    );
    assert_eq!(
        store.set(&[("timeout", "6"), ("xyz", "1")]).unwrap_err(),
        "ERR Unknown option or number of arguments for CONFIG SET - 'xyz'"
    );
    assert_eq!(
        store.set(&[("rename-command", "a b")]).unwrap_err(),
        "ERR Unknown option or number of arguments for CONFIG SET - 'rename-command'"
    );
    assert!(store.set(&[(&b"pidfile"[..], &b"\xff"[..])]).is_err());
    for name in ["console-password", "dir", "save", "bind"] {
        assert!(store.set(&[(name.as_bytes(), &b"\xff"[..])]).is_err(), "{name}");
        assert!(store.set(&[(name, "a\0b")]).is_err(), "{name}");
    }
    // Passwords may be any bytes, including bytes that have a meaning in the configuration's syntax.
    for password in [&b"\xff"[..], b"abc\0def", b"\0ff", b"\0"] {
        store.set(&[(&b"requirepass"[..], password)]).unwrap();
        assert_eq!(store.snapshot().requirepass.as_ref().map(Secret::expose), Some(password));
        let shown = &store.get(&["requirepass"])[0].1;
        assert_eq!(word_bytes(shown), password);
    }
}

#[test]
fn config_set_checks_the_limits_against_each_other() {
    let store = store(&[("memory-limit", "100mb"), ("flash-path", "/f"), ("appendonly", "no")]);
    store.set(&[("ram-limit", "20%")]).unwrap();
    assert_eq!(get(&store, "maxmemory"), (20 << 20).to_string());
    assert_eq!(store.snapshot().flash_bytes, 80 << 20, "flash has what RAM leaves of the memory limit");
    store.set(&[("memory-limit", "200mb")]).unwrap();
    assert_eq!((get(&store, "maxmemory"), store.snapshot().flash_bytes), ((40 << 20).to_string(), 160 << 20));
    refused(
        &store,
        &[("timeout", "3"), ("memory-limit", "4mb")],
        "memory-limit",
        "memory-limit 4mb − ram-limit 838860 leaves 3355444 for flash, less than the 4mb that flash-path needs: raise memory-limit, lower ram-limit, or remove flash-path",
    );
    let error = store.set(&[("ram-limit", "300mb")]).unwrap_err();
    assert!(error.contains("ram-limit 300mb is more than memory-limit 200mb"), "{error}");
}

#[test]
fn a_change_that_cannot_be_applied_changes_nothing() {
    let store = store(&[("memory-limit", "100mb"), ("flash-path", "/f"), ("appendonly", "no")]);
    let version = store.version();
    let turn = store.turn(Duration::ZERO).expect("nobody else has it");
    assert!(store.turn(Duration::ZERO).is_none(), "one change at a time");
    let draft = store.draft(&turn, &[("timeout", "3"), ("memory-limit", "50mb")], true).unwrap();
    assert_eq!((draft.before.flash_bytes, draft.now.flash_bytes), (70 << 20, 35 << 20));
    assert!(draft.sets(|name| name == "timeout") && !draft.sets(|name| name == "port"));
    let error = draft.refused("the disk is full");
    assert_eq!(error, "ERR CONFIG SET failed (possibly related to argument 'memory-limit') - the disk is full");
    assert_eq!((get(&store, "memory-limit"), get(&store, "timeout")), ((100 << 20).to_string(), "0".to_owned()));
    assert_eq!(store.version(), version);
}

#[test]
fn cold_mode_needs_flash() {
    let without = store(&[]);
    let why = "debug-tier-mode cold sends every value to flash: it needs flash-path";
    refused(&without, &[("debug-tier-mode", "cold")], "debug-tier-mode", why);
    assert_eq!(get(&without, "debug-tier-mode"), "off");
    let with = store(&[("memory-limit", "100mb"), ("flash-path", "/f")]);
    with.set(&[("debug-tier-mode", "cold")]).unwrap();
    assert_eq!((get(&with, "debug-tier-mode").as_str(), with.snapshot().debug_tier_mode), ("cold", TierMode::Cold));
}

#[test]
fn protected_directives_need_permission() {
    let local = store(&[("enable-protected-configs", "local")]);
    assert!(local.set(&[("dbfilename", "a.rdb")]).is_err());
    let draft = |store: &ConfigStore, local| {
        let turn = store.turn(Duration::ZERO).expect("nobody else has it");
        store.draft(&turn, &[("dbfilename", "a.rdb")], local).is_ok()
    };
    assert!(draft(&local, true) && !draft(&local, false));
    assert!(!draft(&store(&[]), true));
    store(&[("enable-protected-configs", "yes")]).set(&[("dbfilename", "a.rdb")]).unwrap();
}

#[test]
fn the_version_changes_with_the_configuration() {
    let store = store(&[]);
    let before = store.version();
    store.set(&[("timeout", "0")]).unwrap();
    assert_eq!(store.version(), before);
    let kept = store.snapshot();
    store.set(&[("timeout", "9")]).unwrap();
    assert_eq!(store.version(), before + 1);
    assert_eq!((kept.timeout_s, store.snapshot().timeout_s), (0, 9));
}

#[test]
fn directives_without_effect_are_logged_once() {
    let store = store(&[("aof-use-rdb-preamble", "no"), ("activerehashing", "yes"), ("port", "0")]);
    assert_eq!(
        store.take_notices(),
        [
            "directive 'aof-use-rdb-preamble' has no effect: `appendonly yes` keeps changes in a journal of FlintKV's own format, not in an append-only file"
        ]
    );
    assert!(store.take_notices().is_empty());
    assert_eq!(get(&store, "aof-use-rdb-preamble"), "no");
    let mut state = store.state.lock();
    assert_eq!(state.notice_of(find("aof-use-rdb-preamble").unwrap()), None, "it was told at the start");
    assert!(state.notice_of(find("no-appendfsync-on-rewrite").unwrap()).is_some());
    assert_eq!(state.notice_of(find("no-appendfsync-on-rewrite").unwrap()), None);
}

#[test]
fn a_missing_flash_path_is_pointed_out() {
    let notices = store(&[("memory-limit", "100mb"), ("ram-limit", "30mb")]).take_notices();
    assert_eq!(
        notices,
        ["there is no flash-path, so 70mb of memory-limit 100mb cannot be used: only ram-limit 30mb counts"]
    );
}

#[test]
fn secrets_are_not_printed() {
    let store = store(&[("requirepass", "hush"), ("masterauth", "hush")]);
    let printed = format!("{store:?} {:?}", store.snapshot());
    assert!(!printed.contains("hush"), "{printed}");
    assert_eq!(store.snapshot().requirepass.as_ref().map(Secret::expose), Some(&b"hush"[..]));
    assert!(store.take_notices().iter().all(|line| !line.contains("hush")));
}

fn rewrite(store: &ConfigStore) -> Result<(), String> {
    store.rewrite(&store.turn(Duration::ZERO).expect("nobody else has it"), None)
}

/// Dropping a prepared file removes it if it was not published.
#[test]
fn a_prepared_file_that_is_dropped_leaves_nothing() {
    let scratch = Scratch::new("prepared");
    let file = scratch.0.join("a.conf");
    std::fs::write(&file, "timeout 3\n").unwrap();
    let store = args(&[file.to_str().unwrap()]).unwrap();
    let turn = store.turn(Duration::ZERO).expect("nobody else has it");
    let draft = store.draft(&turn, &[("timeout", "8")], true).unwrap();
    let entries = || std::fs::read_dir(&scratch.0).unwrap().count();
    let prepared = store.prepare_file(&turn, None, Some(&draft)).unwrap();
    assert_eq!((std::fs::read_to_string(&file).unwrap().as_str(), entries()), ("timeout 3\n", 2));
    drop(prepared);
    assert_eq!((std::fs::read_to_string(&file).unwrap().as_str(), entries()), ("timeout 3\n", 1));
    store.prepare_file(&turn, None, Some(&draft)).unwrap().publish().unwrap();
    assert_eq!((std::fs::read_to_string(&file).unwrap().as_str(), entries()), ("timeout 8\n", 1));
    // Publishing the file does not put the draft into effect.
    assert_eq!(get(&store, "timeout"), "3");
}

#[test]
fn rewrite_writes_what_was_set_and_reads_back() {
    let scratch = Scratch::new("rewrite");
    let file = scratch.0.join("flintkv.conf");
    std::fs::write(&file, "# mine\nport 7001\ntimeout 3 \n").unwrap();
    let name = file.to_str().unwrap();
    let store = args(&[name, "--maxclients", "77"]).unwrap();
    store.set(&[("timeout", "8"), ("requirepass", "it's \"a\" pass"), ("save", "9 9 8 8")]).unwrap();
    rewrite(&store).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("# mine\nport 7001\ntimeout 8\n# Generated by CONFIG REWRITE\n"), "{text}");
    let again = args(&[name]).unwrap();
    assert_eq!(again.get(&["*"]), store.get(&["*"]));
    // A rewrite without changes leaves the file's bytes as they are.
    rewrite(&again).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 1, "a temporary file stayed behind");
}

#[test]
fn rewrite_keeps_the_permissions_and_the_link() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new("link");
    let (file, link) = (scratch.0.join("real.conf"), scratch.0.join("link.conf"));
    std::fs::write(&file, "port 7001\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let store = args(&[link.to_str().unwrap()]).unwrap();
    store.set(&[("timeout", "8")]).unwrap();
    rewrite(&store).unwrap();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(std::fs::read_to_string(&file).unwrap().contains("timeout 8"));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn rewrite_needs_a_file_that_is_still_valid() {
    assert_eq!(rewrite(&store(&[])).unwrap_err(), "ERR The server is running without a config file");
    let scratch = Scratch::new("gone");
    let file = scratch.0.join("a.conf");
    std::fs::write(&file, "port 7001\n").unwrap();
    let store = args(&[file.to_str().unwrap()]).unwrap();
    store.set(&[("timeout", "8")]).unwrap();
    std::fs::write(&file, "port nonsense\n").unwrap();
    let error = rewrite(&store).unwrap_err();
    assert!(error.starts_with("ERR Rewriting config file: it is no longer valid: "), "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "port nonsense\n");
    std::fs::remove_file(&file).unwrap();
    assert!(rewrite(&store).unwrap_err().starts_with("ERR Rewriting config file: No such file"));
}

#[test]
fn readers_see_whole_configurations_while_it_is_set() {
    let store = Arc::new(store(&[]));
    let writer = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || {
            for round in 0..500 {
                let text = round.to_string();
                store.set(&[("timeout", text.as_str()), ("tcp-keepalive", text.as_str())]).unwrap();
            }
        })
    };
    while !writer.is_finished() {
        let seen = store.snapshot();
        assert!(seen.timeout_s == seen.tcp_keepalive_s || seen.tcp_keepalive_s == 300);
    }
    writer.join().unwrap();
    assert_eq!(store.snapshot().timeout_s, 499);
}

/// The example configuration at the repository's root is valid and contains the defaults.
#[test]
fn the_example_file_is_the_default_configuration() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../flintkv.conf");
    let example = args(&[file]).unwrap();
    assert_eq!(example.get(&["*"]), store(&[]).get(&["*"]));
    assert!(example.take_notices().is_empty());
}

/// An xorshift generator: one seed always gives the same text.
struct Dice(u64);
impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// Words that are valid, nearly valid or invalid for some type.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "yes", "no", "auto", "0", "1", "-1", "16", "65535", "65536", "4294967295", "9223372036854775807",
    "9223372036854775808", "18446744073709551615", "1kb", "4mb", "30%", "100%", "0%", "1gb", "16777215gb", "777", "lz4",
    "local", "normal", "replica", "50", "99.9", "nan", "inf", "1e400", "KEA", "/tmp", ".", "\"\"", "\"a b\"", "'", "\"",
    "\\x41", "\"\\xff\"", "\u{b5}", "*", "#", "%", "allkeys-lru", "notice", "default", "nosave", "60", "10000",
];

/// No text causes a panic. An accepted configuration can be built, shown, set and read back.
#[test]
fn any_text_gives_a_configuration_or_an_error() {
    let (mut accepted, mut refused) = (0, 0);
    for seed in 1..600 {
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        let mut loaded = load::Loaded::defaults().unwrap();
        for _ in 0..4 {
            let mut line = ROWS[dice.below(ROWS.len())].name.to_owned();
            for _ in 0..dice.below(5) {
                line.push(' ');
                line.push_str(dice.pick(WORDS));
            }
            let _ = loaded.text("any", &line);
        }
        let named = loaded.named.clone();
        let Ok(store) = ConfigStore::new(loaded, None) else {
            refused += 1;
            continue;
        };
        accepted += 1;
        // CONFIG SET accepts every value that CONFIG GET shows of a changeable directive.
        for row in (0..ROWS.len()).filter(|&index| named[index]).map(|index| &ROWS[index]) {
            if row.change == Change::Live {
                let shown = get(&store, row.name);
                let set = store.set(&[(row.name, word_bytes(&shown))]);
                assert_eq!(set, Ok(()), "seed {seed}: {} {shown}", row.name);
                assert_eq!(get(&store, row.name), shown, "seed {seed}");
            }
        }
        let row = &ROWS[dice.below(ROWS.len())];
        let _ = store.set(&[(row.name, dice.pick(WORDS)), ("timeout", dice.pick(WORDS))]);
    }
    assert!(accepted > 200, "{accepted} accepted, {refused} refused: the text is too wild to test much");
}

#[test]
fn subscribers_are_called_with_changes_in_effect() {
    let store = std::sync::Arc::new(store(&[("hz", "10")]));
    let told = std::sync::Arc::new(Mutex::new(Vec::new()));
    let (seen, reader) = (std::sync::Arc::clone(&told), std::sync::Arc::downgrade(&store));
    store.subscribe(move |draft| {
        let now = reader.upgrade().unwrap().snapshot();
        assert_eq!(*now, *draft.now, "the change is in effect already");
        seen.lock().push((draft.before.hz, draft.now.hz, draft.sets(|name| name == "hz")));
    });
    store.set(&[("hz", "20")]).unwrap();
    store.set(&[("hz", "30"), ("databases", "1")]).unwrap_err();
    store.set(&[("timeout", "5")]).unwrap();
    // Subscribers are also called if the value stays the same: a password, for example, is set anew.
    store.set(&[("hz", "20")]).unwrap();
    assert_eq!(*told.lock(), [(10, 20, true), (20, 20, false), (20, 20, true)]);
}
