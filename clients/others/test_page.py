"""The programs beside this file, each run as a user would.

A program checks `login:42` with `5/h` on port 6379, and prints the HTTP status and the seconds for Retry-After. A
program for a cluster checks six keys, and prints the replies.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import servers

PAGE = (servers.ROOT / "docs/guide/clients.md").read_text()
PROGRAMS = servers.ROOT / ".cache/languages/bin"
OTHERS = Path(__file__).parent
OWN = OTHERS / "programs"
SHELL = "redis-cli"
#: Each client, its program in programs/, and what starts that.
CLIENTS = {
    SHELL: ("sh", "check.sh"),
    "Python": ("python3", "redis_py.py"),
    "PHP: phpredis": ("php", "phpredis.php"),
    "PHP: Predis": ("php", "predis.php"),
    "Ruby": ("ruby", "redis_rb.rb"),
    "Go: redigo": ("go", "redigo.go"),
}
#: Shorter than any library's default time-out; a busy machine starts programs late.
SOON_S = 3


class Ended(NamedTuple):
    status: int
    printed: str
    logged: str
    took_s: float


Run = Callable[[str, str], Ended]


def program(client: str) -> str:
    return (OWN / CLIENTS[client][1]).read_text()


def patient(code: str) -> str:
    """A busy machine may take longer than an application should wait."""
    return re.sub(r"(?<![\d.])0\.(1|25)\b", "9", code).replace("100 * time.Milli", "9000 * time.Milli")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "redis-cli").symlink_to(servers.SERVERS / "redis-7.0/cli")
    environment = {**os.environ, "PATH": f"{tmp_path}:{PROGRAMS}:{os.environ['PATH']}"}

    def run(client: str, code: str) -> Ended:
        command = [*CLIENTS[client]]
        (tmp_path / command[1]).write_text(code)
        if command[0] == "go":
            built = [PROGRAMS / "go", "build", "-o", "check", command[1]]
            subprocess.run(built, cwd=tmp_path, check=True)
            command = [str(tmp_path / "check")]
        before = time.monotonic()
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50)
        return Ended(done.returncode, done.stdout.strip(), done.stderr.strip(), time.monotonic() - before)

    return run


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.start() as server:
        yield server


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[servers.Server]]:
    with servers.start_cluster() as nodes:
        yield nodes


@pytest.mark.parametrize("client", CLIENTS)
def test_a_program_answers_as_the_server_decides(client: str, run: Run, server: servers.Server) -> None:
    code = patient(program(client)).replace("6379", str(server.port))
    with server.client() as asking:
        asking.flushall()
        assert run(client, code)[:2] == (0, "200 0")
        assert asking.execute_command("RL.PEEK", "login:42", "5/h")[2] == 4, "it was counted"
        asking.execute_command("RL.CHECK", "login:42", "COST", 4, "5/h")
        status, seconds = run(client, code).printed.split()
        assert status == "429" and 3500 < int(seconds) <= 3600
        asking.execute_command("RL.BLOCK", "login:42", "EX", 3600)
        status, seconds = run(client, code).printed.split()
        assert status == "403" and 3500 < int(seconds) <= 3600
        asking.execute_command("RL.BLOCK", "login:42")
        assert run(client, code).printed == "403 0", "a block without an end has no Retry-After"


@pytest.mark.parametrize("client", CLIENTS)
def test_a_wrong_rule_is_no_outage(client: str, run: Run, server: servers.Server) -> None:
    code = patient(program(client)).replace("6379", str(server.port))
    ended = run(client, re.sub(r"(?<= )5/h", "'5/h'", code).replace("5/h", "5 per hour"))
    assert "did you mean 5/h?" in ended.logged + ended.printed
    if client == SHELL:
        assert ended.printed == "200 0"
    else:
        assert ended.status != 0 and "200" not in ended.printed


@pytest.mark.parametrize("client", CLIENTS)
def test_a_program_soon_goes_on_without_its_server(client: str, run: Run) -> None:
    code = program(client)
    with servers.start() as server:
        code = code.replace("6379", str(server.port))
        server.process.send_signal(signal.SIGSTOP)
        stopped = run(client, code)
        server.process.send_signal(signal.SIGCONT)
    gone = run(client, code)
    for ended in (stopped, gone):
        assert ended[:2] == (0, "200 0")
        assert "not limited:" in ended.logged
    assert stopped.took_s - gone.took_s < SOON_S


#: The program for a cluster of each client: it checks six keys.
CLUSTERED = {
    "PHP: phpredis": "phpredis_cluster.php",
    "PHP: Predis": "predis_cluster.php",
    "Ruby": "redis_rb_cluster.rb",
    "Go: redigo": "redisc.go",
}


@pytest.mark.parametrize("client", CLUSTERED)
def test_a_cluster_is_asked_at_the_right_node(client: str, run: Run, cluster: list[servers.Server]) -> None:
    for node in cluster:
        with node.client() as asking:
            asking.flushall()
    code = patient((OWN / CLUSTERED[client]).read_text())
    ended = run(client, with_ports(code, cluster))
    assert ended.printed.count("0 5 4 0 3600000") == 6, ended


def test_a_server_without_the_module_answers_by_the_script(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ratelimit.lua").symlink_to(servers.ROOT / "clients/script/ratelimit.lua")
    with servers.start(module=False) as server:
        code = patient((OWN / "script.rb").read_text()).replace("6379", str(server.port))
        printed = [run("Ruby", code).printed for _ in range(6)]
        wrong = run("Ruby", code.replace('"5/h"', '"5 per hour"'))
    assert printed[:5] == ["200 0"] * 5
    status, seconds = printed[5].split()
    assert status == "429" and 3500 < int(seconds) <= 3600
    assert wrong.status != 0 and "5 per hour" in wrong.logged


def with_ports(code: str, nodes: list[servers.Server]) -> str:
    return re.sub(r"\b700([012])\b", lambda port: str(nodes[int(port[1])].port), code)


@pytest.mark.parametrize(
    ("section", "code"),
    [
        (
            "PHP: phpredis",
            "<?php $redis = new Redis(); $redis->connect('127.0.0.1', 6379);\n"
            "$redis->setOption(Redis::OPT_PREFIX, 'p:'); $redis->set('known', 1);\n"
            "$redis->rawCommand('RL.CHECK', 'raw', '5/h');",
        ),
        (
            "PHP: Predis",
            "<?php require 'Predis/Autoloader.php'; Predis\\Autoloader::register();\n"
            "$redis = new Predis\\Client(['port' => 6379], ['prefix' => 'p:']);\n"
            "$redis->set('known', 1); $redis->executeRaw(['RL.CHECK', 'raw', '5/h']);",
        ),
    ],
)
def test_raw_commands_ignore_the_prefix(section: str, code: str, run: Run, server: servers.Server) -> None:
    with server.client() as client:
        client.flushall()
        ended = run(section, code.replace("6379", str(server.port)))
        assert sorted(client.keys()) == ["p:known", "raw"], ended


def test_the_page_links_each_program_and_says_which_are_not_run() -> None:
    tested, untried = PAGE.split("\n## Not run\n")
    for page, folder in ((tested, "programs"), (untried, "untried")):
        linked = re.findall(r"\(\.\./\.\./clients/others/(\w+)/([\w.]+)\)", page)
        assert {*linked} == {(folder, path.name) for path in (OTHERS / folder).iterdir()}
