//! Owns where the clients of a database come in: its listening sockets, its TLS settings for them, and how many connections there may be.
//! Gives each connection to the hub of what is served. Never knows a dataset.
//!
//! - `listen` opens sockets and accepts connections.
//! - `relisten` changes the addresses while clients are served.

pub mod listen;
mod relisten;

use crate::tls::Tls;
use config::Config;
use engine::Hub;
use listen::Listeners;
use parking_lot::Mutex;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Where clients connect to a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// `tcp`, `tls` or `unix`.
    pub kind: &'static str,
    /// `HOST:PORT` or a path.
    pub address: String,
}

pub struct Endpoint {
    /// The clients of what is served, and its configuration.
    hub: Arc<Hub>,
    pub tls: Tls,
    /// The number of clients for which the system has open files.
    pub clients_cap: AtomicUsize,
    pub rejected_connections: AtomicU64,
    acceptors: Mutex<Vec<Acceptor>>,
    addresses: Mutex<Vec<Address>>,
    /// The runtime of the thread that accepts connections.
    runtime: Handle,
}

/// What accepts connections.
struct Acceptor {
    task: JoinHandle<()>,
    /// A TCP socket, and whether its connections speak TLS.
    socket: Option<(TcpListener, bool)>,
}

impl Acceptor {
    fn address(&self) -> Option<Address> {
        let (socket, with_tls) = self.socket.as_ref()?;
        let kind = if *with_tls { "tls" } else { "tcp" };
        Some(Address { kind, address: socket.local_addr().ok()?.to_string() })
    }
}

impl Endpoint {
    /// Its addresses are those of the sockets, which [`Endpoint::accept`] gets.
    pub fn new(hub: Arc<Hub>, tls: Tls, clients_cap: usize, addresses: Vec<Address>, runtime: Handle) -> Arc<Endpoint> {
        Arc::new(Endpoint {
            hub,
            tls,
            clients_cap: AtomicUsize::new(clients_cap),
            rejected_connections: AtomicU64::new(0),
            acceptors: Mutex::default(),
            addresses: Mutex::new(addresses),
            runtime,
        })
    }

    /// Accepts connections from now on.
    pub fn accept(self: &Arc<Self>, listeners: Listeners) -> io::Result<()> {
        let mut acceptors = self.acceptors.lock();
        let plain = listeners.tcp.into_iter().map(|listener| (listener, false));
        let encrypted = listeners.tls.into_iter().map(|listener| (listener, true));
        for (listener, with_tls) in plain.chain(encrypted) {
            acceptors.push(Acceptor::begin(self, listener, with_tls)?);
        }
        if let Some(unix) = listeners.unix {
            let accepting = listen::accept_unix(Arc::clone(self), unix);
            let task = self.runtime.spawn(async move {
                accepting.await.unwrap_or_else(|error| tracing::error!("a listening socket failed: {error}"));
            });
            acceptors.push(Acceptor { task, socket: None });
        }
        Ok(())
    }

    /// Accepts no connection any more.
    pub fn close(&self) {
        self.acceptors.lock().drain(..).for_each(|acceptor| acceptor.end());
    }

    pub fn addresses(&self) -> Vec<Address> {
        self.addresses.lock().clone()
    }

    /// `maxclients`, or less if the system allows fewer open files.
    pub fn clients_max(&self, config: &Config) -> usize {
        config.maxclients.min(self.clients_cap.load(Relaxed))
    }
}
