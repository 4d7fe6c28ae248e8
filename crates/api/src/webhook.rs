//! Owns sending an alert to another server: one POST over HTTP or HTTPS, bounded in time and size, without following
//! redirects. Never knows the content.

use crate::error::ApiError;
use std::time::Duration;
use ureq::http::Uri;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

const CONNECT: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(10);
const URL_BYTES_MAX: usize = 2048;
/// The most bytes of the answer's head. Its body is not read.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// A URL that can be posted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target(Uri);

impl Target {
    fn host(&self) -> &str {
        self.0.host().unwrap_or_default()
    }
}

pub fn parse(url: &str) -> Result<Target, ApiError> {
    let wrong = |why: &str| ApiError::field("url", why.to_owned());
    if url.len() > URL_BYTES_MAX {
        return Err(wrong("longer than 2048 bytes"));
    }
    let uri: Uri = url.parse().map_err(|_| wrong("is not a URL"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong("must begin with http:// or https://"));
    }
    let authority = uri.authority().ok_or_else(|| wrong("names no host"))?;
    if authority.as_str().contains('@') {
        return Err(wrong("must not contain a user or password"));
    }
    if authority.host().trim_matches(['[', ']']).is_empty() {
        return Err(wrong("names no host"));
    }
    Ok(Target(uri))
}

/// Why a message was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Another attempt may succeed.
    Passing(String),
    /// The server has refused the message.
    Final(String),
}

/// Ok for a status of 2xx. Blocking, at most [`TIMEOUT`].
pub fn post(target: &Target, headers: &[(&str, String)], body: &[u8]) -> Result<(), Failure> {
    let mut request = agent(target).map_err(Failure::Passing)?.post(&target.0).content_type("application/json");
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    match request.send(body) {
        Ok(response) => judged(response.status().as_u16()),
        Err(ureq::Error::Protocol(_)) => Err(Failure::Passing("the server's answer is not HTTP".to_owned())),
        Err(ureq::Error::Io(error)) => Err(Failure::Passing(format!("{}: {error}", target.host()))),
        Err(error) => Err(Failure::Passing(format!("{}: {error}", target.host()))),
    }
}

/// Statuses such as 408, 425, 429 and 5xx may change, so the message is sent again. Every other error would be repeated
/// by the same message.
fn judged(status: u16) -> Result<(), Failure> {
    let text = format!("the server answered with status {status}");
    match status {
        200..300 => Ok(()),
        408 | 425 | 429 | 500.. => Err(Failure::Passing(text)),
        _ => Err(Failure::Final(text)),
    }
}

fn agent(target: &Target) -> Result<ureq::Agent, String> {
    let mut config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_connect(Some(CONNECT))
        .timeout_global(Some(TIMEOUT))
        .max_response_header_size(HEAD_BYTES_MAX)
        .user_agent(concat!("flintkv/", env!("CARGO_PKG_VERSION")));
    if target.0.scheme_str() == Some("https") {
        config = config.tls_config(TlsConfig::builder().root_certs(trusted()?).build());
    }
    Ok(config.build().new_agent())
}

/// The certificates that this machine trusts. Read for each message, because they change while a node runs.
fn trusted() -> Result<RootCerts, String> {
    let found = rustls_native_certs::load_native_certs().certs;
    if found.is_empty() {
        return Err("this machine has no CA certificates (package ca-certificates)".to_owned());
    }
    let found: Vec<Certificate<'static>> = found.iter().map(|found| Certificate::from_der(found).to_owned()).collect();
    Ok(RootCerts::new_with_certs(&found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn urls() {
        for right in ["http://example.org", "https://[::1]:8443/a?b=c"] {
            assert_eq!(parse(right).unwrap(), Target(right.parse().unwrap()));
        }
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

    fn answered(reply: &'static str) -> Result<(), Failure> {
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
        let outcome = post(
            &parse(&format!("http://127.0.0.1:{port}/hook")).unwrap(),
            &[("flintkv-delivery", "a/b".to_owned())],
            b"{}",
        );
        let request = server.join().unwrap();
        let head = request.to_ascii_lowercase();
        assert!(request.starts_with("POST /hook HTTP/1.1\r\n") && head.contains("\r\nhost: 127.0.0.1:"), "{request}");
        assert!(head.contains("\r\ncontent-length: 2\r\n"), "{request}");
        assert!(head.contains("\r\ncontent-type: application/json\r\n"), "{request}");
        assert!(head.contains("\r\nflintkv-delivery: a/b\r\n"), "{request}");
        outcome
    }

    #[test]
    fn a_post_succeeds_only_with_2xx() {
        assert_eq!(answered("HTTP/1.1 204 No Content\r\n\r\n"), Ok(()));
        assert_eq!(
            answered("HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n"),
            Err(Failure::Final("the server answered with status 302".into()))
        );
        assert_eq!(answered("220 smtp ready\r\n"), Err(Failure::Passing("the server's answer is not HTTP".into())));
        assert_eq!(answered(""), Err(Failure::Passing("127.0.0.1: Peer disconnected".into())));
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        assert!(post(&parse(&format!("http://127.0.0.1:{free}/")).unwrap(), &[], b"{}").is_err());
        for (status, is_passing) in
            [(400, false), (404, false), (410, false), (408, true), (429, true), (500, true), (503, true)]
        {
            assert_eq!(matches!(judged(status), Err(Failure::Passing(_))), is_passing, "{status}");
        }
    }
}
