//! Real etcd under faults: the leader killed, a member that is stopped, a compaction, a full database, TLS and users.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use coord::etcd::maintenance::{Alarm, AlarmKind};
use coord::etcd::{Options, Tls, User};
use coord::{Coord, Error, Etcd, Event, Mirror, Operation, Outcome, Revision, VALUE_BYTES_MAX};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio_stream::StreamExt;

use crate::cluster::Cluster;
use crate::common::{commit, delete, deleted, entry, eventually, follow, put, run, transaction};

/// What a client sent and was told: key, value, the revision it compared with, the outcome.
type Sent = (String, String, Revision, Result<Outcome, Error>);

/// Changes its own key and one that all share, in turns, and reads after each transaction that did not commit.
async fn write(etcd: Etcd, name: usize, sent: &std::cell::RefCell<Vec<Sent>>, is_over: &std::cell::Cell<bool>) {
    let mut number = 0;
    let mut revisions: BTreeMap<String, Revision> = BTreeMap::new();
    while !is_over.get() {
        number += 1;
        let key = if number % 2 == 0 { "w/shared".to_owned() } else { format!("w/{name}") };
        let value = format!("{name}-{number}");
        let revision = revisions.get(&key).copied().unwrap_or(0);
        let outcome = etcd.transact(transaction(&[(&key, revision)], vec![put(&key, &value)])).await;
        sent.borrow_mut().push((key.clone(), value, revision, outcome.clone()));
        if let Ok(Outcome::Committed(revision)) = outcome {
            revisions.insert(key, revision);
        } else if let Ok(found) = etcd.get(&key).await {
            revisions.insert(key, found.entry.map_or(0, |entry| entry.mod_revision));
        }
    }
}

/// What really happened. A member that was just started again refuses a watch, and the next watch begins at another member.
async fn history(etcd: &Etcd, prefix: &str) -> Vec<Event> {
    let newest = etcd.probe(prefix).await.unwrap().newest;
    let mut history: Vec<Event> = Vec::new();
    let mut known = 0;
    while known < newest {
        let mut watch = etcd.watch(prefix, known + 1);
        while known < newest
            && let Some(Ok(events)) = watch.next().await
        {
            history.extend(events);
            known = history.last().map_or(known, Event::revision);
        }
    }
    history
}

#[test]
fn a_killed_leader_makes_no_transaction_lie() {
    run(async {
        let mut cluster = Cluster::start(3).await;
        let (sent, is_over) = (std::cell::RefCell::new(Vec::<Sent>::new()), std::cell::Cell::new(false));
        let committed = || sent.borrow().iter().filter(|sent| matches!(sent.3, Ok(Outcome::Committed(_)))).count();
        let etcds: Vec<_> = (0..4).map(|_| cluster.etcd()).collect();
        let writers = async {
            let write = |name: usize| write(etcds[name].clone(), name, &sent, &is_over);
            tokio::join!(write(0), write(1), write(2), write(3));
        };
        let faults = async {
            for _ in 0..2 {
                let leader = cluster.leader().await;
                let before = committed();
                eventually("transactions are committed", async || committed() > before + 50).await;
                cluster.kill(leader);
                let before = committed();
                eventually("they are committed without the old leader", async || committed() > before + 50).await;
                cluster.spawn_member(leader, "new");
            }
            is_over.set(true);
        };
        tokio::join!(writers, faults);

        let history = history(&cluster.etcd(), "w/").await;
        let found = |value: &str| -> Vec<usize> {
            let is_it = |event: &Event| matches!(event, Event::Put(entry) if entry.value == value.as_bytes());
            (0..history.len()).filter(|index| is_it(&history[*index])).collect()
        };
        let mut outcomes = [0; 4];
        for (key, value, compared, outcome) in sent.borrow().iter() {
            let there = found(value);
            match outcome {
                Ok(Outcome::Committed(revision)) => {
                    outcomes[0] += 1;
                    assert_eq!(there.len(), 1, "{value} was committed");
                    assert_eq!(history[there[0]].revision(), *revision);
                }
                Ok(Outcome::Conflict) => outcomes[1] += 1,
                Ok(Outcome::Unknown(_)) => outcomes[2] += 1,
                Err(_) => outcomes[3] += 1,
            }
            if matches!(outcome, Ok(Outcome::Conflict) | Err(_)) {
                assert!(there.is_empty(), "{value} was not committed: {outcome:?}");
            }
            for index in there {
                let before = history[..index].iter().rev().find(|event| event.key() == key);
                assert_eq!(before.map_or(0, Event::revision), *compared, "{value}");
            }
        }
        println!("{outcomes:?} committed, conflicts, unknown, errors; {} changes", history.len());
        assert!(outcomes[0] > 200);
        assert!(outcomes[1] > 0);
    });
}

