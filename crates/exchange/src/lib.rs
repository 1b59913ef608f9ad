//! One query over several processes: the only crate that names datafusion-distributed.
//!
//! The process that owns the tables plans a query ([`Coordinator`]), and cuts the plan into stages of tasks where rows change their
//! places. Tasks run in [compute nodes](ComputeNode), which read the files of the owner's folder, are sent what the owner has in memory,
//! and send rows to each other. Plans travel with all that changes an answer, or the query stays where it is ([`plans`]). Between nodes is
//! one gRPC port, behind a [secret](secret).

mod channels;
mod codec;
mod compute;
mod coordinator;
mod door;
mod expressions;
mod given;
mod guarded;
mod measured;
mod members;
mod owner;
mod plans;
mod runtime_filters;
mod secret;
mod sent;
mod status;
mod taken;

pub use compute::{ComputeNode, ComputeOptions};
pub use coordinator::{Coordinator, ExchangeOptions};
pub use owner::OwnerDoor;
pub use secret::{Secret, bind};
pub use sent::{SentPlans, asks_for_rows};

use oribi_types::{Error, Result};
use std::str::FromStr;
use url::{Host, Url};

/// Whether this is an address of the loopback device.
fn is_near(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// What a query says to its tasks about [`Local`].
const LOCAL_HEADER: &str = "x-oribi-exchange-local";

/// Which query a task is of, where it tells the owner what its joins learn.
const QUERY_HEADER: &str = "x-oribi-query";

/// How rows go to a task of the same process: what is no handover is for measurements alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Local {
    /// Batches are handed over as they are.
    #[default]
    Handover,
    /// Over the loopback device, as to another process, but not compressed.
    Loopback,
    /// As to any other process.
    LoopbackCompressed,
}

impl Local {
    const WORDS: [(&str, Local); 3] = [
        ("handover", Local::Handover),
        ("loopback", Local::Loopback),
        ("loopback_compressed", Local::LoopbackCompressed),
    ];

    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, local)| *local == self).map_or("", |(word, _)| word)
    }
}

impl FromStr for Local {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::WORDS.iter().find(|(word, _)| *word == text).map(|(_, local)| *local);
        found.ok_or_else(|| Error::invalid("is neither handover nor loopback nor loopback_compressed"))
    }
}

/// How rows are compressed on their way to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Compression {
    Lz4 = 0,
    Zstd = 1,
    None = 2,
}

impl Compression {
    /// The one that is chosen; `None` for `auto`, which is [what suits](Self::between) the nodes.
    ///
    /// # Errors
    /// `Invalid` for another word.
    pub fn chosen(text: &str) -> Result<Option<Self>> {
        match text {
            "auto" => Ok(None),
            _ => text
                .parse()
                .map(Some)
                .map_err(|_| Error::invalid("is neither auto nor lz4 nor zstd nor none")),
        }
    }

    /// None if all are on this machine, where bytes are quicker sent than compressed: TPC-H at scale 1 took 1.37 times as long as in one
    /// process, and 1.42 times with LZ4.
    fn between(nodes: &[Url]) -> Self {
        if nodes.iter().all(is_near) { Compression::None } else { Compression::Lz4 }
    }
}

impl FromStr for Compression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "lz4" => Ok(Compression::Lz4),
            "zstd" => Ok(Compression::Zstd),
            "none" => Ok(Compression::None),
            _ => Err(Error::invalid("is neither lz4 nor zstd nor none")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_between_machines_are_compressed() {
        let urls = |hosts: &[&str]| -> Vec<Url> {
            hosts.iter().map(|host| Url::parse(&format!("http://{host}:7000")).unwrap()).collect()
        };
        let near = urls(&["127.0.0.1", "127.0.0.2", "[::1]", "localhost"]);
        assert_eq!(Compression::between(&near), Compression::None);
        for host in ["10.0.0.1", "[fe80::1]", "example.com"] {
            assert_eq!(Compression::between(&urls(&["127.0.0.1", host])), Compression::Lz4, "{host}");
        }
    }

    #[test]
    fn compression_is_chosen_by_its_name() {
        let (lz4, zstd) = (Some(Compression::Lz4), Some(Compression::Zstd));
        let words = [("auto", None), ("lz4", lz4), ("zstd", zstd), ("none", Some(Compression::None))];
        for (word, chosen) in words {
            assert_eq!(Compression::chosen(word).unwrap(), chosen);
        }
        assert!(Compression::chosen("snappy").unwrap_err().message().contains("auto"));
    }
}
