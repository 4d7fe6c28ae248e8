//! The streams of links between two members, through a relay that sees every byte.

use membership::api_stream::{self, ApiUnreachable};
use membership::link_stream::{LinkStream, link_protocol};
use pki::{Authority, CheckedRequest, Credential, CurrentCredential, NodeId, NodeKey, PeerCertificate, Purpose, Trust};
use rustls::server::Acceptor;
use rustls::time_provider::DefaultTimeProvider;
use std::io;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::LazyConfigAcceptor;

const SECRET: &[u8] = b"what a client has set";

struct Member {
    id: NodeId,
    current: Arc<CurrentCredential>,
    trust: Arc<Trust>,
}

impl Member {
    fn of(authority: &Authority) -> Member {
        let (id, key) = (NodeId::random(), NodeKey::generate());
        let request = CheckedRequest::from_pem(&key.request()).unwrap();
        let now_ms = base::clock::wall_ms();
        let issued = authority.issue(&request, id, Purpose::Node, &["127.0.0.1".to_owned()], now_ms).unwrap();
        let credential = Credential::new(&key, &issued.certificate, authority.certificate(), now_ms).unwrap();
        let trust = Trust::new(vec![authority.certificate().clone()]).unwrap();
        Member { id, current: CurrentCredential::new(credential), trust }
    }
}

type End = io::Result<(PeerCertificate, LinkStream<TcpStream>)>;
type Ends = (End, End);

/// A link from the first member to the second one. `heard`: all bytes that the relay between them has seen.
async fn link(from: (&Member, bool), to: (&Member, bool), heard: &Arc<Mutex<Vec<u8>>>) -> Ends {
    let (relay, server) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (front, back) = (relay.local_addr().unwrap(), server.local_addr().unwrap());
    let heard = Arc::clone(heard);
    tokio::spawn(async move {
        let (opener, _) = relay.accept().await.unwrap();
        let (read_opener, write_opener) = opener.into_split();
        let (read_acceptor, write_acceptor) = TcpStream::connect(back).await.unwrap().into_split();
        let copy = |mut from: tokio::net::tcp::OwnedReadHalf, mut to: tokio::net::tcp::OwnedWriteHalf| {
            let heard = Arc::clone(&heard);
            async move {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = from.read(&mut bytes).await {
                    heard.lock().unwrap().extend_from_slice(&bytes[..count]);
                    if to.write_all(&bytes[..count]).await.is_err() {
                        break;
                    }
                }
            }
        };
        tokio::join!(copy(read_opener, write_acceptor), copy(read_acceptor, write_opener));
    });
    let clock = Arc::new(DefaultTimeProvider);
    let settings =
        pki::link_client(&from.0.current, &from.0.trust, Some(to.0.id), link_protocol(from.1), clock.clone());
    let open = async { LinkStream::open(TcpStream::connect(front).await?, settings).await };
    let settings = pki::link_server(&to.0.current, &to.0.trust, link_protocol(to.1), clock);
    let accept = async {
        let (stream, _) = server.accept().await?;
        let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        LinkStream::accept(start, settings).await
    };
    tokio::join!(open, accept)
}

fn has(heard: &Mutex<Vec<u8>>, bytes: &[u8]) -> bool {
    heard.lock().unwrap().windows(bytes.len()).any(|window| window == bytes)
}

#[tokio::test]
async fn a_link_stays_enciphered_unless_both_ends_leave_tls() {
    let authority = Authority::create("links", base::clock::wall_ms()).unwrap();
    let (one, two) = (Member::of(&authority), Member::of(&authority));
    for enciphers in [true, false] {
        let heard = Arc::default();
        let (opened, accepted) = link((&one, enciphers), (&two, enciphers), &heard).await;
        let ((acceptor, mut opened), (opener, mut accepted)) = (opened.unwrap(), accepted.unwrap());
        assert_eq!((opener.identity.node, acceptor.identity.node), (one.id, two.id));
        let mut got = vec![0; SECRET.len()];
        // Both directions, the acceptor's first: it was the last to speak.
        accepted.write_all(SECRET).await.unwrap();
        accepted.flush().await.unwrap();
        opened.read_exact(&mut got).await.unwrap();
        assert_eq!(got, SECRET);
        opened.write_all(&SECRET[5..]).await.unwrap();
        opened.flush().await.unwrap();
        accepted.read_exact(&mut got[5..]).await.unwrap();
        assert_eq!(&got[5..], &SECRET[5..]);
        assert_eq!(has(&heard, SECRET), !enciphers);
    }
}

