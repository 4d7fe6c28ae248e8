use super::*;

/// Words as a shell splits them: at blanks, except within '…'.
fn parsed(line: &str) -> Result<Parsed> {
    let mut words = vec![String::new()];
    for (index, piece) in line.split('\'').enumerate() {
        for (place, part) in piece.split(if index % 2 == 0 { ' ' } else { '\0' }).enumerate() {
            if place > 0 {
                words.push(String::new());
            }
            words.last_mut().expect("never empty").push_str(part);
        }
    }
    parse(words.into_iter().filter(|word| !word.is_empty()).map(OsString::from))
}

fn config(line: &str) -> Config {
    parsed(line).unwrap_or_else(|error| panic!("{line}: {error:#}")).config
}

fn refused(line: &str) -> String {
    match parsed(line) {
        Ok(_) => panic!("{line} was accepted"),
        Err(error) => format!("{error:#}"),
    }
}

fn set_get(line: &str) -> SetGet {
    match config(line).work {
        Work::SetGet(work) => work,
        Work::Commands(_) => panic!("{line} gives commands"),
    }
}

fn commands(line: &str) -> Commands {
    match config(line).work {
        Work::Commands(work) => work,
        Work::SetGet(_) => panic!("{line} gives SET and GET"),
    }
}

#[test]
fn the_command_definition_is_sound() {
    Args::command().debug_assert();
}

#[test]
fn without_options_memtiers_defaults_hold() {
    let given = config("");
    let default = Config { quantiles: vec![0.5, 0.99, 0.9990000000000001], ..Config::default() };
    assert_eq!(format!("{given:?}"), format!("{default:?}"));
}

#[test]
fn the_published_populate_line_runs_unchanged() {
    let config = config("--key-maximum=75000000 -n allkeys -d 500 --key-pattern=P:P --ratio=1:0");
    assert_eq!(config.keys.max, 75_000_000);
    assert_eq!(config.length, Length::AllKeys);
    assert_eq!(config.data.size, SizeSpec::Fixed(500));
    assert_eq!(config.requests_per_client(), Some(375_001));
    assert_eq!(config.requests_total(), Some(75_000_001));
    let sum: u64 = (0..200).filter_map(|index| config.requests_of(index)).sum();
    assert_eq!(sum, 75_000_001, "every key of the range, once");
}

#[test]
fn the_published_load_line_runs_unchanged() {
    let line = "--pipeline=11 -c 20 -t 1 -d 500 --key-maximum=75000000 --key-pattern=G:G --key-stddev=5125000 --ratio=1:1 \
                --distinct-client-seed --randomize --test-time=600 --run-count=1";
    let parsed = parsed(line).expect("accepted");
    assert!(parsed.args.randomize());
    let config = parsed.config;
    assert_eq!((config.pipeline, config.clients, config.threads), (11, 20, 1));
    assert_eq!(config.keys.stddev, Some(5_125_000.0));
    assert_eq!(config.length, Length::Time(Duration::from_secs(600)));
    assert!(config.seeding.distinct);
}

#[test]
fn ratios_and_patterns_follow_their_command() {
    let work = commands("--command='set __key__ 5' --command-ratio=2 --command-key-pattern=G --command='get __key__'");
    let expected = [
        CommandSpec { line: String::from("set __key__ 5"), ratio: 2, pattern: KeyPattern::Gaussian },
        CommandSpec { line: String::from("get __key__"), ratio: 1, pattern: KeyPattern::Random },
    ];
    assert_eq!(work.specs, expected);
    let work = commands(
        "--command=a --command-key-pattern=P --command=b --command-ratio 3 --command-key-pattern P \
         --command-stats-breakdown=line --command=c --command-key-pattern P --command d --command-key-pattern=P",
    );
    let ratios: Vec<u32> = work.specs.iter().map(|spec| spec.ratio).collect();
    assert_eq!(ratios, [1, 3, 1, 1]);
    assert!(work.by_line);
    assert!(refused("--command-ratio=2 --command=x").contains("--command-ratio needs a --command before it"));
}

#[test]
fn allkeys_is_the_range_unless_it_is_split() {
    assert_eq!(
        config("-n allkeys --key-minimum=1 --key-maximum=1000 --key-pattern=S:S").requests_per_client(),
        Some(999)
    );
    let commands = "-n allkeys --key-minimum=1 --key-maximum=1000 -t 1 -c 10 --command='get __key__'";
    assert_eq!(config(commands).requests_per_client(), Some(999));
    let parallel = config(&format!("{commands} --command-key-pattern=P"));
    assert_eq!(parallel.requests_per_client(), Some(100));
    assert_eq!(parallel.requests_total(), Some(1000));
}

#[test]
fn host_and_help_keep_their_letters() {
    assert_eq!(config("-h example.org -p 7000 -4").target, {
        Target::Tcp { host: String::from("example.org"), port: 7000, family: Family::V4 }
    });
    assert_eq!(config("-h a -s b").target, Target::tcp("b", 6379));
    assert_eq!(config("-S /tmp/s.sock").target, Target::Unix(PathBuf::from("/tmp/s.sock")));
    assert!(refused("--help").contains("Usage"));
}

