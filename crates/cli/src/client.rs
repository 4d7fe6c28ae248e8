//! Owns the communication with a node's HTTP API: address, trust, credentials, sessions, errors. Never knows what is
//! asked for.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use ureq::http::{Method, Request};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::args::Connection;
use crate::failure::Failure;
use crate::prompt;

const API: &str = "/api/v1";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// One node, as one user or token. Dropping it closes the session that it opened.
pub struct Client {
    agent: ureq::Agent,
    url: String,
    credentials: Credentials,
    session: Mutex<Option<Session>>,
}

enum Credentials {
    Token(String),
    User { name: String, password: String },
}

#[derive(Clone)]
struct Session {
    cookie: String,
    csrf: String,
}

/// A reply with an error status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// The API's error code. Empty if the reply did not come from the API.
    pub code: String,
    pub failure: Failure,
}

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unanswered {
    Refused(Refusal),
    /// No answer, or not a valid one.
    Gone(Failure),
}

impl From<Unanswered> for Failure {
    fn from(error: Unanswered) -> Failure {
        match error {
            Unanswered::Refused(refusal) => refusal.failure,
            Unanswered::Gone(failure) => failure,
        }
    }
}

impl Client {
    /// Reads the credentials and asks for a password if needed. Only the first request contacts the node. An answer
    /// that takes longer than `timeout` counts as none.
    pub fn new(connection: &Connection, timeout: Duration) -> Result<Client, Failure> {
        let url = connection.url.trim_end_matches('/').to_owned();
        check_url(&url, connection.insecure)?;
        Client::with(url, connection, credentials(connection)?, timeout)
    }

    #[cfg(test)]
    pub fn with_password(connection: &Connection, name: &str, password: &str) -> Client {
        let credentials = Credentials::User { name: name.to_owned(), password: password.to_owned() };
        Client::with(connection.url.clone(), connection, credentials, Duration::from_secs(20)).expect("a client")
    }

