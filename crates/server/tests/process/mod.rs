//! A server as a process of its own, and the smallest clients that talk to it.

#![allow(dead_code, clippy::disallowed_methods)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

pub const ORIBI: &str = env!("CARGO_BIN_EXE_oribi");

/// Runs another command of the binary to its end.
pub fn oribi(arguments: &[&str]) -> Output {
    Command::new(ORIBI).args(arguments).env_remove("ORIBI_CONFIG").output().unwrap()
}

/// What a command says, if it succeeds.
#[track_caller]
pub fn oribi_ok(arguments: &[&str]) -> String {
    let output = oribi(arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// What an import says that is done but for rows that were refused.
#[track_caller]
pub fn import_refuses(arguments: &[&str]) -> String {
    let output = oribi(arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(output.status.code(), Some(3), "{arguments:?}: {}", text(&output.stderr));
    assert!(text(&output.stderr).contains("rows were refused"), "{}", text(&output.stderr));
    text(&output.stdout)
}

pub struct Server {
    child: Child,
    addresses: HashMap<String, String>,
}

impl Server {
    /// Starts a server on free ports and waits until it is ready.
    #[track_caller]
    pub fn start(data: &Path, flags: &[&str]) -> Server {
        let mut child = Server::command(data).args(flags).stdout(Stdio::piped()).spawn().unwrap();
        let mut addresses = HashMap::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["listening", door, address] => drop(addresses.insert(door.to_owned(), address.to_owned())),
                ["ready"] => return Server { child, addresses },
                _ => panic!("unexpected line {line:?}"),
            }
        }
        panic!("the server ended: {}", child.wait().unwrap());
    }

    pub fn command(data: &Path) -> Command {
        // A session of its own, as an operator's is: the kernel shares the processor among sessions, and queries yield within
        // theirs. Should the test be killed, the kernel ends the server; else Drop does.
        let mut command = Command::new("setsid");
        command
            .args(["setpriv", "--pdeathsig", "KILL", ORIBI, "serve"])
            .arg("--data")
            .arg(data)
            .args(["--log", "warn"]);
        let kudu = ["--kudu-master", "--kudu-tserver"];
        for door in ["--memcached", "--couchbase", "--postgres", "--flight", "--http"].into_iter().chain(kudu)
        {
            command.args([door, "127.0.0.1:0"]);
        }
        command
    }

    pub fn address(&self, door: &str) -> &str {
        &self.addresses[door]
    }

    pub fn doors(&self) -> usize {
        self.addresses.len()
    }

    /// What `/metrics` says of one; 0 if it says nothing.
    pub fn metric(&self, name: &str) -> f64 {
        let mut socket = TcpStream::connect(self.address("http")).unwrap();
        write!(socket, "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        socket.read_to_string(&mut page).unwrap();
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map_or(0.0, |value| value.parse().unwrap())
    }

    pub fn memcached(&self) -> Memcached {
        Memcached::connect(self.address("memcached"))
    }

    pub fn terminate(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.child.wait().unwrap()
    }

    /// Sends the process a signal: `STOP`, `CONT`.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    /// Ends the process without warning (SIGKILL).
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that failed leaves no process behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection to the memcached door.
pub struct Memcached {
    reader: BufReader<TcpStream>,
}

impl Memcached {
    pub fn connect(address: &str) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        Memcached { reader: BufReader::new(socket) }
    }

    /// Sends a request and reads the one line that answers it.
    pub fn ask(&mut self, request: &str) -> std::io::Result<String> {
        self.reader.get_mut().write_all(request.as_bytes())?;
        self.line()
    }

    pub fn set(&mut self, key: &str, value: &str) -> std::io::Result<String> {
        self.ask(&format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()))
    }

    pub fn delete(&mut self, key: &str) -> std::io::Result<String> {
        self.ask(&format!("delete {key}\r\n"))
    }

    pub fn get(&mut self, key: &str) -> std::io::Result<Option<String>> {
        let head = self.ask(&format!("get {key}\r\n"))?;
        if head == "END" {
            return Ok(None);
        }
        let length: usize = head.rsplit(' ').next().unwrap().parse().unwrap();
        let mut value = vec![0; length + 2];
        self.reader.read_exact(&mut value)?;
        assert_eq!(self.line()?, "END");
        value.truncate(length);
        Ok(Some(String::from_utf8(value).unwrap()))
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

/// A connection to the Couchbase door that has selected the default bucket.
pub struct Couchbase(TcpStream);

impl Couchbase {
    pub fn connect(address: &str) -> Self {
        let mut door = Couchbase(TcpStream::connect(address).unwrap());
        door.0.set_nodelay(true).unwrap();
        assert_eq!(door.ask(0x89, &[], &[], "default", "").unwrap(), 0);
        door
    }

    /// Stores a document; acknowledged once it is persisted. Returns the status.
    pub fn set(&mut self, key: &str, value: &str) -> std::io::Result<u16> {
        self.ask(0x01, &[0x11, 0x03], &[0; 8], key, value)
    }

    pub fn delete(&mut self, key: &str) -> std::io::Result<u16> {
        self.ask(0x04, &[0x11, 0x02], &[], key, "")
    }

    /// Sends a request with framing extras, and reads its answer for the status.
    fn ask(
        &mut self,
        opcode: u8,
        frames: &[u8],
        extras: &[u8],
        key: &str,
        value: &str,
    ) -> std::io::Result<u16> {
        let body = [frames, extras, key.as_bytes(), value.as_bytes()].concat();
        let mut request =
            vec![0x08, opcode, frames.len() as u8, key.len() as u8, extras.len() as u8, 0, 0, 0];
        request.extend((body.len() as u32).to_be_bytes());
        request.extend([0; 12]);
        request.extend(body);
        self.0.write_all(&request)?;
        let mut head = [0; 24];
        self.0.read_exact(&mut head)?;
        let body_len = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
        std::io::copy(&mut (&self.0).take(body_len.into()), &mut std::io::sink())?;
        Ok(u16::from_be_bytes([head[6], head[7]]))
    }
}

/// A connection to the PostgreSQL door, with a runtime of its own.
pub struct Sql {
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
}

impl Sql {
    pub fn connect(address: &str) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (host, port) = address.rsplit_once(':').unwrap();
        let url = format!("host={host} port={port} user=oribi dbname=oribi");
        let (client, connection) =
            runtime.block_on(tokio_postgres::connect(&url, tokio_postgres::NoTls)).unwrap();
        runtime.spawn(connection);
        Sql { runtime, client }
    }

    pub fn execute(&self, script: &str) -> Result<(), tokio_postgres::Error> {
        self.runtime.block_on(self.client.batch_execute(script))
    }

    /// How a query ends that is cancelled once `begun` returns.
    pub fn cancelled(&self, query: &str, begun: impl FnOnce()) -> tokio_postgres::Error {
        let token = self.client.cancel_token();
        std::thread::scope(|threads| {
            let asked = threads.spawn(|| self.execute(query).unwrap_err());
            let begun = catch_unwind(AssertUnwindSafe(begun));
            self.runtime.block_on(token.cancel_query(tokio_postgres::NoTls)).unwrap();
            let ended = asked.join().unwrap();
            begun.unwrap_or_else(|panic| resume_unwind(panic));
            ended
        })
    }

    /// The rows of a query, as text.
    pub fn rows(&self, query: &str) -> Vec<Vec<Option<String>>> {
        let messages = self.runtime.block_on(self.client.simple_query(query)).unwrap();
        let row = |message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect())
            }
            _ => None,
        };
        messages.into_iter().filter_map(row).collect()
    }
}
