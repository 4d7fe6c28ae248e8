//! Owns the way to a worker: the messages that other threads send it, and the list of its connections whose outboxes
//! were filled. Never knows what a worker does with either.

use crate::acl::Role;
use crate::clients::{ClientInfo, Peer};
use crate::session_stream::SessionStream;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// What other threads may tell a worker.
pub enum Message {
    Serve(Arrival),
    /// Block the thread until this moment: DEBUG SLEEP.
    Sleep(Instant),
    /// Scripts or libraries were flushed: give their memory back.
    ForgetScripts,
    /// Stop when all connections have ended, or when the worker has given up waiting for them.
    Stop,
}

/// A connection that was accepted.
pub struct Arrival {
    pub socket: Socket,
    pub peer: Peer,
}

pub enum Socket {
    Tcp(std::net::TcpStream),
    /// With the settings of the handshake. The worker does the handshake.
    Tls(std::net::TcpStream, Arc<rustls::ServerConfig>),
    Unix(std::os::unix::net::UnixStream),
    /// A socket pair of the node's own, for a console user with this role.
    Console(std::os::unix::net::UnixStream, Role),
    /// A client in this process.
    Memory(SessionStream, Entry),
}

/// As what a connection begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// A client that comes from outside.
    Client,
    /// A console user with this role.
    Console(Role),
    /// A proxy of this database, on behalf of one of its clients. It is trusted, and says with `RUN-AS` whose rights a script has.
    Proxy { is_divided: bool },
    /// A copy of the same shard, which may do nothing but follow.
    Replica,
}

/// The way to a worker, and the worker's load.
pub struct WorkerHandle {
    pub sender: UnboundedSender<Message>,
    /// Connections that the worker was given and that have not ended.
    pub connections: AtomicUsize,
    /// The worker's connections whose outboxes were filled by other threads.
    pub ready_clients: ReadyClients,
}

impl WorkerHandle {
    /// Makes the way to a worker, and the end on which the worker receives.
    pub fn open() -> (WorkerHandle, UnboundedReceiver<Message>) {
        let (sender, inbox) = tokio::sync::mpsc::unbounded_channel();
        (WorkerHandle { sender, connections: AtomicUsize::new(0), ready_clients: ReadyClients::default() }, inbox)
    }
}

/// A worker's list of connections whose outboxes must be sent.
#[derive(Debug, Default)]
pub struct ReadyClients {
    client_infos: Mutex<Vec<Arc<ClientInfo>>>,
    arrived: Notify,
}

impl ReadyClients {
    pub fn add(&self, client_infos: &mut Vec<Arc<ClientInfo>>) {
        let was_empty = {
            let mut list = self.client_infos.lock();
            let was_empty = list.is_empty();
            list.append(client_infos);
            was_empty
        };
        if was_empty {
            self.arrived.notify_one();
        }
    }

    /// Waits until the list has entries, and takes all of them.
    pub async fn take(&self, client_infos: &mut Vec<Arc<ClientInfo>>) {
        while client_infos.is_empty() {
            std::mem::swap(client_infos, &mut self.client_infos.lock());
            if client_infos.is_empty() {
                self.arrived.notified().await;
            }
        }
    }
}
