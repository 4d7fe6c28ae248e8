//! Owns the files by which a node knows that it is a member of a cluster. Never knows who reads them, or etcd.
//!
//! ```text
//! state-dir/cluster/member.json        which cluster and node this is, and how etcd is reached; written last when a node joins
//! state-dir/cluster/node.pem           the node's certificate and key
//! state-dir/cluster/coordinator.json   the member of etcd that `flintkv coordinator` runs here; missing: none
//! state-dir/cluster/etcd.pem           the certificate and key of that member
//! state-dir/cluster/ca.pem             the authorities' certificates, for etcd
//! state-dir/cluster/authority.pem      the authority's certificate and key, on each coordinator (`issuer::coordinator_key`)
//! state-dir/cluster/authority-next.pem the same of its successor, while the authority is being replaced
//! state-dir/cluster/neighbours.json    the other nodes' addresses and who is shut out, as this node has last seen them in etcd
//! ```

use cluster::names::{NodeName, ZoneName};
use cluster::records::Role;
use config::Config;
use pki::{
    Authority, AuthorityCertificate, ClusterId, Credential, Fingerprint, Identity, NodeId, SecretText, ShutOut, Trust,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Of the JSON files. A version that this one does not know is an error.
const VERSION: u32 = 1;

/// What a node knows of its membership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    version: u32,
    pub cluster: ClusterId,
    pub cluster_name: String,
    pub node: NodeId,
    pub name: NodeName,
    pub zone: ZoneName,
    pub role: Role,
    /// Where other nodes reach this one: an IP address or a host name.
    pub host: String,
    /// The certificates that the node trusts, in PEM.
    pub authorities: Vec<String>,
    pub etcd: EtcdAccess,
}

/// How etcd is reached.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcdAccess {
    pub endpoints: Vec<String>,
    /// An etcd that is not the cluster's own. `None`: the node's certificate opens it.
    pub external: Option<ExternalEtcd>,
}

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalEtcd {
    /// In PEM. `None`: the endpoints are http.
    pub ca: Option<String>,
    /// The client's certificate and key, in PEM.
    pub client: Option<(String, String)>,
    /// Name and password.
    pub user: Option<(String, String)>,
}

/// Keys and passwords stay out of logs.
impl fmt::Debug for EtcdAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtcdAccess({:?})", self.endpoints)
    }
}

/// The member of etcd that this node runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcdMember {
    version: u32,
    /// The node's id: it never changes.
    pub name: String,
    /// An IP address or a host name of this node.
    pub host: String,
    pub client_port: u16,
    pub peer_port: u16,
    /// etcd's `--initial-cluster-token`.
    pub cluster_token: String,
    /// The name and the peer URL of each member, this one among them.
    pub initial: Vec<(String, String)>,
    /// The first member of a cluster; the others join one that is there.
    pub is_new: bool,
}

/// What a node has last seen of the others in etcd, for as long as etcd does not answer: whom it may ask, and whom it does not believe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbours {
    version: u32,
    /// Of each other node's port for nodes.
    pub addresses: BTreeMap<NodeId, String>,
    pub shut_out: Vec<ShutOut>,
}

impl Neighbours {
    pub fn new(addresses: BTreeMap<NodeId, String>, shut_out: Vec<ShutOut>) -> Neighbours {
        Neighbours { version: VERSION, addresses, shut_out }
    }
}

impl Default for Neighbours {
    fn default() -> Neighbours {
        Neighbours::new(BTreeMap::new(), Vec::new())
    }
}

impl Member {
    #[expect(clippy::too_many_arguments, reason = "each is a fact of its own, and the version is not the caller's")]
    pub fn new(
        cluster: ClusterId,
        cluster_name: String,
        node: NodeId,
        name: NodeName,
        zone: ZoneName,
        role: Role,
        host: String,
        authorities: Vec<String>,
        etcd: EtcdAccess,
    ) -> Member {
        Member { version: VERSION, cluster, cluster_name, node, name, zone, role, host, authorities, etcd }
    }
}

