//! Owns the way to a worker: what other threads may tell it, and the list of its connections that others sent something.
//! Never knows what a worker does with either.

use crate::acl::Role;
use crate::clients::{Card, Peer};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// What other threads may tell a worker.
pub enum Message {
    Serve(Arrival),
    /// End once the connections have ended or been given up.
    Stop,
}

/// A connection that was accepted.
pub struct Arrival {
    pub socket: Socket,
    pub peer: Peer,
}

pub enum Socket {
    Tcp(std::net::TcpStream),
    /// With what is said in its handshake, which is the worker's.
    Tls(std::net::TcpStream, Arc<rustls::ServerConfig>),
    Unix(std::os::unix::net::UnixStream),
    /// The node's own, for a user of the console with this role.
    Console(std::os::unix::net::UnixStream, Role),
}

/// The way to a worker, and how much it has to do.
pub struct Post {
    pub sender: UnboundedSender<Message>,
    /// Connections given to it that have not ended.
    pub connections: AtomicUsize,
    /// Connections of its that were sent something by others.
    pub mail: Mail,
}

impl Post {
    /// The way to a worker, and what the worker receives on it.
    pub fn open() -> (Post, UnboundedReceiver<Message>) {
        let (sender, inbox) = tokio::sync::mpsc::unbounded_channel();
        (Post { sender, connections: AtomicUsize::new(0), mail: Mail::default() }, inbox)
    }
}

/// A worker's list of connections whose outboxes are to be sent.
#[derive(Debug, Default)]
pub struct Mail {
    cards: Mutex<Vec<Arc<Card>>>,
    arrived: Notify,
}

impl Mail {
    pub fn add(&self, cards: &mut Vec<Arc<Card>>) {
        let was_empty = {
            let mut list = self.cards.lock();
            let was_empty = list.is_empty();
            list.append(cards);
            was_empty
        };
        if was_empty {
            self.arrived.notify_one();
        }
    }

    /// Waits until there are some, and takes all.
    pub async fn take(&self, cards: &mut Vec<Arc<Card>>) {
        while cards.is_empty() {
            std::mem::swap(cards, &mut self.cards.lock());
            if cards.is_empty() {
                self.arrived.notified().await;
            }
        }
    }
}
