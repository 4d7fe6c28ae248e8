//! Owns to whom the connections are handed over which the APIs of other members ask this node's. Never knows a request.

use cluster::ids::NodeId;
use membership::api_stream::ApiStream;
use membership::peer::{DetachedHello, PeerHello, accept_api};
use parking_lot::Mutex;
use std::io;
use tokio::sync::mpsc;

/// Connections that the API has not taken yet. More are closed.
const WAITING_MAX: usize = 64;

/// Where connections go that ask for this node's API.
#[derive(Default)]
pub(crate) struct ApiPort(Mutex<Option<mpsc::Sender<ApiHello>>>);

/// A connection of another member's API, before its handshake.
pub struct ApiHello(DetachedHello);

impl ApiPort {
    /// From now on, connections come here.
    pub(crate) fn open(&self) -> mpsc::Receiver<ApiHello> {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        *self.0.lock() = Some(sender);
        receiver
    }

    /// Without an API, or with one that does not keep up, the connection is closed: the node that asks says so.
    pub(crate) fn hand_over(&self, hello: PeerHello) {
        match hello.detach() {
            Ok(hello) => {
                let taken = self.0.lock().as_ref().is_some_and(|api| api.try_send(ApiHello(hello)).is_ok());
                if !taken {
                    tracing::info!(
                        "the API of another node was not answered: no API runs here, or it has too much to do"
                    );
                }
            }
            Err(error) => tracing::warn!("the API of another node was not answered: {error}"),
        }
    }
}

impl ApiHello {
    /// Whose API asks, and the stream of its request. Call this in the runtime that serves it.
    pub async fn accept(self) -> io::Result<(NodeId, ApiStream)> {
        let (identity, stream) = accept_api(self.0).await?;
        let node = identity.node.to_string().parse().map_err(|error| io::Error::other(format!("{error}")))?;
        Ok((node, stream))
    }
}