impl EtcdMember {
    pub fn new(
        node: NodeId,
        host: String,
        (client_port, peer_port): (u16, u16),
        cluster: ClusterId,
        mut others: Vec<(String, String)>,
    ) -> EtcdMember {
        let (is_new, name) = (others.is_empty(), node.to_string());
        others.push((name.clone(), url(&host, peer_port)));
        EtcdMember {
            version: VERSION,
            name,
            host,
            client_port,
            peer_port,
            cluster_token: cluster.to_string(),
            initial: others,
            is_new,
        }
    }

    pub fn client_url(&self) -> String {
        url(&self.host, self.client_port)
    }

    pub fn peer_url(&self) -> String {
        url(&self.host, self.peer_port)
    }
}

/// `https://HOST:PORT`, with the brackets of an IPv6 address.
pub fn url(host: &str, port: u16) -> String {
    format!("https://{}", host_and_port(host, port))
}

pub fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Where other nodes reach the port for them.
pub fn announced_port(config: &Config) -> u16 {
    if config.peer_announce_port == 0 { config.peer_port } else { config.peer_announce_port }
}

/// Why the files do not say what the node is.
#[derive(Debug)]
pub struct FolderError {
    path: PathBuf,
    why: String,
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
}

impl std::error::Error for FolderError {}

