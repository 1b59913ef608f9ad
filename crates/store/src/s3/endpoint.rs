//! Where a bucket is, if that is not Amazon's.

use oribi_types::{Error, ErrorKind, Result};

/// Whether an endpoint, `http://host:port` or `https://host`, is reached without TLS.
///
/// # Errors
/// `Invalid` for what is none; `Forbidden` for one beyond loopback without TLS.
pub(super) fn is_plain(url: &str) -> Result<bool> {
    let invalid = || Error::invalid(format!("{url} is no address such as https://s3.example.com"));
    let (is_plain, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => (false, rest),
        (_, Some(rest)) => (true, rest),
        _ => return Err(invalid()),
    };
    let authority = rest.trim_end_matches('/');
    let (host, port) = match authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
        Some((host, port)) => (host, port),
        None => (authority, "0"),
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
    if host.is_empty() || !host.chars().all(is_host) || port.parse::<u16>().is_err() {
        return Err(invalid());
    }
    let is_near = |ip: std::net::IpAddr| ip.is_loopback();
    let is_loopback = host == "localhost" || host.trim_matches(['[', ']']).parse().is_ok_and(is_near);
    if is_plain && !is_loopback {
        let message = format!("{url} is beyond loopback: others could read rows on their way; use https");
        return Err(Error::new(ErrorKind::Forbidden, message));
    }
    Ok(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_reached_without_tls() {
        for near in ["http://127.0.0.1:9000", "http://localhost/", "http://[::1]:80"] {
            assert!(is_plain(near).unwrap(), "{near}");
        }
        for secure in ["https://s3.example.com", "https://10.0.0.1:9000/"] {
            assert!(!is_plain(secure).unwrap(), "{secure}");
        }
        let kind = |url| is_plain(url).unwrap_err().kind();
        for far in ["http://10.0.0.1:9000", "http://s3.example.com", "http://localhost.example.com"] {
            assert_eq!(kind(far), ErrorKind::Forbidden, "{far}");
        }
        for none in
            ["", "s3.example.com", "ftp://a", "https://", "http://127.0.0.1@a", "https://a:b", "https://a/b"]
        {
            assert_eq!(kind(none), ErrorKind::Invalid, "{none}");
        }
    }
}