#[test]
fn a_watch_at_a_member_that_stopped_is_resumed_at_another() {
    run(async {
        let cluster = Cluster::start(3).await;
        let leader = cluster.leader().await;
        let others: Vec<usize> = (0..3).filter(|index| *index != leader).collect();
        // The first watch is at the first member.
        let order = [others[0], others[1], leader];
        let mut mirror = Mirror::new(Arc::new(cluster.etcd_of(&order, Duration::from_secs(3))), "p/");
        let writer = cluster.etcd_of(&[others[1], leader], Duration::from_secs(5));
        assert_eq!(mirror.next().await, []);
        let first = commit(&writer, vec![put("p/a", "1")]).await;
        assert_eq!(mirror.next().await, [Event::Put(entry("p/a", "1", first))]);

        cluster.pause(others[0]);
        let second = commit(&writer, vec![put("p/a", "2")]).await;
        let third = commit(&writer, vec![delete("p/a")]).await;
        let events = follow(&mut mirror, third).await;
        assert_eq!(events, [Event::Put(entry("p/a", "2", second)), deleted("p/a", third)]);
    });
}

/// A transaction must not be sent twice, so at such a member it would wait for its whole timeout.
#[test]
fn a_transaction_is_not_sent_to_a_member_that_has_stopped() {
    run(async {
        let cluster = Cluster::start(3).await;
        let leader = cluster.leader().await;
        let others: Vec<usize> = (0..3).filter(|index| *index != leader).collect();
        let etcd = cluster.etcd_of(&[others[0], others[1], leader], Duration::from_secs(60));
        commit(&etcd, vec![put("t/a", "1")]).await;
        cluster.pause(others[0]);
        // So long that its last answer says nothing any more.
        tokio::time::sleep(Duration::from_millis(400)).await;
        let begun = std::time::Instant::now();
        commit(&etcd, vec![put("t/a", "2")]).await;
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    });
}

#[test]
fn a_compaction_while_a_mirror_is_cut_off() {
    run(async {
        let mut cluster = Cluster::start(1).await;
        let etcd = cluster.etcd();
        commit(&etcd, vec![put("p/a", "1"), put("p/b", "1")]).await;
        let mut mirror = Mirror::new(Arc::new(cluster.etcd()), "p/");
        mirror.next().await;
        // Lets the watch begin.
        let seen = commit(&etcd, vec![put("p/c", "1")]).await;
        follow(&mut mirror, seen).await;

        cluster.kill(0);
        cluster.spawn_member(0, "new");
        cluster.is_ready(&etcd).await;
        let put_again = commit(&etcd, vec![put("p/a", "2")]).await;
        commit(&etcd, vec![delete("p/b"), put("p/d", "")]).await;
        let last = commit(&etcd, vec![delete("p/d")]).await;
        etcd.compact(last).await.unwrap();
        let changes = follow(&mut mirror, last).await;
        assert_eq!(changes, [Event::Put(entry("p/a", "2", put_again)), deleted("p/b", last)]);
        let listed: Vec<_> = etcd.list("p/").await.unwrap().entries;
        assert!(listed.iter().eq(mirror.entries().values()));
        // And it goes on.
        let next = commit(&etcd, vec![put("p/e", "")]).await;
        assert_eq!(mirror.next().await, [Event::Put(entry("p/e", "", next))]);
    });
}

