//! Owns sending an alert to another server: one POST over HTTP or HTTPS, bounded in time and size, without following
//! redirects. Never knows the content.

use crate::error::ApiError;
use axum::http::Uri;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

const CONNECT: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(10);
const URL_BYTES_MAX: usize = 2048;

/// A URL that can be posted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    is_tls: bool,
    host: String,
    port: u16,
    path: String,
}

pub fn parse(url: &str) -> Result<Target, ApiError> {
    let wrong = |why: &str| ApiError::field("url", why.to_owned());
    if url.len() > URL_BYTES_MAX {
        return Err(wrong("longer than 2048 bytes"));
    }
    let uri: Uri = url.parse().map_err(|_| wrong("is not a URL"))?;
    let is_tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(wrong("must begin with http:// or https://")),
    };
    let authority = uri.authority().ok_or_else(|| wrong("names no host"))?;
    if authority.as_str().contains('@') {
        return Err(wrong("must not hold a user or password"));
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    if host.is_empty() {
        return Err(wrong("names no host"));
    }
    let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    Ok(Target { is_tls, host, port, path })
}

/// Ok for a status of 2xx. Blocks, for at most [`CONNECT`] for each address plus [`PATIENCE`].
pub fn post(target: &Target, body: &[u8]) -> Result<(), String> {
    let addresses = (target.host.as_str(), target.port).to_socket_addrs();
    let addresses = addresses.map_err(|error| format!("{}: {error}", target.host))?;
    let mut last = format!("{} has no address", target.host);
    let stream = addresses.take(4).find_map(|address| match TcpStream::connect_timeout(&address, CONNECT) {
        Ok(stream) => Some(stream),
        Err(error) => {
            last = format!("{address}: {error}");
            None
        }
    });
    let stream = stream.ok_or(last)?;
    let until = Instant::now() + PATIENCE;
    let failed = |error: std::io::Error| format!("{}: {error}", target.host);
    stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE))).map_err(failed)?;
    let host = if target.host.contains(':') { format!("[{}]", target.host) } else { target.host.clone() };
    let mut request = format!(
        "POST {} HTTP/1.1\r\nHost: {host}:{}\r\nUser-Agent: flintkv/{}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        target.path,
        target.port,
        env!("CARGO_PKG_VERSION"),
        body.len()
    )
    .into_bytes();
    request.extend(body);
    if !target.is_tls {
        return exchange(stream, &request, until).map_err(failed)?;
    }
    let name = ServerName::try_from(target.host.clone()).map_err(|error| error.to_string())?;
    let connection = ClientConnection::new(client()?, name).map_err(|error| error.to_string())?;
    exchange(StreamOwned::new(connection, stream), &request, until).map_err(failed)?
}

/// The certificates that this machine trusts. Read for each message, because they change while a node runs.
fn client() -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("this machine has no CA certificates (package ca-certificates)".to_owned());
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Only the status line is read: `HTTP/1.1 204 …`.
fn exchange(mut stream: impl Read + Write, request: &[u8], until: Instant) -> std::io::Result<Result<(), String>> {
    stream.write_all(request)?;
    stream.flush()?;
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < 256 && Instant::now() < until && stream.read(&mut byte)? == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    let line = String::from_utf8_lossy(&line).trim().to_owned();
    let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(|code| code.parse::<u16>().ok());
    Ok(match status {
        Some(200..300) => Ok(()),
        Some(status) => Err(format!("the server answered with status {status}")),
        None => Err("the server's answer is not HTTP".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn urls() {
        let target =
            |is_tls, host: &str, port, path: &str| Target { is_tls, host: host.into(), port, path: path.into() };
        assert_eq!(parse("http://example.org").unwrap(), target(false, "example.org", 80, "/"));
        assert_eq!(parse("https://[::1]:8443/a?b=c").unwrap(), target(true, "::1", 8443, "/a?b=c"));
        for wrong in [
            "",
            "example.org",
            "ftp://example.org",
            "file:///etc/passwd",
            "http://u:p@example.org/",
            "http://",
            "gopher://x:1/",
        ] {
            assert_eq!(parse(wrong).unwrap_err().body.fields[0].field, "url", "{wrong}");
        }
    }

    fn answered(reply: &'static str) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; 1024];
            let mut read = 0;
            while !request[..read].ends_with(b"{}") {
                read += stream.read(&mut request[read..]).unwrap();
            }
            stream.write_all(reply.as_bytes()).unwrap();
            String::from_utf8(request[..read].to_vec()).unwrap()
        });
        let outcome = post(&parse(&format!("http://127.0.0.1:{port}/hook")).unwrap(), b"{}");
        let request = server.join().unwrap();
        assert!(request.starts_with("POST /hook HTTP/1.1\r\nHost: 127.0.0.1:"), "{request}");
        assert!(request.contains("\r\nContent-Length: 2\r\n"), "{request}");
        outcome
    }

    #[test]
    fn a_post_succeeds_only_with_2xx() {
        assert_eq!(answered("HTTP/1.1 204 No Content\r\n\r\n"), Ok(()));
        assert_eq!(
            answered("HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n"),
            Err("the server answered with status 302".into())
        );
        assert_eq!(answered("220 smtp ready\r\n"), Err("the server's answer is not HTTP".into()));
        assert_eq!(answered(""), Err("the server's answer is not HTTP".into()));
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        assert!(post(&parse(&format!("http://127.0.0.1:{free}/")).unwrap(), b"{}").is_err());
    }
}
