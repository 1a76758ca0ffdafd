"""The Rust code that ships: what a lib.rs reaches by `mod`, without tests, what fuzzing needs, comments and blank lines.

rustfmt lays code out, so an item ends at the first line with its own indentation that closes it.
"""

import re

FOR_TESTS = re.compile(r"\s*#\[cfg\((test|any\(test, fuzzing\))\)\]")
COMMENT = re.compile(r"\s*//|\s*$")
MODULE = re.compile(r"\s*(?:pub(?:\([^)]*\))? )?mod (\w+);")


def code(text):
    """The lines that ship of a file, each with its number."""
    indentation = None
    for number, line in enumerate(text.split("\n"), 1):
        if COMMENT.match(line):
            continue
        if indentation is None and FOR_TESTS.match(line):
            indentation = len(line) - len(line.lstrip())
        elif indentation is None:
            yield number, line
        elif line[indentation : indentation + 1] != " " and line[-1] in ";,}":
            indentation = None


def files(folder, name=()):
    """The files that ship of a crate: the path of a module, its file, its lines. A module without children may be a folder's."""
    *parents, last = name or ("lib",)
    file = folder.joinpath(*parents, f"{last}.rs")
    if not file.exists():
        file = folder.joinpath(*name, "mod.rs")
    lines = list(code(file.read_text()))
    yield name, file, lines
    for _, line in lines:
        if found := MODULE.match(line):
            yield from files(folder, (*name, found[1]))
