//! The commands that use the HTTP API, against a mock of a node.

use clap::Parser;
use serde_json::{Value, json};

use crate::args::Cli;
use crate::client::{Client, Unanswered};
use crate::failure::Failure;
use crate::mock::{Mock, PASSWORD, TOKEN, error};

/// Runs a command line as typed, with the address and a token.
fn run(mock: &Mock, line: &str) -> Result<String, Failure> {
    let url = format!("http://{}", mock.address);
    let argv = ["flintkv"].into_iter().chain(line.split(' ')).chain(["--url", &url, "--token", TOKEN]);
    // These commands read no flash files.
    let flash = crate::Flash {
        find_keys: |_, _, _, _| unreachable!(),
        save_values: |_, _, _, _| unreachable!(),
        check_values: |_, _| unreachable!(),
        follow: |_, _| unreachable!(),
        write_values: |_, _, _, _| unreachable!(),
        write_index: |_, _, _| unreachable!(),
        save_readable: |_, _, _, _, _| unreachable!(),
    };
    crate::run(&Cli::try_parse_from(argv).unwrap_or_else(|error| panic!("{line}: {error}")).command, &flash)
}

fn json(mock: &Mock, line: &str) -> Value {
    serde_json::from_str(&run(mock, &format!("{line} --json")).expect(line)).expect("JSON")
}

#[test]
fn a_database_from_creation_to_deletion() {
    let mock = Mock::start();
    let shown =
        run(&mock, "database create ads --memory-limit 10gb --ram-limit 40% --policy allkeys-lru --bind 127.0.0.1")
            .unwrap();
    assert!(shown.contains("redis-cli -h 127.0.0.1 -p 7001"), "{shown}");
    assert_eq!(
        mock.sent("POST", "/databases"),
        json!({ "name": "ads", "memory_limit_bytes": 10_u64 << 30, "ram_limit_bytes": 4_u64 << 30, "bind": ["127.0.0.1"],
            "policy": "allkeys-lru" }),
        "the node chooses what is not given"
    );
    assert!(run(&mock, "database list").unwrap().contains("ads"));
    assert_eq!(json(&mock, "database show ads")["definition"]["memory_limit_bytes"], 10_u64 << 30);

    mock.inner().looks_left = 3;
    let shown = run(&mock, "database resize ads --memory-limit 20gb").unwrap();
    assert!(shown.contains("active") && shown.contains("20 GB"), "{shown}");
    assert_eq!(mock.inner().looks_left, 0, "it did not wait");
    run(&mock, "database resize ads --ram-limit 50%").unwrap();
    assert_eq!(mock.sent("PATCH", "/databases/ads"), json!({ "ram_limit_bytes": 10_u64 << 30 }), "half of what it has");
    run(&mock, "database resize ads --no-password --compression zstd").unwrap();
    assert_eq!(mock.sent("PATCH", "/databases/ads"), json!({ "compression": "zstd", "password": null }));

    assert_eq!(run(&mock, "database pause ads").unwrap(), "ads is paused\n");
    assert_eq!(run(&mock, "database resume ads").unwrap(), "ads is active\n");
    assert_eq!(run(&mock, "database flush ads --yes ads").unwrap(), "ads is empty\n");
    assert_eq!(mock.sent("POST", "/databases/ads/flush"), json!({ "confirm": "ads" }));

    mock.inner().looks_left = 3;
    assert_eq!(run(&mock, "database delete ads --yes ads").unwrap(), "ads is deleted\n");
    mock.sent("DELETE", "/databases/ads?confirm=ads");
    let gone = run(&mock, "database show ads").unwrap_err();
    assert_eq!((gone.code, gone.message.as_str()), (1, "there is no database ads"));
}

#[test]
fn destructive_commands_need_the_name_as_confirmation() {
    let mock = Mock::start();
    for line in
        ["database flush default --yes defalt", "database delete default --yes yes", "user delete admin --yes root"]
    {
        let refused = run(&mock, line).unwrap_err();
        assert_eq!(refused.code, 2, "{line}");
    }
    assert!(mock.inner().requests.is_empty(), "the node was asked");
}

