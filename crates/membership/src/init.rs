//! Owns how the first node makes a cluster: the authority, its own certificates, and the first records in etcd. Never knows the command
//! line.
//!
//! The files come first, and `member.json` last of them; then the records, in one transaction. Whoever is interrupted calls it again: what
//! is there is kept.

use crate::addresses::own_addresses;
use crate::etcd::etcd_client;
use crate::folder::{EtcdAccess, EtcdMember, ExternalEtcd, Folder, Member, announced_port};
use crate::issuer::{FEATURE_LEVEL, StoredToken, coordinator_key, encode_node, node_key, node_record};
use crate::records::{CLUSTER, Change, ClusterRecord, Records, RecordsError, issued_key, name_key, token_key};
use base::clock::wall_ms;
use cluster::ids::ConsoleKey;
use cluster::keys::Key;
use cluster::names::{NodeName, ZoneName};
use cluster::records::{ConsoleKeyRecord, ConsoleUsersRecord, FeatureLevelRecord, Role, Unknown};
use config::Config;
use pki::{Authority, CheckedRequest, ClusterId, Credential, Identity, NodeId, NodeKey, Purpose, Token};
use rand::RngCore;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// How long init waits for etcd, which somebody may have to start first.
const ETCD_TIMEOUT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(200);

pub struct Init {
    pub cluster: String,
    pub name: NodeName,
    pub zone: ZoneName,
    pub host: String,
    /// An etcd that is there already.
    pub etcd: Option<(Vec<String>, ExternalEtcd)>,
}

#[derive(Debug)]
pub struct Begun {
    pub member: Member,
    /// With which the next node joins.
    pub token: Token,
}

/// Every address that a certificate of this machine names, the one that other nodes use first.
pub fn certificate_addresses(host: &str) -> Vec<String> {
    let others = own_addresses().into_iter().map(|ip| ip.to_string()).filter(|ip| ip != host);
    let all = std::iter::once(host.to_owned()).chain(others);
    all.take(pki::limits::ADDRESSES_MAX).collect()
}

/// `progress` gets a line for each step that takes a while.
pub async fn init(config: &Config, options: &Init, progress: &mut dyn FnMut(&str)) -> Result<Begun, String> {
    let folder = Folder::of(config);
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let member = match folder.member().map_err(|error| text(&error))? {
        Some(member) if member.cluster_name != options.cluster => {
            return Err(format!(
                "this node is a member of the cluster '{}' already: see flintkv cluster leave",
                member.cluster_name
            ));
        }
        Some(member) => member,
        None => make_files(config, options, &folder)?,
    };
    let now_ms = wall_ms();
    let authority = folder.authority().map_err(|error| text(&error))?;
    let authority = authority.ok_or("this node does not have the authority's key, so it did not begin this cluster")?;
    let credential = folder.credential(now_ms).map_err(|error| text(&error))?;
    let etcd = etcd_client(&member, &credential, &member.etcd.endpoints).map_err(|error| text(&error))?;
    let records = Records::new(Arc::new(etcd), member.cluster);
    wait_for_etcd(&records, &member, progress).await?;
    if records.get::<ClusterRecord>(CLUSTER).await.map_err(|error| text(&error))?.is_some() {
        return Err(format!(
            "the cluster '{}' is there already, and this node is its member: flintkv cluster token makes a token for another node",
            member.cluster_name
        ));
    }
    let (token, record) = Token::create(authority.certificate(), None, now_ms);
    let fingerprint = Some(authority.certificate().fingerprint());
    let stored = StoredToken { token: record, may_coordinate: true, authority: fingerprint };
    let change = first_records(config, &member, &folder, credential.identity(), &stored, now_ms)?;
    match records.change(change).await {
        Ok(_) => Ok(Begun { member, token }),
        Err(RecordsError::Conflict) => Err("another process begins this cluster at the same time".to_owned()),
        Err(error) => Err(format!("{error}. Run the same command again")),
    }
}

async fn wait_for_etcd(records: &Records, member: &Member, progress: &mut dyn FnMut(&str)) -> Result<(), String> {
    let begun = Instant::now();
    let mut has_told = false;
    loop {
        let error = match records.get::<ClusterRecord>(CLUSTER).await {
            Ok(_) | Err(RecordsError::Damaged { .. }) => return Ok(()),
            Err(RecordsError::Coord(error @ (coord::Error::Denied(_) | coord::Error::Refused(_)))) => {
                return Err(format!("etcd: {error}"));
            }
            Err(error) => error,
        };
        if begun.elapsed() > ETCD_TIMEOUT {
            let start = match member.etcd.external {
                Some(_) => "Start it",
                None => "Start this node's member with `flintkv coordinator` or `systemctl start flintkv-coordinator`",
            };
            return Err(format!("{error}. {start}, and run the same command again: it continues here"));
        }
        if !std::mem::replace(&mut has_told, true) {
            let what = match member.etcd.external {
                Some(_) => "waiting for etcd".to_owned(),
                None => "waiting for this node's member of etcd, which `flintkv coordinator` runs".to_owned(),
            };
            progress(&format!("{what} ({})", member.etcd.endpoints.join(", ")));
        }
        sleep(PAUSE).await;
    }
}

