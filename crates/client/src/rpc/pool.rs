//! One connection for each server, opened when it is first wanted and again when it broke.

use super::{Connection, Introduction};
use oribi_kudu::messages::common::HostPort;
use oribi_types::{Error, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Holds the lock of its server while it connects, so that all who want the server wait for one connection.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<Connection>>>>;

pub(crate) struct Connections {
    introduction: Introduction,
    slots: Mutex<HashMap<HostPort, Slot>>,
}

impl Connections {
    pub(crate) fn new(introduction: Introduction) -> Self {
        Connections { introduction, slots: Mutex::default() }
    }

    /// `timeout` bounds connecting and negotiating.
    ///
    /// # Errors
    /// `Unavailable` if there is nobody at the address, `Forbidden` if the client is refused.
    pub(crate) async fn get(&self, address: &HostPort, timeout: Duration) -> Result<Arc<Connection>> {
        let slot = {
            let mut slots = self.slots.lock();
            match slots.get(address) {
                Some(slot) => slot.clone(),
                None => slots.entry(address.clone()).or_default().clone(),
            }
        };
        let mut slot = slot.lock().await;
        match &*slot {
            Some(open) if !open.is_closed() => Ok(open.clone()),
            _ => {
                let open = Arc::new(Connection::open(address, &self.introduction, timeout).await?);
                *slot = Some(open.clone());
                Ok(open)
            }
        }
    }
}

/// Reads `host:port`, or `host` with a port to assume; a numeric address of IPv6 stands in brackets.
///
/// # Errors
/// `Invalid` if it is neither.
pub(crate) fn parse_address(text: &str, default_port: u16) -> Result<HostPort> {
    let invalid = || Error::invalid(format!("{text:?} is not an address like host:port"));
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !text.ends_with(']') => (host, port.parse::<u16>().map_err(|_| invalid())?),
        _ => (text, default_port),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.is_empty() {
        true => Err(invalid()),
        false => Ok(HostPort { host: host.to_owned(), port: u32::from(port) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_leave_out_its_port() {
        let parse = |text| parse_address(text, 7051).map(|a| (a.host, a.port));
        assert_eq!(parse("db").unwrap(), ("db".to_owned(), 7051));
        assert_eq!(parse("db:1").unwrap(), ("db".to_owned(), 1));
        assert_eq!(parse("[::1]:80").unwrap(), ("::1".to_owned(), 80));
        assert_eq!(parse("[::1]").unwrap(), ("::1".to_owned(), 7051));
        for text in ["", ":1", "db:x", "db:70000"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
