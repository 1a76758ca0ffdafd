//! Whom an address stands for.

use std::net::{IpAddr, Ipv6Addr};

/// The address to count: an IPv4 address as it is, of an IPv6 address its /64 network, because one
/// client has all of that network's addresses.
///
/// ```
/// use tower_redis_ratelimit::network_of;
///
/// assert_eq!(network_of("203.0.113.9".parse()?), "203.0.113.9");
/// assert_eq!(network_of("::ffff:203.0.113.9".parse()?), "203.0.113.9");
/// assert_eq!(network_of("2001:db8:1:2:3:4:5:6".parse()?), "2001:db8:1:2::/64");
/// # Ok::<_, std::net::AddrParseError>(())
/// ```
#[must_use]
pub fn network_of(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}