#[test]
fn a_full_database_says_so_and_can_be_freed() {
    run(async {
        let quota = (8 << 20).to_string();
        // etcd compares with what it has committed to its file. By default it commits every 100 ms, and a fast
        // machine writes far beyond the quota in that time.
        let limits = ["--quota-backend-bytes", &quota, "--backend-batch-limit", "1"];
        let cluster = Cluster::start_with(1, &limits).await;
        let etcd = cluster.etcd();
        let fill = || Operation::Put { key: "a".to_owned(), value: vec![1; VALUE_BYTES_MAX], lease: None };
        // The test's own bound ends a loop that meets no quota.
        let refused = loop {
            match etcd.transact(transaction(&[], vec![fill()])).await {
                Ok(Outcome::Committed(_)) => {}
                other => break other,
            }
        };
        assert_eq!(refused, Err(Error::NoSpace));
        assert!(Error::NoSpace.to_string().contains("compact and defragment"));
        assert_eq!(etcd.grant(Duration::from_secs(5)).await, Err(Error::NoSpace));
        let id = etcd.members().await.unwrap()[0].id;
        eventually("there is an alarm", async || {
            etcd.alarms().await.unwrap() == [Alarm { member: id, kind: AlarmKind::NoSpace }]
        })
        .await;

        // What the error says to do. Reads and deletions go on meanwhile.
        let last = commit(&etcd, vec![delete("a")]).await;
        etcd.compact(last).await.unwrap();
        etcd.defragment(id).await.unwrap();
        let alarm = etcd.alarms().await.unwrap()[0];
        etcd.disarm(alarm).await.unwrap();
        assert_eq!(etcd.alarms().await.unwrap(), []);
        commit(&etcd, vec![fill()]).await;
    });
}

/// An authority, with a certificate for 127.0.0.1: in files for etcd, in memory for us.
struct Certificates {
    folder: tempfile::TempDir,
    ca: Vec<u8>,
    client: (Vec<u8>, Vec<u8>),
}