#[test]
fn a_backup_is_waited_for_and_its_failure_is_told() {
    let mock = Mock::start();
    mock.inner().looks_left = 3;
    let said = run(&mock, "database backup default --to ads/1 --rdb-version 11").unwrap();
    assert_eq!(said, "default is backed up and verified: ads/1, 1.23k keys, 1 MB\n");
    assert_eq!(mock.inner().looks_left, 0, "it did not wait");
    assert_eq!(mock.sent("POST", "/databases/default/backups"), json!({ "to": "ads/1", "rdb_version": 11 }));
    assert_eq!(run(&mock, "database backup default --no-wait").unwrap(), "default is being backed up: ads/1\n");
    assert_eq!(mock.sent("POST", "/databases/default/backups"), json!({}));
    let listed = run(&mock, "database backups default").unwrap();
    assert!(listed.contains("ads/1") && listed.contains("schedule"), "{listed}");
    assert!(listed.contains("REACHES") && listed.contains("2026-11-21 18:04 UTC"), "{listed}");

    mock.inner().backup_fails = true;
    let failed = run(&mock, "database backup default").unwrap_err();
    assert_eq!((failed.code, failed.message.as_str()), (1, "default could not be backed up: no space"));
    assert!(run(&mock, "database delete default --yes default --backup").is_err());
    assert!(mock.inner().requests.iter().all(|(method, ..)| method != "DELETE"), "without a backup nothing is deleted");
    mock.inner().backup_fails = false;
    assert_eq!(run(&mock, "database delete default --yes default --backup").unwrap(), "default is deleted\n");
}

#[test]
fn what_survives_and_what_is_backed_up_is_changed() {
    let mock = Mock::start();
    run(
        &mock,
        "database create ads --memory-limit 1gb --from nightly/one --at 2026-11-21T18:04:05Z --backup-schedule 6h --backup-keep 3 \
         --backup-journal-keep 7d --recovery-time-target 30",
    )
    .unwrap();
    let sent = mock.sent("POST", "/databases");
    assert_eq!((&sent["at_ms"], &sent["backup_journal_keep"]), (&json!(1_795_284_245_000_u64), &json!("7d")));
    assert_eq!(
        (&sent["from"], &sent["backup_schedule"], &sent["backup_keep"], &sent["recovery_time_target_s"]),
        (&json!("nightly/one"), &json!("6h"), &json!(3), &json!(30))
    );
    run(&mock, "database create copy --memory-limit 1gb --replica-of old:6379").unwrap();
    assert_eq!(mock.sent("POST", "/databases")["replica_of"], json!("old:6379"));
    let shown = run(&mock, "database update ads --persistence everysec").unwrap();
    assert!(shown.contains("persistence") && shown.contains("everysec"), "{shown}");
    assert_eq!(mock.sent("PATCH", "/databases/ads"), json!({ "persistence": "everysec" }));
    let shown = run(&mock, "database update ads --recovery-time-target 0").unwrap();
    assert!(shown.contains("no target"), "{shown}");
    assert_eq!(mock.sent("PATCH", "/databases/ads"), json!({ "recovery_time_target_s": 0 }));
}

#[test]
fn nothing_to_change_is_refused_without_asking_the_node() {
    let mock = Mock::start();
    assert_eq!(run(&mock, "database resize default").unwrap_err().code, 2);
    assert!(mock.inner().requests.is_empty());
}

#[test]
fn a_dry_run_says_so() {
    let mock = Mock::start();
    let said = run(&mock, "database create ads --memory-limit 1gb --dry-run").unwrap();
    assert_eq!(said, "ads could be created; nothing was changed\n");
    mock.sent("POST", "/databases?dry_run=true");
}

#[test]
fn the_nodes_message_and_hint_are_printed() {
    let mock = Mock::start();
    let why = "16 GB of RAM are there, 14 GB taken: 3 GB do not fit";
    mock.inner().fail = Some((422, error("no_room", why, "ask for less")));
    let refused = run(&mock, "database create ads --memory-limit 10gb").unwrap_err();
    assert_eq!(refused.to_string(), format!("error: {why}\nhint: ask for less\n"));
    assert_eq!(refused.code, 1);
}

