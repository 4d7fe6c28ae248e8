//! Records come back as they were written, with the fields of newer versions; other bytes are errors that name key and field.

use cluster::ids::{
    ConsoleKey, CopyNumber, DatabaseId, Epoch, HashSecret, Incarnation, NodeId, OperationId, ProcessId, SessionDigest,
    ShardNumber, ShardUid,
};
use cluster::keys::Key;
use cluster::records::{
    Addresses, Assignment, Capacity, ConsoleEndedRecord, ConsoleKeyRecord, ConsoleUsersRecord, DatabaseState,
    FailoverRecord, FeatureLevelRecord, FunctionsRecord, LayoutRecord, LeaderRecord, LiveRecord, MapRecord, Member,
    NodeRecord, NodeStep, OperationKind, OperationRecord, RECORD_BYTES_MAX, Record, Restarted, Role, ShardRecord,
    SpecRecord, Step, StepKind, StoredDefinition, Unknown, UsersRecord, Versions, decode, encode,
};
use cluster::stripes::StripeMap;
use config::definition::{Definition, FIELDS};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fmt::Debug;

const DATABASE: DatabaseId = DatabaseId([0xda; 10]);

fn node(id: u8) -> NodeId {
    NodeId([id; 20])
}

fn unknown() -> Unknown {
    let Value::Object(fields) = json!({"later": {"a": [1, null, "é"]}, "more": true}) else { unreachable!() };
    fields
}

fn node_record() -> NodeRecord {
    NodeRecord {
        name: "node-b".parse().unwrap(),
        zone: "eu-1b".parse().unwrap(),
        role: Role::Data,
        is_draining: false,
        addresses: Addresses {
            peer: "[::1]:8380".parse().unwrap(),
            client_host: "b.example".to_owned(),
            unknown: unknown(),
        },
        versions: Versions { flintkv: "0.1.0".to_owned(), unknown: unknown() },
        capacity: Capacity { ram_bytes: 12 << 30, flash_bytes: u64::MAX, unknown: unknown() },
        feature_level: 3,
        unknown: unknown(),
    }
}

fn spec_record() -> SpecRecord {
    let definition = Definition {
        port: 7000,
        memory_limit_bytes: 100 << 30,
        ram_limit_bytes: 10 << 30,
        shards: 4,
        replicas: 1,
        persistence: "always".to_owned(),
        zones: vec!["eu-1a".to_owned()],
        bind: vec!["::1".to_owned()],
        unixsocket: Some("/run/a.sock".into()),
        ..Definition::default()
    };
    SpecRecord {
        name: "orders".parse().unwrap(),
        state: DatabaseState::Serving,
        hash_secret: HashSecret([7; 16]),
        config: Default::default(),
        flushes: 3,
        definition: StoredDefinition { known: definition, unknown: unknown() },
        unknown: unknown(),
    }
}

fn shard_record() -> ShardRecord {
    let member = |copy| Member { copy: CopyNumber(copy), incarnation: Incarnation([9; 8]), unknown: unknown() };
    ShardRecord {
        epoch: Epoch::FIRST.next(),
        in_sync: vec![member(2), member(5)],
        next_copy: CopyNumber(9),
        undecided: Some(Epoch::FIRST),
        unknown: unknown(),
        ..ShardRecord::new(
            CopyNumber(5),
            vec![
                Assignment::new(CopyNumber(2), node(2)),
                Assignment { unknown: unknown(), ..Assignment::new(CopyNumber(5), node(1)) },
                Assignment::new(CopyNumber(8), node(3)),
            ],
        )
    }
}

