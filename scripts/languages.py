"""PHP, Ruby and Go with their clients, for the tests of docs/guide/clients.md, in .cache/languages/bin.

All of it, 100 MB, comes as packages of Debian bookworm, whose versions fit each other.
"""

import shutil

import debian
from cache import CACHE, is_version, new_home, run, say, script

RELEASE = "bookworm"
PHP = ["php8.2-cli", "php8.2-common", "php8.2-redis", "php8.2-igbinary", "php-predis"]
RUBY = ["ruby3.1", "libruby3.1", "ruby-redis"]
GO = ["golang-1.19-go", "golang-1.19-src", "golang-github-gomodule-redigo-dev", "golang-github-mna-redisc-dev"]
#: Libraries that these packages need, and that a small Debian lacks.
LIBRARIES = ["libargon2-1", "libbsd0", "libedit2", "libicu72", "libmd0", "libsodium23", "libxml2", "libyaml-0-2"]
PACKAGES = [*PHP, *RUBY, *GO, *LIBRARIES]
VERSION = f"1 {RELEASE} {' '.join(PACKAGES)}"

LOAD = 'LD_LIBRARY_PATH=$(echo "$root"/usr/lib/*-linux-gnu) exec'
START = {
    "php": f'{LOAD} "$root/usr/bin/php8.2" -n -d extension_dir="$(echo "$root"/usr/lib/php/2*)" -d extension=igbinary '
    '-d extension=redis -d include_path="$root/usr/share/php" "$@"',
    "ruby": f'gems="$root/usr/share/rubygems-integration/all/gems"\nexport RUBYLIB="$root/usr/lib/ruby/3.1.0:'
    '$(echo "$root"/usr/lib/*-linux-gnu/ruby/3.1.0):$(echo "$gems"/redis-*/lib)"\n'
    f'{LOAD} "$root/usr/bin/ruby3.1" --disable-gems "$@"',
    "go": 'export GOROOT="$root/usr/lib/go-1.19" GOPATH="$root/usr/share/gocode" GOCACHE="$here/../build"\n'
    'export GO111MODULE=off CGO_ENABLED=0\n'
    'exec "$GOROOT/bin/go" "$@"',
}


def fetch():
    home = CACHE / "languages"
    if is_version(home, VERSION):
        return
    say("PHP, Ruby and Go from Debian into .cache/languages, 100 MB")
    with new_home(home.name, VERSION) as folder:
        root = folder / "root"
        debian.Release(RELEASE).unpack(PACKAGES, root)
        shutil.rmtree(root / "usr/lib/go-1.19/pkg/linux_amd64")  # compiled with cgo, and three quarters of Go's size
        for name, command in START.items():
            script(folder / "bin" / name, f'root="$here/../root"\n{command}')
            run([folder / "bin" / name, "version" if name == "go" else "--version"])
