//! Owns the address of a server: `redis://user:password@host:port/db`. Never connects.

use std::fmt;
use std::str::FromStr;

/// A server, and how to log in. `Display` shows no password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub host: String,
    pub port: u16,
    pub user: Option<String>,
    pub password: Option<String>,
    /// Only this logical database. `None`: all.
    pub db: Option<u32>,
    pub has_tls: bool,
}

impl Address {
    pub fn with_password(mut self, password: Option<&str>) -> Address {
        if let Some(password) = password {
            self.password = Some(password.to_owned());
        }
        self
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let form = "a server's address is redis://[[user:]password@]host[:port][/db], or rediss:// with TLS";
        let (scheme, rest) = text.split_once("://").ok_or(form)?;
        let has_tls = match scheme {
            "redis" => false,
            "rediss" => true,
            _ => return Err(form.to_owned()),
        };
        let (place, db) = match rest.split_once('/') {
            Some((place, "")) => (place, None),
            Some((place, db)) => (place, Some(db.parse().map_err(|_| format!("'{db}' is not a logical database"))?)),
            None => (rest, None),
        };
        let (login, place) = place.rsplit_once('@').map_or((None, place), |(login, place)| (Some(login), place));
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or(("", login))) {
            None => (None, None),
            Some((user, password)) => (Some(decoded(user)?).filter(|user| !user.is_empty()), Some(decoded(password)?)),
        };
        let (host, port) = match place.rsplit_once(':') {
            // The colons of an IPv6 address are inside brackets.
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| format!("'{port}' is not a port"))?)
            }
            _ => (place, 6379),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(form.to_owned());
        }
        Ok(Address { host, port, user, password, db, has_tls })
    }
}

/// Decodes the percent-encoding of a URL.
fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        bytes.push(match first {
            b'%' => {
                let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                rest = after.get(2..).unwrap_or_default();
                byte.ok_or_else(|| format!("'{text}': a percent sign must be followed by two hexadecimal digits"))?
            }
            byte => *byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| format!("'{text}' is not valid UTF-8"))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        write!(f, "{host}:{}", self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_what_a_url_says() {
        let plain = Address { host: "h".to_owned(), port: 6379, user: None, password: None, db: None, has_tls: false };
        let login = |user: Option<&str>, password: &str| Address {
            user: user.map(str::to_owned),
            password: Some(password.to_owned()),
            ..plain.clone()
        };
        for (text, expected) in [
            ("redis://h", plain.clone()),
            ("redis://h/", plain.clone()),
            ("rediss://h:7", Address { port: 7, has_tls: true, ..plain.clone() }),
            ("redis://h/3", Address { db: Some(3), ..plain.clone() }),
            ("redis://p@h", login(None, "p")),
            ("redis://:p@h", login(None, "p")),
            ("redis://u:p%40%3A@h", login(Some("u"), "p@:")),
            ("redis://[::1]:80", Address { host: "::1".to_owned(), port: 80, ..plain.clone() }),
            ("redis://[::1]", Address { host: "::1".to_owned(), ..plain.clone() }),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for bad in ["", "h", "http://h", "redis://", "redis://h:x", "redis://h/x", "redis://p%4@h", "redis://p%ff@h"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
        assert_eq!("redis://u:p@[::1]".parse::<Address>().unwrap().to_string(), "[::1]:6379");
    }
}
