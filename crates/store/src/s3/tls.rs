//! TLS to a store, by the stack and the provider of cryptography that doors have.

use oribi_env::{RealFiles, read_file};
use oribi_types::{Error, Result};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

/// Trusts whom the certificates in a file of PEM vouch for.
///
/// # Errors
/// `Invalid` if there are none.
pub(super) fn trusting(certificates: &Path) -> Result<Arc<ClientConfig>> {
    let pem = read_file(&RealFiles, certificates)
        .map_err(|error| Error::from(error).context(certificates.display()))?;
    let mut roots = RootCertStore::empty();
    // Some systems trust certificates that others cannot read.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    if roots.is_empty() {
        return Err(Error::invalid(format!("{}: no certificate in PEM", certificates.display())));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::internal(error.to_string()))?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

/// # Errors
/// `Invalid` for a name that is none. The handshake comes with the first bytes.
pub(super) fn begin(
    config: &Arc<ClientConfig>,
    name: &str,
    socket: TcpStream,
) -> Result<StreamOwned<ClientConnection, TcpStream>> {
    let name = ServerName::try_from(name.to_owned()).map_err(|error| Error::invalid(error.to_string()))?;
    let connection =
        ClientConnection::new(config.clone(), name).map_err(|error| Error::internal(error.to_string()))?;
    Ok(StreamOwned::new(connection, socket))
}
