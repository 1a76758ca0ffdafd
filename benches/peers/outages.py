"""Outages: what a caller gets, who asks every 20 ms, one request after the other, with the options of the peer's example.

stopped    the server stands still for 2 s (SIGSTOP)
killed     it is killed, and started again 2 s later from its append-only file, which is synced every second
kept       the share of a full limit of 100 an hour that still counts after that

For the requests under way meanwhile: whether they ended with errors, were answered without the server, or waited for it;
how long the slowest took; and how long errors went on once the server was back.
"""

import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from benches.server.servers import AOF

from .adapter import end_with_parent
from .setting import AMPLE, HOURLY, Setting, until

AWAY_S = 2.0
EVERY_S = 0.02
#: How long it is asked once the server is back.
LATER_S = 1.5
#: Until the append-only file has been synced.
SYNCED_S = 2.5


def asking(caller, fail, recover):
    """Asks while the server fails: the requests, and when it failed and was back."""
    ends = [float("inf")]

    def ask():
        made = []
        while time.monotonic() < ends[0]:
            made.append(caller.hit("away", AMPLE, at=time.monotonic() + EVERY_S))
        return made

    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(ask)
        time.sleep(0.3)
        failed = time.monotonic()
        fail()
        time.sleep(AWAY_S)
        back = time.monotonic()
        recover()
        ends[0] = back + LATER_S
        return made.result(), failed, back


def summed_up(made, failed, back):
    meanwhile = [hit for hit in made if hit.got > failed and hit.sent < back]
    errors = [hit for hit in made if hit.error and hit.got > failed]
    alone = [hit for hit in meanwhile if not hit.error and hit.got < back and hit.sent > failed]
    kinds = {"errors": errors, "allows": [hit for hit in alone if hit.ok], "denies": [hit for hit in alone if not hit.ok]}
    kinds["waits"] = [hit for hit in meanwhile if not hit.error and hit.got >= back]
    return {
        "kinds": [name for name, found in kinds.items() if len(found) > (name == "waits" and bool(errors or alone))],
        "slowest_s": max((hit.got - hit.sent for hit in meanwhile), default=0.0),
        "after_s": max([hit.got - back for hit in errors] + [0.0]),
        "error": errors[0].error if errors else None,
    }


def measure(peer):
    with Setting(peer, AOF) as setting:
        process, caller = setting.server.process, setting.caller()
        caller.hit("away", AMPLE)
        stop = asking(caller, lambda: process.send_signal(signal.SIGSTOP), lambda: process.send_signal(signal.SIGCONT))
        for _ in range(HOURLY[0]):
            caller.hit("full", HOURLY)
        time.sleep(SYNCED_S)

        def again():
            quiet = subprocess.DEVNULL
            started = subprocess.Popen(
                process.args, stdout=quiet, stderr=quiet, start_new_session=True, preexec_fn=end_with_parent
            )
            setting.stack.callback(lambda: (started.kill(), started.wait()))
            setting.server.process = started

        kill = asking(caller, lambda: (process.kill(), process.wait()), again)
        later = setting.caller()
        until(lambda: later.hit("again", AMPLE).ok)
        passed = sum(bool(later.hit("full", HOURLY).ok) for _ in range(HOURLY[0]))
    return {"stopped": summed_up(*stop), "killed": summed_up(*kill), "kept": 1 - passed / HOURLY[0]}