    fn with(
        url: String,
        connection: &Connection,
        credentials: Credentials,
        timeout: Duration,
    ) -> Result<Client, Failure> {
        let roots = match &connection.cacert {
            Some(file) => RootCerts::new_with_certs(&certificates(file)?),
            None => RootCerts::WebPki,
        };
        let tls = TlsConfig::builder().root_certs(roots).disable_verification(connection.insecure).build();
        let agent = ureq::Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(0)
            // The node is on a near network, which a proxy for the Internet cannot reach.
            .proxy(None)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(timeout))
            .user_agent(concat!("flintkv/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Ok(Client { agent, url, credentials, session: Mutex::new(None) })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// The user and the password, if a password was given.
    pub fn user(&self) -> Option<(&str, &str)> {
        match &self.credentials {
            Credentials::User { name, password } => Some((name, password)),
            Credentials::Token(_) => None,
        }
    }

    pub fn get(&self, path: &str) -> Result<Value, Unanswered> {
        self.send(Method::GET, path, None)
    }

    pub fn post(&self, path: &str, body: &Value) -> Result<Value, Unanswered> {
        self.send(Method::POST, path, Some(body))
    }

    /// A POST request without a body.
    pub fn post_nothing(&self, path: &str) -> Result<Value, Unanswered> {
        self.send(Method::POST, path, None)
    }

    pub fn put(&self, path: &str, body: &Value) -> Result<Value, Unanswered> {
        self.send(Method::PUT, path, Some(body))
    }

    pub fn patch(&self, path: &str, body: &Value) -> Result<Value, Unanswered> {
        self.send(Method::PATCH, path, Some(body))
    }

    pub fn delete(&self, path: &str) -> Result<Value, Unanswered> {
        self.send(Method::DELETE, path, None)
    }

    /// Logs in if necessary, and logs in again if the node no longer knows the session, as after a restart.
    fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Unanswered> {
        let mut session = self.session.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut fresh = false;
        if let Credentials::User { name, password } = &self.credentials
            && session.is_none()
        {
            *session = Some(self.log_in(name, password)?);
            fresh = true;
        }
        let reply = self.exchange(&method, path, body, session.as_ref());
        match (&self.credentials, reply) {
            (Credentials::User { name, password }, Err(Unanswered::Refused(refusal)))
                if refusal.status == 401 && !fresh =>
            {
                *session = Some(self.log_in(name, password)?);
                self.exchange(&method, path, body, session.as_ref()).map(|(reply, _)| reply)
            }
            (_, reply) => reply.map(|(reply, _)| reply),
        }
    }

    fn log_in(&self, user: &str, password: &str) -> Result<Session, Unanswered> {
        // The session is for one command: the node's audit log records what the command changes, but not its login and
        // logout.
        let body = json!({ "user": user, "password": password, "brief": true });
        let (reply, cookie) = self.exchange(&Method::POST, "/session", Some(&body), None)?;
        let csrf = reply["csrf"].as_str().unwrap_or_default().to_owned();
        let cookie = cookie.ok_or_else(|| self.gone("the reply to the login has no session"))?;
        Ok(Session { cookie, csrf })
    }

    /// One request; the reply, and the session's cookie if it sets one.
    fn exchange(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
        session: Option<&Session>,
    ) -> Result<(Value, Option<String>), Unanswered> {
        let mut request = Request::builder().method(method).uri(format!("{}{API}{path}", self.url));
        if let Credentials::Token(token) = &self.credentials {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        if let Some(session) = session {
            request = request.header("Cookie", &session.cookie).header("X-CSRF-Token", &session.csrf);
        }
        let sent = match body {
            Some(body) => {
                let request = request.header("Content-Type", "application/json").body(body.to_string());
                request.map_err(ureq::Error::from).and_then(|request| self.agent.run(request))
            }
            // The header with the length 0 must be set explicitly.
            None if method == Method::POST => {
                request.body(String::new()).map_err(ureq::Error::from).and_then(|request| self.agent.run(request))
            }
            None => request.body(()).map_err(ureq::Error::from).and_then(|request| self.agent.run(request)),
        };
        let mut response = sent.map_err(|error| self.gone(&reason(&error)))?;
        let status = response.status().as_u16();
        let cookies = response.headers().get_all("set-cookie").iter();
        let mut cookies = cookies.filter_map(|cookie| cookie.to_str().ok()?.split(';').next());
        let cookie = cookies.rfind(|cookie| cookie.starts_with("flintkv_session=")).map(str::to_owned);
        let text = response.body_mut().read_to_string().map_err(|error| self.gone(&reason(&error)))?;
        if !(200..300).contains(&status) {
            return Err(Unanswered::Refused(refusal(status, &text)));
        }
        if text.trim().is_empty() {
            return Ok((Value::Null, cookie));
        }
        let reply = serde_json::from_str(&text).map_err(|_| {
            let failure = Failure::failed(format!("{} does not answer as FlintKV's API at {API}{path}", self.url));
            Unanswered::Gone(failure.hint("use the address of the node's console-port, not that of a database"))
        })?;
        Ok((reply, cookie))
    }

    fn gone(&self, why: &str) -> Unanswered {
        let failure = Failure::failed(format!("{} does not answer: {why}", self.url));
        Unanswered::Gone(
            failure.hint(
                "check that the node is running and that this is its console-port; --url or FLINTKV_URL sets another address",
            ),
        )
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let session = self.session.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(session) = session {
            // Best effort: a session that is not closed expires by itself.
            let _ = self.exchange(&Method::DELETE, "/session", None, Some(&session));
        }
    }
}

/// A password or a token must not cross a network in plain text.
fn check_url(url: &str, insecure: bool) -> Result<(), Failure> {
    let wrong = |why: &str| Failure::refused(format!("{url} is not the address of a node: {why}"));
    let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("write http://HOST:PORT or https://HOST:PORT"))?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(wrong("it must not contain credentials; use --user or --token"));
    }
    if rest.len() != authority.len() {
        return Err(wrong("it has a path"));
    }
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let local = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    match scheme {
        "https" => Ok(()),
        "http" if local || insecure => Ok(()),
        "http" => Err(Failure::refused(format!("{url} is not encrypted, and {host} is not this machine")).hint(
            "set console-tls-cert-file and console-tls-key-file and use https://, or give --insecure if you trust the network",
        )),
        _ => Err(wrong("write http:// or https://")),
    }
}

/// A named user takes precedence over a token, which may come from the environment.
fn credentials(connection: &Connection) -> Result<Credentials, Failure> {
    match (&connection.user, &connection.token) {
        (Some(name), _) => {
            let password = match std::env::var("FLINTKV_PASSWORD") {
                Ok(password) => password,
                Err(_) => prompt::secret(&format!("Password of {name}: "))
                    .map_err(|failure| failure.hint("set FLINTKV_PASSWORD, or use a token: FLINTKV_TOKEN"))?,
            };
            Ok(Credentials::User { name: name.clone(), password })
        }
        (None, Some(token)) => Ok(Credentials::Token(token.clone())),
        (None, None) => Err(Failure::refused("no user and no token was given").hint(
            "--user admin asks for the password (a node's first start writes the first one to its log: `flintkv user passwd admin --user admin` \
             changes it). Scripts set FLINTKV_TOKEN to a token, which `flintkv token create NAME --role viewer --user admin` prints",
        )),
    }
}

fn certificates(file: &Path) -> Result<Vec<Certificate<'static>>, Failure> {
    let refused = |why: String| Failure::refused(format!("--cacert {}: {why}", file.display()));
    let pem = fs::read(file).map_err(|error| refused(error.to_string()))?;
    let certificates: Vec<Certificate<'static>> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() { Err(refused("it contains no certificate".to_owned())) } else { Ok(certificates) }
}

