//! Owns one question and its answer between two nodes: the bytes on a TLS connection, and which calls there are. Never knows how a call is
//! answered.

use crate::folder::EtcdAccess;
use cluster::failover::CopyAnswer;
use cluster::ids::{CopyNumber, Epoch, ProcessId, ShardUid};
use pki::{ClusterId, Fingerprint, IssueAnswer, IssueError, IssueRequest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::pin::Pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// How long a question may take to arrive, and an answer to leave.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the other end may take to answer: it asks etcd, whose elections take some seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// What a member asks another one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// Answer: [`Welcome`].
    Welcome,
    /// For the certificate of a member of etcd, which is added as a learner. Answer: [`EtcdAdmission`].
    RunEtcd { issue: IssueRequest, peer_url: String },
    /// For the node's next certificate. Answer: `Result<IssueAnswer, IssueError>`.
    Renew(IssueRequest),
    /// For the key of an authority, of a coordinator. Answer: its certificate and key, in PEM.
    AuthorityKey { authority: Fingerprint },
    /// What the node's copies of these shards know of themselves. Answer: `Reply<Vec<CopyAnswer>>`, without those that it does not keep.
    Copies(Vec<ShardUid>),
    /// To the node of a shard's primary, which serves in this epoch: the copy `to` is to be the primary. Answer: `Reply<()>`, when the record
    /// names it. After an error it may still happen: only the record says what holds. Asked again meanwhile, it is the same handover.
    HandOver { shard: ShardUid, epoch: Epoch, to: CopyNumber },
    /// To the node whose process this is: its program begins anew, as the file says that it was started from. Answer: `Reply<()>`, before that.
    Restart { process: ProcessId },
}

/// What a new member needs to know.
#[derive(Debug, Serialize, Deserialize)]
pub struct Welcome {
    pub cluster: ClusterId,
    pub cluster_name: String,
    pub etcd: EtcdAccess,
    /// It is to run a member of etcd.
    pub coordinates: bool,
}

#[derive(Serialize, Deserialize)]
pub struct EtcdAdmission {
    pub issued: IssueAnswer,
    /// The authority's certificate and key, in PEM.
    pub authority: String,
    /// The name and the peer URL of each other member.
    pub others: Vec<(String, String)>,
}

/// What the node itself answers: calls about its copies and its process.
pub trait NodeCalls: Send + Sync {
    /// What this node's copies of these shards know of themselves.
    fn copies(&self, shards: &[ShardUid]) -> Vec<CopyAnswer>;
    /// Has the primary here make the copy `to` primary: [`Call::HandOver`].
    fn hand_over(&self, shard: ShardUid, epoch: Epoch, to: CopyNumber) -> HandingOver;
    /// Has the program begin anew, if this is its process: [`Call::Restart`].
    fn restart(&self, process: ProcessId) -> Reply<()>;
}

/// Ends when the shard's record names the new primary, or says what hinders.
pub type HandingOver = Pin<Box<dyn Future<Output = Reply<()>> + Send>>;

/// Whether the node that was asked does what it was asked for, or why not.
pub type Reply<T> = Result<T, String>;
pub type RenewReply = Result<IssueAnswer, IssueError>;

pub struct NewToken {
    /// The text that an operator copies.
    pub token: String,
    pub expires_ms: u64,
}

/// Asks, and reads the answer.
pub async fn ask<Q: Serialize, A: DeserializeOwned>(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    question: &Q,
) -> io::Result<A> {
    let sent = async {
        stream.write_all(&pki::encode(question)).await?;
        stream.shutdown().await
    };
    timeout(TRANSFER_TIMEOUT, sent).await.map_err(|_| io::ErrorKind::TimedOut)??;
    let bytes = timeout(ANSWER_TIMEOUT, read_whole(stream)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    if bytes.is_empty() {
        // In TLS 1.3 this end's handshake is over before the other one has refused the certificate.
        return Err(io::Error::new(
            io::ErrorKind::ConnectionAborted,
            "the node that was asked has closed the connection",
        ));
    }
    pki::decode(&bytes).map_err(io::Error::other)
}

/// The bytes of a question, up to the end of the sender's side.
pub async fn read_question(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    timeout(TRANSFER_TIMEOUT, read_whole(stream)).await.map_err(|_| io::ErrorKind::TimedOut)?
}

pub async fn write_answer(stream: &mut (impl AsyncWrite + Unpin), answer: &[u8]) -> io::Result<()> {
    let sent = async {
        stream.write_all(answer).await?;
        stream.shutdown().await
    };
    timeout(TRANSFER_TIMEOUT, sent).await.map_err(|_| io::ErrorKind::TimedOut)?
}

async fn read_whole(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One more than is allowed: a longer message is refused for its length.
    stream.take(pki::limits::MESSAGE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).await?;
    Ok(bytes)
}
