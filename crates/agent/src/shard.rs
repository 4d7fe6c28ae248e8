//! Owns a shard as the proxies of this node see it: in which process its owner is now. Never knows who decides that.

use crate::peers::Peers;
use cluster::ids::{DatabaseId, NodeId, ShardNumber};
use node::{Database, Node, SessionStream, Unblock, beside_scripts};
use parking_lot::RwLock;
use std::any::Any;
use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;

/// Before a shard that cannot be reached is tried again.
const AGAIN: Duration = Duration::from_millis(10);

/// How long a shard may take to say what it has.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// More than that: no timer fires on a worker's thread that a script blocks.
const ANSWERS_TIMEOUT: Duration = Duration::from_secs(3);

/// The text that each of these shards replies to a command. An error: why the shard has not answered. On a thread that may wait.
pub fn ask_all(
    node: &Arc<Node>,
    runtime: &Handle,
    shards: Vec<Arc<ClusterShard>>,
    command: &str,
) -> Vec<Result<String, String>> {
    let silent = || Err("it does not answer".to_owned());
    let ask = |(number, shard): (usize, Arc<ClusterShard>)| {
        let (sender, answer) = tokio::sync::oneshot::channel();
        let command = command.to_owned();
        let ask = async move {
            let asked = tokio::time::timeout(ASK_TIMEOUT, shard.ask(&command)).await;
            // Whoever asked may have gone.
            let _ = sender.send(asked.unwrap_or_else(|_| silent()));
        };
        // Links and sessions belong to workers.
        node.run_on_worker(number % node.workers(), Box::new(move || Box::pin(beside_scripts(ask))));
        answer
    };
    let answers: Vec<_> = shards.into_iter().enumerate().map(ask).collect();
    runtime.block_on(async move {
        let deadline = tokio::time::Instant::now() + ANSWERS_TIMEOUT;
        let mut texts = Vec::with_capacity(answers.len());
        for answer in answers {
            let answer = tokio::time::timeout_at(deadline, answer).await;
            texts.push(
                answer
                    .map_or_else(|_| silent(), |sent| sent.unwrap_or_else(|_| Err("the node is stopping".to_owned()))),
            );
        }
        texts
    })
}

/// Which node serves the shard.
#[derive(Clone, Debug, Default)]
pub enum Place {
    #[default]
    Nowhere,
    Here(Weak<Database>),
    At(NodeId),
}

pub struct ClusterShard {
    name: String,
    target: String,
    is_divided: bool,
    peers: Arc<Peers>,
    place: RwLock<Place>,
}

/// What a session asks for at the other end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub database: DatabaseId,
    pub shard: ShardNumber,
    pub purpose: Purpose,
}

/// Who is at the beginning of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A client of the database, at its proxy.
    Client { is_divided: bool },
    /// Another copy of the shard, which follows this one.
    Replica,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let purpose = match self.purpose {
            Purpose::Client { is_divided: false } => "0",
            Purpose::Client { is_divided: true } => "1",
            Purpose::Replica => "replica",
        };
        write!(f, "{}/{}/{purpose}", self.database, self.shard)
    }
}

impl Target {
    /// `None`: another node has sent what this version does not know.
    pub fn parse(bytes: &[u8]) -> Option<Target> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut parts = text.split('/');
        let target = Target {
            database: parts.next()?.parse().ok()?,
            shard: ShardNumber(parts.next()?.parse().ok()?),
            purpose: match parts.next()? {
                "0" => Purpose::Client { is_divided: false },
                "1" => Purpose::Client { is_divided: true },
                "replica" => Purpose::Replica,
                _ => return None,
            },
        };
        parts.next().is_none().then_some(target)
    }
}

impl ClusterShard {
    /// `is_divided`: the database has other shards too.
    pub fn new(
        name: String,
        (database, shard): (DatabaseId, ShardNumber),
        is_divided: bool,
        peers: Arc<Peers>,
    ) -> ClusterShard {
        let target = Target { database, shard, purpose: Purpose::Client { is_divided } };
        ClusterShard { name, target: target.to_string(), is_divided, peers, place: RwLock::default() }
    }

