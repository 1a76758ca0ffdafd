package ratelimit

import (
	"net/netip"
	"strings"
)

// Addresses of IPv6 that stand for one of IPv4: mapped, or translated.
var embedded = []netip.Prefix{
	netip.MustParsePrefix("::ffff:0:0/96"), netip.MustParsePrefix("::ffff:0:0:0/96"), netip.MustParsePrefix("64:ff9b::/96"),
}

// Network is whom to count at an address in text, with or without a port: an IPv4 address itself, also if it is mapped
// or translated to IPv6; of any other IPv6 address the network of this prefix, usually 64, since one client has all of
// its addresses. A text that is no address is returned as it is, and an empty one as "unknown".
func Network(given string, prefix int) string {
	if given == "" {
		return "unknown"
	}
	address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(given, "["), "]"))
	if err != nil || strings.HasPrefix(given, "[") != strings.HasSuffix(given, "]") {
		with, err := netip.ParseAddrPort(given)
		if err != nil {
			return given
		}
		address = with.Addr()
	}
	address = address.WithZone("")
	if address.Is4() {
		return address.String()
	}
	for _, one := range embedded {
		if bytes := address.As16(); one.Addr().As16() == [16]byte(append(bytes[:12:12], 0, 0, 0, 0)) {
			return netip.AddrFrom4([4]byte(bytes[12:])).String()
		}
	}
	network := netip.PrefixFrom(address, min(max(0, prefix), 128)).Masked()
	return network.String()
}
