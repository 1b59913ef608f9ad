//! HTTP/1.1 as a store is asked by it: one request at a time over a connection, which is kept for the next.

use super::tls;
use crate::bucket::{Body, CHUNK_BYTES};
use oribi_types::{Error, ErrorKind, Result};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Requests under way at a time. Each has some hundred kilobytes of buffers.
const REQUESTS_MAX: usize = 8;
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Between two bytes.
const SILENCE_MAX: Duration = Duration::from_secs(20);
const HEAD_BYTES_MAX: u64 = 64 << 10;
/// Of answers that say something, such as lists and errors.
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// `http://host:port` or `https://host`.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub is_secure: bool,
    /// As a `Host` has it.
    pub authority: String,
    host: String,
    port: u16,
}

impl Endpoint {
    /// # Errors
    /// `Invalid`; `Forbidden` for one beyond loopback without TLS.
    pub fn parse(url: &str) -> Result<Self> {
        let invalid = || Error::invalid(format!("{url} is no address such as https://s3.example.com"));
        let (is_secure, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err(invalid()),
        };
        let authority = rest.trim_end_matches('/');
        let (host, port) = match authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
            Some((host, port)) => (host, port.parse().map_err(|_| invalid())?),
            None => (authority, if is_secure { 443 } else { 80 }),
        };
        let is_host = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
        if host.is_empty() || !host.chars().all(is_host) {
            return Err(invalid());
        }
        let is_near = |ip: std::net::IpAddr| ip.is_loopback();
        let is_loopback = host == "localhost" || host.trim_matches(['[', ']']).parse().is_ok_and(is_near);
        if !is_secure && !is_loopback {
            let message = format!("{url} is beyond loopback: others could read rows on their way; use https");
            return Err(Error::new(ErrorKind::Forbidden, message));
        }
        Ok(Endpoint { is_secure, authority: authority.to_owned(), host: host.to_owned(), port })
    }
}

enum Stream {
    Plain(TcpStream),
    Secure(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(buf),
            Stream::Secure(stream) => stream.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(buf),
            Stream::Secure(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Secure(stream) => stream.flush(),
        }
    }
}

type Connection = BufReader<Stream>;

pub(super) struct Client {
    pub endpoint: Endpoint,
    config: Option<Arc<ClientConfig>>,
    idle: Mutex<Vec<Connection>>,
    free: Mutex<usize>,
    freed: Condvar,
}

/// One of the requests that may be under way.
struct Permit<'c>(&'c Client);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

/// What was answered, but for the body of an answer that the caller takes part by part.
pub(super) struct Answer {
    pub status: u16,
    pub etag: Option<String>,
    pub text: Vec<u8>,
}

/// How long the body of an answer is.
enum Length {
    Known(u64),
    Chunked,
    /// Until the connection ends.
    Rest,
}

struct Head {
    status: u16,
    etag: Option<String>,
    length: Length,
    closes: bool,
}

impl Client {
    /// # Errors
    /// Of the certificates that the system trusts.
    pub fn new(endpoint: Endpoint, certificates: &std::path::Path) -> Result<Self> {
        let config = endpoint.is_secure.then(|| tls::trusting(certificates)).transpose()?;
        let (idle, free, freed) = (Mutex::default(), Mutex::new(REQUESTS_MAX), Condvar::new());
        Ok(Client { endpoint, config, idle, free, freed })
    }

