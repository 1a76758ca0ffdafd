"""Ends a benchmark's servers with its program. Failures and interrupts print a message, not a trace."""

import signal
import sys

from . import Failed
from .rounds import say


def code_of(name, run):
    """Runs a benchmark, and returns the code to exit with."""
    # So that the servers end too, even if make or a shell started this program with Ctrl-C ignored.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    except Failed as error:
        say(f"{name}: {error}")
        return 1
    except KeyboardInterrupt:
        say(f"{name}: interrupted")
        return 130
    return 0
