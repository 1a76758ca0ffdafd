#!/usr/bin/env python3
"""Starts a server with the module, a stand-in for a model and the gateway. Shows some calls, and serves until Ctrl-C.

Called by `make gateway`, which builds the module and fetches the server first. PORT chooses the port of the gateway.
With REDIS_URL it starts no server, but deletes the keys `llm:t7` and `{model}:*` there, and sets the policies `free`
and `pro`.
"""

import contextlib
import http.client
import json
import os
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))

from running import running, serving  # noqa: E402  from examples

FREE = ["slots:1,cost=1,name=streams", "2/m,cost=1,name=requests", "bucket:500/m,name=tokens", "fixed:1000/d,name=day"]
PRO = ["slots:2,cost=1,name=streams", "9/m,cost=1,name=requests", "bucket:2000/m,name=tokens", "fixed:100000/d,name=day"]


class Call:
    """A client's call. `answer` reads the rest of it."""

    def __init__(self, port, words=100, max_tokens=500, length=20, stream=True, id=None):
        asked = {"prompt": "word " * words, "max_tokens": max_tokens, "length": length, "stream": stream}
        self.line = http.client.HTTPConnection("127.0.0.1", port)
        self.line.request("POST", "/v1/chat", json.dumps(asked), {"X-Tenant": "t7", **({"Idempotency-Key": id} if id else {})})
        self.reply = self.line.getresponse()

    def show(self, what):
        print(f"\n# {what}\nHTTP/1.1 {self.reply.status} {self.reply.reason}")
        for name in filter(self.reply.headers.get, ("RateLimit-Policy", "RateLimit", "Retry-After")):
            print(f"{name}: {self.reply.headers[name]}")
        return self

    def answer(self):
        text = " ".join(self.reply.read().decode().replace("data: ", "").split())
        print(text if len(text) < 200 else f"{text[:100]} ...")

    def hang_up(self):
        self.reply.close()
        self.line.close()


def show_limits(redis, what):
    """Shows the state of the rules without changing anything."""
    time.sleep(0.2)
    print(f"\n# {what}\n> RL.PEEK llm:t7 FULL @plan:free", flush=True)
    for rule in redis.execute_command("RL.PEEK", "llm:t7", "FULL", "@plan:free")[b"rules"]:
        print(f"{rule[b'rule'].decode():36} {rule[b'remaining']:7} of {rule[b'limit']}")


def main():
    with serving("llm:t7", "{model}:*") as (redis, url):
        redis.execute_command("RL.POLICY", "SET", "free", *FREE)
        redis.execute_command("RL.POLICY", "SET", "pro", *PRO)
        with running(HERE / "model.py", "--pause-ms", 50, "--log", "/dev/null", "--busy", "{model}:1") as (_, model):
            line = ["--redis", url, "--model", model, "--lease-ms", 3000]
            with running(HERE / "gateway.py", *line, "--port", os.environ.get("PORT", 0), "@plan:free") as (_, gateway):
                play(redis, gateway, line)
                print(f"\nServing a page on http://127.0.0.1:{gateway}/. Or ask with:")
                print(f"""  curl -iN -H 'X-Tenant: t7' -d '{{"prompt": "a b c", "max_tokens": 50, "stream": true}}' 127.0.0.1:{gateway}/v1/chat""")
                print(f"The server is {url}. Ctrl-C stops all.", flush=True)
                with contextlib.suppress(KeyboardInterrupt):
                    signal.pause()


def play(redis, gateway, line):
    Call(gateway).show("The plan free has too few tokens for a call of 100 in and at most 500 out").answer()
    redis.execute_command("RL.PLAN", "llm:t7", "pro")
    Call(gateway).show("The plan pro has enough, and the call is charged 600 until it ends. A busy key of the model is paused").answer()
    show_limits(redis, "The call used 100 and 20 tokens, so 480 came back")
    call = Call(gateway).show("A client hangs up early")
    call.hang_up()
    show_limits(redis, "It is charged for the tokens that were made until then")
    with running(HERE / "gateway.py", *line, "@plan:free") as (process, second):
        long = [Call(second, length=500).show(f"The {number} of two long streams") for number in ("first", "second")]
        Call(gateway).show("A third call finds no slot").answer()
        process.kill()
        del long
        show_limits(redis, "The second gateway was killed with SIGKILL: its calls still hold what they took")
        time.sleep(3)
        show_limits(redis, "3 s later their leases have ended: the slots are free, and what the dead calls held has come back")


if __name__ == "__main__":
    main()
