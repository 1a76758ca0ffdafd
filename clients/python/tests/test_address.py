import pytest

from rl_limits import network


@pytest.mark.parametrize(
    "address, counted",
    [
        ("203.0.113.9", "203.0.113.9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("2001:DB8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8::1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
        ("", ""),
    ],
)
def test_whom_to_count(address: str, counted: str) -> None:
    assert network(address) == counted
