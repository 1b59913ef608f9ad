//! The compute nodes that are there: each says so again and again.

use oribi_types::{Error, Result};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use url::Url;

/// How far apart a node says that it is there, and after which silence it is not.
pub(crate) const HELLOS_APART: Duration = Duration::from_millis(500);
const SILENCE_MAX: Duration = Duration::from_secs(3);

#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) url: Url,
}

#[derive(Default)]
pub(crate) struct Members(Mutex<BTreeMap<String, (Url, Instant)>>);

impl Members {
    /// # Errors
    /// `AlreadyExists` if another node of this name is there.
    pub(crate) fn note(&self, name: &str, url: Url, now: Instant) -> Result<()> {
        let mut members = self.lock();
        if let Some((other, heard)) = members.get(name)
            && *other != url
            && now.duration_since(*heard) < SILENCE_MAX
        {
            return Err(Error::already_exists(format!("a node {name}, at {other}, is in this cluster")));
        }
        if members.insert(name.to_owned(), (url, now)).is_none() {
            tracing::info!(name, "a compute node has come");
        }
        drop(members);
        // Those who are silent are found by who is not.
        self.present(now);
        Ok(())
    }

    /// Those that are there, by name.
    pub(crate) fn present(&self, now: Instant) -> Vec<Member> {
        let mut members = self.lock();
        members.retain(|name, (_, heard)| {
            let is_there = now.duration_since(*heard) < SILENCE_MAX;
            if !is_there {
                tracing::warn!(name, "a compute node is silent");
            }
            is_there
        });
        metrics::gauge!("oribi_exchange_nodes_count").set(members.len() as f64);
        let member =
            |(name, (url, _)): (&String, &(Url, Instant))| Member { name: name.clone(), url: url.clone() };
        members.iter().map(member).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (Url, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_silent_is_not_there() {
        let (members, begin) = (Members::default(), Instant::now());
        let url = |port: u16| Url::parse(&format!("http://127.0.0.1:{port}")).unwrap();
        let names = |now| members.present(now).into_iter().map(|member| member.name).collect::<Vec<_>>();
        members.note("b", url(2), begin).unwrap();
        members.note("a", url(1), begin + Duration::from_secs(2)).unwrap();
        assert_eq!(names(begin + Duration::from_secs(2)), ["a", "b"]);
        assert!(members.note("a", url(3), begin + Duration::from_secs(3)).is_err(), "another of this name");
        assert_eq!(names(begin + Duration::from_secs(4)), ["a"]);
        members.note("a", url(3), begin + Duration::from_secs(9)).unwrap();
        assert_eq!(names(begin + Duration::from_secs(9)), ["a"]);
    }
}
