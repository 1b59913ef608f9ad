//! An S3-compatible store, as the library `object_store` speaks to it
//! (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_Operations_Amazon_Simple_Storage_Service.html>).
//!
//! An object is put on nothing by `If-None-Match: *`, and on another by `If-Match` with its tag. A store that takes no heed of
//! these is found by [`examine`](crate::examine). The library makes each request once: it is [`Patient`](crate::patient::Patient)
//! who makes it again, and knows that an earlier one may have come through.
//!
//! Its few threads send and receive; whoever asks blocks, and may be a thread of another runtime.

mod asking;
mod endpoint;
mod parts;
mod places;

use crate::bucket::{Body, Bucket, Expected, Listed, Sink};
use asking::{OneAttempt, error_of};
use bytes::Bytes;
use endpoint::{check_keys_come_from_near, is_plain};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::path::Path;
use object_store::{
    Certificate, ClientOptions, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    RetryConfig, UpdateVersion,
};
use oribi_env::{Clock, Env};
use oribi_types::{Error, ErrorKind, Result};
use parts::PART_BYTES_MIN;
use places::Places;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Parts, and whole objects, that are sent at a time, each from a buffer of its own.
const SENDING_MAX: usize = 4;
/// Other requests under way at a time. They never wait for those who send.
const ASKING_MAX: usize = 8;
/// Bytes that are received between two looks at the clock.
const RECEIVED_BYTES: usize = 1 << 20;
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Until an answer begins, or goes on with so many bytes.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// What is sent slower than that is not sent.
const SENT_BYTES_PER_SECOND_MIN: u64 = 128 << 10;
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";
/// A list gives as many at once as have come.
const LISTED_MAX: usize = 1000;

/// How a bucket is reached, and who asks.
#[derive(Clone, Default)]
pub struct S3Options {
    /// As Amazon's tools read them from the environment: `AWS_REGION` and the like, of which the last of a name counts.
    pub variables: Vec<(String, String)>,
    /// PEM, of what is trusted besides what the system trusts.
    pub certificates: Vec<u8>,
}

pub struct S3Bucket {
    store: Arc<AmazonS3>,
    /// `None` once it is being dropped.
    runtime: Option<Runtime>,
    clock: Arc<dyn Clock>,
    sending: Places,
    asking: Places,
    /// Ends with a slash, or is empty.
    prefix: String,
    url: String,
}

impl S3Bucket {
    /// `prefix` is without slashes at its ends, and may be empty.
    ///
    /// # Errors
    /// `Invalid` for an endpoint that is none, or settings without which nobody can be asked; `Forbidden` for an endpoint beyond
    /// loopback without TLS.
    pub fn open(bucket: &str, prefix: &str, options: &S3Options) -> Result<Self> {
        let url = format!("s3://{bucket}/{prefix}");
        let invalid = |error: object_store::Error| Error::invalid(format!("{url}: {error}"));
        let store = builder(bucket, options)?.build().map_err(invalid)?;
        let runtime =
            Builder::new_multi_thread().worker_threads(2).thread_name("oribi-s3").enable_all().build()?;
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(S3Bucket {
            store: Arc::new(store),
            runtime: Some(runtime),
            clock: Env::real().clock,
            sending: Places::new(SENDING_MAX),
            asking: Places::new(ASKING_MAX),
            prefix,
            url,
        })
    }

    fn path(&self, name: &str) -> Result<Path> {
        let parsed = Path::parse(format!("{}{name}", self.prefix));
        parsed.map_err(|error| Error::invalid(format!("{}: {error}", self.url)))
    }

    /// Has `request` made, and waits for how it ends, for so long at most.
    fn wait<T: Send + 'static>(
        &self,
        limit: Duration,
        request: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (end, ended) = std::sync::mpsc::channel();
        let limited = async move { drop(end.send(tokio::time::timeout(limit, request).await)) };
        self.runtime.as_ref().expect("it is not being dropped").spawn(limited);
        match ended.recv() {
            Ok(Ok(result)) => result.map_err(error_of),
            Ok(Err(_)) => Err(Error::unavailable(format!("no answer within {} s", limit.as_secs()))),
            Err(_) => Err(Error::internal("a request panicked")),
        }
    }

    fn put_whole(&self, path: Path, body: Body<'_>, mode: PutMode) -> Result<String> {
        let _place = self.sending.take();
        let mut bytes = Vec::with_capacity(body.len()? as usize);
        body.read(&mut |part| {
            bytes.extend_from_slice(part);
            Ok(())
        })?;
        let (store, limit) = (self.store.clone(), time_to_send(bytes.len() as u64));
        let put = self.wait(limit, async move {
            store.put_opts(&path, PutPayload::from(bytes), PutOptions::from(mode)).await
        })?;
        tag_of(put.e_tag)
    }
}

