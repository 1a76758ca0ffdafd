#!/usr/bin/env python3
"""Visits a page with a real browser, and checks step by step what it shows.

    tests/browser/visit.py http://127.0.0.1:8000/ \\
        see h1 'Your quota'  see '#remaining' 5  click button  see '#remaining' 4  screenshot page.png

    see SELECTOR TEXT      the element's text is TEXT, or becomes it within twenty seconds
    match SELECTOR REGEX   the element's text matches REGEX, or will within twenty seconds
    fill SELECTOR TEXT     types TEXT into a field
    click SELECTOR         clicks the element
    open URL               visits another page; a path means the same server
    screenshot FILE        saves what the page shows as a PNG

A SELECTOR has the syntax of CSS or of playwright: 'text=Ask', 'role=button[name=Ask]'. It must match exactly one
element. Exits with 0 if every step succeeded and no script of a page threw an error; else says which step failed and
what the page showed, or what a script threw.
`scripts/fetch.py chromium` installs the browser.
"""

import re
import sys
from pathlib import Path

# Far longer than a page takes on a busy machine.
TIME_OUT_MS = 20_000

CACHE = Path(__file__).resolve().parents[2] / ".cache"
sys.path.insert(0, str(CACHE / "playwright"))

from playwright.sync_api import Error, expect, sync_playwright  # noqa: E402  where scripts/fetch.py put it

STEPS = {
    "see": (2, lambda page, selector, text: expect(page.locator(selector)).to_have_text(text)),
    "match": (2, lambda page, selector, regex: expect(page.locator(selector)).to_have_text(re.compile(regex))),
    "fill": (2, lambda page, selector, text: page.fill(selector, text)),
    "click": (1, lambda page, selector: page.click(selector)),
    "open": (1, lambda page, url: page.goto(url)),
    "screenshot": (1, lambda page, file: page.screenshot(path=file)),
}


def parse(words):
    """The steps that a command line gives: the name of each and its arguments."""
    words, steps = list(words), []
    while words:
        name = words.pop(0)
        if name not in STEPS or len(words) < STEPS[name][0]:
            sys.exit(f"{__doc__}\nnot a step, or too few arguments: {name} {' '.join(words)}")
        steps.append((name, [words.pop(0) for _ in range(STEPS[name][0])]))
    return steps


def visit(url, steps):
    """Performs the steps, and returns what went wrong, or None."""
    errors = []
    expect.set_options(timeout=TIME_OUT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CACHE / "chromium/chromium", args=["--no-proxy-server"])
        page = browser.new_page(base_url=url, viewport={"width": 960, "height": 720})
        page.set_default_timeout(TIME_OUT_MS)
        page.on("pageerror", lambda error: errors.append(f"a script of the page threw {error}"))
        for name, arguments in [("open", [url]), *steps]:
            try:
                STEPS[name][1](page, *arguments)
            except (AssertionError, Error) as error:
                return f"{name} {' '.join(arguments)}: {error}"
        browser.close()  # from now on no error can arrive
    return errors[0] if errors else None


def main(arguments):
    if len(arguments) < 2:
        sys.exit(__doc__)
    return visit(arguments[0], parse(arguments[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
