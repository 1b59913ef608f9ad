//! Nodes prove to each other that they are of one cluster and speak one language: each request says the version, and a code that only
//! who has read the cluster's secret can make. There is no encryption: a cluster's network is its own.

use oribi_types::{Error, ErrorKind, Result};
use ring::hmac;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// What nodes say to each other has this version; nodes of another do not share queries, nor do those of another release: files and plans
/// change with it.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "/2");

const VERSION_HEADER: &str = "x-oribi-node-version";
const CODE_HEADER: &str = "x-oribi-node-code";

/// The secret of a cluster; an empty one is nobody's.
#[derive(Clone)]
pub struct Secret {
    key: Arc<hmac::Key>,
    code: MetadataValue<Ascii>,
}

impl Secret {
    pub fn new(secret: &[u8]) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let code = hmac::sign(&key, VERSION.as_bytes());
        let code: String = code.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Secret { key: Arc::new(key), code: code.parse().expect("digits are ASCII") }
    }

    /// The headers of a request to another node.
    pub(crate) fn headers(&self) -> http::HeaderMap {
        let mut headers = tonic::metadata::MetadataMap::new();
        self.sign(&mut headers);
        headers.into_headers()
    }

    fn sign(&self, headers: &mut tonic::metadata::MetadataMap) {
        headers.insert(VERSION_HEADER, MetadataValue::from_static(VERSION));
        headers.insert(CODE_HEADER, self.code.clone());
    }

    fn check(&self, headers: &tonic::metadata::MetadataMap) -> Result<(), Status> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        match text(VERSION_HEADER) {
            Some(VERSION) => {}
            Some(other) => {
                let said: String = other.chars().filter(|c| !c.is_control()).take(40).collect();
                return Err(Status::failed_precondition(format!(
                    "this node is Oribi {VERSION}, who asks is Oribi {said}: nodes of one cluster are of one version"
                )));
            }
            None => return Err(Status::failed_precondition("who asks is no node of Oribi")),
        }
        let code = text(CODE_HEADER).and_then(bytes).unwrap_or_default();
        hmac::verify(&self.key, VERSION.as_bytes(), &code)
            .map_err(|_| Status::unauthenticated("who asks has not the secret of this cluster"))
    }

    /// Signs the requests of a client.
    pub(crate) fn signing(&self) -> Signing {
        Signing(self.clone())
    }

    /// Checks those that come to a server.
    pub(crate) fn checking(&self) -> Checking {
        Checking(self.clone())
    }
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[derive(Clone)]
pub(crate) struct Signing(Secret);

impl Interceptor for Signing {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        self.0.sign(request.metadata_mut());
        Ok(request)
    }
}

#[derive(Clone)]
pub(crate) struct Checking(Secret);

impl Interceptor for Checking {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        self.0.check(request.metadata())?;
        Ok(request)
    }
}

/// Listens for other nodes.
///
/// # Errors
/// `Forbidden` for an address beyond loopback, unless nodes have a secret; `Unavailable` for one that is taken.
pub fn bind(address: SocketAddr, has_secret: bool) -> Result<TcpListener> {
    if !has_secret && !address.ip().is_loopback() {
        return Err(Error::new(
            ErrorKind::Forbidden,
            format!(
                "address {address} is not loopback: whoever reaches the port could read everything; nodes prove who they are by a \
                 secret (cluster_secret_file)"
            ),
        ));
    }
    let listener = TcpListener::bind(address);
    let listener = listener.map_err(|e| Error::unavailable(format!("address {address}: {e}")))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::metadata::MetadataMap;

    #[test]
    fn who_asks_is_of_this_version_and_has_the_secret() {
        let (ours, other) = (Secret::new(b"one"), Secret::new(b"two"));
        let signed = |secret: &Secret| {
            let mut headers = MetadataMap::new();
            secret.sign(&mut headers);
            headers
        };
        assert!(ours.check(&signed(&ours)).is_ok());
        let refusal = |headers: &MetadataMap| ours.check(headers).unwrap_err().message().to_owned();
        assert!(refusal(&signed(&other)).contains("not the secret of this cluster"));
        assert!(refusal(&MetadataMap::new()).contains("no node of Oribi"));
        let mut older = signed(&ours);
        older.insert(VERSION_HEADER, MetadataValue::from_static("0.0.1/1"));
        assert!(refusal(&older).contains("who asks is Oribi 0.0.1/1"), "{}", refusal(&older));
        let mut garbage = signed(&ours);
        garbage.insert(CODE_HEADER, MetadataValue::from_static("0g"));
        assert!(refusal(&garbage).contains("not the secret"));
    }

    #[test]
    fn without_a_secret_only_loopback_is_listened_to() {
        assert!(bind("127.0.0.1:0".parse().unwrap(), false).is_ok());
        let error = bind("0.0.0.0:0".parse().unwrap(), false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Forbidden);
    }
}