#[test]
fn a_resize_that_fails_later_says_why() {
    let mock = Mock::start();
    mock.inner().looks_left = 2;
    mock.inner().resize_fails = true;
    let failed = run(&mock, "database resize default --memory-limit 20gb").unwrap_err();
    assert_eq!((failed.code, failed.message.as_str()), (1, "the resize failed: the disk is full"));
}

#[test]
fn users_and_tokens_are_listed_and_created() {
    let mock = Mock::start();
    assert_eq!(
        run(&mock, "user list").unwrap(),
        "NAME   ROLE   CREATED               LAST LOGIN\nadmin  admin  1970-01-01 00:00 UTC  never\n"
    );
    assert_eq!(
        run(&mock, "token list").unwrap(),
        "ID  NAME  ROLE    CREATED               EXPIRES\nt1  ci    viewer  1970-01-01 00:00 UTC  never\n"
    );
    assert!(run(&mock, "token create ci --role viewer --expires 30d").unwrap().starts_with("fkv_new\n"));
    let sent = mock.sent("POST", "/tokens");
    assert_eq!((&sent["name"], &sent["role"]), (&json!("ci"), &json!("viewer")));
    assert!(sent["expires_ms"].as_u64().unwrap() > base::clock::wall_ms() + 29 * 86_400_000);
    assert_eq!(json(&mock, "token create ci --role viewer")["token"], "fkv_new");
    run(&mock, "token delete t1").unwrap();
    mock.sent("DELETE", "/tokens/t1");
}

#[test]
fn the_node_is_shown() {
    let mock = Mock::start();
    let text = run(&mock, "node show").unwrap();
    for line in ["started         2026-11-21 18:04 UTC", "up for          1d 2h", "flash           /mnt/flash by uring"]
    {
        assert!(
            text.lines().any(|known| known.split_whitespace().eq(line.split_whitespace())),
            "{line:?} is missing in\n{text}"
        );
    }
    assert_eq!(json(&mock, "node show")["workers"], 2);
}

#[test]
fn top_prints_one_frame_or_one_look() {
    let mock = Mock::start();
    let frame = run(&mock, "top --once").unwrap();
    assert!(frame.contains("FlintKV 0.1.0") && frame.contains("default"), "{frame}");
    let look = json(&mock, "top");
    assert_eq!(look["databases"][0]["now"]["ops"], 1000.0);
    assert_eq!(look["node"]["cores"], 2);
}

fn with_user(mock: &Mock, password: &str) -> Client {
    Client::with_password(&mock.connection(), "admin", password)
}

#[test]
fn a_session_is_opened_used_renewed_and_closed() {
    let mock = Mock::start();
    let client = with_user(&mock, PASSWORD);
    client.get("/node").unwrap();
    client.post_nothing("/databases/default/pause").expect("the CSRF token is sent");
    assert_eq!(mock.inner().sessions.len(), 1);
    // A restarted node knows no sessions.
    mock.inner().sessions.clear();
    client.get("/node").expect("it logs in again");
    drop(client);
    assert!(mock.inner().sessions.is_empty(), "the session is still open");
}

#[test]
fn a_wrong_password_is_sent_only_once() {
    let mock = Mock::start();
    let client = with_user(&mock, "guess");
    let Err(Unanswered::Refused(refusal)) = client.get("/node") else { panic!("it was let in") };
    assert_eq!((refusal.status, refusal.failure.message.as_str()), (401, "user or password is wrong"));
    assert_eq!(mock.inner().requests.len(), 1, "guessing costs the user's tries");
}

#[test]
fn an_unreachable_address_is_reported() {
    let mock = Mock::start();
    let address = mock.address;
    let connection = mock.connection();
    drop(mock);
    let Err(Unanswered::Gone(failure)) = Client::new(&connection, crate::TIMEOUT).unwrap().get("/node") else {
        panic!("somebody answered")
    };
    assert!(failure.message.contains(&address.to_string()), "{failure}");
    assert!(failure.hint.contains("FLINTKV_URL"), "{failure}");
}
