//! Where a bucket is, if that is not Amazon's.

use oribi_types::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv6Addr};

/// Whether an endpoint, `http://host:port` or `https://host`, is reached without TLS.
///
/// # Errors
/// `Invalid` for what is none; `Forbidden` for one beyond loopback without TLS.
pub(super) fn is_plain(url: &str) -> Result<bool> {
    let invalid = || Error::invalid(format!("{} is no address such as https://s3.example.com", shown(url)));
    let (is_plain, rest) = parts(url).ok_or_else(invalid)?;
    let host = host(rest.trim_end_matches('/')).ok_or_else(invalid)?;
    if is_plain && !is_loopback(host) {
        let url = shown(url);
        let message = format!("{url} is beyond loopback: others could read rows on their way; use https");
        return Err(Error::new(ErrorKind::Forbidden, message));
    }
    Ok(is_plain)
}

/// Keys, which an address of the variable `name` gives, come by TLS, or do not leave the machine and what is linked to it.
///
/// # Errors
/// `Invalid` for what is no address; `Forbidden` for one beyond that without TLS.
pub(super) fn check_keys_come_from_near(name: &str, url: &str) -> Result<()> {
    let invalid = || Error::invalid(format!("{name}: {} is no address", shown(url)));
    let (is_plain, rest) = parts(url).ok_or_else(invalid)?;
    let host = host(rest.split(['/', '?', '#']).next().unwrap_or_default()).ok_or_else(invalid)?;
    if is_plain && !is_loopback(host) && !is_link_local(host) {
        let message =
            format!("{name}: {} is beyond the machine: others could read keys on their way", shown(url));
        return Err(Error::new(ErrorKind::Forbidden, message));
    }
    Ok(())
}

/// Whether it is without TLS, and what comes behind the scheme.
fn parts(url: &str) -> Option<(bool, &str)> {
    let secure = url.strip_prefix("https://").map(|rest| (false, rest));
    secure.or_else(|| url.strip_prefix("http://").map(|rest| (true, rest)))
}

/// The host of `host:port`, or of `host`.
fn host(authority: &str) -> Option<&str> {
    let (host, port) = match authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
        Some((host, port)) => (host, port),
        None => (authority, "0"),
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
    let is_whole = !host.is_empty() && host.chars().all(is_host) && port.parse::<u16>().is_ok();
    is_whole.then_some(host)
}

fn ip(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok()
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || ip(host).is_some_and(|ip| ip.is_loopback())
}

/// Also the address by which Amazon's machines give keys to pods where there is no IPv4.
fn is_link_local(host: &str) -> bool {
    const OF_PODS: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23);
    match ip(host) {
        Some(IpAddr::V4(ip)) => ip.is_link_local(),
        Some(IpAddr::V6(ip)) => ip.is_unicast_link_local() || ip == OF_PODS,
        None => false,
    }
}

/// An address as errors say it: without who asks, which may be a secret, as what it is asked for may be.
fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let rest = rest.split('?').next().unwrap_or_default();
    if scheme.is_empty() { rest.to_owned() } else { format!("{scheme}://{rest}") }
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

    #[test]
    fn keys_come_from_near_or_by_tls() {
        let check = |url| check_keys_come_from_near("AWS_X", url).map_err(|error| error.kind());
        for near in [
            "http://169.254.170.23/v1/credentials?a=b:c",
            "http://[fd00:ec2::23]/v1",
            "http://[fe80::1]:80",
            "http://127.0.0.1:1234/x",
            "http://localhost",
            "https://keys.example.com/x",
        ] {
            assert_eq!(check(near), Ok(()), "{near}");
        }
        for far in
            ["http://10.0.0.1/x", "http://keys.example.com", "http://[fd00:ec2::24]/", "http://169.255.0.1"]
        {
            assert_eq!(check(far), Err(ErrorKind::Forbidden), "{far}");
        }
        for none in ["", "127.0.0.1", "http://", "http://127.0.0.1@far/", "http://a\\b/"] {
            assert_eq!(check(none), Err(ErrorKind::Invalid), "{none}");
        }
    }

    #[test]
    fn no_error_says_who_asks() {
        for url in [
            "https://who:secret@s3.example.com",
            "who:secret@a",
            "http://who:sec/secret@10.0.0.1?secret",
            "ftp://secret@a",
        ] {
            let said = [is_plain(url).unwrap_err(), check_keys_come_from_near("AWS_X", url).unwrap_err()];
            assert!(said.iter().all(|error| !error.to_string().contains("secret")), "{url}: {said:?}");
        }
    }
}
