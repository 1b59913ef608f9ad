//! A memcached door on a fresh folder, and clients of it.
#![allow(clippy::unwrap_used, dead_code)]

use oribi_doors::memcached::{MemcachedDoor, MemcachedLimits};
use oribi_engine::{Engine, EngineOptions};
use oribi_env::Env;
use std::io::{ErrorKind as Io, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::watch;

pub struct Subject {
    pub engine: Arc<Engine>,
    pub addr: SocketAddr,
    door: Option<MemcachedDoor>,
    shutdown: watch::Sender<bool>,
    runtime: Runtime,
    /// Of one on a real disk.
    dir: Option<tempfile::TempDir>,
}

impl Subject {
    pub fn new() -> Self {
        Subject::with(MemcachedLimits::default())
    }

    pub fn with(limits: MemcachedLimits) -> Self {
        Subject::with_options(limits, EngineOptions::default())
    }

    pub fn with_options(limits: MemcachedLimits, options: EngineOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut subject = Subject::on(Env::real(), dir.path(), limits, options);
        subject.dir = Some(dir);
        subject
    }

    pub fn on(env: Env, dir: &Path, limits: MemcachedLimits, options: EngineOptions) -> Self {
        let engine = Engine::open(env, dir, options).unwrap();
        let (shutdown, shut) = watch::channel(false);
        let door =
            MemcachedDoor::start("127.0.0.1:0".parse().unwrap(), &engine, &Arc::default(), limits, 2, shut)
                .unwrap();
        let runtime = Runtime::new().unwrap();
        Subject { engine, addr: door.local_addr(), door: Some(door), shutdown, runtime, dir: None }
    }

    pub fn connect(&self) -> Client {
        let socket = TcpStream::connect(self.addr).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client(socket)
    }

    pub fn shut(&mut self) {
        self.shutdown.send_replace(true);
        if let Some(door) = self.door.take() {
            self.runtime.block_on(door.join()).unwrap();
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.shut();
        self.engine.close().unwrap();
    }
}

pub struct Client(pub TcpStream);

impl Client {
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    /// Reads exactly `expected`.
    pub fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let mut answer = vec![0; expected.len()];
        let mut read = 0;
        while read < answer.len() {
            match self.0.read(&mut answer[read..]) {
                Ok(0) => break,
                Ok(n) => read += n,
                Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&answer[..read])),
            }
            assert_eq!(
                String::from_utf8_lossy(&answer[..read.min(2000)]),
                String::from_utf8_lossy(&expected[..read.min(2000)])
            );
        }
        assert!(answer == expected);
    }

    pub fn ask(&mut self, request: impl AsRef<[u8]>, answer: impl AsRef<[u8]>) {
        self.send(request);
        self.expect(answer);
    }

    /// Nothing but the end of the connection comes.
    pub fn expect_end(&mut self) {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => assert_eq!(String::from_utf8_lossy(&rest), ""),
            Err(error) => assert_eq!(error.kind(), Io::ConnectionReset),
        }
    }
}

pub const NOOP: u8 = 0x0a;

/// A binary request.
pub fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    frame(0x80, opcode, 0, 0, extras, key, value)
}

/// The answer to a binary request; one with a cas has it zeroed by [`Client::expect_packets`].
pub fn answer(opcode: u8, status: u16, extras: &[u8], value: &[u8]) -> Vec<u8> {
    frame(0x81, opcode, status, 0, extras, b"", value)
}

fn frame(magic: u8, opcode: u8, status: u16, cas: u64, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let body = [extras, key, value].concat();
    let mut bytes = vec![magic, opcode];
    bytes.extend((key.len() as u16).to_be_bytes());
    bytes.extend([extras.len() as u8, 0]);
    bytes.extend(status.to_be_bytes());
    bytes.extend((body.len() as u32).to_be_bytes());
    bytes.extend([7, 7, 7, 7]);
    bytes.extend(cas.to_be_bytes());
    [bytes, body].concat()
}

impl Client {
    /// Reads the packets of `expected`, whatever their cas.
    pub fn expect_packets(&mut self, expected: &[Vec<u8>]) {
        for expected in expected {
            let mut packet = vec![0; 24];
            self.0.read_exact(&mut packet).unwrap();
            let body = u32::from_be_bytes(packet[8..12].try_into().unwrap());
            packet[16..24].fill(0);
            packet.resize(24 + body as usize, 0);
            self.0.read_exact(&mut packet[24..]).unwrap();
            assert_eq!(packet.escape_ascii().to_string(), expected.escape_ascii().to_string());
        }
    }
}

impl Client {
    /// Reads up to the end of a line.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }
}
