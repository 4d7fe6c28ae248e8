//! Owns the TLS settings of a client: trusted authorities, own certificate, versions. Never knows sockets.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, SupportedProtocolVersion, version};

/// TLS of connections to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The authorities to trust, in PEM. `None`: the system's.
    pub cacert: Option<PathBuf>,
    /// The client's certificate and its key, in PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Any certificate of the server is accepted, so an attacker in between can read and change everything.
    pub skip_verify: bool,
    /// Names such as TLSv1.3. Empty: all safe versions.
    pub protocols: Vec<String>,
    /// The name that the certificate must have, if it is not the host's.
    pub name: Option<String>,
}

impl Tls {
    /// Reads all files.
    pub fn client(&self) -> Result<Arc<ClientConfig>> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions(&self.protocols)?)
            .context("TLS cannot begin")?;
        let builder = if self.skip_verify {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider)))
        } else {
            builder.with_root_certificates(authorities(self.cacert.as_deref())?)
        };
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let private = PrivateKeyDer::from_pem_file(key).with_context(|| format!("{}", key.display()))?;
                let chain = certificates(cert)?;
                builder
                    .with_client_auth_cert(chain, private)
                    .with_context(|| format!("{} and {}", cert.display(), key.display()))?
            }
        };
        Ok(Arc::new(config))
    }

    /// The name that the certificate of `host` must have.
    pub fn server_name(&self, host: &str) -> Result<ServerName<'static>> {
        let name = self.name.as_deref().unwrap_or(host);
        ServerName::try_from(name.to_owned()).with_context(|| format!("'{name}' is not a valid server name"))
    }
}

fn authorities(cacert: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match cacert {
        Some(file) => {
            for certificate in certificates(file)? {
                roots.add(certificate).with_context(|| format!("{}", file.display()))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let about = || format!("{}", file.display());
    let all: Vec<_> =
        CertificateDer::pem_file_iter(file).with_context(about)?.collect::<Result<_, _>>().with_context(about)?;
    if all.is_empty() {
        bail!("there is no certificate in {}", file.display());
    }
    Ok(all)
}

fn versions(names: &[String]) -> Result<Vec<&'static SupportedProtocolVersion>> {
    if names.is_empty() {
        return Ok(vec![&version::TLS13, &version::TLS12]);
    }
    let one = |name: &String| match name.to_ascii_lowercase().as_str() {
        "tlsv1.2" => Ok(&version::TLS12),
        "tlsv1.3" => Ok(&version::TLS13),
        _ => bail!("'{name}' is neither TLSv1.2 nor TLSv1.3"),
    };
    names.iter().map(one).collect()
}

/// Accepts every certificate, but checks that the server has its key.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
