//! An owner and compute nodes, as processes of this binary over a folder of their own.

use oribi_types::{Error, Result};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Processes that end with this.
pub struct Cluster {
    /// The owner's PostgreSQL door.
    pub host: String,
    processes: Vec<Child>,
    /// The owner's folder is in it.
    dir: tempfile::TempDir,
}

impl Cluster {
    /// Starts an owner and as many compute nodes as `nodes` says, each with as much memory.
    ///
    /// # Errors
    /// `Unavailable` for a process that does not come up; those of the file system.
    pub fn start(nodes: u8, memory: &str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let mut cluster = Cluster { host: String::new(), processes: Vec::new(), dir };
        let data = cluster.dir.path().join("data");
        let owner = ["--postgres", "127.0.0.1:0", "--nodes-rows-min", "1"];
        let listens = cluster.serve(&data, &[&owner[..], &["--memory", memory]].concat())?;
        let address = |door: &str| listens.iter().find_map(|line| line.strip_prefix(door)?.strip_prefix(' '));
        let missing = || Error::unavailable("the owner says nothing of its doors");
        cluster.host = address("postgres").ok_or_else(missing)?.to_owned();
        let owner = address("nodes").ok_or_else(missing)?;
        for node in 1..=nodes {
            let name = format!("node{node}");
            cluster.serve(&data, &["--owner", owner, "--node", &name, "--memory", memory])?;
        }
        Ok(cluster)
    }

    /// Starts a process and waits until it is ready; what it says of where it listens.
    fn serve(&mut self, data: &Path, flags: &[&str]) -> Result<Vec<String>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("serve").arg("--data").arg(data).args(["--nodes", "127.0.0.1:0", "--log", "warn"]);
        for door in ["--memcached", "--couchbase", "--kudu-master", "--kudu-tserver", "--flight", "--http"] {
            command.args([door, "off"]);
        }
        let mut process = command.args(flags).stdout(Stdio::piped()).spawn()?;
        let said = process.stdout.take();
        self.processes.push(process);
        let lines = said.into_iter().flat_map(|said| BufReader::new(said).lines());
        let mut listens = Vec::new();
        for line in lines {
            match line? {
                line if line == "ready" => return Ok(listens),
                line => listens.extend(line.strip_prefix("listening ").map(str::to_owned)),
            }
        }
        Err(Error::unavailable(format!("oribi serve {}: it ended", flags.join(" "))))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
