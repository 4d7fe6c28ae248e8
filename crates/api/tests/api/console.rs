//! The console's files, TLS, and a console that cannot listen.

use crate::common::*;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn files_pages_and_nothing_else() {
    let node = Node::start(&[]);
    let anybody = node.client();
    let index = anybody.get("/");
    assert_eq!((index.status, index.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!(index.header("cache-control"), Some("no-cache"));
    for page in [
        "/databases",
        "/databases/some-name/metrics",
        "/login?next=x",
        "/..",
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
    ] {
        let reply = anybody.get(page);
        // A name without a dot is a page that index.html draws. Only embedded files can be found.
        assert!(reply.status == 404 || reply.body == index.body, "{page}: {}", reply.status);
    }
    assert_eq!(anybody.get("/databases/some-name").body, index.body);
    for missing in ["/nosuch.js", "/assets/nosuch-1234.css", "/Cargo.toml", "/../Cargo.toml", "/etc/passwd.txt"] {
        assert_eq!(anybody.get(missing).error(), error(404, "not_found", ""), "{missing}");
    }
    let tag = index.header("etag").unwrap();
    let again = anybody.with("If-None-Match", tag).get("/");
    assert_eq!((again.status, again.body.len()), (304, 0));
    assert_eq!(anybody.post("/", json!({})).status, 405);
    let head = anybody.send("HEAD", "/", None);
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(anybody.get("/health/live").text(), "live\n");
    assert_eq!(anybody.get("/health/ready").text(), "ready\n");
}

/// The dump is a pipe, so the load takes as long as the test wants.
#[test]
fn a_node_is_ready_when_its_dataset_is_loaded_and_tells_systemd_so() {
    const O_NONBLOCK: i32 = 0o4000;
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let dump = folder.path().join("dump.rdb");
    assert!(std::process::Command::new("mkfifo").arg(&dump).status().unwrap().success());
    let manager = UnixDatagram::bind(folder.path().join(MANAGER)).unwrap();
    manager.set_read_timeout(Some(TIMEOUT)).unwrap();
    let heard = || {
        let mut bytes = [0; 300];
        let got = manager.recv(&mut bytes).expect("a message of the node");
        String::from_utf8_lossy(&bytes[..got]).into_owned()
    };
    let node = Node::launch(&folder, &[("supervised", "systemd")]);
    let begun = "EXTEND_TIMEOUT_USEC=300000000\nSTATUS=Not ready: loading default: 0 %";
    assert_eq!(heard(), begun);
    let reply = until("the console", || node.client().try_send("GET", "/health/ready", None));
    assert_eq!(reply.error(), error(503, "loading", ""), "{}", reply.text());
    assert!(reply.text().contains("loading default: 0 %"), "{}", reply.text());
    assert_eq!(node.client().get("/health/live").status, 200);

    // Nobody can write into it before the node reads.
    let mut pipe =
        until("the node reads", || std::fs::File::options().write(true).custom_flags(O_NONBLOCK).open(&dump).ok());
    let empty = [b"REDIS0010\xff".as_slice(), &[0; 8]].concat();
    pipe.write_all(&empty).unwrap();
    drop(pipe);
    let mut last = heard();
    while last.starts_with("STATUS=Not ready") || last.starts_with("EXTEND_TIMEOUT_USEC") {
        last = heard();
    }
    assert_eq!(last, "READY=1\nSTATUS=Ready to accept connections");
    assert_eq!(node.client().get("/health/ready").text(), "ready\n");
}

#[test]
fn tls_makes_the_cookie_secure() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_file(&cert).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    let node = Node::start_tls(folder, &cert, &key);
    let ask = |method: &str, path: &str, body: Option<&[u8]>| {
        let stream = TcpStream::connect(("127.0.0.1", node.console)).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = StreamOwned::new(ClientConnection::new(Arc::clone(&config), name).unwrap(), stream);
        node.client().exchange(stream, method, path, body)
    };
    until("the console", || ask("GET", "/health/ready", None).filter(|reply| reply.status == 200));
    let body = serde_json::to_vec(&json!({"user": "admin", "password": PASSWORD})).unwrap();
    let reply = ask("POST", "/api/v1/session", Some(&body)).unwrap();
    assert!(reply.header("set-cookie").unwrap().ends_with("; Secure"));
    assert!(reply.header("strict-transport-security").is_some());
    // Plain HTTP gets no answer.
    assert!(node.client().try_send("GET", "/health/ready", None).is_none());
}

/// As many clients as there are places sent half a request each, and a health check waited for half a minute.
#[test]
fn half_requests_do_not_delay_a_health_check() {
    let node = Node::start(&[]);
    let half: Vec<TcpStream> = (0..600)
        .map(|at| {
            let mut stream = TcpStream::connect(("127.0.0.1", node.console)).unwrap();
            let text: &[u8] = match at % 2 {
                0 => b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n",
                _ => {
                    b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                       Content-Length: 9\r\n\r\n{"
                }
            };
            stream.write_all(text).unwrap();
            stream
        })
        .collect();
    let started = Instant::now();
    assert_eq!(node.client().get("/health/live").text(), "live\n");
    assert!(started.elapsed() < Duration::from_secs(5), "it waited for a place");
    drop(half);
}

#[test]
fn a_console_that_is_open_to_others_without_tls_warns() {
    let text = "is open to other machines and has no TLS";
    assert!(!Node::start(&[]).log().contains(text));
    let open = Node::start(&[("console-bind", "0.0.0.0")]);
    assert!(open.log().contains(text), "{}", open.log());
}
