//! Whom to count at an address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whom to count at an address. An IPv4 address counts itself, also if it is mapped
/// (`::ffff:0:0/96`) or translated (`::ffff:0:0:0/96`, `64:ff9b::/96`) to IPv6. Any other IPv6
/// address counts its network, because one client has all of a network's addresses. `prefix` is the
/// length of the network's prefix, usually 64 and at most 128. The text is written as in RFC 5952.
///
/// ```
/// use tower_redis_ratelimit::network_of;
///
/// assert_eq!(network_of("203.0.113.9".parse()?, 64), "203.0.113.9");
/// assert_eq!(network_of("::ffff:203.0.113.9".parse()?, 64), "203.0.113.9");
/// assert_eq!(network_of("2001:db8:1:2:3:4:5:6".parse()?, 64), "2001:db8:1:2::/64");
/// # Ok::<_, std::net::AddrParseError>(())
/// ```
pub fn network_of(address: IpAddr, prefix: u8) -> String {
    let address = match address {
        IpAddr::V4(address) => return address.to_string(),
        IpAddr::V6(address) => address,
    };
    let (segments, [.., a, b, c, d]) = (address.segments(), address.octets());
    if let [0, 0, 0, 0, 0, 0xffff, ..]
    | [0, 0, 0, 0, 0xffff, 0, ..]
    | [0x64, 0xff9b, 0, 0, 0, 0, ..] = segments
    {
        return Ipv4Addr::new(a, b, c, d).to_string();
    }
    let prefix = prefix.min(128);
    let host = u128::MAX.checked_shr(prefix.into()).unwrap_or(0);
    let network = (address.to_bits() & !host).to_be_bytes();
    format!("{}/{prefix}", Ipv6Addr::from(network))
}

/// Whom to count at an address in text, such as that of a proxy's field, with or without a port:
/// see [`network_of`]. A text that is no address is returned as it is, and an empty one as
/// `unknown`.
///
/// ```
/// use tower_redis_ratelimit::network;
///
/// assert_eq!(network("203.0.113.9:5678", 64), "203.0.113.9");
/// assert_eq!(network("[2001:db8::1]:80", 64), "2001:db8::/64");
/// assert_eq!(network("2001:db8:1:2::1", 56), "2001:db8:1::/56");
/// assert_eq!(network("", 64), "unknown");
/// ```
pub fn network(given: &str, prefix: u8) -> String {
    match address_in(given) {
        Some(address) => network_of(address, prefix),
        None if given.is_empty() => "unknown".to_string(),
        None => given.to_string(),
    }
}

/// The address in a text, which may have brackets, a zone and a port.
fn address_in(given: &str) -> Option<IpAddr> {
    let (host, port) = match given.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => match given.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, given.get(host.len()..)?),
            _ => (given, ""),
        },
    };
    let is_port =
        |text: &str| text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    let is_whole = port.is_empty() || is_port(port);
    let without_zone = host.split('%').next()?;
    without_zone.parse().ok().filter(|_| is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_clients_count_the_same_networks() {
        let all: serde_json::Value =
            serde_json::from_str(include_str!("../../cases/addresses.json")).unwrap();
        for case in all["cases"].as_array().unwrap() {
            let prefix = case["prefix"].as_u64().map_or(64, |prefix| prefix.try_into().unwrap());
            let given = case["given"].as_str().unwrap_or_default();
            assert_eq!(Some(&network(given, prefix)[..]), case["network"].as_str(), "{case}");
        }
        assert_eq!(network("ffff::9", 200), "ffff::9/128");
    }
}
