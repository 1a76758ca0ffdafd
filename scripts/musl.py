"""Fetches into .cache/musl/ what builds and tries the module for Alpine, whose C library is musl, on another Linux.

    rust/rustc                  Debian's compiler, with a standard library for musl that was built from Debian's sources
    redis-7.0/server, cli       Redis, built with zig from the sources in Debian, as in .cache/servers
    lib/ld-musl-x86_64.so.1     Debian's musl: the C library, which is also the loader that starts programs with it
    lib/libgcc_s.so.1           Alpine's unwinder, which wheels for Alpine contain

All of it comes as packages of Debian, PyPI and crates.io. Fetching it needs neither Alpine nor an installed musl.
"""

import os
import shutil

import debian
import debian_rust
from cache import CACHE, Failed, Scratch, is_version, new_home, run, say, script
from wheels import MUSL, unpack_wheel

TARGET = "x86_64-unknown-linux-musl"
#: The release of Debian with musl 1.2.5, which Alpine 3.20 to 3.22 have, and the release with Redis 7.0.
MUSL_RELEASE, REDIS_RELEASE = "trixie", "bookworm"
#: A wheel with a C++ library, and so with Alpine's unwinder. The unwinder needs musl 1.2.4 or later: 1.2.3 does not
#: know its relocations, and the unwinder crashes.
UNWINDER = "greenlet==3.5.6"
LOADER = "ld-musl-x86_64.so.1"
VERSION = f"1 {debian_rust.VERSION} {MUSL_RELEASE} {REDIS_RELEASE} {UNWINDER}"


def fetch():
    """Needs zig, in .cache/zigbuild."""
    if is_version(CACHE / "musl", VERSION):
        return
    say("a compiler, a server and libraries for musl into .cache/musl, 700 MB, which takes some minutes")
    with new_home("musl", VERSION) as home:
        debian_rust.compiler(home / "rust")
        standard_library(home / "rust")
        libraries(home / "lib")
        redis(home / "redis-7.0")


def standard_library(rust):
    """Builds it as the compiler's authors do: panics unwind, and programs can link it with link-time optimization.

    The module is a shared library, so it must not link libc into itself.
    """
    say(f"building the standard library for {TARGET}")
    with Scratch() as scratch:
        library = debian_rust.sources(scratch / "sources")
        registry = os.environ.get("CARGO_HOME") or os.path.expanduser("~/.cargo")
        flags = ["-Ctarget-feature=-crt-static", "-Cembed-bitcode=yes", "-Zforce-unstable-if-unmarked"]
        # Its bytes do not depend on where it is built.
        flags += [f"--remap-path-prefix={library.resolve()}=/rust/library", f"--remap-path-prefix={registry}=/cargo"]
        # The compiler's own build sets both variables. Without the first, the sources do not compile. Without the
        # second, a crate could be mistaken for one of the module's.
        environment = {"RUSTC_BOOTSTRAP": "1", "__CARGO_DEFAULT_LIB_METADATA": "standard-library"}
        environment |= {"RUSTC": str(rust / "rustc"), "RUSTFLAGS": " ".join(flags)}
        build = ["cargo", "build", "--release", "--locked", "--features", "panic-unwind,backtrace"]
        where = ["--manifest-path", library / "sysroot/Cargo.toml", "--target", TARGET, "--target-dir", scratch / "target"]
        run([*build, *where], env={**os.environ, **environment})
        folder = rust / "usr/lib/rustlib" / TARGET / "lib"
        folder.mkdir(parents=True)
        for path in (scratch / "target" / TARGET / "release/deps").glob("*.rlib"):
            path.replace(folder / path.name)


def libraries(folder):
    folder.mkdir()
    with Scratch() as scratch:
        debian.Release(MUSL_RELEASE).unpack(["musl"], scratch)
        shutil.copy(scratch / "usr/lib/x86_64-linux-musl/libc.so", folder / LOADER)
        unpack_wheel(UNWINDER, scratch, systems=MUSL)
        shutil.copy(next(scratch.glob("*.libs/libgcc_s-*.so.1")), folder / "libgcc_s.so.1")


def redis(home):
    """Builds the server with its own allocator, jemalloc. A wrapper starts it with musl's loader."""
    say("building Redis for musl")
    with Scratch() as scratch:
        debian.Release(REDIS_RELEASE).sources("redis", scratch)
        sources = next(scratch.glob("redis-*/src"))
        # The build runs small programs that examine the system. They are linked statically, so they run here.
        compiler, zig = scratch / "cc", CACHE / "zigbuild/ziglang/zig"
        script(compiler, f'exec "{zig}" cc -target x86_64-linux-musl -fPIE -fno-sanitize=undefined "$@"')
        environment = {"ZIG_GLOBAL_CACHE_DIR": str(scratch / "zig"), "ZIG_LOCAL_CACHE_DIR": str(scratch / "zig")}
        programs = {"server": "redis-server", "cli": "redis-cli"}
        # For an executable at a fixed address, zig 0.17 gives `environ` the place of another variable, so this
        # executable is PIE.
        words = [f"CC={compiler}", "OPTIMIZATION=-O2", "REDIS_LDFLAGS=-dynamic -pie", *programs.values()]
        # A make that runs this script passes on its own variables, so this environment leaves them out.
        run(["make", "-C", sources, *words], env={"PATH": os.environ["PATH"], **environment})
        for name, program in programs.items():
            musl = f'"$here/../lib/{LOADER}" --library-path "$here/../lib"'
            script(home / name, f'exec {musl} --argv0 {program} "$here/{program}" "$@"')
            shutil.copy(sources / program, home)
    if "v=7.0.15 " not in run([home / "server", "--version"]):
        raise Failed("Redis was built for musl, but is not 7.0.15")
