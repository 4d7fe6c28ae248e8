//! Owns the client by which a node reaches etcd: the cluster's own, or one of the operator's. Never knows what is asked.

use crate::folder::{ExternalEtcd, Member};
use coord::Etcd;
use coord::etcd::{Options, Tls, User};
use pki::Credential;

/// A client of the members at `endpoints`. `credential` opens the cluster's own etcd. An external one has its own certificates and
/// users instead.
pub fn etcd_client(member: &Member, credential: &Credential, endpoints: &[String]) -> Result<Etcd, coord::Error> {
    Etcd::new(etcd_options(member, credential, endpoints))
}

/// What [`etcd_client`] makes its client with.
pub fn etcd_options(member: &Member, credential: &Credential, endpoints: &[String]) -> Options {
    let (tls, user) = match &member.etcd.external {
        None => (Some(own(member, credential)), None),
        Some(external) => external_access(external),
    };
    Options { tls, user, ..Options::new(endpoints.to_vec()) }
}

fn own(member: &Member, credential: &Credential) -> Tls {
    let pem = credential.to_pem().expose().as_bytes().to_vec();
    Tls {
        ca: member.authorities.concat().into_bytes(),
        client: Some((pem.clone(), pem)),
        // Not the address: each node may have any address in its certificate, and only those of etcd have this name.
        server_name: Some(pki::etcd_server_name(member.cluster)),
    }
}

fn external_access(external: &ExternalEtcd) -> (Option<Tls>, Option<User>) {
    let bytes = |text: &String| text.as_bytes().to_vec();
    let tls = external.ca.as_ref().map(|ca| Tls {
        ca: bytes(ca),
        client: external.client.as_ref().map(|(certificate, key)| (bytes(certificate), bytes(key))),
        server_name: None,
    });
    let user = external.user.clone().map(|(name, password)| User { name, password });
    (tls, user)
}
