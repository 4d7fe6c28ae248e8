//! Owns what TLS needs of the configuration: certificates, keys and protocols. They are read from their files at the
//! start and whenever CONFIG SET names them. Never knows a connection.

use config::{Secret, TlsAuth, TlsSettings};
use parking_lot::RwLock;
use pkcs8::{EncryptedPrivateKeyInfo, SecretDocument};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion, version};
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// The settings for new connections; `None`: no TLS.
#[derive(Default)]
pub struct Tls(RwLock<Option<Arc<ServerConfig>>>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.0.read().is_some()).finish()
    }
}

impl Tls {
    /// Reads all files. If any of them is invalid, new connections keep the previous settings.
    pub fn set(&self, settings: &TlsSettings) -> Result<(), String> {
        self.put(read(settings)?);
        Ok(())
    }

    /// Sets what new connections get from now on.
    pub fn put(&self, config: Option<Arc<ServerConfig>>) {
        *self.0.write() = config;
    }

    pub fn get(&self) -> Option<Arc<ServerConfig>> {
        self.0.read().clone()
    }
}

/// Builds the settings for connections; `None` without TLS. Reads all files.
pub fn read(settings: &TlsSettings) -> Result<Option<Arc<ServerConfig>>, String> {
    match settings.port {
        0 => Ok(None),
        _ => Ok(Some(Arc::new(build(settings)?))),
    }
}

fn build(settings: &TlsSettings) -> Result<ServerConfig, String> {
    let (Some(cert_file), Some(key_file)) = (&settings.cert_file, &settings.key_file) else {
        return Err("tls-port needs tls-cert-file and tls-key-file".to_owned());
    };
    let provider = CryptoProvider { cipher_suites: suites(settings)?, ..ring::default_provider() };
    let builder = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&versions(&settings.protocols)?)
        .map_err(|error| {
            format!("no protocol or cipher is left: check tls-protocols, tls-ciphers and tls-ciphersuites: {error}")
        })?;
    let builder = match settings.auth {
        TlsAuth::No => builder.with_no_client_auth(),
        TlsAuth::Yes | TlsAuth::Optional => {
            let provider = Arc::clone(builder.crypto_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(
                Arc::new(authorities(settings, "tls-auth-clients")?),
                provider,
            );
            let verifier = match settings.auth {
                TlsAuth::Optional => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            builder.with_client_cert_verifier(verifier.build().map_err(|error| format!("tls-ca-cert-file: {error}"))?)
        }
    };
    let chain = certificates(cert_file)?;
    if chain.is_empty() {
        return Err(format!("there is no certificate in {}", cert_file.display()));
    }
    let mut config = builder
        .with_single_cert(chain, key(key_file, settings.key_password.as_ref())?)
        .map_err(|error| format!("{} and {}: {error}", cert_file.display(), key_file.display()))?;
    config.ignore_client_order = settings.prefer_own_ciphers;
    if settings.session_cache > 0 {
        config.session_storage = ServerSessionMemoryCache::new(settings.session_cache);
    } else {
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

/// Builds the settings for connections to a primary. Reads all files.
pub fn connector(settings: &TlsSettings) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(CryptoProvider { cipher_suites: suites(settings)?, ..ring::default_provider() });
    let roots = Arc::new(authorities(settings, "tls-replication")?);
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
    let verifier = AnyName(verifier.map_err(|error| format!("tls-ca-cert-file: {error}"))?);
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions(&settings.protocols)?)
        .map_err(|error| {
            format!("no protocol or cipher is left: check tls-protocols, tls-ciphers and tls-ciphersuites: {error}")
        })?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let (cert_file, key_file, password) = match &settings.client_cert_file {
        None => (&settings.cert_file, &settings.key_file, &settings.key_password),
        client => (client, &settings.client_key_file, &settings.client_key_password),
    };
    let config = match (cert_file, key_file) {
        (Some(cert_file), Some(key_file)) => builder
            .with_client_auth_cert(certificates(cert_file)?, key(key_file, password.as_ref())?)
            .map_err(|error| format!("{} and {}: {error}", cert_file.display(), key_file.display()))?,
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

/// Accepts a certificate that an authority has signed, whatever name it has: primaries are named by addresses, as in Redis.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use rustls::CertificateError::{NotValidForName, NotValidForNameContext};
        match self.0.verify_server_cert(certificate, between, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: &dyn fmt::Display| format!("cannot read certificates from {}: {error}", path.display());
    CertificateDer::pem_file_iter(path)
        .map_err(|error| wrong(&error))?
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(&error))
}

fn key(path: &Path, password: Option<&Secret>) -> Result<PrivateKeyDer<'static>, String> {
    let file = path.display();
    let text = fs::read_to_string(path).map_err(|error| format!("cannot read a key from {file}: {error}"))?;
    if text.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----") {
        let password =
            password.ok_or_else(|| format!("the key in {file} is encrypted: tls-key-file-pass is missing"))?;
        let wrong = |error: &dyn fmt::Display| format!("tls-key-file-pass does not open the key in {file}: {error}");
        let (_, sealed) = SecretDocument::from_pem(&text).map_err(|error| wrong(&error))?;
        let sealed = EncryptedPrivateKeyInfo::try_from(sealed.as_bytes()).map_err(|error| wrong(&error))?;
        let key = sealed.decrypt(password.expose()).map_err(|error| wrong(&error))?;
        return Ok(PrivateKeyDer::Pkcs8(key.as_bytes().to_vec().into()));
    }
    if text.contains("Proc-Type: 4,ENCRYPTED") {
        return Err(format!(
            "the key in {file} is encrypted as OpenSSL did before 1.0, which tls-key-file-pass does not open: convert it \
             with 'openssl pkcs8 -topk8'"
        ));
    }
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| format!("cannot read a key from {file}: {error}"))
}