#[test]
fn a_uri_gives_address_credentials_and_database() {
    let uri = config("-u redis://app:p%40ss@[::1]:7001/3");
    assert_eq!(uri.target, Target::tcp("::1", 7001));
    assert_eq!(uri.auth, Some(Auth { user: Some(String::from("app")), password: String::from("p@ss") }));
    assert_eq!(uri.select_db, 3);
    assert_eq!(config("-u redis://:pw@h").auth, Some(Auth { user: None, password: String::from("pw") }));
    assert_eq!(config("-u redis://h").target, Target::tcp("h", 6379));
    assert_eq!(config("-u redis://h").tls, None);
    let secure = config("-u rediss://h --cacert=ca --cert=c --key=k --tls-protocols TLSv1.3,TLSv1.2 --sni=n");
    let tls = Tls {
        cacert: Some("ca".into()),
        identity: Some(("c".into(), "k".into())),
        skip_verify: false,
        protocols: vec!["TLSv1.3".into(), "TLSv1.2".into()],
        name: Some("n".into()),
    };
    assert_eq!((secure.target, secure.tls), (Target::tcp("h", 6379), Some(tls)));
    assert_eq!(config("--tls --tls-skip-verify").tls, Some(Tls { skip_verify: true, ..Tls::default() }));
    assert!(refused("-u http://h").contains("redis://"));
}

#[test]
fn credentials_are_a_password_or_user_and_password() {
    assert_eq!(credentials("pw"), Auth { user: None, password: String::from("pw") });
    assert_eq!(credentials("me:p:w"), Auth { user: Some(String::from("me")), password: String::from("p:w") });
}

#[test]
fn sizes_expiry_and_waits() {
    assert_eq!(config("--data-size-list=10:2,500:1").data.size, SizeSpec::List(vec![(10, 2), (500, 1)]));
    let range = SizeSpec::Range { min: 500, max: 2000, pattern: SizePattern::Sequential };
    assert_eq!(config("--data-size-range=500-2000 --data-size-pattern=S").data.size, range);
    assert_eq!(set_get("--expiry-range=10-20").expiry, Some(10..=20));
    assert_eq!(set_get("--expiry-range=0-10").expiry, Some(0..=10));
    let wait = set_get("--wait-ratio=10:1 --num-slaves=1-3 --wait-timeout=100-200").wait;
    assert_eq!(wait, Some(Wait { sets: 10, waits: 1, replicas: 1..=3, timeout_ms: 100..=200 }));
    assert_eq!(config("-R").data.fill, Fill::Mutated);
    assert_eq!(config("--data-compressibility 0.5").data.fill, Fill::Compressible(0.5));
}

#[test]
fn an_unambiguous_prefix_is_enough() {
    assert_eq!(config("--key-max=5").keys.max, 5);
}

#[test]
fn a_repeated_option_takes_the_last() {
    let config = config(
        "-c 1 --clients=2 -c 3 -d 5 -d 6 --ratio=1:1 --ratio=1:0 -h a -s b --print-percentiles=50 --print-percentiles 9,99",
    );
    assert_eq!((config.clients, &config.data.size), (3, &SizeSpec::Fixed(6)));
    assert!(matches!(&config.target, Target::Tcp { host, .. } if host == "b"), "{:?}", config.target);
    assert_eq!(config.quantiles, [0.09, 0.99]);
    assert_eq!(set_get("--ratio=1:1 --ratio=1:0").gets, 0);
    assert_eq!(commands("--command=a --command=b").specs.len(), 2, "commands add up");
    assert!(parsed("--tls-skip-verify --tls --tls -D -D").is_ok());
}

#[test]
fn missing_arguments_are_named() {
    for option in [
        "--protocol=memcache_text",
        "--cluster-mode",
        "--statsd-host=h",
        "--data-import=f",
        "--data-verify",
        "--verify-only",
        "--generate-keys",
        "--no-expiry",
    ] {
        let message = refused(option);
        assert!(message.contains(NOT_SUPPORTED), "{option}: {message}");
    }
}

#[test]
fn mistakes_are_refused_with_the_options_name() {
    for (line, expected) in [
        ("--test-time=5 -n 10", "--test-time"),
        ("--ratio=0:0", "--ratio"),
        ("--ratio=1", "--ratio"),
        ("--key-pattern=P:R", "P:P"),
        ("--key-pattern=X:R", "--key-pattern"),
        ("--key-minimum=0", "--key-minimum"),
        ("--key-minimum=10 --key-maximum=9", "--key-maximum"),
        ("--key-stddev=3", "--key-stddev"),
        ("--key-pattern=G:G --key-median=20000000", "--key-median"),
        ("--key-pattern=Z:Z --key-zipf-exp=6", "--key-zipf-exp"),
        ("-d 600000000", "bytes"),
        ("--data-size-range=5-2", "--data-size-range"),
        ("--expiry-range=5-2", "--expiry-range"),
        ("--data-size-list=5", "--data-size-list"),
        ("-c 0", "--clients"),
        ("-t 0", "--threads"),
        ("--pipeline=0", "--pipeline"),
        ("-x 0", "--run-count"),
        ("-n ten", "--requests"),
        ("--rate=0", "--rate"),
        ("--clients-start=5", "--clients-step"),
        ("--clients-start=50 --clients-step=1 --step-duration=1", "--clients-start"),
        ("--command=", "empty"),
        ("--command='get __key__' --ratio=1:1", "--ratio"),
        ("--scan-incremental-iteration", "SCAN 0"),
        ("--scan-incremental-iteration --command='SCAN 0' --pipeline=2", "--pipeline 1"),
        ("--monitor-input=/nonexistent", "/nonexistent"),
        ("--data-compressibility=2", "--data-compressibility"),
        ("--print-percentiles=101", "percentile"),
        ("--cacert=f", "--cacert needs --tls"),
        ("--tls --cert=f", "--key"),
        ("--no-such-option", "--no-such-option"),
    ] {
        let message = match parsed(line) {
            Ok(parsed) => crate::mix::Plan::new(&parsed.config).err().map(|error| format!("{error:#}")),
            Err(error) => Some(format!("{error:#}")),
        };
        let message = message.unwrap_or_else(|| panic!("{line} was accepted"));
        assert!(message.contains(expected), "{line}: {message}");
    }
}