fn operation_record() -> OperationRecord {
    let shard = Some(ShardUid([4; 12]));
    let step = |kind, shard, from, to| Step { kind, shard, from, to, restarted: None, unknown: unknown() };
    let process = ProcessId([6; 8]);
    let restarted = Some(Restarted { process, stays_drained: true, unknown: unknown() });
    OperationRecord {
        kind: OperationKind::Drain,
        target: "node-a".to_owned(),
        by: "admin".to_owned(),
        nodes: vec![NodeStep {
            node: node(1),
            name: "node-a".parse().unwrap(),
            is_done: true,
            trouble: Some("no room".to_owned()),
            unknown: unknown(),
        }],
        database: None,
        node: Some(node(1)),
        steps: vec![
            step(StepKind::Move, shard, Some(node(1)), Some(node(2))),
            step(StepKind::SwitchOver, shard, None, Some(node(2))),
            step(StepKind::Add, shard, None, Some(node(3))),
            step(StepKind::Drop, shard, Some(node(3)), None),
            step(StepKind::Resize, None, None, None),
            Step { restarted, ..step(StepKind::Restart, None, None, Some(node(3))) },
        ],
        done: 1,
        waits_for: Some("node b runs".to_owned()),
        aborted_by: Some("ann".to_owned()),
        error: Some("node b: RAM".to_owned()),
        started_ms: 1_700_000_000_000,
        ended_ms: Some(1_700_000_001_000),
        unknown: unknown(),
    }
}

/// Calls the check with each record and its key.
struct All<F: FnMut(Key, Vec<u8>, &dyn Fn(&[u8]) -> Result<Vec<u8>, String>)>(F);

impl<F: FnMut(Key, Vec<u8>, &dyn Fn(&[u8]) -> Result<Vec<u8>, String>)> All<F> {
    fn of<R: Record + PartialEq + Debug>(&mut self, key: Key, record: &R) {
        let bytes = encode(key, record).unwrap();
        assert_eq!(&decode::<R>(key, &bytes).unwrap(), record);
        // What an older node does: it reads and writes.
        let again = |bytes: &[u8]| {
            let record = decode::<R>(key, bytes).map_err(|error| error.to_string())?;
            encode(key, &record).map_err(|error| error.to_string())
        };
        (self.0)(key, bytes, &again);
    }

    fn run(mut self) {
        let unknown = unknown();
        self.of(Key::Node(node(1)), &node_record());
        self.of(
            Key::Live(node(1)),
            &LiveRecord { process: ProcessId([1; 8]), place: String::new(), unknown: unknown.clone() },
        );
        self.of(Key::Spec(DATABASE), &spec_record());
        let acl = vec!["user a on >p ~* +@all".to_owned(), String::new()];
        self.of(Key::Users(DATABASE), &UsersRecord { acl, unknown: unknown.clone() });
        let libraries = vec!["#!lua name=a\nredis.register_function('f', function() end)".to_owned()];
        self.of(Key::Functions(DATABASE), &FunctionsRecord { libraries, unknown: unknown.clone() });
        let runs = StripeMap::even(3).unwrap().runs().to_vec();
        self.of(Key::Map(DATABASE), &MapRecord { runs, unknown: unknown.clone() });
        self.of(Key::Shard(DATABASE, ShardNumber(7)), &shard_record());
        self.of(Key::Operation(OperationId([3; 8])), &operation_record());
        let failover = FailoverRecord {
            database: DATABASE,
            shard: ShardNumber(7),
            target: "orders.7".to_owned(),
            cause: "its node does not run".to_owned(),
            from: "n1".parse().unwrap(),
            to: "n2".parse().unwrap(),
            epoch: Epoch::FIRST,
            missed_ms: 1,
            named_ms: 2,
            served_ms: Some(3),
            unknown: unknown.clone(),
        };
        self.of(Key::Failover(OperationId([4; 8])), &failover);
        self.of(Key::Layout, &LayoutRecord { changes: 5, unknown: unknown.clone() });
        let process = ProcessId([1; 8]);
        self.of(Key::Leader, &LeaderRecord { node: node(1), process, unknown: unknown.clone() });
        self.of(Key::FeatureLevel, &FeatureLevelRecord { level: 4, unknown: unknown.clone() });
        self.of(Key::ConsoleUsers, &ConsoleUsersRecord(unknown.clone()));
        self.of(Key::ConsoleKey, &ConsoleKeyRecord { key: ConsoleKey([3; 32]), unknown: unknown.clone() });
        self.of(Key::ConsoleEnded(SessionDigest([5; 32])), &ConsoleEndedRecord { ended_ms: 9, unknown });
    }
}

fn each_record(check: impl FnMut(Key, Vec<u8>, &dyn Fn(&[u8]) -> Result<Vec<u8>, String>)) {
    All(check).run();
}

