//! A PostgreSQL client of hand-made messages, which decides what arrives together.

#![allow(dead_code, reason = "each scenario uses its part")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

pub struct WireClient {
    socket: TcpStream,
    received: Vec<u8>,
}

/// A message of a type, with a body.
pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    out.extend((body.len() as u32 + 4).to_be_bytes());
    out.extend(body);
    out
}

pub fn parse(name: &str, sql: &str) -> Vec<u8> {
    message(b'P', &[name.as_bytes(), b"\0", sql.as_bytes(), b"\0\0\0"].concat())
}

/// A `Bind` to the unnamed portal, in binary both ways, its `Execute` and its `Sync`.
pub fn run(statement: &str, parameters: &[&[u8]]) -> Vec<u8> {
    let mut bind = [b"\0", statement.as_bytes(), b"\0\0\x01\0\x01"].concat();
    bind.extend((parameters.len() as u16).to_be_bytes());
    for parameter in parameters {
        bind.extend((parameter.len() as u32).to_be_bytes());
        bind.extend(*parameter);
    }
    bind.extend(b"\0\x01\0\x01");
    [message(b'B', &bind), message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat()
}

impl WireClient {
    pub fn connect(addr: SocketAddr) -> Self {
        let mut client = WireClient { socket: TcpStream::connect(addr).unwrap(), received: Vec::new() };
        client.socket.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let startup = message(0, b"\0\x03\0\0user\0ada\0\0");
        client.send(&startup[1..]);
        client.until_ready(1);
        client
    }

    pub fn send(&mut self, messages: &[u8]) {
        self.socket.write_all(messages).unwrap();
    }

    /// The messages that arrive up to the `count`th `ReadyForQuery`, or up to the end of the connection: their types
    /// and bodies.
    pub fn until_ready(&mut self, count: usize) -> Vec<(u8, Vec<u8>)> {
        let mut messages = Vec::new();
        let mut ready = 0;
        while ready < count {
            let Some((tag, body)) = self.next() else { break };
            ready += usize::from(tag == b'Z');
            messages.push((tag, body));
        }
        messages
    }

    /// The next message; `None` at the end of the connection.
    pub fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some(message) = self.take() {
                return Some(message);
            }
            let mut more = [0; 8192];
            match self.socket.read(&mut more).unwrap() {
                0 => return None,
                n => self.received.extend(&more[..n]),
            }
        }
    }

    fn take(&mut self) -> Option<(u8, Vec<u8>)> {
        let length = u32::from_be_bytes(self.received.get(1..5)?.try_into().ok()?) as usize;
        if self.received.len() < 1 + length {
            return None;
        }
        let frame: Vec<u8> = self.received.drain(..1 + length).collect();
        Some((frame[0], frame[5..].to_vec()))
    }
}