impl Drop for S3Bucket {
    fn drop(&mut self) {
        // Who drops it may be a thread that must not wait.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

fn builder(bucket: &str, options: &S3Options) -> Result<AmazonS3Builder> {
    let variable = |name: &str| {
        let named = options.variables.iter().rev().find(|(of, value)| of == name && !value.is_empty());
        named.map(|(_, value)| value.as_str())
    };
    let endpoint = variable("AWS_ENDPOINT_URL_S3").or_else(|| variable("AWS_ENDPOINT_URL"));
    let is_plain = endpoint.map(is_plain).transpose()?.unwrap_or(false);
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        // Amazon's machines give them to who asks.
        let is_needed = is_plain || variable("AWS_ACCESS_KEY_ID").is_some();
        if is_needed && variable(name).is_none() {
            return Err(Error::invalid(format!("a store in S3 needs the variable {name}")));
        }
    }
    let mut client = ClientOptions::new()
        .with_allow_http(is_plain)
        .with_timeout_disabled()
        .with_connect_timeout(CONNECT_MAX);
    let certificates = Certificate::from_pem_bundle(&options.certificates);
    let certificates = certificates.map_err(|error| Error::invalid(format!("certificates: {error}")))?;
    for certificate in certificates {
        client = client.with_root_certificate(certificate);
    }
    if let Some(endpoint) = endpoint.filter(|_| is_plain) {
        // The system's proxy is beyond loopback, perhaps. Without this one, which nobody goes by, it would be asked.
        client = client.with_proxy_url(endpoint).with_proxy_excludes(LOOPBACK);
    }
    let mut builder = AmazonS3Builder::new().with_client_options(client);
    for (name, value) in options.variables.iter().filter(|(_, value)| !value.is_empty()) {
        match name.to_ascii_lowercase().parse() {
            // How it is spoken to is not a matter of the environment.
            Ok(AmazonS3ConfigKey::Client(_) | AmazonS3ConfigKey::Bucket) | Err(_) => {}
            Ok(key) => {
                use AmazonS3ConfigKey::{ContainerCredentialsFullUri, MetadataEndpoint};
                if matches!(key, ContainerCredentialsFullUri | MetadataEndpoint) {
                    check_keys_come_from_near(name, value)?;
                }
                builder = builder.with_config(key, value);
            }
        }
    }
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
    }
    let once = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    Ok(builder
        .with_bucket_name(bucket)
        .with_skip_signature(false)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(once)
        .with_http_connector(OneAttempt))
}

fn time_to_send(bytes: u64) -> Duration {
    SILENCE_MAX + Duration::from_secs(bytes / SENT_BYTES_PER_SECOND_MIN)
}

fn tag_of(tag: Option<String>) -> Result<String> {
    tag.ok_or_else(|| Error::invalid("the store gives no ETag"))
}

type Received = BoxStream<'static, object_store::Result<Bytes>>;

/// The next bytes of an answer, none at its end, and what comes after them.
async fn receive(mut stream: Received) -> object_store::Result<(Vec<Bytes>, Received)> {
    let (mut parts, mut bytes) = (Vec::new(), 0);
    while bytes < RECEIVED_BYTES
        && let Some(part) = stream.try_next().await?
    {
        bytes += part.len();
        parts.push(part);
    }
    Ok((parts, stream))
}

impl Bucket for S3Bucket {
    fn url(&self) -> &str {
        &self.url
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        let _place = self.asking.take();
        let folder = self.path(folder.trim_end_matches('/'))?;
        // What came before an error is looked at before it.
        let mut pages = self.store.list(Some(&folder)).ready_chunks(LISTED_MAX).boxed();
        let mut listed = BTreeMap::new();
        loop {
            let (page, rest) = self.wait(SILENCE_MAX, async move { Ok((pages.next().await, pages)) })?;
            let Some(page) = page else { break };
            pages = rest;
            for object in page {
                let object = object.map_err(error_of)?;
                let Some(name) = object.location.as_ref().strip_prefix(&self.prefix) else { continue };
                if listed.insert(name.to_owned(), object.size).is_some() {
                    return Err(Error::invalid("the store's list does not go on"));
                }
            }
        }
        Ok(listed.into_iter().map(|(name, bytes)| Listed { name, bytes }).collect())
    }

    fn get(&self, name: &str, sink: &mut Sink<'_>) -> Result<String> {
        let _place = self.asking.take();
        let (store, path) = (self.store.clone(), self.path(name)?);
        let got =
            self.wait(SILENCE_MAX, async move { store.get_opts(&path, GetOptions::default()).await })?;
        let (tag, bytes) = (tag_of(got.meta.e_tag.clone())?, got.meta.size);
        let (mut stream, mut at) = (got.into_stream(), 0);
        loop {
            let (parts, rest) = self.wait(SILENCE_MAX, receive(stream))?;
            if parts.is_empty() {
                break;
            }
            for part in parts {
                sink(&part, at)?;
                at += part.len() as u64;
            }
            stream = rest;
        }
        match at == bytes {
            true => Ok(tag),
            false => Err(Error::unavailable(format!("{name}: the answer ended after {at} bytes of {bytes}"))),
        }
    }

    fn tag(&self, name: &str) -> Result<String> {
        let _place = self.asking.take();
        let (store, path) = (self.store.clone(), self.path(name)?);
        tag_of(self.wait(SILENCE_MAX, async move { store.head(&path).await })?.e_tag)
    }

    fn put(&self, name: &str, body: Body<'_>, expected: Expected<'_>) -> Result<String> {
        let path = self.path(name)?;
        let put = match (expected, body) {
            (Expected::Nothing, Body::File(_) | Body::Watched(..)) if body.len()? > PART_BYTES_MIN => {
                self.put_in_parts(path, body)
            }
            (Expected::Nothing, _) => self.put_whole(path, body, PutMode::Create),
            (Expected::Tag(tag), _) => {
                let version = UpdateVersion { e_tag: Some(tag.to_owned()), version: None };
                self.put_whole(path, body, PutMode::Update(version))
            }
        };
        put.map_err(|error| match error.kind() {
            // What was to be replaced is gone.
            ErrorKind::NotFound => Error::conflict(error.message()),
            _ => error,
        })
    }

    fn remove(&self, name: &str) -> Result<()> {
        let _place = self.asking.take();
        let (store, path) = (self.store.clone(), self.path(name)?);
        match self.wait(SILENCE_MAX, async move { store.delete(&path).await }) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