/// Adds a field to each object of a value. A definition's and a record's objects alike.
fn grow(value: &mut Value) -> usize {
    match value {
        Value::Object(fields) => {
            let inside: usize = fields.values_mut().map(grow).sum();
            fields.insert("new_field".to_owned(), json!([{"x": 1}, "é", 18_446_744_073_709_551_615_u64]));
            inside + 1
        }
        Value::Array(values) => values.iter_mut().map(grow).sum(),
        _ => 0,
    }
}

/// Equal but for the order of fields.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(values) => values.into_iter().map(sorted).collect(),
        value => value,
    }
}

#[test]
fn an_older_node_loses_no_field_of_a_newer_one() {
    let mut objects = 0;
    each_record(|key, bytes, again| {
        let mut value: Value = serde_json::from_slice(&bytes).unwrap();
        objects += grow(&mut value);
        let newer = serde_json::to_vec(&value).unwrap();
        let back: Value = serde_json::from_slice(&again(&newer).unwrap()).unwrap();
        assert_eq!(sorted(back), sorted(value), "{key}");
    });
    assert!(objects > 30, "{objects}");
}

/// Also those that a later version adds to a definition, if they are written to etcd.
#[test]
fn a_definition_comes_back_whole() {
    let bytes = encode(Key::Spec(DATABASE), &spec_record()).unwrap();
    let value: Value = serde_json::from_slice(&bytes).unwrap();
    for field in FIELDS {
        let is_written = value["definition"].get(field.name).is_some();
        assert_eq!(is_written, field.is_shown, "{}", field.name);
    }
    let read: SpecRecord = decode(Key::Spec(DATABASE), &bytes).unwrap();
    assert_eq!(read.definition(), Definition { name: "orders".to_owned(), ..spec_record().definition.known });
    // What is not written is not read: a password belongs to a user.
    let mut with_password = value;
    with_password["definition"]["password"] = json!("p");
    let bytes = serde_json::to_vec(&with_password).unwrap();
    let read: SpecRecord = decode(Key::Spec(DATABASE), &bytes).unwrap();
    assert_eq!((read.definition.known.password, &read.definition.unknown["password"]), (None, &json!("p")));
}

