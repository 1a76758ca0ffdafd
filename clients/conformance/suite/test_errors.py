"""What a server's error says of the server: it cannot serve now, it does not limit, or only this command is wrong."""

from __future__ import annotations

from typing import Any

import pytest

import servers
from drivers import Driver, Failed
from proxy import Proxy

#: The server cannot serve now.
OUTAGES = [
    "LOADING Redis is loading the dataset in memory",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "NOREPLICAS Not enough good replicas to write.",
    "READONLY You can't write against a read only replica.",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "UNBLOCKED client unblocked via CLIENT UNBLOCK",
    "CLUSTERDOWN The cluster is down",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "ERR max number of clients reached",
    "ERR this replica skipped effects of version 2",
    "ERR internal error, see the server's log",
]

LOAD = "load the module: loadmodule libredis_ratelimit.so, see INSTALL.md; or choose engine='script'"
PASSWORD = "give the client the password"
RIGHTS = "give the user the rights +@ratelimit ~keys, see SECURITY.md"
SCRIPTS_RIGHTS = "give the user the rights +eval +evalsha +get +set +del +time ~keys, see clients.md"
#: The server does not limit, and what to do about it.
MISCONFIGURED = {
    "ERR unknown command 'RL.CHECK', with args beginning with: 'a' '5/m' ": LOAD,
    "ERR unknown command `rl.mcheck`, with args beginning with: `2`, `a`, ": LOAD,
    "ERR unknown command 'RL.SETTLE', with args beginning with: 'a' 'id' ": LOAD,
    "NOAUTH Authentication required.": PASSWORD,
    "WRONGPASS invalid username-password pair or user is disabled.": PASSWORD,
    "NOPERM this user has no permissions to run the 'rl.check' command or its subcommand": RIGHTS,
    "NOPERM User app has no permissions to run the 'rl.mcheck' command": RIGHTS,
    "NOPERM User app has no permissions to run the 'rl.peek' command": RIGHTS,
    "NOPERM User app has no permissions to run the 'rl.wait' command": RIGHTS,
    "NOPERM User app has no permissions to run the 'cluster|slots' command": RIGHTS,
    "NOPERM this user has no permissions to access one of the keys used as arguments": RIGHTS,
    "NOPERM No permissions to access a key": RIGHTS,
    "NOPERM this user has no permissions to run the 'evalsha' command or its subcommand": SCRIPTS_RIGHTS,
    "NOPERM User app has no permissions to run the 'eval' command": SCRIPTS_RIGHTS,
}
#: Only this command is wrong, or forbidden.
FAULTS = [
    "NOPERM this user has no permissions to run the 'rl.reset' command or its subcommand",
    "NOPERM User app has no permissions to run the 'rl.refund' command",
    "NOPERM User app has no permissions to run the 'rl.settle' command",
    "NOPERM User app has no permissions to run the 'rl.renew' command",
    "NOPERM User app has no permissions to run the 'rl.pause' command",
    "NOPERM User app has no permissions to run the 'rl.plan' command",
    "NOPERM User app has no permissions to run the 'rl.info' command",
    "ERR unknown command 'RL.CHEKC', with args beginning with: 'a' ",
    "ERR unknown command 'JSON.GET', with args beginning with: 'a' ",
    "CROSSSLOT Keys in request don't hash to the same slot",
    "WRONGTYPE Operation against a key holding the wrong kind of value",
    "EXECABORT Transaction discarded because of previous errors.",
    "ERR rule '5/x': the period 'x' has no known unit",
    "ERR rule 'slots:1': slots are held, give HOLD id EX seconds",
]


@pytest.fixture
def answered(shared: Driver, proxy: Proxy, key: str) -> Any:
    """The answers of limiters to a check that gets an error reply: with `allow`, and with `raise`."""

    def answer(reply: str) -> tuple[Any, Any, list[dict[str, Any]], Any]:
        allows, raises = shared.limiter(proxy.url, outage="allow"), shared.limiter(proxy.url)
        with proxy.rubbish(f"-{reply}\r\n".encode()):
            found = []
            for limiter in allows, raises:
                try:
                    found.append(limiter.check(key, "5/s"))
                except Failed as error:
                    found.append(error)
        told, state = allows.events("misconfigured"), allows("state")
        allows.close()
        raises.close()
        return found[0], found[1], told, state

    return answer


@pytest.mark.parametrize("reply", OUTAGES)
def test_an_error_of_a_server_that_cannot_serve_is_an_outage_of_its_own_request(answered: Any, reply: str) -> None:
    allowed, raised, told, state = answered(reply)
    assert (allowed["verdict"], allowed["source"]) == ("allowed", "outage")
    assert raised.outage
    assert not told
    assert state == {"away": False, "outages": 1} or reply.startswith("ERR max number")


@pytest.mark.parametrize(("reply", "advice"), MISCONFIGURED.items())
def test_an_error_of_a_server_that_does_not_limit_says_what_to_do(answered: Any, reply: str, advice: str) -> None:
    allowed, raised, told, _ = answered(reply)
    assert (allowed["verdict"], allowed["source"]) == ("allowed", "outage")
    assert raised.outage
    assert [event["advice"] for event in told] == [advice]


@pytest.mark.parametrize("reply", FAULTS)
def test_an_error_of_the_request_is_raised(answered: Any, reply: str) -> None:
    allowed, raised, told, state = answered(reply)
    assert not allowed.outage
    assert not raised.outage
    assert reply.removeprefix("ERR ").partition(" ")[2][:10] in raised.text
    assert not told
    assert state == {"away": False, "outages": 0}


def test_a_wrong_server_is_reported_once_a_minute(shared: Driver, proxy: Proxy, key: str) -> None:
    limiter = shared.limiter(proxy.url, outage="allow")
    with proxy.rubbish(b"-NOAUTH Authentication required.\r\n"):
        for _ in range(50):
            assert limiter.check(key, "5/s")["source"] == "outage"
    assert len(limiter.events("misconfigured")) == 1
    assert limiter.check(key, "5/s")["source"] == "server"
    limiter.close()


def test_max_clients_is_a_node_that_is_away(driver: Driver, own_server: Any, key: str) -> None:
    with own_server.client() as client:
        client.config_set("maxclients", 1)
        limiter = driver.limiter(own_server.url, outage="allow")
        assert limiter.check(key, "5/s")["source"] == "outage"
        assert limiter("state")["away"]
        client.config_set("maxclients", 1000)
        servers.until(lambda: limiter.check(key, "1000/s")["source"] == "server")
