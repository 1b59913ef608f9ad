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

/// Whether who is found there is on this machine.
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
    /// The one that is chosen, or `auto`: LZ4 between machines, and none between processes of one, where bytes are quicker sent than compressed.
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
