"""One redis-py client of hammer.rs: PORT SECONDS PAUSE_US "key rule..."..., prints what was let through, and when it
kept asking.
"""

import sys
import time

import redis

port, seconds, pause, *scenes = sys.argv[1:]
scenes = [scene.split(" ") for scene in scenes]
client = redis.Redis(port=int(port))
passes = []
asking = []
end = time.monotonic() + int(seconds)
while time.monotonic() < end:
    pipe = client.pipeline(transaction=False)
    pipe.time()
    for key, *rules in scenes:
        pipe.execute_command("RL.CHECK", key, *rules)
        pipe.time()
    replies = pipe.execute()
    received = time.time_ns() // 1000
    times = [s * 1_000_000 + us for s, us in replies[0::2]]
    for time_asked in times:
        if not asking or time_asked - asking[-1][1] > int(pause):
            asking.append([time_asked, time_asked])
        asking[-1][1] = time_asked
    for scene, reply in enumerate(replies[1::2]):
        if reply[0] == 0:
            # Valkey 9.1 reads its clock once for several commands: surely after is only a reading after the next one.
            after = next((later for later in times[scene + 2 :] if later > times[scene + 1]), received)
            passes.append((scene, times[scene], after, reply[3] * 1000))
for scene, before, after, wait in passes:
    print(scene, before, after, wait)
for since, until in asking:
    print(since, until)