#[test]
fn an_error_names_key_and_field() {
    let failure = |key: Key, path: &str, to: Value| {
        let mut error = None;
        each_record(|other, bytes, again| {
            if key == other {
                let mut value: Value = serde_json::from_slice(&bytes).unwrap();
                let place = value.pointer_mut(path).expect("a field");
                *place = to.clone();
                error = Some(again(&serde_json::to_vec_pretty(&value).unwrap()).unwrap_err());
                assert_eq!(
                    again(&serde_json::to_vec(&value).unwrap()).unwrap_err().split(" at line").next(),
                    error.as_deref().unwrap().split(" at line").next()
                );
            }
        });
        error.expect("the key").split(" at line").next().unwrap().to_owned()
    };
    let id = "01".repeat(20);
    let of_node = |field: &str, to| failure(Key::Node(node(1)), &format!("/{field}"), to);
    assert_eq!(
        of_node("feature_level", json!("x")),
        format!("nodes/{id}: feature_level: invalid type: string \"x\", expected u32")
    );
    assert_eq!(
        of_node("capacity/flash_bytes", json!(-1)),
        format!("nodes/{id}: capacity.flash_bytes: invalid value: integer `-1`, expected u64")
    );
    assert_eq!(of_node("capacity", json!({})), format!("nodes/{id}: capacity: missing field `ram_bytes`"));
    assert!(of_node("zone", json!("a b")).starts_with(&format!("nodes/{id}: zone: the name of a zone is 1 to 63")));
    assert!(of_node("role", json!("king")).starts_with(&format!("nodes/{id}: role: unknown variant `king`")));
    assert!(
        of_node("addresses/peer", json!("b"))
            .starts_with(&format!("nodes/{id}: addresses.peer: an address is HOST:PORT"))
    );

    let of_spec =
        |field: &str, to| failure(Key::Spec(DATABASE), &format!("/{field}"), to).replace(&DATABASE.to_string(), "ID");
    assert_eq!(of_spec("hash_secret", json!("secret")), "db/ID/spec: hash_secret: expected 32 lower-case hex digits");
    assert_eq!(of_spec("name", json!("default")), "db/ID/spec: name: 'default' is taken: choose another name");
    assert_eq!(of_spec("definition/shards", json!(1025)), "db/ID/spec: definition.shards: 1025 is not from 1 to 1024");
    assert_eq!(of_spec("definition/replicas", json!(8)), "db/ID/spec: definition.replicas: 8 is more than 7");
    assert_eq!(
        of_spec("definition/memory_limit_bytes", json!("1gb")),
        "db/ID/spec: definition: memory_limit_bytes: invalid type: string \"1gb\", expected u64"
    );
    assert!(
        of_spec("definition/port", json!(0))
            .starts_with("db/ID/spec: definition.port: a database of a cluster has a port")
    );

    let of_map = |to| failure(Key::Map(DATABASE), "/runs", to).replace(&DATABASE.to_string(), "ID");
    assert_eq!(of_map(json!([[0, 1023, 70000]])), "db/ID/map: runs.0.2: invalid value: integer `70000`, expected u16");
    assert_eq!(of_map(json!([[0, 1023]])), "db/ID/map: runs.0: invalid length 2, expected a tuple of size 3");
    assert_eq!(of_map(json!([[0, 9, 1]])), "db/ID/map: runs: stripes 10 to 1023 have no shard");

    let of_shard = |field: &str, to| {
        failure(Key::Shard(DATABASE, ShardNumber(7)), &format!("/{field}"), to)
            .replace(&format!("db/{DATABASE}/shard/7: "), "")
    };
    assert_eq!(of_shard("epoch", json!(0)), "epoch: invalid value: integer `0`, expected a nonzero u64");
    assert_eq!(of_shard("assignments/1/node", json!("x")), "assignments.1.node: expected 40 lower-case hex digits");
    assert_eq!(
        of_shard("assignments/1/copy", json!(2)),
        "assignments: the copies are not in ascending order, each once"
    );
    assert_eq!(
        of_shard("assignments/1/node", json!(node(2))),
        format!("assignments: copies 2 and 5 are both on node {}", node(2))
    );
    assert_eq!(of_shard("primary", json!(1)), "primary: copy 1 is assigned to no node");
    assert_eq!(of_shard("primary", json!(8)), "in_sync: copy 8, the primary, is missing");
    assert_eq!(of_shard("in_sync/0/copy", json!(1)), "in_sync: copy 1 is assigned to no node");
    assert_eq!(of_shard("in_sync/0/copy", json!(8)), "in_sync: the copies are not in ascending order, each once");
    assert_eq!(of_shard("next_copy", json!(8)), "next_copy: 8 is not above copy 8");

    let of_operation = |field: &str, to| {
        failure(Key::Operation(OperationId([3; 8])), &format!("/{field}"), to).replace("ops/0303030303030303: ", "")
    };
    assert_eq!(of_operation("done", json!(7)), "done: 7 of 6 steps");
    assert_eq!(
        of_operation("steps/0/from", json!(7)),
        "steps.0.from: invalid type: integer `7`, expected 40 lower-case hex digits"
    );
}

#[test]
fn a_step_has_what_its_kind_needs() {
    for index in 0..4 {
        let mut record = operation_record();
        record.steps[index].shard = None;
        let error = encode(Key::Operation(OperationId([3; 8])), &record).unwrap_err();
        assert_eq!(error.field, "steps");
        assert!(error.why.starts_with(&format!("step {index}, ")), "{error}");
    }
}

#[test]
fn records_above_the_maximum_are_refused() {
    let users = |bytes: usize| UsersRecord { acl: vec!["x".repeat(bytes)], unknown: Unknown::new() };
    let beside = encode(Key::Users(DATABASE), &users(0)).unwrap().len();
    let most = encode(Key::Users(DATABASE), &users(RECORD_BYTES_MAX - beside)).unwrap();
    assert_eq!(most.len(), RECORD_BYTES_MAX);
    assert!(decode::<UsersRecord>(Key::Users(DATABASE), &most).is_ok());
    let why = format!("db/{DATABASE}/users: a record of 1048577 bytes: the most is 1048576");
    assert_eq!(encode(Key::Users(DATABASE), &users(RECORD_BYTES_MAX - beside + 1)).unwrap_err().to_string(), why);
    let more = [&most[..], b" "].concat();
    assert_eq!(decode::<UsersRecord>(Key::Users(DATABASE), &more).unwrap_err().to_string(), why);
}

