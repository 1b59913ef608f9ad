//! The smallest client of the Couchbase protocol: frames as they go over the wire.

#![allow(dead_code)]

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A classic request; its opaque is its opcode.
pub fn frame(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    request(opcode, 0, 0, extras, key, value)
}

pub fn request(opcode: u8, vbucket: u16, cas: u64, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80, opcode];
    bytes.extend((key.len() as u16).to_be_bytes());
    bytes.extend([extras.len() as u8, 0]);
    bytes.extend(vbucket.to_be_bytes());
    bytes.extend(((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
    bytes.extend(u32::from(opcode).to_be_bytes());
    bytes.extend(cas.to_be_bytes());
    [&bytes[..], extras, key, value].concat()
}

/// A request with framing extras.
pub fn flexible(opcode: u8, frames: &[u8], extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = frame(opcode, extras, key, value);
    bytes[0] = 0x08;
    bytes[2..4].copy_from_slice(&[frames.len() as u8, key.len() as u8]);
    let body = (frames.len() + extras.len() + key.len() + value.len()) as u32;
    bytes[8..12].copy_from_slice(&body.to_be_bytes());
    bytes.splice(24..24, frames.iter().copied());
    bytes
}

pub fn set(key: &[u8], value: &[u8]) -> Vec<u8> {
    frame(0x01, &[0; 8], key, value)
}

#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub magic: u8,
    pub opcode: u8,
    pub status: u16,
    pub opaque: u32,
    pub cas: u64,
    pub framing: Vec<u8>,
    pub extras: Vec<u8>,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.value).unwrap()
    }
}

pub struct Client(pub TcpStream);

impl Client {
    pub fn new(addr: SocketAddr) -> Self {
        let socket = TcpStream::connect(addr).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client(socket)
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    pub fn receive(&mut self) -> Answer {
        let mut head = [0; 24];
        self.0.read_exact(&mut head).unwrap();
        let body_len = u32::from_be_bytes(head[8..12].try_into().unwrap()) as usize;
        let mut body = vec![0; body_len];
        self.0.read_exact(&mut body).unwrap();
        let (framing_len, key_len) = match head[0] {
            0x18 => (usize::from(head[2]), usize::from(head[3])),
            _ => (0, usize::from(u16::from_be_bytes([head[2], head[3]]))),
        };
        let mut rest = &body[..];
        let mut part = |len: usize| rest.split_off(..len).unwrap().to_vec();
        let (framing, extras, key) = (part(framing_len), part(usize::from(head[4])), part(key_len));
        let value = part(body_len - framing_len - usize::from(head[4]) - key_len);
        Answer {
            magic: head[0],
            opcode: head[1],
            status: u16::from_be_bytes([head[6], head[7]]),
            opaque: u32::from_be_bytes(head[12..16].try_into().unwrap()),
            cas: u64::from_be_bytes(head[16..24].try_into().unwrap()),
            framing,
            extras,
            key,
            value,
        }
    }

    pub fn ask(&mut self, request: &[u8]) -> Answer {
        self.send(request);
        let answer = self.receive();
        assert!([0x81, 0x18].contains(&answer.magic));
        assert_eq!(answer.opcode, request[1]);
        assert_eq!(answer.opaque, u32::from_be_bytes(request[12..16].try_into().unwrap()));
        answer
    }

    pub fn expect_end(&mut self) {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest);
        assert_eq!(rest, b"");
    }
}
