"""Debian's packages, downloaded and unpacked with private package lists. Needs no root, installs and starts nothing."""

import os
import subprocess
import tarfile

from cache import CACHE, Failed, Scratch, run, tail

#: Other releases are signed with keys in the package debian-archive-keyring.
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def apt(lists, archives):
    folders = [f"Dir::State::Lists={lists}", f"Dir::Cache={archives}", "Debug::NoLocking=1"]
    if os.geteuid() == 0:
        folders.append("APT::Sandbox::User=root")  # apt's own user may not write here
    return ["apt-get", "-q", *(word for option in folders for word in ("-o", option))]


def update(command):
    """Returns the output, for the message of a later failure: `apt-get update` succeeds even offline."""
    return run([*command, "update"])


def unpack(packages, into, missing=False):
    """Unpacks packages of this machine's release.

    With `missing`, also unpacks the packages that they need. Skips the packages that this machine has.
    """
    with Scratch() as scratch:
        for folder in ("lists/partial", "archives/partial", "debs"):
            (scratch / folder).mkdir(parents=True)
        command = apt(scratch / "lists", scratch)
        updated = update(command)
        download = ["download"]
        if missing:
            download = ["--yes", "--download-only", "--no-install-recommends", "install"]
        try:
            run([*command, *download, *packages], cwd=scratch / "debs")
        except Failed as error:
            raise Failed(f"{error}\n  after `apt-get update`, which said:\n{tail(updated)}") from error
        for deb in sorted([*scratch.glob("debs/*.deb"), *scratch.glob("archives/*.deb")]):
            run(["dpkg", "-x", deb, into])


class Release:
    """A release of Debian other than this machine's, for one architecture."""

    def __init__(self, name, architecture="amd64"):
        self.label = f"Debian {name} ({architecture})"
        home = CACHE / "debian" / f"{name}-{architecture}"
        (home / "lists/partial").mkdir(parents=True, exist_ok=True)
        (home / "archives/partial").mkdir(parents=True, exist_ok=True)
        signed = f"[signed-by={KEYS} arch={architecture}] {mirror()} {name} main"
        (home / "sources.list").write_text(f"deb {signed}\ndeb-src {signed}\n")
        (home / "status").touch()
        options = [
            f"Dir::Etc::SourceList={home}/sources.list",
            "Dir::Etc::SourceParts=/dev/null",
            f"Dir::State::Status={home}/status",
            f"APT::Architecture={architecture}",
            f"APT::Architectures={architecture}",
        ]
        self.command = [*apt(home / "lists", home), *(word for option in options for word in ("-o", option))]
        self.updated = update(self.command)

    def download(self, words, folder):
        try:
            run([*self.command, *words], cwd=folder)
        except Failed as error:
            raise Failed(f"{self.label}: {error}\n  after `apt-get update`, which said:\n{tail(self.updated)}") from error

    def unpack(self, packages, into):
        """Unpacks packages, each given as NAME or NAME=VERSION, without the packages that they need."""
        with Scratch() as scratch:
            self.download(["download", *packages], scratch)
            for deb in sorted(scratch.glob("*.deb")):
                run(["dpkg", "-x", deb, into])

    def sources(self, package, into):
        """Unpacks what the authors of a program released, without Debian's changes."""
        with Scratch() as scratch:
            self.download(["source", "--tar-only", "--download-only", package], scratch)
            with tarfile.open(next(scratch.glob("*.orig.tar.*"))) as sources:
                sources.extractall(into, filter="data")


def mirror():
    """The address from which this machine gets Debian's packages."""
    columns = ["indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)", "Created-By: Packages"]
    try:
        lines = subprocess.run(["apt-get", *columns], capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError) as error:
        raise Failed(f"no packages of Debian without a working apt-get: {error}") from error
    found = next((line.split()[2] for line in lines if line.startswith("Debian Debian ")), None)
    if found is None:
        raise Failed("apt-get on this machine has no source of Debian's packages: run this on Debian")
    return found
