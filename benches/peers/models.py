"""What each algorithm admits of given arrivals, as a peer's documents define it: so simple that it is easily checked.

Times are seconds, and must not decrease. `fits` says whether a request would be admitted, `take` admits it. Windows of the
clock begin at multiples of their period since 1970, so their times must be those of the wall clock.
"""

import math
from collections import deque


class FixedOfClock:
    """A fixed window of the clock: a counter for each period since 1970."""

    def __init__(self, limit, period_s):
        self.limit, self.period_s = limit, period_s
        self.window, self.count = None, 0

    def window_of(self, now):
        return int(now // self.period_s)

    def fits(self, now):
        return self.window != self.window_of(now) or self.count < self.limit

    def take(self, now):
        if self.window != self.window_of(now):
            self.window, self.count = self.window_of(now), 0
        self.count += 1


class FixedFromFirst(FixedOfClock):
    """A fixed window that begins with the first request after the last window."""

    began = float("-inf")

    def window_of(self, now):
        return self.began if now < self.began + self.period_s else now

    def take(self, now):
        self.began = self.window_of(now)
        super().take(now)


class SlidingCounter:
    """A sliding window counter: this window's count, and the part of the last one's that still counts."""

    round = staticmethod(lambda count: count)

    def __init__(self, limit, period_s):
        self.limit, self.period_s = limit, period_s
        self.counts = {}

    def fits(self, now):
        window, passed = divmod(now, self.period_s)
        last, this = (self.counts.get(int(window) - back, 0) for back in (1, 0))
        return self.round(last * (1 - passed / self.period_s)) + this + 1 <= self.limit + 1e-9

    def take(self, now):
        window = int(now // self.period_s)
        self.counts[window] = self.counts.get(window, 0) + 1


class SlidingCounterDown(SlidingCounter):
    """Likewise, but what still counts of the last window is rounded down."""

    round = staticmethod(math.floor)


class Log:
    """A sliding log: at most the limit in any period."""

    def __init__(self, limit, period_s):
        self.limit, self.period_s = limit, period_s
        self.times = deque(maxlen=limit)

    def fits(self, now):
        return len(self.times) < self.limit or self.times[0] <= now - self.period_s

    def take(self, now):
        self.times.append(now)


class Bucket:
    """A token bucket, full at first, that holds the limit and is refilled evenly; so is a leaky bucket as a meter, and GCRA."""

    def __init__(self, limit, period_s):
        self.limit, self.rate = limit, limit / period_s
        self.tokens, self.at = float(limit), None

    def held(self, now):
        return min(self.limit, self.tokens + (now - (now if self.at is None else self.at)) * self.rate)

    def fits(self, now):
        return self.held(now) >= 1 - 1e-9

    def take(self, now):
        self.tokens, self.at = self.held(now) - 1, now


class BucketInSteps(Bucket):
    """A token bucket that gets all of its tokens at once, a period after it was last filled."""

    def __init__(self, limit, period_s):
        super().__init__(limit, period_s)
        self.period_s = period_s

    def held(self, now):
        return self.limit if self.at is None or now >= self.at + self.period_s else self.tokens

    def take(self, now):
        self.tokens = self.held(now) - 1
        if self.at is None or now >= self.at + self.period_s:
            self.at = now


MODELS = {
    "fixed window of the clock": FixedOfClock,
    "fixed window": FixedFromFirst,
    "sliding counter": SlidingCounter,
    "sliding counter, rounded": SlidingCounterDown,
    "sliding log": Log,
    "token bucket": Bucket,
    "token bucket in steps": BucketInSteps,
    "GCRA": Bucket,
}


def admitted(algorithm, rules, times):
    """How many of the requests at these times pass all rules. A request that is denied consumes nothing."""
    models = [MODELS[algorithm](limit, period_ms / 1000) for limit, period_ms in rules]
    passed = 0
    for now in times:
        if all(model.fits(now) for model in models):
            passed += 1
            for model in models:
                model.take(now)
    return passed