    /// Sends a request, whose `head` ends with the last header, and reads the answer: the body of a success goes to `take`.
    ///
    /// # Errors
    /// `Unavailable` if the server is not there, or does not speak HTTP; those of `take`.
    pub fn ask(
        &self,
        head: &str,
        body: Body<'_>,
        is_head: bool,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Answer> {
        let _permit = self.permit();
        let mut connection = match self.reuse() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        send(&mut connection, head, body)?;
        let answer = read_head(&mut connection)?;
        let mut text = Vec::new();
        let is_success = (200..300).contains(&answer.status);
        let mut keep = |part: &[u8]| {
            if text.len() + part.len() > TEXT_BYTES_MAX as usize {
                return Err(unusable("a message of more than 16 MiB"));
            }
            text.extend_from_slice(part);
            Ok(())
        };
        let take: &mut dyn FnMut(&[u8]) -> Result<()> = if is_success { take } else { &mut keep };
        let is_empty = is_head || matches!(answer.status, 204 | 304);
        let is_whole = is_empty || read_body(&mut connection, &answer.length, take)?;
        if is_whole && !answer.closes {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
        Ok(Answer { status: answer.status, etag: answer.etag, text })
    }

    fn permit(&self) -> Permit<'_> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Permit(self)
    }

    /// A connection that the server has not ended, as far as can be seen.
    fn reuse(&self) -> Option<Connection> {
        loop {
            let connection = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
            let socket = match connection.get_ref() {
                Stream::Plain(socket) => socket,
                Stream::Secure(stream) => &stream.sock,
            };
            let is_silent = socket.set_nonblocking(true).is_ok()
                && socket.peek(&mut [0]).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
                && socket.set_nonblocking(false).is_ok();
            if is_silent {
                return Some(connection);
            }
        }
    }

    fn connect(&self) -> Result<Connection> {
        let Endpoint { host, port, authority, .. } = &self.endpoint;
        let failed = |error: std::io::Error| Error::unavailable(format!("{authority}: {error}"));
        let name = host.trim_matches(['[', ']']);
        let addresses = (name, *port).to_socket_addrs().map_err(failed)?;
        let mut socket = Err(Error::unavailable(format!("{authority}: there is no such address")));
        for address in addresses {
            socket = TcpStream::connect_timeout(&address, CONNECT_MAX).map_err(failed);
            if socket.is_ok() {
                break;
            }
        }
        let socket = socket?;
        socket.set_nodelay(true).map_err(failed)?;
        socket.set_read_timeout(Some(SILENCE_MAX)).map_err(failed)?;
        socket.set_write_timeout(Some(SILENCE_MAX)).map_err(failed)?;
        let stream = match &self.config {
            None => Stream::Plain(socket),
            Some(config) => Stream::Secure(Box::new(tls::begin(config, name, socket)?)),
        };
        Ok(BufReader::with_capacity(CHUNK_BYTES, stream))
    }
}

fn broken(error: std::io::Error) -> Error {
    Error::unavailable(format!("the connection broke: {error}"))
}

fn unusable(what: &str) -> Error {
    Error::unavailable(format!("the server answers with {what}"))
}

fn send(connection: &mut Connection, head: &str, body: Body<'_>) -> Result<()> {
    let stream = connection.get_mut();
    stream.write_all(format!("{head}\r\n").as_bytes()).map_err(broken)?;
    body.read(&mut |part| stream.write_all(part).map_err(broken))?;
    stream.flush().map_err(broken)
}

fn read_head(connection: &mut Connection) -> Result<Head> {
    let mut limited = connection.take(HEAD_BYTES_MAX);
    let mut line = || -> Result<String> {
        let mut line = Vec::new();
        limited.read_until(b'\n', &mut line).map_err(broken)?;
        match line.strip_suffix(b"\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).trim_end().to_owned()),
            None => Err(unusable("no whole head")),
        }
    };
    let first = line()?;
    let status = first.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse().ok());
    let status: u16 = status.ok_or_else(|| unusable("what is not HTTP"))?;
    let mut head = Head { status, etag: None, length: Length::Rest, closes: first.starts_with("HTTP/1.0") };
    loop {
        let line = line()?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| unusable("a header without a name"))?;
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" if !matches!(head.length, Length::Chunked) => {
                head.length = Length::Known(value.parse().map_err(|_| unusable("no length"))?);
            }
            "transfer-encoding" if value.eq_ignore_ascii_case("chunked") => head.length = Length::Chunked,
            "transfer-encoding" => return Err(unusable("an encoding that was not asked for")),
            "etag" => head.etag = Some(value.to_owned()),
            "connection" => head.closes |= value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    Ok(head)
}

/// Whether the connection stands behind the body.
fn read_body(
    connection: &mut Connection,
    length: &Length,
    take: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<bool> {
    match length {
        Length::Known(bytes) => read_part(connection, *bytes, take).map(|()| true),
        Length::Rest => loop {
            let part = connection.fill_buf().map_err(broken)?;
            if part.is_empty() {
                return Ok(false);
            }
            let read = part.len();
            take(part)?;
            connection.consume(read);
        },
        Length::Chunked => loop {
            let size = read_line(connection)?;
            let digits = size.split(';').next().unwrap_or_default().trim();
            let bytes = u64::from_str_radix(digits, 16).map_err(|_| unusable("no length of a chunk"))?;
            if bytes == 0 {
                while !read_line(connection)?.is_empty() {}
                return Ok(true);
            }
            read_part(connection, bytes, take)?;
            if !read_line(connection)?.is_empty() {
                return Err(unusable("a chunk of another length"));
            }
        },
    }
}

fn read_line(connection: &mut Connection) -> Result<String> {
    let mut line = Vec::new();
    connection.take(HEAD_BYTES_MAX).read_until(b'\n', &mut line).map_err(broken)?;
    match line.strip_suffix(b"\n") {
        Some(line) => Ok(String::from_utf8_lossy(line).trim_end().to_owned()),
        None => Err(unusable("no whole chunk")),
    }
}

fn read_part(
    connection: &mut Connection,
    bytes: u64,
    take: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut left = bytes;
    while left > 0 {
        let part = connection.fill_buf().map_err(broken)?;
        if part.is_empty() {
            return Err(Error::unavailable("the connection broke in the middle of an answer"));
        }
        let read = part.len().min(left.min(CHUNK_BYTES as u64) as usize);
        take(&part[..read])?;
        connection.consume(read);
        left -= read as u64;
    }
    Ok(())
}
