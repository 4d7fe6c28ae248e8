//! Owns the text form of certificates, requests and keys (RFC 7468). Never knows what is in them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{PemObject, SectionKind};

/// One section. Its lines have 64 characters.
pub(crate) fn encode(label: &str, der: &[u8]) -> String {
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in STANDARD.encode(der).as_bytes().chunks(64) {
        text.extend(line.iter().copied().map(char::from));
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}

/// All certificates of a text; other sections are skipped. `None`: the text is damaged.
pub(crate) fn certificates(text: &str) -> Option<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<_, _>>().ok()
}

/// The only section of a text. `None`: there is none, another kind, more than one, or damage.
pub(crate) fn only(kind: SectionKind, text: &str) -> Option<Vec<u8>> {
    let mut sections = <(SectionKind, Vec<u8>)>::pem_slice_iter(text.as_bytes());
    match (sections.next(), sections.next()) {
        (Some(Ok((found, der))), None) if found == kind => Some(der),
        _ => None,
    }
}