fn make_files(config: &Config, options: &Init, folder: &Folder) -> Result<Member, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let now_ms = wall_ms();
    folder.make().map_err(|error| text(&error))?;
    let (authority, node) =
        (Authority::create(&options.cluster, now_ms).map_err(|error| text(&error))?, NodeId::random());
    let addresses = certificate_addresses(&options.host);
    let issue = |purpose| own_certificate(&authority, node, purpose, &addresses, now_ms);
    let (credential, etcd_credential) = (issue(Purpose::Node)?, issue(Purpose::Etcd)?);
    let cluster: ClusterId = authority.certificate().cluster;
    let etcd = EtcdMember::new(
        node,
        options.host.clone(),
        (config.etcd_client_port, config.etcd_peer_port),
        cluster,
        Vec::new(),
    );
    let access = match &options.etcd {
        Some((endpoints, external)) => EtcdAccess { endpoints: endpoints.clone(), external: Some(external.clone()) },
        None => EtcdAccess { endpoints: vec![etcd.client_url()], external: None },
    };
    let member = Member::new(
        cluster,
        options.cluster.clone(),
        node,
        options.name.clone(),
        options.zone.clone(),
        Role::Data,
        options.host.clone(),
        vec![authority.certificate().pem()],
        access,
    );
    // An etcd that cannot be used is an error before anything is written.
    etcd_client(&member, &credential, &member.etcd.endpoints).map_err(|error| text(&error))?;
    folder.write_authority(&authority).map_err(|error| text(&error))?;
    folder.write_credential(&credential).map_err(|error| text(&error))?;
    if member.etcd.external.is_none() {
        folder.write_ca(&[authority.certificate().clone()]).map_err(|error| text(&error))?;
        folder.write_etcd_credential(&etcd_credential).map_err(|error| text(&error))?;
        folder.write_etcd_member(&etcd).map_err(|error| text(&error))?;
    }
    folder.write_member(&member).map_err(|error| text(&error))?;
    Ok(member)
}

fn own_certificate(
    authority: &Authority,
    node: NodeId,
    purpose: Purpose,
    addresses: &[String],
    now_ms: u64,
) -> Result<Credential, String> {
    let key = NodeKey::generate();
    let request = CheckedRequest::from_pem(&key.request()).expect("its own request is sound");
    let issued = authority.issue(&request, node, purpose, addresses, now_ms).map_err(|error| error.to_string())?;
    Credential::new(&key, &issued.certificate, authority.certificate(), now_ms).map_err(|error| error.to_string())
}

fn first_records(
    config: &Config,
    member: &Member,
    folder: &Folder,
    identity: &Identity,
    stored: &StoredToken,
    now_ms: u64,
) -> Result<Change, String> {
    let node = node_record(member.name.clone(), member.zone.clone(), Role::Data, &member.host, announced_port(config))
        .ok_or_else(|| format!("'{}' is no address", member.host))?;
    let (cluster, name, node_key) = (CLUSTER, name_key(member.name.as_str()), node_key(member.node));
    let level = FeatureLevelRecord { level: FEATURE_LEVEL, unknown: Unknown::new() };
    let mut change = Change::default()
        .given(cluster, 0)
        .put(cluster, &ClusterRecord { name: member.cluster_name.clone(), created_ms: now_ms })
        .put("feature_level", &level)
        .put(&name, &member.node)
        .put_bytes(&node_key, encode_node(member.node, &node)?)
        .put(&coordinator_key(member.node), &Role::Data)
        .put(&issued_key(identity), identity)
        .put(&token_key(&stored.token.secret_sha256), stored)
        .put(&Key::ConsoleKey.to_string(), &ConsoleKeyRecord { key: console_key(), unknown: Unknown::new() });
    if let Some(users) = console_users(config)? {
        let bytes = cluster::records::encode(Key::ConsoleUsers, &users).map_err(|error| error.to_string())?;
        change = change.put_bytes(&Key::ConsoleUsers.to_string(), bytes);
    }
    if member.etcd.external.is_none() {
        let etcd = pki::read_secret(&folder.etcd_pem()).map_err(|error| error.to_string())?;
        let etcd = Credential::from_pem(&etcd, now_ms).map_err(|error| error.to_string())?;
        change = change.put(&issued_key(etcd.identity()), etcd.identity());
    }
    Ok(change)
}

fn console_key() -> ConsoleKey {
    let mut key = ConsoleKey([0; 32]);
    rand::rng().fill_bytes(&mut key.0);
    key
}

/// The users of the first node's console become the cluster's. `None`: it has none yet, and the first console that finds none brings its own.
fn console_users(config: &Config) -> Result<Option<ConsoleUsersRecord>, String> {
    let path = config.state_dir.join("users.json");
    match std::fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| format!("{}: {error}", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}