#[tokio::test]
async fn both_ends_are_told_that_they_differ() {
    let authority = Authority::create("links", base::clock::wall_ms()).unwrap();
    let (one, two) = (Member::of(&authority), Member::of(&authority));
    for enciphers in [true, false] {
        let (opened, accepted) = link((&one, enciphers), (&two, !enciphers), &Arc::default()).await;
        let (here, there) = if enciphers { ("yes", "no") } else { ("no", "yes") };
        for (end, here, there) in [(opened, here, there), (accepted, there, here)] {
            let error = end.err().expect("it is refused");
            assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
            let told = format!("peer-tls is {here} at this node and {there} at the other one");
            assert!(error.to_string().starts_with(&told), "{error}");
        }
    }
}

#[tokio::test]
async fn without_a_cipher_a_stranger_comes_no_further_either() {
    let now_ms = base::clock::wall_ms();
    let (ours, theirs) = (Authority::create("links", now_ms).unwrap(), Authority::create("others", now_ms).unwrap());
    let (member, stranger) = (Member::of(&ours), Member::of(&theirs));
    // A thief who believes everybody: it has our authority, and a certificate of another one.
    let thief = Member { trust: Arc::clone(&member.trust), ..Member::of(&theirs) };
    for from in [&stranger, &thief] {
        let (opened, accepted) = link((from, false), (&member, false), &Arc::default()).await;
        assert!(accepted.is_err() && opened.is_err());
    }
}

/// A connection between the APIs of two members. `knows`: the other one's version has the protocol.
async fn api(from: &Member, to: &Member, wanted: NodeId, knows: bool) -> Result<pki::Identity, ApiUnreachable> {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap().to_string();
    let clock = Arc::new(DefaultTimeProvider);
    let settings = pki::link_client(
        &from.current,
        &from.trust,
        Some(wanted),
        pki::API_PROTOCOL,
        Arc::<DefaultTimeProvider>::clone(&clock),
    );
    let mut answering =
        rustls::ServerConfig::clone(&pki::link_server(&to.current, &to.trust, pki::LINK_PROTOCOL, clock));
    answering.alpn_protocols.retain(|protocol| knows || protocol != pki::API_PROTOCOL);
    let accept = async {
        let (stream, _) = server.accept().await.unwrap();
        let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await.unwrap();
        let (_, mut stream) = api_stream::accept(start, Arc::new(answering)).await?;
        stream.write_all(b"x").await?;
        stream.flush().await?;
        // Until the asking end has seen it.
        stream.read_u8().await.map(drop)
    };
    let ask = async {
        let mut stream = api_stream::open(&address, settings).await?;
        let broken = |error: io::Error| ApiUnreachable::Refused(api_stream::failure(&error));
        stream.read_u8().await.map_err(broken)?;
        Ok(pki::peer_identity(stream.get_ref().1).unwrap())
    };
    let (asked, _) = tokio::join!(ask, accept);
    asked
}

#[tokio::test]
async fn why_the_api_of_a_member_cannot_be_asked() {
    let now_ms = base::clock::wall_ms();
    let (ours, theirs) = (Authority::create("links", now_ms).unwrap(), Authority::create("others", now_ms).unwrap());
    let (one, two, stranger) = (Member::of(&ours), Member::of(&ours), Member::of(&theirs));
    assert_eq!(api(&one, &two, two.id, true).await.unwrap().node, two.id);
    let older = api(&one, &two, two.id, false).await.unwrap_err();
    assert!(matches!(older, ApiUnreachable::Older), "{older}");
    // Another node has got its address; one of another cluster; and one that does not take this one's certificate.
    for (to, wanted) in [(&two, one.id), (&stranger, stranger.id)] {
        let refused = api(&one, to, wanted, true).await.unwrap_err();
        assert!(matches!(refused, ApiUnreachable::Refused(_)), "{refused}");
    }
    let thief = Member { trust: Arc::clone(&two.trust), ..Member::of(&theirs) };
    let refused = api(&thief, &two, two.id, true).await.unwrap_err().to_string();
    assert!(refused.contains("it refuses this node's certificate"), "{refused}");
    let nobody = api_stream::open(
        "127.0.0.1:1",
        pki::link_client(&one.current, &one.trust, None, pki::API_PROTOCOL, Arc::new(DefaultTimeProvider)),
    );
    assert!(matches!(nobody.await, Err(ApiUnreachable::Away(_))));
}
