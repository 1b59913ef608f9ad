//! Listening sockets of the doors: loopback only.

use oribi_types::{Error, Result};
use socket2::{Domain, Protocol, Socket, Type};
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

/// Listens on `addr` with `sockets` sockets, nonblocking, among which the kernel spreads the connections. Port 0 takes
/// a free one, the same for all.
///
/// # Errors
/// Those of [`bind`].
pub fn bind_each(addr: SocketAddr, sockets: usize) -> Result<Vec<TcpListener>> {
    // Sockets that share an address share it with whoever else does. One that does not share finds out whether anybody
    // is there.
    let exclusive = bind(&addr.to_string())?;
    let addr = exclusive.local_addr()?;
    drop(exclusive);
    let listen = || -> std::io::Result<TcpListener> {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&addr.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    let listeners = (0..sockets).map(|_| listen()).collect::<std::io::Result<Vec<_>>>();
    listeners.map_err(|e| Error::unavailable(format!("address {addr}: {e}")))
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
        assert_eq!(bind_each(addr, 2).unwrap_err().kind(), ErrorKind::Forbidden);
        assert_eq!(bind("127.0.0.1").unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn sockets_share_a_port_among_themselves_only() {
        let listeners = bind_each("127.0.0.1:0".parse().unwrap(), 3).unwrap();
        let addr = listeners[0].local_addr().unwrap();
        assert!(listeners.iter().all(|l| l.local_addr().unwrap() == addr));
        assert_eq!(bind_each(addr, 1).unwrap_err().kind(), ErrorKind::Unavailable);
    }
}
