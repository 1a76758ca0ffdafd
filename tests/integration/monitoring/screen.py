"""Runs a program in a terminal without a screen, and prints what a screen would show.

    screen.py ROWS COLUMNS PROGRAM ARGUMENT...

For each line of its input, it prints the rows of the screen and a line that is a form feed. At the end of the input it
types Ctrl-C, and prints the exit status of the program and whether the program restored the screen and the cursor.
"""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / ".cache/pyte"))

import pyte  # noqa: E402  which scripts/fetch.py puts there

DEADLINE_S = 120
OTHER_SCREEN, FIRST_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"


class Terminal:
    def __init__(self, rows, columns, command):
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.printed = b""
        self.lock = threading.Lock()
        self.end, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        environment = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")}

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.program = subprocess.Popen(
            command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment, preexec_fn=own_terminal
        )
        os.close(terminal)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        while True:
            try:
                some = os.read(self.end, 65536)
            except OSError:  # The program has ended.
                return
            with self.lock:
                self.printed += some
                self.stream.feed(some)

    def show(self):
        with self.lock:
            print(*self.screen.display, "\f", sep="\n", flush=True)

    def close(self):
        os.write(self.end, b"\x03")
        try:
            status = self.program.wait(DEADLINE_S)
            self.reader.join(DEADLINE_S)
        finally:
            self.program.kill()
        given_back = self.printed.rfind(FIRST_SCREEN) > self.printed.rfind(OTHER_SCREEN) and not self.screen.cursor.hidden
        print(f"status {status}, screen given back: {given_back}", flush=True)


if __name__ == "__main__":
    terminal = Terminal(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    for _ in sys.stdin:
        terminal.show()
    terminal.close()
