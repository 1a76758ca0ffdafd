import pytest

from rl_limits import network


@pytest.mark.parametrize(
    "address, counted",
    [
        ("203.0.113.9", "203.0.113.9"),
        ("203.0.113.9:5678", "203.0.113.9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("2001:DB8:1:2:3::4", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::3]:80", "2001:db8:1:2::/64"),
        ("[2001:db8::1]", "2001:db8::/64"),
        ("2001:db8::1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
def test_whom_to_count(address: str | None, counted: str) -> None:
    assert network(address) == counted


def test_a_network_may_be_larger() -> None:
    assert network("2001:db8:1:2::3", 48) == "2001:db8:1::/48"
    assert network("203.0.113.9", 48) == "203.0.113.9"