#[test]
fn a_long_value_is_not_repeated_whole() {
    let bytes = format!("{{\"level\": \"{}\\n\"}}", "x".repeat(100_000));
    let error = decode::<FeatureLevelRecord>(Key::FeatureLevel, bytes.as_bytes()).unwrap_err();
    assert_eq!(error.field, "level");
    assert!(error.to_string().len() < 400, "{error}");
    let deep = "[".repeat(100_000);
    let error = decode::<FeatureLevelRecord>(Key::FeatureLevel, format!("{{\"later\": {deep}").as_bytes()).unwrap_err();
    assert!(error.why.contains("recursion limit"), "{error}");
    assert!(error.field.len() <= 300, "{error}");
}

#[test]
#[should_panic(expected = "feature_level has another record")]
fn a_key_of_another_record_is_a_bug() {
    _ = decode::<LeaderRecord>(Key::FeatureLevel, b"{}");
}

fn shard_records() -> impl Strategy<Value = ShardRecord> {
    let copies = proptest::collection::btree_map(any::<u32>().prop_map(|copy| copy / 2), any::<[u8; 20]>(), 1..6);
    (copies, any::<u64>(), any::<prop::sample::Index>(), proptest::collection::vec(any::<bool>(), 6)).prop_map(
        |(copies, epoch, primary, is_in_sync)| {
            let assignments: Vec<_> =
                copies.into_iter().map(|(copy, node)| Assignment::new(CopyNumber(copy), NodeId(node))).collect();
            let primary = primary.get(&assignments).copy;
            let mut record = ShardRecord::new(primary, assignments);
            record.epoch = Epoch(epoch.max(1).try_into().unwrap());
            let members = record
                .assignments
                .iter()
                .zip(is_in_sync)
                .filter(|(assigned, is_in)| *is_in || assigned.copy == primary);
            let member = |copy| Member { copy, incarnation: Incarnation(epoch.to_be_bytes()), unknown: Unknown::new() };
            record.in_sync = members.map(|(assigned, _)| member(assigned.copy)).collect();
            record
        },
    )
}

proptest! {
    #[test]
    fn any_shard_comes_back(record in shard_records(), number: u16) {
        let key = Key::Shard(DATABASE, ShardNumber(number));
        prop_assert_eq!(decode::<ShardRecord>(key, &encode(key, &record).unwrap()).unwrap(), record);
    }

    #[test]
    fn any_node_comes_back(
        name in "[a-z0-9]([-_.a-z0-9]{0,61}[a-z0-9])?", ram: u64, flash: u64, level: u32, host in "\\PC{0,20}",
    ) {
        let mut record = node_record();
        (record.name, record.addresses.client_host, record.feature_level) = (name.parse().unwrap(), host, level);
        (record.capacity.ram_bytes, record.capacity.flash_bytes) = (ram, flash);
        let key = Key::Node(node(9));
        prop_assert_eq!(decode::<NodeRecord>(key, &encode(key, &record).unwrap()).unwrap(), record);
    }

    #[test]
    fn any_users_come_back(acl in proptest::collection::vec(any::<String>(), 0..5)) {
        let (key, record) = (Key::Users(DATABASE), UsersRecord { acl, unknown: unknown() });
        prop_assert_eq!(decode::<UsersRecord>(key, &encode(key, &record).unwrap()).unwrap(), record);
    }

    #[test]
    fn damaged_records_never_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), prop_oneof![any::<u8>(), prop::sample::select(b"{}[]\",:0129-e\\n".to_vec())]), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        each_record(|key, mut bytes, again| {
            // Before the changes: with them a beginning can be a whole record, `{}`.
            let cut = cut.index(bytes.len());
            assert!(again(&bytes[..cut]).is_err(), "{}", String::from_utf8_lossy(&bytes[..cut]));
            for (at, to) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *to;
            }
            // A record that still reads is one that can be written, and reads as the same.
            match again(&bytes) {
                Ok(written) => assert_eq!(again(&written), Ok(written)),
                Err(error) => assert!(error.starts_with(&format!("{key}: ")), "{error}"),
            }
        });
    }

    #[test]
    fn any_bytes_are_a_record_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        each_record(|key, _, again| {
            if let Err(error) = again(&bytes) {
                assert!(error.starts_with(&format!("{key}: ")), "{error}");
            }
        });
    }
}
