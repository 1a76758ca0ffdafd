"""Types texts into a command line client, key by key, and prints the line that it shows after each.

    terminal.py CLIENT PORT TEXT...

A client shows hints in a terminal only, so this program gives it one.
"""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

DEADLINE_S = 20
ERASE_LINE = "\x15"


class Terminal:
    def __init__(self, client, port):
        self.prompt = f"127.0.0.1:{port}> "
        self.printed = ""
        self.end, terminal = pty.openpty()
        # Wide enough for any hint; without a size the client would ask the terminal for it.
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 250, 0, 0))
        environment = {**os.environ, "TERM": "xterm"}
        command = [client, "-h", "127.0.0.1", "-p", port]
        self.client = subprocess.Popen(
            command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment, start_new_session=True
        )
        os.close(terminal)
        self.read_until(lambda: self.printed.endswith(self.at(0)) or self.printed.endswith(self.prompt))

    def at(self, length):
        """What the client prints last after `length` typed characters: a move of the cursor behind them."""
        return f"\r\x1b[{len(self.prompt) + length}C"

    def read_until(self, holds):
        give_up = time.monotonic() + DEADLINE_S
        while not holds():
            if not select.select([self.end], [], [], max(0, give_up - time.monotonic()))[0]:
                sys.exit(f"terminal: the client printed no more than {self.printed!r}")
            self.printed += os.read(self.end, 65536).decode()

    def type(self, text):
        """Types a text, key by key, and returns the line that is then shown."""
        for length, key in enumerate(text, 1):
            os.write(self.end, key.encode())
            self.read_until(lambda: self.printed.endswith(self.at(length)))
        line = self.printed.split("\r")[-2]
        self.printed = ""
        os.write(self.end, ERASE_LINE.encode())
        self.read_until(lambda: self.printed.endswith(self.at(0)))
        return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line)

    def close(self):
        self.client.kill()
        self.client.wait()


def main(client, port, *texts):
    terminal = Terminal(client, port)
    try:
        for text in texts:
            print(terminal.type(text))
    finally:
        terminal.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