    pub fn set_place(&self, place: Place) {
        *self.place.write() = place;
    }

    pub fn place(&self) -> Place {
        self.place.read().clone()
    }
}

impl ClusterShard {
    /// The text that the owner replies to a command. Call this on a worker's thread.
    pub async fn ask(&self, command: &str) -> Result<String, String> {
        use node::Shard;
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = loop {
            match self.connect() {
                Ok(stream) => break stream,
                // A link may be about to be made. The caller limits the time.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => tokio::time::sleep(AGAIN).await,
                Err(error) => return Err(error.to_string()),
            }
        };
        let asked = async {
            stream.write_all(format!("{command}\r\n").as_bytes()).await?;
            let mut reply = Vec::new();
            loop {
                let line = reply.iter().position(|&byte| byte == b'\n');
                let Some(length) = line.and_then(|end| reply.get(1..end - 1)) else {
                    if reply.first().is_some_and(|&byte| byte == b'-') && line.is_some() {
                        return Err(io::Error::other(String::from_utf8_lossy(&reply).trim().to_owned()));
                    }
                    if stream.read_buf(&mut reply).await? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    continue;
                };
                let text = std::str::from_utf8(length).ok().and_then(|length| length.parse::<usize>().ok());
                let Some(bytes) = text.filter(|_| reply[0] == b'$') else {
                    return Err(io::Error::other(String::from_utf8_lossy(&reply).trim().to_owned()));
                };
                let from = line.expect("it was found") + 1;
                if reply.len() >= from + bytes + 2 {
                    return Ok(String::from_utf8_lossy(&reply[from..from + bytes]).into_owned());
                }
                if stream.read_buf(&mut reply).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        };
        asked.await.map_err(|error| error.to_string())
    }
}

impl fmt::Debug for ClusterShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterShard").field("name", &self.name).field("place", &self.place()).finish_non_exhaustive()
    }
}

impl node::Shard for ClusterShard {
    fn name(&self) -> &str {
        &self.name
    }

    fn connect(&self) -> io::Result<SessionStream> {
        match self.place() {
            Place::Here(copy) => {
                let copy = copy.upgrade().ok_or(io::ErrorKind::NotConnected)?;
                copy.connect_proxy(self.is_divided)
            }
            Place::At(node) => self.peers.open(node, self.target.as_bytes()).map(SessionStream::Link),
            Place::Nowhere => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn local(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        match &*self.place.read() {
            Place::Here(copy) => Some(copy.upgrade()?.as_hub()),
            _ => None,
        }
    }

    /// Of a session elsewhere, only the proxy knows that it waits; the owner is told, and may have replied meanwhile.
    fn unblock(&self, client: u64, how: Unblock) -> bool {
        if let Place::Here(copy) = self.place() {
            return copy.upgrade().is_some_and(|copy| copy.unblock(client, how));
        }
        let Ok(stream) = self.connect() else { return false };
        drop(tokio::task::spawn_local(say_unblock(stream, client, how)));
        true
    }
}

async fn say_unblock(mut stream: SessionStream, client: u64, how: Unblock) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let how = match how {
        Unblock::Timeout => "TIMEOUT",
        _ => "ERROR",
    };
    let command = format!("CLIENT UNBLOCK {client} {how}\r\n");
    if stream.write_all(command.as_bytes()).await.is_ok() {
        // The reply is the sign that the command was received whole. What it says, nobody waits for.
        let _ = stream.read(&mut [0; 64]).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_reads_back_and_anything_else_is_none() {
        let database = "001122334455667788990000".parse().unwrap();
        for purpose in [Purpose::Client { is_divided: false }, Purpose::Client { is_divided: true }, Purpose::Replica] {
            let target = Target { database, shard: ShardNumber(65535), purpose };
            assert_eq!(Target::parse(target.to_string().as_bytes()), Some(target));
        }
        for wrong in [
            "",
            "/",
            "001122334455667788990000/1",
            "001122334455667788990000/1/2",
            "001122334455667788990000/1/replicas",
            "001122334455667788990000/1/1/",
            "x/1/1",
        ] {
            assert_eq!(Target::parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(Target::parse(&[0xff]), None);
    }
}
