//! TLS: whom the client believes, and a connection's state of it.

use bytes::{Buf, Bytes, BytesMut};
use oribi_types::{Error, ErrorKind, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;

/// How connections are encrypted: TLS 1.2 or 1.3, and which servers are believed.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Believes servers whose certificate is for the host in their address, and is one of these or vouched for by one of
    /// them: certificates in PEM.
    ///
    /// # Errors
    /// `Invalid` if there is none, or one is of no use.
    pub fn trusting(certificates: &[u8]) -> Result<Self> {
        let invalid = |why: &dyn fmt::Display| Error::invalid(format!("certificates to trust: {why}"));
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(certificates) {
            let certificate = certificate.map_err(|error| invalid(&error))?;
            roots.add(certificate).map_err(|error| invalid(&error))?;
        }
        if roots.is_empty() {
            return Err(invalid(&"there is none in PEM"));
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(internal)?;
        Ok(Tls(Arc::new(builder.with_root_certificates(roots).with_no_client_auth())))
    }

    /// Believes every server, as Kudu's own clients do: keeps out who listens, not who poses as the server.
    ///
    /// # Errors
    /// `Internal` if TLS does not work here.
    pub fn trusting_anybody() -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions().map_err(internal)?;
        let verifier = Arc::new(Anybody(provider));
        Ok(Tls(Arc::new(
            builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth(),
        )))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// The state of one connection.
pub(super) struct TlsSession(ClientConnection);

impl TlsSession {
    pub fn new(tls: &Tls, host: &str) -> Result<Self> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| Error::invalid(format!("{host:?} is no name that a certificate can have")))?;
        Ok(TlsSession(ClientConnection::new(tls.0.clone(), name).map_err(internal)?))
    }

    pub fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Takes records; appends what they hold to `input`.
    ///
    /// # Errors
    /// `Forbidden` for a server that is not believed, `Corrupt` for what is not TLS.
    pub fn take(&mut self, records: &mut BytesMut, input: &mut BytesMut) -> Result<()> {
        let mut rest = std::mem::take(records).reader();
        while rest.get_ref().has_remaining() {
            if self.0.read_tls(&mut rest).map_err(broken)? == 0 {
                return Err(Error::unavailable("records after the end of TLS"));
            }
            let opened = self.0.process_new_packets().map_err(refused)?;
            let begin = input.len();
            input.resize(begin + opened.plaintext_bytes_to_read(), 0);
            self.0.reader().read_exact(&mut input[begin..]).map_err(broken)?;
        }
        Ok(())
    }

    /// Seals some of `plain`, and forgets that; returns the records to send.
    pub fn seal(&mut self, plain: &mut &[u8]) -> Result<Bytes> {
        let taken = self.0.writer().write(plain).map_err(broken)?;
        *plain = &plain[taken..];
        self.records()
    }

    /// The records to send, if there are any.
    pub fn records(&mut self) -> Result<Bytes> {
        let mut records = Vec::new();
        while self.0.wants_write() {
            self.0.write_tls(&mut records).map_err(broken)?;
        }
        Ok(records.into())
    }
}

fn internal(error: rustls::Error) -> Error {
    Error::internal(format!("TLS: {error}"))
}

fn broken(error: std::io::Error) -> Error {
    Error::unavailable(format!("TLS: {error}"))
}

fn refused(error: rustls::Error) -> Error {
    match error {
        rustls::Error::InvalidCertificate(_) => Error::new(ErrorKind::Forbidden, format!("TLS: {error}")),
        _ => Error::corrupt(format!("TLS: {error}")),
    }
}

/// Whoever the server is; but it has the key of the certificate that it shows.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
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
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
