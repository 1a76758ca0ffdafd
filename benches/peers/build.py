"""Fetches and builds the adapters of a language into .cache/peers/, from what its files pin, and the services for Envoy.

Packages come through pip, npm, go, mvn and cargo as they are set up on this machine.
"""

import hashlib
import json
import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ADAPTERS = Path(__file__).resolve().parent / "adapters"
sys.path.append(str(ROOT / "scripts"))

import fetch  # noqa: E402  from scripts
from cache import CACHE, is_version, new_home, run, say  # noqa: E402
from wheels import pip  # noqa: E402

HOME = CACHE / "peers"
TARGET = ROOT / "target/peers"
AHEAD = TARGET / "ahead.so"
PATH = os.environ["PATH"]
ENVIRONMENT = {"PYTHONPATH": f"{HOME / 'python'}:{ROOT / 'clients/python/src'}"}
#: How an adapter is started; then come the peer's name and the server's address.
COMMANDS = {
    "Python": [sys.executable, "-B", ADAPTERS / "python"],
    "Node.js": ["node", ADAPTERS / "node/main.mjs"],
    "Go": [HOME / "go/adapter"],
    "Java": ["java", "-cp", f"{HOME / 'java/classes'}:{HOME / 'java/jars'}/*", "Adapter"],
    "Rust": [TARGET / "release/adapter"],
}
ENVOY = "github.com/envoyproxy/ratelimit"
SERVICES = {ENVOY: HOME / "go/service", "ours": ROOT / "target/clients-rust/release/redis-ratelimit-envoy"}
#: The files that pin versions.
PINS = {
    "Python": ["requirements.txt"],
    "Node.js": ["package.json", "package-lock.json"],
    "Go": ["go.mod", "go.sum"],
    "Java": ["pom.xml"],
}


def folder(language):
    return ADAPTERS / language.lower().removesuffix(".js")


def python(home):
    wheels = ["--quiet", "--no-deps", "--disable-pip-version-check", "--only-binary=:all:"]
    run([*pip(), "install", *wheels, f"--target={home}", f"--requirement={folder('Python') / 'requirements.txt'}"])


def node(home):
    _, npm = fetch.node()
    for name in PINS["Node.js"]:
        shutil.copy(folder("Node.js") / name, home)
    run([*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"], cwd=home)


def go(home):
    """The adapter, and envoyproxy/ratelimit. Go asks no C library for the time, so a clock that is ahead is built in: the
    time package of both adds CLOCK_AHEAD_S, if that is set."""
    tool = fetch.go() / "go"
    source = Path(run([tool, "env", "GOROOT"]).strip()) / "src/time/time.go"
    text, now = source.read_text(), "sec, nsec, mono := runtimeNow()\n"
    assert text.count(now) == 1, f"{source} reads the clock in another way"
    text = text.replace(now, f"{now}\tsec += ahead\n") + (
        '\nvar ahead = func() (s int64) {\n\ttext, _ := syscall.Getenv("CLOCK_AHEAD_S")\n'
        "\tfor _, digit := range text {\n\t\ts = 10*s + int64(digit-'0')\n\t}\n\treturn\n}()\n"
    )
    (home / "time.go").write_text(text.replace("import (\n", 'import (\n\t"syscall"\n', 1))
    (home / "overlay.json").write_text(json.dumps({"Replace": {str(source): str(home / "time.go")}}))
    for program, package in (("adapter", "."), ("service", f"{ENVOY}/src/service_cmd")):
        build = [tool, "build", "-overlay", home / "overlay.json", "-o", home / program, package]
        run(build, cwd=folder("Go"), env={**os.environ, "GOFLAGS": ""})


def java(home):
    maven = ["mvn", "--quiet", "--batch-mode", "-f", folder("Java") / "pom.xml"]
    run([*maven, "dependency:copy-dependencies", f"-DoutputDirectory={home / 'jars'}"])
    run(["javac", "-cp", f"{home / 'jars'}/*", "-d", home / "classes", *folder("Java").glob("src/*.java")])


MAKERS = {"Python": python, "Node.js": node, "Go": go, "Java": java}


def rust():
    """Cargo knows what is built."""
    manifest = folder("Rust") / "Cargo.toml"
    run(["cargo", "build", "--release", "--locked", "--manifest-path", manifest, "--target-dir", TARGET])


def envoy():
    run(["cargo", "build", "--release", "--locked", "--manifest-path", ROOT / "clients/envoy/Cargo.toml",
         "--target-dir", ROOT / "target/clients-rust"])  # fmt: skip


def ready(language):
    """Fetches and builds what is missing for the adapters of a language."""
    TARGET.mkdir(parents=True, exist_ok=True)
    run(["gcc", "-O2", "-shared", "-fPIC", "-o", AHEAD, ADAPTERS / "ahead.c"])
    if language == "Rust":
        return rust()
    name = f"peers/{folder(language).name}"
    files = [folder(language) / pins for pins in PINS[language]]
    if language in ("Go", "Java"):
        files += sorted(path for kind in ("*.go", "src/*.java") for path in folder(language).glob(kind))
    version = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    if not is_version(CACHE / name, version):
        say(f"adapters in {language} into .cache/{name}")
        with new_home(name, version) as home:
            MAKERS[language](home)
    if language == "Node.js":
        fetch.refer(folder(language) / "node_modules", CACHE / name / "node_modules")


def pinned(package):
    """The version of a package, as the files above pin it."""
    if not package:
        return ""
    pattern = re.compile(
        rf'(?:^|[\s"/>]){re.escape(package)}(?:==|": "| = "=| v|</artifactId>\s*<version>)([\w.+-]+)', re.MULTILINE
    )
    files = [
        ADAPTERS / name
        for name in ("python/requirements.txt", "node/package.json", "go/go.mod", "java/pom.xml", "rust/Cargo.toml")
    ]
    return next(found[1] for file in files if file.exists() and (found := pattern.search(file.read_text())))