/// `state-dir/cluster`.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    pub fn of(config: &Config) -> Folder {
        Folder(config.state_dir.join("cluster"))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn member_file(&self) -> PathBuf {
        self.0.join("member.json")
    }

    pub fn node_pem(&self) -> PathBuf {
        self.0.join("node.pem")
    }

    pub fn coordinator_file(&self) -> PathBuf {
        self.0.join("coordinator.json")
    }

    pub fn etcd_pem(&self) -> PathBuf {
        self.0.join("etcd.pem")
    }

    pub fn ca_pem(&self) -> PathBuf {
        self.0.join("ca.pem")
    }

    pub fn authority_pem(&self) -> PathBuf {
        self.0.join("authority.pem")
    }

    pub fn next_authority_pem(&self) -> PathBuf {
        self.0.join("authority-next.pem")
    }

    pub fn neighbours_file(&self) -> PathBuf {
        self.0.join("neighbours.json")
    }

    /// `None`: the node is a member of no cluster.
    pub fn member(&self) -> Result<Option<Member>, FolderError> {
        read(&self.member_file(), |member: &Member| member.version)
    }

    /// `None`: no member of etcd runs here.
    pub fn etcd_member(&self) -> Result<Option<EtcdMember>, FolderError> {
        read(&self.coordinator_file(), |member: &EtcdMember| member.version)
    }

    pub fn credential(&self, now_ms: u64) -> Result<Credential, FolderError> {
        let path = self.node_pem();
        let text = pki::read_secret(&path).map_err(|error| at(&path, &error))?;
        Credential::from_pem(&text, now_ms).map_err(|error| at(&path, &error))
    }

    /// What the certificate of this node's etcd says, even if it has ended, and whose it is. `None`: there is none here.
    pub fn etcd_certificate(&self) -> Result<Option<(Identity, AuthorityCertificate)>, FolderError> {
        let path = self.etcd_pem();
        if !path.exists() {
            return Ok(None);
        }
        let text = pki::read_secret(&path).map_err(|error| at(&path, &error))?;
        // The node's own certificate comes first.
        let certificates = CertificateDer::pem_slice_iter(text.expose().as_bytes()).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(|error| at(&path, &error))?;
        let [own, authority] = &certificates[..] else {
            return Err(at(&path, &"not a certificate and its authority's"));
        };
        let own = Identity::of(own).map_err(|error| at(&path, &error))?;
        let authority = AuthorityCertificate::from_der(authority.clone()).map_err(|error| at(&path, &error))?;
        Ok(Some((own, authority)))
    }

    /// The authorities that this node's etcd is to trust. Nothing: it runs none.
    pub fn etcd_authorities(&self) -> Result<Vec<AuthorityCertificate>, FolderError> {
        let path = self.ca_pem();
        if !path.exists() {
            return Ok(Vec::new());
        }
        let text = fs::read_to_string(&path).map_err(|error| at(&path, &error))?;
        AuthorityCertificate::list_from_pem(&text).map_err(|error| at(&path, &error))
    }

    /// `None`: the key is not on this node.
    pub fn authority(&self) -> Result<Option<Authority>, FolderError> {
        read_authority(&self.authority_pem())
    }

    /// Every authority whose key is on this node; the one that signs outside of a replacement first.
    pub fn authorities(&self) -> Result<Vec<Authority>, FolderError> {
        let found = [read_authority(&self.authority_pem())?, read_authority(&self.next_authority_pem())?];
        Ok(found.into_iter().flatten().collect())
    }

    /// Keeps the key of the one authority that is left after a replacement, and no other. Its key may not be on this node.
    pub fn keep_authority(&self, left: Fingerprint) -> Result<(), FolderError> {
        let is_left = |authority: &Authority| authority.certificate().fingerprint() == left;
        let next = self.next_authority_pem();
        if let Some(successor) = read_authority(&next)?.filter(is_left) {
            self.write_authority(&successor)?;
        }
        // A node that is late has the key of neither.
        let path = self.authority_pem();
        let is_late = read_authority(&path)?.is_some_and(|authority| !is_left(&authority));
        for path in [next].into_iter().chain(is_late.then_some(path)) {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path, &error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Nothing, before the node has seen any other.
    pub fn neighbours(&self) -> Result<Neighbours, FolderError> {
        let read = read(&self.neighbours_file(), |neighbours: &Neighbours| neighbours.version)?;
        Ok(read.unwrap_or_default())
    }

    /// Whom the node believes, as it last knew it.
    pub fn trust(&self, member: &Member) -> Result<Arc<Trust>, FolderError> {
        let path = self.member_file();
        let authorities = member.authorities.iter().map(|pem| AuthorityCertificate::from_pem(pem));
        let authorities = authorities.collect::<Result<_, _>>().map_err(|error| at(&path, &error))?;
        let trust = Trust::new(authorities).map_err(|error| at(&path, &error))?;
        trust.set_shut_out(&self.neighbours()?.shut_out);
        Ok(trust)
    }

    pub fn write_neighbours(&self, neighbours: &Neighbours) -> Result<(), FolderError> {
        write(&self.neighbours_file(), &json(neighbours))
    }

    pub fn make(&self) -> Result<(), FolderError> {
        let made = fs::create_dir_all(&self.0);
        made.map_err(|error| at(&self.0, &error))
    }

    pub fn write_member(&self, member: &Member) -> Result<(), FolderError> {
        write(&self.member_file(), &json(member))
    }

    pub fn write_etcd_member(&self, member: &EtcdMember) -> Result<(), FolderError> {
        write(&self.coordinator_file(), &json(member))
    }

    pub fn write_credential(&self, credential: &Credential) -> Result<(), FolderError> {
        write(&self.node_pem(), &credential.to_pem())
    }

    pub fn write_etcd_credential(&self, credential: &Credential) -> Result<(), FolderError> {
        write(&self.etcd_pem(), &credential.to_pem())
    }

    pub fn write_authority(&self, authority: &Authority) -> Result<(), FolderError> {
        write(&self.authority_pem(), &authority.to_pem())
    }

    pub fn write_next_authority(&self, authority: &Authority) -> Result<(), FolderError> {
        write(&self.next_authority_pem(), &authority.to_pem())
    }

    pub fn write_ca(&self, authorities: &[AuthorityCertificate]) -> Result<(), FolderError> {
        let path = self.ca_pem();
        let text: String = authorities.iter().map(AuthorityCertificate::pem).collect();
        pki::write_public(&path, text.as_bytes()).map_err(|error| at(&path, &error))
    }

    /// The node is a member no more. What is missing already is fine.
    pub fn remove(&self) -> Result<(), FolderError> {
        // The file that makes it a member goes first.
        for path in [self.member_file(), self.coordinator_file()] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path, &error)),
                _ => {}
            }
        }
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(&self.0, &error)),
            _ => Ok(()),
        }
    }
}

fn read_authority(path: &Path) -> Result<Option<Authority>, FolderError> {
    if !path.exists() {
        return Ok(None);
    }
    let text = pki::read_secret(path).map_err(|error| at(path, &error))?;
    Authority::from_pem(&text).map(Some).map_err(|error| at(path, &error))
}

