"""Unpacks Debian's compiler: it is newer than that of this machine's release, and has standard libraries that rustup
would otherwise download."""

import debian
from cache import script

#: The compiler, its standard libraries and their sources have one version.
VERSION = "1.96.1+dfsg1-2~bpo13+1"
COMPILER = ["rustc", "libstd-rust-1.96", "libstd-rust-dev"]
#: The libraries that it runs with, even if this machine has others.
LIBRARIES = ["libc6", "libgcc-s1", "libllvm22", "libstdc++6", "zlib1g", "libzstd1", "libxml2", "libffi8", "libedit2"]
LIBRARIES += ["libtinfo6", "libbsd0", "libmd0", "liblzma5", "libicu76"]


def pinned(packages):
    return [f"{name}={VERSION}" for name in packages]


def compiler(folder):
    """Makes FOLDER/rustc, which builds for this machine. It looks for standard libraries in FOLDER/usr/lib/rustlib."""
    debian.Release("trixie-backports").unpack(pinned(COMPILER), folder)
    debian.Release("trixie").unpack(LIBRARIES, folder)
    script(
        folder / "rustc",
        'libraries="$here/usr/lib/x86_64-linux-gnu"\n'
        'exec "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" --argv0 rustc "$here/usr/bin/rustc" "$@"',
    )


def foreign_library(architecture, folder):
    """Adds the standard library of another processor."""
    debian.Release("trixie-backports", architecture).unpack(pinned(["libstd-rust-dev"]), folder)


def sources(folder):
    """Unpacks the sources of the standard library, and returns their folder."""
    debian.Release("trixie-backports").unpack(pinned(["rust-src"]), folder)
    return next(folder.glob("usr/src/rustc-*/library"))
