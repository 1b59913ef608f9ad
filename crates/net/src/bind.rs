//! Listening sockets of the doors: loopback only, and what those that are accepted have from them.

use oribi_types::{Error, ErrorKind, Result};
use socket2::SockRef;
use std::net::{SocketAddr, TcpListener};

/// Connections that the kernel keeps for a socket until they are accepted.
const BACKLOG: i32 = 1024;

/// What the kernel takes of answers beyond what it may send. By itself it would take megabytes for each client, which count nowhere: copies
/// for a thousand that do not read keep the processors busy, and fill what the kernel has for all sockets, so that everybody waits.
const UNSENT_BYTES_MAX: u32 = 128 << 10;

/// Listens on `addr` (port 0 takes a free one), for many clients at once.
///
/// # Errors
/// `Forbidden` for an address that is not loopback, `Unavailable` for one that is taken.
pub fn bind(addr: SocketAddr) -> Result<TcpListener> {
    require_loopback(addr)?;
    let listener = TcpListener::bind(addr).map_err(|e| Error::unavailable(format!("address {addr}: {e}")))?;
    let socket = SockRef::from(&listener);
    // Those that are accepted have it too.
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    // To listen again is to change the backlog.
    socket.listen(BACKLOG)?;
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
    use socket2::{Domain, Socket, Type};
    use std::io::{ErrorKind as IoErrorKind, Write};

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

    #[test]
    fn the_kernel_takes_little_for_a_client_that_does_not_read() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        client.set_recv_buffer_size(4096).unwrap();
        client.connect(&listener.local_addr().unwrap().into()).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        accepted.set_nonblocking(true).unwrap();
        let answer = vec![7; 64 << 10];
        let mut taken = 0;
        loop {
            match accepted.write(&answer) {
                Ok(bytes) => taken += bytes,
                Err(error) => {
                    assert_eq!(error.kind(), IoErrorKind::WouldBlock);
                    break;
                }
            }
        }
        assert!((1..4 * UNSENT_BYTES_MAX as usize).contains(&taken), "{taken} bytes");
    }
}