/// The authorities that may have signed certificates. `by`: the directive that needs them.
fn authorities(settings: &TlsSettings, by: &str) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    if let Some(path) = &settings.ca_file {
        for certificate in certificates(path)? {
            store.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    if let Some(folder) = &settings.ca_dir {
        let entries = fs::read_dir(folder).map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()) {
            // The directory may contain other files, such as keys or revocation lists.
            store.add_parsable_certificates(certificates(&path).unwrap_or_default());
        }
    }
    if store.is_empty() {
        return Err(format!("{by} needs certificates of authorities in tls-ca-cert-file or tls-ca-cert-dir"));
    }
    Ok(store)
}

fn versions(words: &str) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let mut versions = Vec::new();
    for word in words.split([' ', ',']).filter(|word| !word.is_empty()) {
        match word.to_ascii_lowercase().as_str() {
            "tlsv1.2" => versions.push(&version::TLS12),
            "tlsv1.3" => versions.push(&version::TLS13),
            "tlsv1" | "tlsv1.1" => return Err(format!("tls-protocols: {word} is not safe any more and not supported")),
            _ => return Err(format!("tls-protocols: '{word}' is neither TLSv1.2 nor TLSv1.3")),
        }
    }
    if versions.is_empty() {
        versions.extend([&version::TLS13, &version::TLS12]);
    }
    Ok(versions)
}

/// `tls-ciphers` of TLS 1.2 and `tls-ciphersuites` of TLS 1.3, in their order. All suites if the directive is empty.
fn suites(settings: &TlsSettings) -> Result<Vec<SupportedCipherSuite>, String> {
    let all = ring::default_provider().cipher_suites;
    let of = |is_13: bool| all.iter().copied().filter(move |suite| suite.tls13().is_some() == is_13);
    let mut chosen = named("tls-ciphersuites", &settings.ciphersuites, of(true).collect())?;
    chosen.extend(named("tls-ciphers", &settings.ciphers, of(false).collect())?);
    Ok(chosen)
}

