"""Each model admits what its algorithm's definition says, at explicit times."""

import random

import pytest

from benches.peers import models
from benches.peers.adapter import Hit
from benches.peers.admits import most_within

LIMIT, PERIOD_MS = 4, 1000
RULE = (LIMIT, PERIOD_MS)
#: 1000.0 begins a window of the clock.
CASES = {
    # four at the end of a window, four at the start of the next; the fifth of each is denied
    "fixed window of the clock": ([1000.9] * 5 + [1001.0] * 5, 8),
    # the window began at 1000.9, so 1001.0 is within it, and 1001.9 begins another
    "fixed window": ([1000.9] * 4 + [1001.0] * 4 + [1001.9] * 5, 8),
    # at 1001.74 1.04 still count, at 1001.75 one: two fit, then one more
    "sliding counter": ([1000.5] * 4 + [1001.0, 1001.74, 1001.74, 1001.74, 1001.75, 1001.75], 7),
    # one counts at 1001.74, and none from 1001.75001: three fit, then one more
    "sliding counter, rounded": ([1000.5] * 4 + [1001.0, 1001.74, 1001.74, 1001.74, 1001.74, 1001.75, 1001.76], 8),
    # one leaves after a second: then one fits
    "sliding log": ([1000.0, 1000.1, 1000.2, 1000.3, 1000.999, 1001.0, 1001.05, 1001.1], 6),
    # full at first, then one each 250 ms
    "token bucket": ([1000.0] * 5 + [1000.249, 1000.25, 1000.3, 1000.5, 1005.0] + [1005.0] * 4, 10),
    "GCRA": ([1000.0] * 5 + [1000.249, 1000.25, 1000.3, 1000.5, 1005.0] + [1005.0] * 4, 10),
    # all at once, a second after it was last filled
    "token bucket in steps": ([1000.0] * 5 + [1000.5, 1000.999] + [1001.0] * 5, 8),
}


@pytest.mark.parametrize("algorithm", models.MODELS)
def test_admits_what_its_definition_says(algorithm):
    times, expected = CASES[algorithm]
    assert models.admitted(algorithm, [RULE], times) == expected


@pytest.mark.parametrize("algorithm", models.MODELS)
def test_a_denial_consumes_nothing_of_the_other_rule(algorithm):
    times = [1000 + i / 50 for i in range(250)]
    ample = (1000, 60_000)
    alone = models.admitted(algorithm, [RULE], times)
    assert models.admitted(algorithm, [RULE, ample], times) == models.admitted(algorithm, [ample, RULE], times) == alone


@pytest.mark.parametrize("algorithm", models.MODELS)
def test_admits_the_rate_in_the_long_run(algorithm):
    chance = random.Random(1)
    times = sorted(chance.uniform(1000, 1100) for _ in range(5000))
    # a sliding counter that rounds nothing down admits up to one less in each window
    assert (
        (0.7 if algorithm == "sliding counter" else 0.9) * 400 <= models.admitted(algorithm, [RULE], times) <= 400 + 2 * LIMIT
    )


def test_over_counts_only_what_was_asked_and_answered_within_a_period():
    at = [Hit(sent, sent + 0.01, True) for sent in (0.0, 0.5, 0.985, 0.995)] + [Hit(0.6, 0.61, False)]
    assert most_within(at, 1.0) == 3
