"""One redis-py client of hammer.rs.

    hammer.py PORT SECONDS PAUSE_US "KEY RULE..."...

For each request that passed, it prints a line SCENARIO BEFORE AFTER WAIT, in microseconds. For each period in which it
asked without a pause, it prints a line FROM UNTIL.
"""

import sys
import time

import redis

port, seconds, pause, *scenarios = sys.argv[1:]
scenarios = [scenario.split(" ") for scenario in scenarios]
client = redis.Redis(port=int(port))
passes = []
asking = []
end = time.monotonic() + int(seconds)
while time.monotonic() < end:
    pipe = client.pipeline(transaction=False)
    pipe.time()
    for key, *rules in scenarios:
        pipe.execute_command("RL.CHECK", key, *rules)
        pipe.time()
    replies = pipe.execute()
    received = time.time_ns() // 1000
    times = [s * 1_000_000 + us for s, us in replies[0::2]]
    for time_asked in times:
        if not asking or time_asked - asking[-1][1] > int(pause):
            asking.append([time_asked, time_asked])
        asking[-1][1] = time_asked
    for scenario, reply in enumerate(replies[1::2]):
        if reply[0] == 0:
            # Valkey 9.1 reads its clock once for several commands, so the TIME after a decision may show a
            # reading from before it. Only a later reading than that was surely taken after the decision.
            after = next((later for later in times[scenario + 2 :] if later > times[scenario + 1]), received)
            passes.append((scenario, times[scenario], after, reply[3] * 1000))
for scenario, before, after, wait in passes:
    print(scenario, before, after, wait)
for start, until in asking:
    print(start, until)
