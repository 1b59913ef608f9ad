//! Listening sockets of the doors: loopback only.

use oribi_types::{Error, Result};
use socket2::SockRef;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

/// Listens on `addr` (`host:port`; port 0 takes a free one).
///
/// # Errors
/// `Invalid` for an address that does not resolve, `Forbidden` for one that is not loopback, `Unavailable` if it is
/// taken.
pub fn bind(addr: &str) -> Result<TcpListener> {
    let resolved: Vec<SocketAddr> =
        addr.to_socket_addrs().map_err(|e| Error::invalid(format!("address {addr}: {e}")))?.collect();
    if resolved.is_empty() {
        return Err(Error::invalid(format!("address {addr} resolves to nothing")));
    }
    for addr in &resolved {
        require_loopback(addr)?;
    }
    TcpListener::bind(resolved.as_slice()).map_err(|e| Error::unavailable(format!("address {addr}: {e}")))
}

/// Listens on `addr` as [`bind`] does, nonblocking, and for many clients at once.
///
/// # Errors
/// Those of [`bind`].
pub fn bind_door(addr: SocketAddr) -> Result<TcpListener> {
    let listener = bind(&addr.to_string())?;
    // To listen again is to change the backlog.
    SockRef::from(&listener).listen(BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Connections that the kernel keeps for a socket until they are accepted.
const BACKLOG: i32 = 1024;

fn require_loopback(addr: &SocketAddr) -> Result<()> {
    if addr.ip().is_loopback() {
        return Ok(());
    }
    Err(Error::new(
        oribi_types::ErrorKind::Forbidden,
        format!(
            "address {addr} is not loopback: there is no authentication yet, so whoever reaches a door owns the data; \
             listen on 127.0.0.1 or [::1]"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use oribi_types::ErrorKind;

    #[test]
    fn binds_loopback_and_refuses_everything_else() {
        let listener = bind("127.0.0.1:0").unwrap();
        let taken = listener.local_addr().unwrap();
        assert!(taken.ip().is_loopback());
        assert_ne!(taken.port(), 0);
        assert_eq!(bind(&taken.to_string()).unwrap_err().kind(), ErrorKind::Unavailable);
        for open in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
            let error = bind(open).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Forbidden);
            assert!(error.message().contains("authentication"), "{error}");
        }
        let addr = "0.0.0.0:0".parse().unwrap();
        assert_eq!(bind_door(addr).unwrap_err().kind(), ErrorKind::Forbidden);
        assert_eq!(bind("127.0.0.1").unwrap_err().kind(), ErrorKind::Invalid);
    }
}
