//! TLS: the handshake and its certificates, commands over TLS, and certificates that change while the server runs.
//! Tested with our own client, and with redis-cli where it is installed.

use crate::common::{Node, eventually, free_port, shown, words};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use resp::client::{Value, encode_command, parse_value};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, version};
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// An authority with certificates for a server and a client, in files of a directory.
struct Certificates {
    folder: tempfile::TempDir,
}

impl Certificates {
    fn new() -> Certificates {
        let certificates = Certificates { folder: tempfile::tempdir().unwrap() };
        certificates.renew();
        certificates
    }

    /// Makes all certificates again, under the same names.
    fn renew(&self) {
        self.make(&[]);
    }

    /// Makes all certificates; those named have expired.
    fn make(&self, expired: &[&str]) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Use different names: with one name for all, OpenSSL takes every certificate for self-signed.
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        fs::write(self.path("ca.crt"), ca.pem()).unwrap();
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
            if expired.contains(&name) {
                (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
            }
            let certificate = params.signed_by(&key, &ca).unwrap();
            fs::write(self.path(&format!("{name}.crt")), certificate.pem()).unwrap();
            fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

struct Secure {
    stream: StreamOwned<ClientConnection, TcpStream>,
    received: Vec<u8>,
}

impl Secure {
    /// `as_client`: sends the client's certificate.
    fn connect(port: u16, certificates: &Certificates, as_client: bool) -> io::Result<Secure> {
        Secure::connect_by(port, certificates, as_client, &[&version::TLS13, &version::TLS12])
    }

    fn connect_by(
        port: u16,
        certificates: &Certificates,
        as_client: bool,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> io::Result<Secure> {
        let mut client = Secure::dial(port, certificates, as_client, versions)?;
        // The server reports a refused certificate only after the handshake.
        client.stream.write_all(b"PING\r\n")?;
        let mut pong = [0; 7];
        client.stream.read_exact(&mut pong)?;
        assert_eq!(&pong, b"+PONG\r\n");
        Ok(client)
    }

    /// Does the handshake, and sends nothing.
    fn dial(
        port: u16,
        certificates: &Certificates,
        as_client: bool,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> io::Result<Secure> {
        let read = |path: &Path| CertificateDer::from_pem_file(path).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(read(&certificates.path("ca.crt"))).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let config = match as_client {
            false => builder.with_no_client_auth(),
            true => {
                let key = PrivateKeyDer::from_pem_file(certificates.path("client.key")).unwrap();
                builder.with_client_auth_cert(vec![read(&certificates.path("client.crt"))], key).unwrap()
            }
        };
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_read_timeout(Some(Duration::from_secs(60)))?;
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        Ok(Secure { stream: StreamOwned::new(session, socket), received: Vec::new() })
    }

    fn send(&mut self, words: &[&[u8]]) {
        let mut bytes = Vec::new();
        encode_command(words, &mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    fn reply(&mut self) -> Value {
        loop {
            if let Some((value, consumed)) = parse_value(&self.received).unwrap() {
                self.received.drain(..consumed);
                return value;
            }
            let mut chunk = [0; 16 * 1024];
            let count = self.stream.read(&mut chunk).unwrap();
            assert_ne!(count, 0, "the connection has ended");
            self.received.extend_from_slice(&chunk[..count]);
        }
    }

    fn run(&mut self, line: &str) -> String {
        let words = words(line);
        self.send(&words.iter().map(|word| &word[..]).collect::<Vec<_>>());
        shown(&self.reply())
    }
}

/// A node, its TLS port, and what its certificates are.
fn start(directives: &[(&str, &str)]) -> (Node, u16, Certificates) {
    let certificates = Certificates::new();
    let (cert, key, ca) =
        (certificates.text("server.crt"), certificates.text("server.key"), certificates.text("ca.crt"));
    let port = free_port();
    let port_text = port.to_string();
    let mut all = vec![
        ("tls-port", port_text.as_str()),
        ("tls-cert-file", &cert),
        ("tls-key-file", &key),
        ("tls-ca-cert-file", &ca),
    ];
    all.extend(directives);
    (Node::start(&all), port, certificates)
}

#[test]
fn a_tls_client_can_do_everything_that_a_plain_client_can() {
    let (node, port, certificates) = start(&[]);
    let mut client = Secure::connect(port, &certificates, true).unwrap();
    assert_eq!(client.run("SET k v"), "OK");
    assert_eq!(client.run("GET k"), "\"v\"");
    // Larger than any buffer on the way, in both directions, and in a pipeline.
    let large: Vec<u8> = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
    client.send(&[b"SET", b"large", &large]);
    assert_eq!(client.reply(), Value::Simple(b"OK".to_vec()));
    for _ in 0..5 {
        client.send(&[b"GET", b"large"]);
    }
    client.send(&[b"PING"]);
    for _ in 0..5 {
        assert!(client.reply() == Value::Bulk(large.clone()), "another value");
    }
    assert_eq!(client.reply(), Value::Simple(b"PONG".to_vec()));
    // Messages from others arrive while the client waits, and after its own replies.
    let mut other = node.connect();
    assert_eq!(client.run("SUBSCRIBE news"), "1) \"subscribe\"\n2) \"news\"\n3) (integer) 1");
    for at in 0..100 {
        assert_eq!(other.run(&format!("PUBLISH news {at}")), "(integer) 1");
    }
    for at in 0..100 {
        assert_eq!(shown(&client.reply()), format!("1) \"message\"\n2) \"news\"\n3) \"{at}\""));
    }
    assert_eq!(client.run("UNSUBSCRIBE"), "1) \"unsubscribe\"\n2) \"news\"\n3) (integer) 0");
    client.send(&[b"BLPOP", b"alist", b"0"]);
    eventually("it waits", || other.info("clients", "blocked_clients") == "1");
    other.run("RPUSH alist x");
    assert_eq!(shown(&client.reply()), "1) \"alist\"\n2) \"x\"");
    assert_eq!(client.run("QUIT"), "OK");
    let mut rest = Vec::new();
    assert_eq!(client.stream.read_to_end(&mut rest).unwrap(), 0, "it is ended as the protocol has it");
}

/// A script blocks the only worker. Handshakes and commands continue.
#[test]
fn tls_clients_are_answered_while_a_script_is_busy() {
    let (node, port, certificates) = start(&[("io-threads", "1"), ("busy-reply-threshold", "50")]);
    let mut client = Secure::connect(port, &certificates, true).unwrap();
    let mut script = node.connect();
    script.send(b"EVAL 'while true do end' 0\r\n");
    eventually("it is told", || client.run("PING").starts_with("(error) BUSY Redis is busy running a script."));
    let mut late = Secure::dial(port, &certificates, true, &[&version::TLS13]).unwrap();
    assert!(late.run("PING").starts_with("(error) BUSY Redis is busy running a script."));
    assert_eq!(late.run("QUIT"), "OK");
    assert_eq!(late.stream.read_to_end(&mut Vec::new()).unwrap(), 0, "it is ended as the protocol has it");
    assert_eq!(client.run("SCRIPT KILL"), "OK");
    assert!(script.read().starts_with("(error) ERR Script killed"));
    assert_eq!(client.run("PING"), "PONG");
}

/// CLIENT KILL and `timeout` once shut the socket at once, and the client could not tell the end from an attack.
#[test]
fn connections_that_are_ended_get_the_end_of_tls() {
    let (node, port, certificates) = start(&[]);
    let mut admin = node.connect();
    for version in [&version::TLS13, &version::TLS12] {
        let connect = || Secure::connect_by(port, &certificates, true, &[version]).unwrap();
        let ends = |mut client: Secure, how: &str| {
            let ended = client.stream.read_to_end(&mut Vec::new());
            assert_eq!(ended.map_err(|error| error.to_string()), Ok(0), "{how}, {version:?}");
        };
        let mut idle = connect();
        let id = idle.run("CLIENT ID");
        assert_eq!(admin.run(&format!("CLIENT KILL ID {}", id.trim_start_matches("(integer) "))), "(integer) 1");
        ends(idle, "CLIENT KILL");
        let mut waits = connect();
        waits.send(&[b"BLPOP", b"nosuch", b"0"]);
        eventually("it waits", || admin.info("clients", "blocked_clients") == "1");
        assert_eq!(admin.run("CLIENT KILL TYPE normal SKIPME yes"), "(integer) 1");
        ends(waits, "CLIENT KILL of a client that waits");
        let idle = connect();
        assert_eq!(admin.run("CONFIG SET timeout 1"), "OK");
        ends(idle, "timeout");
        admin = node.connect();
        assert_eq!(admin.run("CONFIG SET timeout 0"), "OK");
    }
}

/// Who reads nothing, and says that no more comes, can be ended all the same.
#[test]
fn a_tls_client_that_takes_no_replies_is_ended() {
    let (node, port, certificates) = start(&[]);
    let (mut admin, mut client) = (node.connect(), Secure::connect(port, &certificates, true).unwrap());
    admin.words(&[b"SET", b"long", &vec![b'x'; 4 << 20]]);
    let id = client.run("CLIENT ID");
    (0..16).for_each(|_| client.send(&[b"GET", b"long"]));
    client.stream.sock.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(admin.run(&format!("CLIENT KILL ID {}", id.trim_start_matches("(integer) "))), "(integer) 1");
    eventually("it is gone", || admin.info("clients", "connected_clients") == "1");
}

#[test]
fn which_clients_need_a_certificate() {
    let (_node, port, certificates) = start(&[]);
    assert!(Secure::connect(port, &certificates, false).is_err());
    assert_eq!(Secure::connect(port, &certificates, true).unwrap().run("ECHO known"), "\"known\"");
    // A certificate of another authority.
    let others = Certificates::new();
    fs::copy(certificates.path("ca.crt"), others.path("ca.crt")).unwrap();
    assert!(Secure::connect(port, &others, true).is_err());
    for auth in ["no", "optional"] {
        let (_node, port, certificates) = start(&[("tls-auth-clients", auth)]);
        Secure::connect(port, &certificates, false).unwrap();
        Secure::connect(port, &certificates, true).unwrap();
    }
    let (_node, port, certificates) = start(&[("tls-auth-clients", "optional")]);
    let others = Certificates::new();
    fs::copy(certificates.path("ca.crt"), others.path("ca.crt")).unwrap();
    assert!(Secure::connect(port, &others, true).is_err());
}

#[test]
fn only_protocols_that_are_allowed() {
    let (node, port, certificates) = start(&[("tls-protocols", "TLSv1.3")]);
    assert!(Secure::connect_by(port, &certificates, true, &[&version::TLS12]).is_err());
    Secure::connect_by(port, &certificates, true, &[&version::TLS13]).unwrap();
    assert_eq!(node.connect().run("CONFIG SET tls-protocols TLSv1.2"), "OK");
    Secure::connect_by(port, &certificates, true, &[&version::TLS12]).unwrap();
    assert!(Secure::connect_by(port, &certificates, true, &[&version::TLS13]).is_err());
}

/// Once, the store used one of two concurrent CONFIG SETs while CONFIG GET showed the other, and a worker read a
/// certificate's file. Here the certificate is a pipe, so the test decides how long reading it takes.
#[test]
fn a_config_set_that_waits_for_a_file_is_atomic() {
    let (node, _, certificates) = start(&[("io-threads", "2"), ("ram-limit", "1gb")]);
    let mut clients: Vec<_> = (0..4).map(|_| node.connect()).collect();
    for client in &mut clients {
        // Two connections on each worker.
        assert_eq!(client.run("PING"), "PONG");
    }
    let [first, second, beside_first, beside_second] = &mut clients[..] else { unreachable!() };
    let pipe = certificates.path("pipe.crt");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for (text, reply, limit) in [
        (fs::read_to_string(certificates.path("server.crt")).unwrap(), "OK", 700_000_000),
        ("nothing of the kind".to_owned(), "(error) ERR CONFIG SET failed", 800_000_000),
    ] {
        let set = format!("CONFIG SET maxmemory 600000000 timeout 33 tls-cert-file {}\r\n", pipe.display());
        first.send(set.as_bytes());
        // From now on the certificate is being read.
        let mut writer = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
        second.send(format!("CONFIG SET maxmemory {limit}\r\n").as_bytes());
        for other in [&mut *beside_first, &mut *beside_second] {
            assert_eq!(other.run("PING"), "PONG");
            assert_ne!(other.run("CONFIG GET maxmemory"), "1) \"maxmemory\"\n2) \"600000000\"");
        }
        writer.write_all(text.as_bytes()).unwrap();
        drop(writer);
        let told = first.read();
        assert!(told.starts_with(reply), "{told}");
        assert_eq!(second.read(), "OK");
        assert_eq!(second.run("CONFIG GET maxmemory"), format!("1) \"maxmemory\"\n2) \"{limit}\""));
        assert_eq!(second.info("tiering", "ram_limit"), limit.to_string());
        assert_eq!(second.run("CONFIG GET timeout"), "1) \"timeout\"\n2) \"33\"");
    }
}

#[test]
fn new_certificates_apply_to_new_connections() {
    let (node, port, certificates) = start(&[]);
    let mut old = Secure::connect(port, &certificates, true).unwrap();
    let mut admin = node.connect();
    certificates.renew();
    assert!(Secure::connect(port, &certificates, true).is_err(), "the server has the old one");
    let set = format!(
        "CONFIG SET tls-cert-file {} tls-key-file {} tls-ca-cert-file {}",
        certificates.text("server.crt"),
        certificates.text("server.key"),
        certificates.text("ca.crt")
    );
    assert_eq!(admin.run(&set), "OK");
    let mut new = Secure::connect(port, &certificates, true).unwrap();
    assert_eq!(new.run("PING"), "PONG");
    assert_eq!(old.run("PING"), "PONG");
    // An invalid setting changes nothing.
    let error = admin.run("CONFIG SET tls-cert-file /nonexistent");
    assert!(error.contains("Unable to update TLS configuration"), "{error}");
    assert!(admin.run("CONFIG GET tls-cert-file").contains("server.crt"));
    let error = admin.run(&format!("CONFIG SET tls-key-file {}", certificates.text("client.key")));
    assert!(error.contains("Unable to update TLS configuration"), "{error}");
    Secure::connect(port, &certificates, true).unwrap();
}

#[test]
fn expired_certificates_are_refused() {
    let (node, port, certificates) = start(&[]);
    let set = format!(
        "CONFIG SET tls-cert-file {} tls-key-file {} tls-ca-cert-file {}",
        certificates.text("server.crt"),
        certificates.text("server.key"),
        certificates.text("ca.crt")
    );
    let refused = |expired: &[&str]| {
        certificates.make(expired);
        assert_eq!(node.connect().run(&set), "OK");
        Secure::connect(port, &certificates, true).err().map(|error| error.to_string())
    };
    assert_eq!(refused(&[]), None);
    let by_server = refused(&["client"]).expect("the server refuses the client");
    assert!(by_server.to_lowercase().contains("expired"), "{by_server}");
    let by_client = refused(&["server"]).expect("the client refuses the server");
    assert!(by_client.to_lowercase().contains("expired"), "{by_client}");
}

#[test]
fn bytes_that_are_no_handshake_close_only_their_connection() {
    let (node, port, certificates) = start(&[]);
    let mut wrong = TcpStream::connect(("127.0.0.1", port)).unwrap();
    wrong.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    let mut rest = Vec::new();
    // The node sends an alert, or resets the connection.
    let _ = wrong.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"+PONG"));
    let _half = TcpStream::connect(("127.0.0.1", port)).unwrap();
    Secure::connect(port, &certificates, true).unwrap();
    drop(wrong);
    eventually("those that never came in are not clients", || {
        node.connect().info("clients", "connected_clients") == "1"
    });
}

#[test]
fn the_tls_port_changes_while_clients_are_connected() {
    let (node, port, certificates) = start(&[]);
    let mut before = Secure::connect(port, &certificates, true).unwrap();
    let other = free_port();
    let mut plain = node.connect();
    assert_eq!(plain.run(&format!("CONFIG SET tls-port {other}")), "OK");
    assert_eq!(plain.run("CONFIG GET tls-port"), format!("1) \"tls-port\"\n2) \"{other}\""));
    let mut after = Secure::connect(other, &certificates, true).unwrap();
    assert_eq!((after.run("SET k v"), before.run("GET k")), ("OK".into(), "\"v\"".into()), "no connection ends");
    eventually("nobody listens at the old port", || TcpStream::connect(("127.0.0.1", port)).is_err());
    // Off, and on again.
    assert_eq!(plain.run("CONFIG SET tls-port 0"), "OK");
    eventually("nobody listens", || TcpStream::connect(("127.0.0.1", other)).is_err());
    assert_eq!((after.run("PING"), plain.run(&format!("CONFIG SET tls-port {port}"))), ("PONG".into(), "OK".into()));
    assert_eq!(Secure::connect(port, &certificates, true).unwrap().run("GET k"), "\"v\"");
}

#[test]
fn a_server_with_invalid_tls_settings_does_not_start() {
    let certificates = Certificates::new();
    let (cert, key) = (certificates.text("server.crt"), certificates.text("server.key"));
    let port = free_port().to_string();
    let fails = |directives: &[(&str, &str)], told: &str| {
        let mut all = vec![("tls-port", port.as_str())];
        all.extend(directives);
        let said = Node::try_start(free_port(), &all).err().expect("it does not start");
        assert!(said.contains(told), "{said}");
    };
    fails(&[], "tls-port needs tls-cert-file and tls-key-file");
    fails(&[("tls-cert-file", &cert), ("tls-key-file", &key)], "tls-auth-clients needs certificates of authorities");
    fails(&[("tls-cert-file", &cert), ("tls-key-file", &cert), ("tls-auth-clients", "no")], "cannot read a key from");
    let other = certificates.text("client.key");
    fails(&[("tls-cert-file", &cert), ("tls-key-file", &other), ("tls-auth-clients", "no")], "server.crt and ");
    fails(
        &[("tls-cert-file", &cert), ("tls-key-file", &key), ("tls-auth-clients", "no"), ("tls-ciphers", "RC4-MD5")],
        "tls-ciphers: 'RC4-MD5' is not one of",
    );
}

#[test]
fn redis_cli_connects_with_tls() {
    let (_node, port, certificates) = start(&[("tls-protocols", "TLSv1.2 TLSv1.3")]);
    let cli = |arguments: &[&str]| {
        let (port, ca) = (port.to_string(), certificates.text("ca.crt"));
        let mut command = Command::new("redis-cli");
        command.args(["-h", "localhost", "-p", &port, "--tls", "--cacert", &ca]);
        command.args(["--cert", &certificates.text("client.crt"), "--key", &certificates.text("client.key")]);
        command.args(arguments).output()
    };
    let Ok(output) = cli(&["SET", "k", "v"]) else { return };
    let said = format!("{output:?}");
    if said.contains("Unrecognized option") {
        // This redis-cli was built without TLS.
        return;
    }
    assert_eq!(output.stdout, b"OK\n", "{said}");
    for ciphers in [
        ["--tls-ciphersuites", "TLS_AES_128_GCM_SHA256", "GET", "k"],
        ["--tls-ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256", "GET", "k"],
    ] {
        assert_eq!(cli(&ciphers).unwrap().stdout, b"v\n");
    }
}

#[test]
fn a_replica_connects_to_its_primary_with_tls() {
    let certificates = Certificates::new();
    let (port, ca) = (free_port(), certificates.text("ca.crt"));
    let (cert, key) = (certificates.text("server.crt"), certificates.text("server.key"));
    let tls_port = port.to_string();
    let primary = Node::start(&[
        ("tls-port", &tls_port),
        ("tls-cert-file", &cert),
        ("tls-key-file", &key),
        ("tls-ca-cert-file", &ca),
    ]);
    primary.connect().run("SET k v");
    let other = Certificates::new();
    let (cert, key, other_ca) =
        (certificates.text("client.crt"), certificates.text("client.key"), other.text("ca.crt"));
    let replica = Node::start(&[
        ("tls-replication", "yes"),
        ("tls-client-cert-file", &cert),
        ("tls-client-key-file", &key),
        ("tls-ca-cert-file", &other_ca),
    ]);
    let mut client = replica.connect();
    assert_eq!(client.run(&format!("REPLICAOF localhost {port}")), "OK");
    eventually("the primary's certificate is refused", || {
        client.info("replication", "master_link_error").contains("invalid peer certificate")
    });
    assert_eq!(client.run(&format!("CONFIG SET tls-ca-cert-file {ca}")), "OK");
    eventually("the link is up", || client.info("replication", "master_link_status") == "up");
    assert_eq!(client.run("GET k"), "\"v\"");
    primary.connect().run("SET k w");
    eventually("the change has come", || client.run("GET k") == "\"w\"");

    // The primary's certificate expires.
    certificates.make(&["server"]);
    let set = format!(
        "CONFIG SET tls-cert-file {} tls-key-file {} tls-ca-cert-file {ca}",
        certificates.text("server.crt"),
        certificates.text("server.key")
    );
    let mut primary = primary.connect();
    assert_eq!(primary.run(&set), "OK");
    assert_eq!(client.run(&format!("CONFIG SET tls-ca-cert-file {ca}")), "OK");
    assert_eq!(primary.run("CLIENT KILL TYPE replica"), "(integer) 1");
    eventually("the expired certificate is refused", || {
        client.info("replication", "master_link_error").to_lowercase().contains("expired")
    });
}
