//! Listening sockets of the doors: loopback only.

use oribi_types::{Error, ErrorKind, Result};
use socket2::SockRef;
use std::net::{SocketAddr, TcpListener};

/// Connections that the kernel keeps for a socket until they are accepted.
const BACKLOG: i32 = 1024;

/// Listens on `addr` (port 0 takes a free one), for many clients at once.
///
/// # Errors
/// `Forbidden` for an address that is not loopback, `Unavailable` for one that is taken.
pub fn bind(addr: SocketAddr) -> Result<TcpListener> {
    require_loopback(addr)?;
    let listener = TcpListener::bind(addr).map_err(|e| Error::unavailable(format!("address {addr}: {e}")))?;
    // To listen again is to change the backlog.
    SockRef::from(&listener).listen(BACKLOG)?;
    Ok(listener)
}

fn require_loopback(addr: SocketAddr) -> Result<()> {
    if addr.ip().is_loopback() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Forbidden,
        format!(
            "address {addr} is not loopback: there is no authentication yet, so whoever reaches a door owns the data; \
             listen on 127.0.0.1 or [::1]"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binds_loopback_and_refuses_everything_else() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let taken = listener.local_addr().unwrap();
        assert!(taken.ip().is_loopback());
        assert_ne!(taken.port(), 0);
        assert_eq!(bind(taken).unwrap_err().kind(), ErrorKind::Unavailable);
        for open in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
            let error = bind(open.parse().unwrap()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Forbidden);
            assert!(error.message().contains("authentication"), "{error}");
        }
    }
}