fn named(directive: &str, list: &str, all: Vec<SupportedCipherSuite>) -> Result<Vec<SupportedCipherSuite>, String> {
    // DEFAULT and the like mean all suites. Exclusions have no effect, because the suites that lists usually exclude
    // are not available.
    let is_group = |word: &str| matches!(word, "DEFAULT" | "HIGH" | "ALL") || word.starts_with(['!', '-', '+', '@']);
    let mut chosen = Vec::new();
    let mut words = list.split([':', ' ', ',']).filter(|word| !word.is_empty()).peekable();
    if words.peek().is_none() {
        return Ok(all);
    }
    for word in words {
        match all.iter().find(|suite| names(suite).iter().any(|name| name.eq_ignore_ascii_case(word))) {
            Some(suite) if chosen.contains(suite) => {}
            Some(suite) => chosen.push(*suite),
            None if is_group(word) => chosen.extend(all.iter().filter(|_| !word.starts_with(['!', '-', '+', '@']))),
            None => {
                let known: Vec<String> = all.iter().map(|suite| names(suite)[0].clone()).collect();
                return Err(format!("{directive}: '{word}' is not one of {}", known.join(", ")));
            }
        }
    }
    Ok(chosen)
}

/// A suite's names: OpenSSL's, and the standard's.
fn names(suite: &SupportedCipherSuite) -> [String; 2] {
    let standard = format!("{:?}", suite.suite()).replace("TLS13_", "TLS_");
    let openssl = match suite.tls13() {
        Some(_) => standard.clone(),
        None => standard
            .trim_start_matches("TLS_")
            .replace("_WITH", "")
            .replace("AES_", "AES")
            .replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
            .replace('_', "-"),
    };
    [openssl, standard]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(directive: &str, list: &str, is_13: bool) -> Result<Vec<String>, String> {
        let all = ring::default_provider().cipher_suites;
        let of: Vec<_> = all.into_iter().filter(|suite| suite.tls13().is_some() == is_13).collect();
        Ok(named(directive, list, of)?.iter().map(|suite| names(suite)[0].clone()).collect())
    }

    #[test]
    fn ciphers_have_openssl_names() {
        let all = chosen("tls-ciphers", "", false).unwrap();
        for name in ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-CHACHA20-POLY1305"] {
            assert!(all.contains(&name.to_owned()), "{all:?}");
            assert_eq!(chosen("tls-ciphers", name, false).unwrap(), [name]);
        }
        assert_eq!(chosen("tls-ciphers", "DEFAULT:!MEDIUM", false).unwrap(), all);
        assert_eq!(
            chosen("tls-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256", true).unwrap(),
            ["TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"]
        );
        assert!(
            chosen("tls-ciphers", "RC4-MD5", false).unwrap_err().starts_with("tls-ciphers: 'RC4-MD5' is not one of ")
        );
    }

    /// Made by `openssl pkcs8 -topk8`, with the password `word`.
    const ENCRYPTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/encrypted.key");

    #[test]
    fn an_encrypted_key_opens_only_with_its_password() {
        let with = |password: &str| key(Path::new(ENCRYPTED), Some(&Secret::new(password)));
        let key_of = with("word").unwrap();
        assert!(ring::sign::any_supported_type(&key_of).is_ok());
        assert!(with("other").unwrap_err().starts_with("tls-key-file-pass does not open the key in "));
        assert!(key(Path::new(ENCRYPTED), None).unwrap_err().ends_with("is encrypted: tls-key-file-pass is missing"));
    }

    #[test]
    fn protocols() {
        assert_eq!(versions("").unwrap().len(), 2);
        assert_eq!(versions("TLSv1.3").unwrap(), [&version::TLS13]);
        assert_eq!(versions("TLSv1.2 tlsv1.3").unwrap().len(), 2);
        assert!(versions("TLSv1.1").unwrap_err().contains("not safe"));
        assert!(versions("SSLv3").is_err());
    }
}
