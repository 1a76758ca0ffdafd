//! Whom an address stands for.

use std::net::{IpAddr, Ipv6Addr};

/// Whom to count at an address: an IPv4 address itself, of an IPv6 address the network that this
/// number of bits, usually 64, tells apart, because one client has all of a network's addresses.
///
/// ```
/// use tower_redis_ratelimit::network_of;
///
/// assert_eq!(network_of("203.0.113.9".parse()?, 64), "203.0.113.9");
/// assert_eq!(network_of("::ffff:203.0.113.9".parse()?, 64), "203.0.113.9");
/// assert_eq!(network_of("2001:db8:1:2:3:4:5:6".parse()?, 64), "2001:db8:1:2::/64");
/// # Ok::<_, std::net::AddrParseError>(())
/// ```
#[must_use]
pub fn network_of(address: IpAddr, prefix: u8) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let prefix = prefix.min(128);
            let host = u128::MAX.checked_shr(prefix.into()).unwrap_or(0);
            format!("{}/{prefix}", Ipv6Addr::from_bits(address.to_bits() & !host))
        }
    }
}

/// Whom to count at an address in text, such as that of a proxy's field, with or without a port: see
/// [`network_of`]. What is no address stands for itself, and nothing for `unknown`.
///
/// ```
/// use tower_redis_ratelimit::network;
///
/// assert_eq!(network("203.0.113.9:5678", 64), "203.0.113.9");
/// assert_eq!(network("[2001:db8::1]:80", 64), "2001:db8::/64");
/// assert_eq!(network("2001:db8:1:2::1", 56), "2001:db8:1::/56");
/// assert_eq!(network("", 64), "unknown");
/// ```
#[must_use]
pub fn network(given: &str, prefix: u8) -> String {
    let host = match given.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inside, _)) => inside,
        None => given
            .split_once(':')
            .filter(|(_, port)| !port.contains(':'))
            .map_or(given, |(host, _)| host),
    };
    let without_zone = host.split('%').next().unwrap_or(host);
    match without_zone.parse() {
        Ok(address) => network_of(address, prefix),
        Err(_) if given.is_empty() => "unknown".to_string(),
        Err(_) => given.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_prefix_is_cut() {
        for (prefix, expected) in [
            (0, "::/0"),
            (1, "8000::/1"),
            (48, "ffff:1:2::/48"),
            (128, "ffff:1:2:3::9/128"),
            (200, "ffff:1:2:3::9/128"),
        ] {
            assert_eq!(network("ffff:1:2:3::9%eth0", prefix), expected);
        }
        assert_eq!(network("/run/app.sock", 64), "/run/app.sock");
    }
}
