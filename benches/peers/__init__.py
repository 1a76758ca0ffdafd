"""Measures limiters that people run beside ours: how exact, how honest and how fast each is. `make peers`.

adapter.py has the protocol that adapters/ speak, peers.py lists the peers, build.py fetches and builds them. Each measure
has a file: admits.py, waits.py, rules.py, clock.py, calls.py, memory.py, outages.py. page.py writes
docs/reference/peers.md from the results, and picture.py draws them.
"""
