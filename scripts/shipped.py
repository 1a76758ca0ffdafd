"""The Rust code that ships: what a lib.rs or main.rs reaches by `mod`, without tests, code for fuzzing, and comments.

rustfmt formats the code, so an item ends at the first line that has the item's indentation and ends in `;`, `,` or `}`.
"""

import re

FOR_TESTS = re.compile(r"\s*#\[cfg\((test|feature = \"testing\"|all\(test, feature = \"testing\"\)|any\(test, (fuzzing|feature = \"testing\")\))\)\]")
MODULE = re.compile(r"\bmod (\w+);")


def code(text):
    """The text of a file in which each line that does not ship is blank."""
    lines, indentation = [], None
    for line in text.split("\n"):
        ships = indentation is None and not FOR_TESTS.match(line) and not line.lstrip().startswith("//")
        lines.append(line if ships else "")
        if indentation is None and FOR_TESTS.match(line):
            indentation = len(line) - len(line.lstrip())
        elif indentation is not None and line[indentation : indentation + 1].strip() and line[-1] in ";,}":
            indentation = None
    return "\n".join(lines)


def files(folder, name=()):
    """The files of a crate that ship, from its lib.rs or main.rs on: the path of the module, the file, its code."""
    *parents, last = name or ("lib" if (folder / "lib.rs").exists() else "main",)
    file = folder.joinpath(*parents, f"{last}.rs")
    if not file.exists():
        file = folder.joinpath(*name, "mod.rs")
    text = code(file.read_text())
    yield name, file, text
    for child in MODULE.findall(text):
        yield from files(folder, (*name, child))
