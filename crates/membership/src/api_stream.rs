//! Owns the stream over which the API of one member asks that of another: its handshake, and why there is none. Never knows a request.

use pki::{API_PROTOCOL, Identity};
use rustls::{AlertDescription, ClientConfig, ServerConfig};
use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{StartHandshake, TlsConnector, TlsStream};

/// Short, because somebody looks at a page meanwhile.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

pub type ApiStream = TlsStream<TcpStream>;

/// Why the API of another member cannot be asked.
#[derive(Debug)]
pub enum ApiUnreachable {
    /// Nobody answers at its address.
    Away(String),
    Silent,
    /// Its version has no such protocol.
    Older,
    /// It has ended the connection before it has said who it is: it has no API.
    NoApi,
    /// One of the two does not take the other's certificate.
    Refused(String),
}

impl fmt::Display for ApiUnreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApiUnreachable::Away(why) => write!(f, "it cannot be reached: {why}"),
            ApiUnreachable::Silent => write!(f, "it has not answered within {} s", CONNECT_TIMEOUT.as_secs()),
            ApiUnreachable::Older => f.write_str("its version does not answer what other nodes are asked"),
            ApiUnreachable::NoApi => f.write_str("it has no console and no API (console-port 0), or is just starting"),
            ApiUnreachable::Refused(why) => f.write_str(why),
        }
    }
}

impl Error for ApiUnreachable {}

/// The asking end. `settings`: of [`pki::link_client`], with [`API_PROTOCOL`].
pub async fn open(address: &str, settings: Arc<ClientConfig>) -> Result<ApiStream, ApiUnreachable> {
    let opened = async {
        let away = |error: io::Error| ApiUnreachable::Away(error.to_string());
        let stream = TcpStream::connect(address).await.map_err(away)?;
        stream.set_nodelay(true).map_err(away)?;
        let connected = TlsConnector::from(settings).connect(pki::server_name(), stream).await;
        connected.map(TlsStream::from).map_err(|error| unreachable(&error))
    };
    timeout(CONNECT_TIMEOUT, opened).await.map_err(|_| ApiUnreachable::Silent)?
}

/// The asked end. `settings`: of [`pki::link_server`].
pub async fn accept(
    start: StartHandshake<TcpStream>,
    settings: Arc<ServerConfig>,
) -> io::Result<(Identity, ApiStream)> {
    let stream = start.into_stream(settings).await?;
    let identity = pki::peer_identity(stream.get_ref().1).map_err(io::Error::other)?;
    match stream.get_ref().1.alpn_protocol() {
        Some(API_PROTOCOL) => Ok((identity, stream.into())),
        _ => Err(io::Error::new(ErrorKind::InvalidData, "another protocol than that of the API was agreed on")),
    }
}

/// Why an exchange over the stream has failed, from the error of whoever carried it out. In TLS 1.3 the asking end learns only then that
/// its certificate was refused.
pub fn failure(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    loop {
        if let Some(error) = cause.downcast_ref::<io::Error>().filter(|error| of_tls(error).is_some()) {
            return unreachable(error).to_string();
        }
        match cause.source() {
            Some(source) => cause = source,
            None => return format!("the exchange with it has broken off: {error}"),
        }
    }
}

fn unreachable(error: &io::Error) -> ApiUnreachable {
    match of_tls(error) {
        Some(
            rustls::Error::NoApplicationProtocol
            | rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol),
        ) => ApiUnreachable::Older,
        Some(rustls::Error::AlertReceived(alert)) => {
            ApiUnreachable::Refused(format!("it refuses this node's certificate ({alert:?})"))
        }
        Some(error) => {
            ApiUnreachable::Refused(pki::refusal(error).map_or_else(|| error.to_string(), |why| why.to_string()))
        }
        None if matches!(
            error.kind(),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
        ) =>
        {
            ApiUnreachable::NoApi
        }
        None => ApiUnreachable::Away(error.to_string()),
    }
}

fn of_tls(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}
