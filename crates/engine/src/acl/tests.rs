//! ACL rules and their effects.

use super::rules::Refusal;
use super::*;
use crate::directory::Directory;
use commands::host::Denial;
use proptest::prelude::*;

fn user(rules: &str) -> User {
    let mut user = User::new("bob", false);
    apply(&mut user, &words(rules), false).unwrap();
    user
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

/// The answer to a command line of this user.
fn run(user: &User, line: &str) -> Result<(), Denial> {
    let (mut bytes, mut spans) = (Vec::new(), Vec::new());
    for word in line.split_whitespace() {
        spans.push(Span { start: bytes.len() as u32, len: word.len() as u32 });
        bytes.extend_from_slice(word.as_bytes());
    }
    let args = Args::new(&bytes, &spans);
    let directory = Directory::new(commands::table::all(), &[]).unwrap();
    let mut command = directory.find(&args[0]).unwrap();
    command = command.subcommand(&args).unwrap_or(command);
    let mut positions = Vec::new();
    command.row.keys.positions(&args, &mut positions);
    user.check(command.id, command.row, args, &positions)
}

#[test]
fn the_catalog_numbers_commands_as_the_directory_does() {
    let directory = Directory::new(commands::table::all(), &[]).unwrap();
    let entries = &Catalog::get().entries;
    assert_eq!(entries.len(), directory.count);
    for command in directory.all() {
        assert_eq!(entries[command.id].name, command.name);
    }
}

#[test]
fn commands_categories_and_subcommands() {
    let bob = user("+@read -mget +config|get +select|3 ~*");
    for (line, expected) in [
        ("GET k", Ok(())),
        ("get k", Ok(())),
        ("MGET k", Err(Denial::Command)),
        ("SET k v", Err(Denial::Command)),
        ("CONFIG GET x", Ok(())),
        ("CONFIG SET x y", Err(Denial::Command)),
        ("CONFIG", Err(Denial::Command)),
        ("SELECT 3", Ok(())),
        ("SELECT 4", Err(Denial::Command)),
        // Commands that a client sends before it has authenticated.
        ("AUTH x", Ok(())),
        ("HELLO", Ok(())),
    ] {
        assert_eq!(run(&bob, line), expected, "{line}");
    }
    let most = user("+@all -config|set -@dangerous +keys allkeys");
    for (line, expected) in [
        ("CONFIG SET x y", Err(Denial::Command)),
        ("CONFIG RESETSTAT", Err(Denial::Command)),
        ("FLUSHALL", Err(Denial::Command)),
        ("KEYS *", Ok(())),
    ] {
        assert_eq!(run(&most, line), expected, "{line}");
    }
    assert_eq!(run(&user("+config -config|set"), "CONFIG GET x"), Ok(()));
    assert_eq!(run(&user("+@all -config"), "CONFIG GET x"), Err(Denial::Command));
    assert_eq!(run(&user("-@all"), "GET k"), Err(Denial::Command));
}

#[test]
fn keys_are_allowed_by_read_or_write() {
    let bob = user("+@all %R~read:* %W~write:* ~both:* resetchannels &news.*");
    for (line, expected) in [
        ("GET read:1", Ok(())),
        ("GET write:1", Err(Denial::Key(1))),
        ("SET write:1 v", Ok(())),
        ("SET read:1 v", Err(Denial::Key(1))),
        ("SET write:1 v GET", Err(Denial::Key(1))),
        ("SET both:1 v GET", Ok(())),
        ("INCR write:1", Err(Denial::Key(1))),
        ("STRLEN write:1", Ok(())),
        ("EXISTS read:1 write:1 other", Err(Denial::Key(3))),
        ("COPY read:1 write:1", Ok(())),
        ("COPY write:1 read:1", Err(Denial::Key(1))),
        ("RENAME both:1 write:1", Ok(())),
        ("RENAME read:1 write:1", Err(Denial::Key(1))),
        ("MGET read:1 both:1", Ok(())),
        ("ZUNIONSTORE write:1 2 read:1 read:2", Ok(())),
        ("ZUNIONSTORE read:1 2 read:1 read:2", Err(Denial::Key(1))),
        ("ZUNIONSTORE write:1 2 read:1 write:2", Err(Denial::Key(4))),
        ("PUBLISH news.a m", Ok(())),
        ("PUBLISH other m", Err(Denial::Channel(1))),
        ("SUBSCRIBE news.a news.b", Ok(())),
        ("PSUBSCRIBE news.*", Ok(())),
        // A pattern must be literally one of the rule's patterns.
        ("PSUBSCRIBE news.a*", Err(Denial::Channel(1))),
        ("UNSUBSCRIBE other", Ok(())),
        ("FLUSHALL", Ok(())),
    ] {
        assert_eq!(run(&bob, line), expected, "{line}");
    }
}

#[test]
fn a_selector_must_allow_the_whole_command() {
    let bob = user("+get ~a* (+set ~b* %R~c*) (+mget ~d*)");
    for (line, expected) in [
        ("GET a1", Ok(())),
        ("SET b1 v", Ok(())),
        ("GET b1", Err(Denial::Key(1))),
        ("SET a1 v", Err(Denial::Key(1))),
        ("SET c1 v", Err(Denial::Key(1))),
        ("MGET d1 a1", Err(Denial::Key(2))),
        ("INCR a1", Err(Denial::Command)),
    ] {
        assert_eq!(run(&bob, line), expected, "{line}");
    }
    assert_eq!(user("+get ~a (+set ~b) clearselectors").line(), user("+get ~a").line());
}

#[test]
fn an_unknown_rule_is_refused() {
    for (rule, refusal) in [
        ("+nosuch", Refusal::Unknown),
        ("-nosuch", Refusal::Unknown),
        ("+@nosuch", Refusal::Unknown),
        ("+config|nosuch", Refusal::Unknown),
        ("-config|nosuch", Refusal::Unknown),
        ("-get|x", Refusal::Unknown),
        ("+get|", Refusal::Syntax),
        ("+config|get|x", Refusal::ArgOfSubcommand),
        ("%~x", Refusal::Syntax),
        ("%X~x", Refusal::Syntax),
        ("%RR~x", Refusal::Syntax),
        ("%R", Refusal::Syntax),
        ("nonsense", Refusal::Syntax),
        ("<unknown", Refusal::NoSuchPassword),
        ("#abc", Refusal::BadHash),
        ("!ABCDEF", Refusal::BadHash),
        ("(nonsense)", Refusal::Syntax),
        ("(>pw)", Refusal::Syntax),
        ("(~(a))", Refusal::Syntax),
    ] {
        assert_eq!(User::new("bob", false).apply(rule.as_bytes(), false), Err(refusal), "{rule}");
    }
    let mut all = user("~* &*");
    assert_eq!(all.apply(b"~x", false), Err(Refusal::AfterAllKeys));
    assert_eq!(all.apply(b"&x", false), Err(Refusal::AfterAllChannels));
    assert_eq!(apply(&mut all, &words("(+get (x"), false).unwrap_err(), {
        "ERR Unmatched parenthesis in acl selector starting at '(+get (x'."
    });
    let error = apply(&mut all, &words(">secret +nosuch"), false).unwrap_err();
    assert!(!error.contains("secret"), "{error}");
}

#[test]
fn passwords() {
    let mut bob = user("on >one >two #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b");
    for (password, accepted) in [("one", true), ("two", true), ("secret", true), ("three", false), ("", false)] {
        assert_eq!(bob.accepts(password.as_bytes()), accepted, "{password}");
    }
    bob.apply(b"<one", false).unwrap();
    assert!(!bob.accepts(b"one"));
    bob.apply(b"off", false).unwrap();
    assert!(!bob.accepts(b"two"));
    bob = user("on nopass");
    assert!(bob.accepts(b"anything"));
    bob.apply(b"resetpass", false).unwrap();
    assert!(!bob.accepts(b"anything"));
}

#[test]
fn a_user_with_every_right_is_not_checked_again() {
    assert!(User::default_user().is_unlimited());
    for rule in ["-get", "-@read", "resetkeys", "resetchannels", "-@all"] {
        let mut user = User::default_user();
        user.apply(rule.as_bytes(), true).unwrap();
        assert!(!user.is_unlimited(), "{rule}");
    }
}

#[test]
fn a_users_line_makes_the_same_user() {
    for (rules, line) in [
        ("", "user bob off sanitize-payload resetchannels -@all"),
        ("on nopass ~* &* +@all", "user bob on nopass sanitize-payload ~* &* +@all"),
        ("+@all -get +get", "user bob off sanitize-payload resetchannels +@all +get"),
        ("+config|get +config -CONFIG|set", "user bob off sanitize-payload resetchannels -@all +config -config|set"),
        ("%RW~a %R~b %W~b %R~c", "user bob off sanitize-payload ~a ~b %R~c resetchannels -@all"),
        ("&a &b (+get ~x)", "user bob off sanitize-payload resetchannels &a &b -@all (~x resetchannels -@all +get)"),
    ] {
        assert_eq!(user(rules).line(), line);
        assert_eq!(user(line.strip_prefix("user bob ").unwrap()).line(), line);
    }
}

#[test]
fn denials_of_the_same_kind_share_one_entry() {
    let users = Users::default();
    let denial = |object: &[u8], at_ms| AclDenial {
        id: 0,
        count: 1,
        reason: "key",
        context: "toplevel",
        object: object.to_vec(),
        user: b"bob".to_vec(),
        client: String::new(),
        created_ms: at_ms,
        updated_ms: at_ms,
    };
    users.log(denial(b"a", 1), 2);
    users.log(denial(b"b", 2), 2);
    users.log(denial(b"a", 3), 2);
    let seen = |users: &Users| -> Vec<(Vec<u8>, u64, u64)> {
        users.logged(10).into_iter().map(|entry| (entry.object, entry.count, entry.id)).collect()
    };
    assert_eq!(seen(&users), [(b"a".to_vec(), 2, 0), (b"b".to_vec(), 1, 1)]);
    users.log(denial(b"a", 1 + SAME_DENIAL_MS + 1), 2);
    assert_eq!(seen(&users), [(b"a".to_vec(), 1, 2), (b"a".to_vec(), 2, 0)], "it was long ago, and two are kept");
}

#[test]
fn a_file_is_loaded_completely_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.acl");
    let users = Users::default();
    users.set(b"bob", &words("on >secret +get ~a\\* ~\"b\' (+set ~b)"), false).unwrap();
    users.write_file(&path).unwrap();
    let read = Users::read_file(&path, false).unwrap();
    assert_eq!(read, users.all().iter().map(|user| User::clone(user)).collect::<Vec<_>>());
    for (text, told) in [
        ("user bob on\nuser bob off\n", ":2: user 'bob' is duplicated"),
        ("bob on\n", ":1: line should start with user keyword"),
        ("# a comment\n\nuser bob +nosuch\n", ":3: Error in ACL SETUSER modifier '+nosuch'"),
        ("user\n", ":1: line should start with user keyword"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = Users::read_file(&path, false).unwrap_err();
        assert!(error.contains(told), "{error}");
    }
}

/// Words of which rules consist.
fn rule() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "on",
            "off",
            "nopass",
            "resetpass",
            "allkeys",
            "resetkeys",
            "~*",
            "~a*",
            "%R~b",
            "%W~b*",
            "%RW~c",
            "&*",
            "&x",
            "resetchannels",
            "allchannels",
            "+@all",
            "-@all",
            "+@read",
            "-@write",
            "+get",
            "-get",
            "+config",
            "-config|set",
            "+config|get",
            "+select|1",
            "-@dangerous",
            "+@fast",
            ">pw",
            "<pw",
            "(+get ~x)",
            "clearselectors",
            "reset",
            "sanitize-payload",
            "skip-sanitize-payload",
        ])
        .prop_map(str::to_owned),
        "[-+~%&@|()>#a-zRW*]{0,8}",
    ]
}

proptest! {
    /// Any rules that are accepted make a user whose line makes the same user again.
    #[test]
    fn accepted_rules_survive_a_round_trip(
        rules in prop::collection::vec(rule(), 0..12),
        line in prop::sample::select(vec![
            "get a1", "set b1 v", "config|get x", "config|set a b", "select 1", "subscribe x", "flushall",
        ]),
    ) {
        try_rules(rules.join(" ").as_bytes(), line.as_bytes());
    }
}
