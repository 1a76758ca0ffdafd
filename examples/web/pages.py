"""The pages of the examples, for servers without a framework."""

from pathlib import Path

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript"}
FILES = {f"/web/{file.name}": file for file in Path(__file__).resolve().parent.iterdir() if file.suffix in TYPES}


def page(path):
    """The bytes and the type of a file in this folder, such as `/web/page.css`; None if there is no such file."""
    file = FILES.get(path)
    return file and (file.read_bytes(), TYPES[file.suffix])


def left(report):
    """What each rule of a report would still admit, for limits.js."""
    return [
        {"name": rule.name or rule.rule, "remaining": rule.remaining, "limit": rule.limit} for rule in report.rules
    ]
