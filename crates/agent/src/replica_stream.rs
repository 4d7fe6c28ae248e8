//! Owns the connection over which a copy follows its shard's primary at another node: a link with one session, and the thread that carries its
//! bytes to and from the copy. Never knows what they mean.
//!
//! Why a link of its own: a whole dataset goes over it, and clients' commands must not wait behind that.

use crate::peers::{Peers, link_options, refusal};
use crate::shard::{Purpose, Target};
use cluster::ids::{DatabaseId, NodeId, ShardNumber};
use link::{Link, Role, Session};
use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::UnixStream;
use tokio::runtime::Builder;

/// What is carried at once.
const PIECE_BYTES: usize = 64 << 10;

/// Connects to the primary of the shard at this node. Waits until the node has answered. The stream ends with the connection, and the
/// connection with the stream.
pub fn open(peers: &Arc<Peers>, node: NodeId, shard: (DatabaseId, ShardNumber)) -> io::Result<StdUnixStream> {
    let (ours, theirs) = StdUnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let target = Target { database: shard.0, shard: shard.1, purpose: Purpose::Replica };
    let peers = Arc::clone(peers);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (report, opened) = channel();
    let run = move || runtime.block_on(carry(&peers, node, target, ours, &report));
    std::thread::Builder::new().name("copy-link".to_owned()).spawn(run)?;
    // The thread tells how it began, or has panicked.
    opened.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
    Ok(theirs)
}

async fn carry(peers: &Peers, node: NodeId, target: Target, ours: StdUnixStream, report: &Sender<io::Result<()>>) {
    let begun = async {
        let (identity, stream) = peers.connect(node).await?;
        let (link, driver) = Link::start(stream, link_options(), Role::Opener);
        let session = link.open(target.to_string().as_bytes())?;
        Ok((identity, link, driver, session, UnixStream::from_std(ours)?))
    };
    let (identity, link, driver, session, ours) = match begun.await {
        Ok(begun) => begun,
        Err(error) => return drop(report.send(Err(error))),
    };
    // Whoever asked may have gone.
    let _ = report.send(Ok(()));
    tokio::select! {
        end = driver => tracing::debug!("the link of a copy to node {node} has ended: {end}"),
        () = exchange(session, ours) => link.close(),
        why = refusal(&peers.trust, &identity) => {
            link.close();
            tracing::warn!("the link of a copy to node {node} was closed: {why}");
        }
    }
}

/// Carries bytes both ways until either direction ends.
async fn exchange(session: Session, ours: UnixStream) {
    let ((from_primary, to_primary), (from_copy, to_copy)) = (split(session), split(ours));
    tokio::select! {
        () = carry_one_way(from_primary, to_copy) => {}
        () = carry_one_way(from_copy, to_primary) => {}
    }
}

async fn carry_one_way(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        // The copy finds out by the end of its stream why this has ended.
        let Ok(bytes @ 1..) = from.read(&mut piece).await else { return };
        if to.write_all(&piece[..bytes]).await.is_err() {
            return;
        }
    }
}