fn reason(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) => error.to_string(),
        ureq::Error::Rustls(error) => format!("{error} (--cacert sets the authority to trust)"),
        ureq::Error::HostNotFound => "there is no such host".to_owned(),
        error => error.to_string(),
    }
}

/// The API's message and hint, with each wrong field and the reason. For any other reply, its status.
fn refusal(status: u16, text: &str) -> Refusal {
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    let error = &body["error"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let Some(message) = error["message"].as_str() else {
        let failure = Failure::failed(format!("the node answered with HTTP status {status}"));
        return Refusal { status, code: String::new(), failure };
    };
    let mut message = message.to_owned();
    for field in error["fields"].as_array().into_iter().flatten() {
        let (name, why) = (text(&field["field"]), text(&field["message"]));
        // The message of a single field already contains this.
        if !message.contains(&why) {
            message.push_str(&format!("\n  {name}: {why}"));
        }
    }
    Refusal { status, code: text(&error["code"]), failure: Failure::failed(message).hint(text(&error["hint"])) }
}

/// One segment of a path, whatever the user typed.
pub fn segment(text: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes().map(|byte| if keep(byte) { (byte as char).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_sent_encrypted_or_locally_only() {
        for url in ["http://127.0.0.1:8379", "http://localhost", "http://[::1]:8379", "https://db.example:8379"] {
            assert_eq!(check_url(url, false), Ok(()), "{url}");
        }
        assert!(check_url("http://db.example:8379", true).is_ok(), "--insecure was named");
        for url in [
            "http://db.example:8379",
            "http://localhost.example",
            "http://127.0.0.1.example",
            "localhost:8379",
            "ftp://localhost",
            "http://user:secret@localhost",
            "http://localhost/console",
        ] {
            assert_eq!(check_url(url, false).unwrap_err().code, 2, "{url}");
        }
    }

    #[test]
    fn the_api_s_message_is_shown() {
        let text = r#"{"error":{"code":"no_room","message":"12 GB of 16 GB are taken","hint":"ask for less",
            "fields":[{"field":"ram_limit_bytes","message":"is more than 4 GB"},{"field":"x","message":"16 GB are taken"}]}}"#;
        let refused = refusal(422, text);
        assert_eq!((refused.status, refused.code.as_str()), (422, "no_room"));
        assert_eq!(
            refused.failure.to_string(),
            "error: 12 GB of 16 GB are taken\n  ram_limit_bytes: is more than 4 GB\nhint: ask for less\n"
        );
        assert_eq!(refusal(502, "<html>").failure.to_string(), "error: the node answered with HTTP status 502\n");
    }

    #[test]
    fn a_name_stays_one_part_of_a_path() {
        assert_eq!(segment("a/../b?c"), "a%2F..%2Fb%3Fc");
    }
}
