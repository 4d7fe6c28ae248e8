//! Owns how this node reaches the cluster's etcd. Never knows what is kept there.

use crate::folder::Member;
use coord::Etcd;
use coord::etcd::{Options, Tls, User};
use pki::Credential;
use std::time::Duration;

/// For how long a call tries, over all endpoints.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A client with the node's certificate, or with what an etcd that is not the cluster's own asks for.
pub fn etcd_client(member: &Member, credential: &Credential, endpoints: Vec<String>) -> Result<Etcd, coord::Error> {
    let tls = match &member.etcd.external {
        None => {
            let own = credential.to_pem().expose().as_bytes().to_vec();
            Some(Tls {
                ca: member.authorities.concat().into_bytes(),
                client: Some((own.clone(), own)),
                server_name: Some(pki::etcd_server_name(member.cluster)),
            })
        }
        Some(external) => external.ca.as_ref().map(|ca| Tls {
            ca: ca.clone().into_bytes(),
            client: external.client.clone().map(|(certificate, key)| (certificate.into_bytes(), key.into_bytes())),
            server_name: None,
        }),
    };
    let user = member.etcd.external.as_ref().and_then(|external| external.user.clone());
    let user = user.map(|(name, password)| User { name, password });
    Etcd::new(Options { timeout: TIMEOUT, tls, user, ..Options::new(endpoints) })
}
