//! What the server shows to clients that ask for TLS.

use oribi_types::{Error, Result};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::sync::Arc;

/// A certificate and its key.
#[derive(Clone)]
pub struct TlsIdentity(pub(crate) Arc<ServerConfig>);

impl TlsIdentity {
    /// From PEM: the server's certificate, then those that vouch for it; and its key, which is not encrypted (PKCS #1,
    /// PKCS #8 or SEC 1).
    ///
    /// # Errors
    /// `Invalid` for what is not that, or a key that is not of the certificate.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self> {
        let invalid = |what: &str, why: &dyn fmt::Display| {
            Error::invalid(format!("the TLS {what} is of no use: {why}"))
        };
        let chain = CertificateDer::pem_slice_iter(certificates)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| invalid("certificate", &error))?;
        if chain.is_empty() {
            return Err(invalid("certificate", &"there is none in PEM"));
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| invalid("key", &error))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::internal(error.to_string()))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| invalid("certificate with this key", &error))?;
        // Records that come after the handshake have no place in Kudu's negotiation, and its clients resume nothing.
        config.send_tls13_tickets = 0;
        Ok(TlsIdentity(Arc::new(config)))
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsIdentity")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERTIFICATE: &[u8] = include_bytes!("../tests/tls/certificate.pem");
    const KEY: &[u8] = include_bytes!("../tests/tls/key.pem");
    const OTHER_KEY: &[u8] = include_bytes!("../tests/tls/other-key.pem");

    #[test]
    fn a_certificate_and_its_key_fit_each_other() {
        TlsIdentity::from_pem(CERTIFICATE, KEY).unwrap();
        let refused = |certificate, key| TlsIdentity::from_pem(certificate, key).unwrap_err().to_string();
        assert!(refused(CERTIFICATE, OTHER_KEY).contains("KeyMismatch"));
        assert!(refused(KEY, KEY).contains("certificate is of no use: there is none in PEM"));
        assert!(refused(CERTIFICATE, CERTIFICATE).contains("key is of no use"));
        assert!(refused(b"", b"").contains("certificate"));
        let damaged = &CERTIFICATE[..CERTIFICATE.len() / 2];
        assert!(refused(damaged, KEY).contains("certificate"));
        let not_der = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(refused(not_der, KEY).contains("certificate"));
    }
}