impl Certificates {
    fn new() -> Certificates {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &ca).unwrap();
        for (name, pem) in [("ca", ca.pem()), ("crt", certificate.pem()), ("key", key.serialize_pem())] {
            std::fs::write(folder.path().join(name), pem).unwrap();
        }
        let client = (certificate.pem().into_bytes(), key.serialize_pem().into_bytes());
        Certificates { folder, ca: ca.pem().into_bytes(), client }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

#[test]
fn tls_by_certificates_of_one_authority() {
    run(async {
        let certificates = Certificates::new();
        let [ca, crt, key] = ["ca", "crt", "key"].map(|name| certificates.path(name));
        let files = ["--trusted-ca-file", &ca, "--cert-file", &crt, "--key-file", &key, "--client-cert-auth"];
        let cluster = Cluster::spawn(1, "https", &files);
        let with = |tls: Tls| Options { tls: Some(tls), ..cluster.options() };
        // Of a client whose calls fail, after trying for so long.
        let vain = |tls: Tls| Etcd::new(Options { timeout: Duration::from_secs(2), ..with(tls) }).unwrap();
        let right = Tls { ca: certificates.ca.clone(), client: Some(certificates.client.clone()), server_name: None };
        let etcd = Etcd::new(with(right.clone())).unwrap();
        cluster.is_ready(&etcd).await;
        let revision = commit(&etcd, vec![put("a", "1")]).await;
        assert_eq!(etcd.watch("", revision).next().await.unwrap().unwrap(), [Event::Put(entry("a", "1", revision))]);
        assert!(etcd.members().await.unwrap()[0].status.is_ok());

        // Another authority: we refuse the server, and nothing is sent.
        let foreign = vain(Tls { ca: Certificates::new().ca, ..right.clone() });
        let refused = foreign.transact(transaction(&[], vec![put("a", "2")])).await;
        match &refused {
            Err(Error::Unreachable(why)) => assert!(why.contains("certificate"), "{why}"),
            // On a busy machine the handshake did not end in time.
            Ok(Outcome::Unknown(_)) => {}
            other => panic!("{other:?}"),
        }
        // Without a certificate the server refuses us. With TLS 1.3 that is known only after the request was sent.
        let nobody = vain(Tls { client: None, ..right });
        assert!(nobody.get("a").await.is_err());
        assert!(!matches!(nobody.transact(transaction(&[], vec![put("a", "2")])).await, Ok(Outcome::Committed(_))));
        assert_eq!(etcd.get("a").await.unwrap().entry, Some(entry("a", "1", revision)));
        // Options that contradict each other.
        assert!(matches!(Etcd::new(cluster.options()), Err(Error::Local(_))));
    });
}

/// Through etcd's JSON gateway, because the crate has no calls for users.
fn administer(url: &str, path: &str, body: &str) {
    let address = url.strip_prefix("http://").expect("no TLS");
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST /v3/auth/{path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_user_whose_token_etcd_forgot_gets_another() {
    run(async {
        let mut cluster = Cluster::start(1).await;
        let url = cluster.members[0].client_url.clone();
        administer(&url, "user/add", r#"{"name": "root", "password": "secret"}"#);
        administer(&url, "role/add", r#"{"name": "root"}"#);
        administer(&url, "user/grant", r#"{"user": "root", "role": "root"}"#);
        administer(&url, "enable", "{}");
        let user = |password: &str| {
            let user = User { name: "root".to_owned(), password: password.to_owned() };
            Etcd::new(Options { user: Some(user), ..cluster.options() }).unwrap()
        };
        let (etcd, wrong) = (user("secret"), user("guess"));
        commit(&etcd, vec![put("a", "1")]).await;
        assert!(matches!(wrong.get("a").await, Err(Error::Denied(_))));
        assert!(matches!(cluster.etcd().get("a").await, Err(Error::Denied(_))));
        assert!(matches!(cluster.etcd().transact(transaction(&[], vec![put("a", "2")])).await, Err(Error::Denied(_))));

        // A member that starts knows no tokens.
        cluster.kill(0);
        cluster.spawn_member(0, "new");
        cluster.is_ready(&etcd).await;
        let second = commit(&etcd, vec![put("a", "3")]).await;
        let mut mirror = Mirror::new(Arc::new(etcd.clone()), "");
        assert_eq!(mirror.next().await, [Event::Put(entry("a", "3", second))]);
        let third = commit(&etcd, vec![put("a", "4")]).await;
        assert_eq!(mirror.next().await, [Event::Put(entry("a", "4", third))]);
    });
}

#[test]
fn without_etcd_calls_end_in_time_and_say_that_nothing_was_sent() {
    run(async {
        // Nothing listens there.
        let cluster = Cluster::spawn(0, "http", &[]);
        let url = format!("http://127.0.0.1:{}", flintkv_tests::free_port());
        drop(cluster);
        let etcd = Etcd::new(Options { timeout: Duration::from_millis(300), ..Options::new(vec![url]) }).unwrap();
        // On a busy machine the refusal may come after the end of the last attempt. Then it is not known whether something was sent.
        let is_late = |why: &str| why.starts_with("no answer within ");
        eventually("a transaction says so", async || {
            match etcd.transact(transaction(&[], vec![put("a", "1")])).await {
                Err(Error::Unreachable(_)) => true,
                Ok(Outcome::Unknown(why)) if is_late(&why) => false,
                other => panic!("{other:?}"),
            }
        })
        .await;
        eventually("a read says so", async || match etcd.get("a").await {
            Err(Error::Unreachable(_)) => true,
            Err(Error::Lost(why)) if is_late(&why) => false,
            other => panic!("{other:?}"),
        })
        .await;
    });
}

/// Something that takes the request and says nothing, or hangs up.
#[test]
fn a_transaction_without_an_answer_is_unknown() {
    run(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let silent = async {
            let mut held = Vec::new();
            loop {
                held.push(listener.accept().await.unwrap());
            }
        };
        let options = Options { timeout: Duration::from_millis(300), ..Options::new(vec![url]) };
        let calls = async {
            let etcd = Etcd::new(options.clone()).unwrap();
            let outcome = etcd.transact(transaction(&[], vec![put("a", "1")])).await;
            assert!(matches!(outcome, Ok(Outcome::Unknown(_))), "{outcome:?}");
            assert!(matches!(etcd.get("a").await, Err(Error::Lost(_))));
        };
        tokio::select! {
            () = calls => {}
            () = silent => {}
        }
        let hangs_up = async {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 1 << 12]).await;
            }
        };
        let call = async {
            let etcd = Etcd::new(options).unwrap();
            let outcome = etcd.transact(transaction(&[], vec![put("a", "1")])).await;
            assert!(matches!(outcome, Ok(Outcome::Unknown(_))), "{outcome:?}");
        };
        tokio::select! {
            () = call => {}
            () = hangs_up => {}
        }
    });
}