fn at(path: &Path, error: &dyn fmt::Display) -> FolderError {
    let why = error.to_string();
    // Some errors name the file themselves.
    let why = why.strip_prefix(&format!("{}: ", path.display())).map(str::to_owned).unwrap_or(why);
    FolderError { path: path.to_owned(), why }
}

fn json(value: &impl Serialize) -> SecretText {
    SecretText::new(serde_json::to_string_pretty(value).expect("it is plain data") + "\n")
}

fn write(path: &Path, text: &SecretText) -> Result<(), FolderError> {
    pki::write_secret(path, text).map_err(|error| at(path, &error))
}

/// All that is read of a file before its version is known.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

fn read<T: DeserializeOwned>(path: &Path, version: impl Fn(&T) -> u32) -> Result<Option<T>, FolderError> {
    if !path.exists() {
        return Ok(None);
    }
    let text = pki::read_secret(path).map_err(|error| at(path, &error))?;
    // Not the parser's own words: they may quote a password.
    let unreadable = |error: serde_json::Error| {
        at(path, &format!("it cannot be read from line {}, column {} on", error.line(), error.column()))
    };
    let Versioned { version: found } = serde_json::from_str(text.expose()).map_err(unreadable)?;
    if found != VERSION {
        return Err(at(path, &format!("it has version {found}, and this release reads version {VERSION}")));
    }
    let value: T = serde_json::from_str(text.expose()).map_err(unreadable)?;
    assert_eq!(version(&value), VERSION);
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, Folder) {
        let state = tempfile::tempdir().unwrap();
        let folder = Folder(state.path().join("cluster"));
        folder.make().unwrap();
        (state, folder)
    }

    fn member() -> Member {
        let user = Some(("flintkv".to_owned(), "hush".to_owned()));
        let external = Some(ExternalEtcd { user, ..ExternalEtcd::default() });
        Member::new(
            ClusterId::random(),
            "prod".to_owned(),
            NodeId::random(),
            "n1".parse().unwrap(),
            "a".parse().unwrap(),
            Role::Data,
            "10.0.0.1".to_owned(),
            vec!["PEM".to_owned()],
            EtcdAccess { endpoints: vec!["http://10.0.0.9:2379".to_owned()], external },
        )
    }

    #[test]
    fn what_was_written_is_read() {
        let (_state, folder) = folder();
        assert_eq!((folder.member().unwrap(), folder.etcd_member().unwrap()), (None, None));
        let member = member();
        folder.write_member(&member).unwrap();
        assert_eq!(folder.member().unwrap(), Some(member.clone()));
        assert!(!format!("{member:?}").contains("hush"));
        let others = vec![("a".to_owned(), url("10.0.0.2", 8382))];
        let etcd = EtcdMember::new(member.node, "fd00::1".to_owned(), (8381, 8382), member.cluster, others);
        folder.write_etcd_member(&etcd).unwrap();
        assert_eq!(folder.etcd_member().unwrap(), Some(etcd.clone()));
        assert_eq!((etcd.client_url().as_str(), etcd.is_new), ("https://[fd00::1]:8381", false));
        assert_eq!(etcd.initial[1], (member.node.to_string(), "https://[fd00::1]:8382".to_owned()));
        folder.remove().unwrap();
        assert_eq!(folder.member().unwrap(), None);
        folder.remove().unwrap();
    }

    #[test]
    fn a_damaged_file_is_an_error_that_names_it_and_no_secret() {
        let (_state, folder) = folder();
        let path = folder.member_file();
        let why = |text: &str| {
            pki::write_secret(&path, &SecretText::new(text.to_owned())).unwrap();
            folder.member().unwrap_err().to_string().replace(&path.display().to_string(), "FILE")
        };
        let whole = json(&member()).expose().to_owned();
        assert_eq!(
            why(&whole.replace("\"version\": 1", "\"version\": 2")),
            "FILE: it has version 2, and this release reads version 1"
        );
        let cut = why(&whole[..whole.len() / 2]);
        assert!(cut.starts_with("FILE: it cannot be read from line"), "{cut}");
        let wrong = why(&whole.replace("\"hush\"", "[\"hush\"]"));
        assert!(wrong.starts_with("FILE: it cannot be read") && !wrong.contains("hush"), "{wrong}");
    }
}
