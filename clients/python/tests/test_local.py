"""The limiter that stands in for a server, at given times."""

import json
from typing import Any

import pytest

import servers
from rl_limits import Cost, Limit, Reply, Report, Rules
from rl_limits import _local as local
from rl_limits._commands import Held, Question


def limiter(processes: int = 1, **policies: Rules) -> local.LocalLimiter:
    return local.LocalLimiter(processes, policies)


def ask(here: local.LocalLimiter, at_ms: float, rules: Rules, cost: Cost = 1, key: str = "k") -> Report:
    return here.decide(Question([Limit(key, rules)], cost), at_ms)


def answer(here: local.LocalLimiter, call: Any) -> object:
    at_ms = call["at_ms"]
    if "settle" in call:
        return here.settle(call["settle"], call["id"], call.get("cost"), call.get("refund", False), at_ms)
    if "renew" in call:
        return here.renew(call["renew"], call["id"], call["ttl_ms"], at_ms)
    limits = [Limit(key, rules) for key, rules in (call.get("check") or call["peek"]).items()]
    cost = call.get("cost", 1)
    held = Held(**call["hold"]) if "hold" in call else None
    question = Question(limits, tuple(cost) if isinstance(cost, list) else cost, held, "check" in call)
    report = here.decide(question, at_ms)
    rules = [[rule.denies, rule.remaining, rule.wait_ms, rule.next_ms, rule.reset_ms] for rule in report.rules]
    return [report.allowed, report.wait_ms, report.granted, rules]


CASES = json.loads((servers.ROOT / "clients/cases/local.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["about"]))
def test_limiters_in_processes_answer_alike_in_all_languages(case: Any) -> None:
    here = limiter()
    for call in case["calls"]:
        assert answer(here, call) == call["is"], call


@pytest.mark.parametrize("rule", ["2/s", "log:2/s", "window:2/1sec", "fixed:2/1000ms,align=first,name=x"])
def test_windows_begin_with_their_first_request(rule: str) -> None:
    here = limiter()
    assert ask(here, 500, rule).reply().remaining == 1
    assert ask(here, 900, rule).allowed
    denied = ask(here, 1200, rule)
    assert (denied.verdict, denied.wait_ms, denied.source) == ("limited", 300, "local")
    assert not ask(here, 1499, rule).allowed
    assert ask(here, 1500, rule).reply().reset_ms == 1000


def test_a_bucket_refills_steadily() -> None:
    here = limiter()
    rule = "bucket:10/s,burst=3"
    assert [ask(here, 0, rule).allowed for _ in range(4)] == [True, True, True, False]
    assert ask(here, 0, rule).wait_ms == 100
    assert not ask(here, 99, rule).allowed and ask(here, 100, rule).allowed
    assert ask(here, 100, rule, cost=4).wait_ms == -1, "more than the bucket holds"
    assert ask(here, 300, rule, cost=(1, 5)).granted == 2
    assert not ask(here, 300, rule, cost=(1, 5)).allowed


def test_a_leaky_rule_spaces_requests_evenly() -> None:
    here = limiter()
    rule = "leaky:2/s,queue=10"
    assert ask(here, 0, rule).reply() == Reply("allowed", 1, 0, 0, 500, source="local")
    assert ask(here, 0, rule).wait_ms == 500
    assert ask(here, 500, rule, cost=5).allowed, "any cost passes when nothing is used"
    assert ask(here, 500, rule).wait_ms == 2500
    assert not ask(here, 0, "leaky:0/s,name=none", cost=2).allowed


def test_rules_of_one_algorithm_and_period_or_of_one_name_count_together() -> None:
    here = limiter()
    assert [ask(here, 0, rule).reply().remaining for rule in ("5/m", "10/m", "log:5/60s,cost=2")] == [4, 8, 1]
    apart = ("window:5/m", "5/h", "5/m,name=a", "bucket:5/m", "bucket:5/m,name=a", "leaky:5/m")
    assert [ask(here, 0, rule).reply().remaining for rule in apart] == [4, 4, 4, 4, 4, 0]
    assert [ask(here, 0, rule).reply().remaining for rule in ("window:5/h,name=a", "bucket:9/h,name=a")] == [3, 7]


def test_a_rule_says_when_more_will_remain() -> None:
    here = limiter()
    next_ms = [ask(here, 0, "bucket:10/s", cost=cost).rules[0].next_ms for cost in (0, 1, 2)]
    assert next_ms == [0, 100, 100]
    assert ask(here, 150, "bucket:10/s", cost=0).rules[0].next_ms == 50
    assert ask(here, 150, "9/s").rules[0].next_ms == 1000


def test_a_process_has_its_part_of_a_limit_and_at_least_one() -> None:
    assert [ask(limiter(4), 0, rule).reply().limit for rule in ("10/s", "3/s", "bucket:8/s,burst=40", "0/s")] == [
        2,
        1,
        10,
        0,
    ]
    assert not ask(limiter(4), 0, "0/s").allowed


def test_all_rules_and_keys_consume_or_none() -> None:
    here = limiter()
    both = [Limit("a", "5/s"), Limit("b", ["1/s", "9/m"])]
    assert here.decide(Question(both), 0).allowed
    denied = here.decide(Question(both), 0)
    assert (denied.key, [rule.remaining for rule in denied.rules]) == ("b", [4, 0, 8])
    assert [rule.denies for rule in denied.rules] == [False, True, False]


def test_costs_have_names() -> None:
    here = limiter()
    rules = ["5/m,cost=1", "bucket:100/m,name=in", "bucket:100/m,name=out", "50/m"]
    report = ask(here, 0, rules, {"in": 30, "out": 4, "": 2})
    assert [rule.cost for rule in report.rules] == [1, 30, 4, 2]
    rules = ["90/h,cost=1,name=requests", "90/h,cost=4,name=pages", "90/h,name=in", "90/h,name=out", "bucket:90/h"]
    limits, cost = [Limit("b", rules)], {"requests": 2, "in": 30, "": 3}
    held = here.decide(Question(limits, cost, Held("a", 1000)), 0)
    assert [rule.cost for rule in held.rules] == [2, 4, 30, 3, 3], "a name, else the text, else all others"
    assert here.settle("b", "a", {"in": 8}, False, 0)
    left = here.decide(Question(limits, consumes=False), 0).rules
    assert [90 - rule.remaining for rule in left] == [2, 4, 8, 3, 3], "the charges of other rules stand"


def test_rules_on_trial_deny_nobody_and_policies_have_the_given_rules() -> None:
    here = limiter(pro=["2/s"])
    assert [ask(here, 0, ["1/h,shadow"]).allowed for _ in range(3)] == [True] * 3
    assert [ask(here, 0, "@pro").allowed for _ in range(3)] == [True, True, False]
    assert [ask(here, 0, "@plan:pro", key="b").allowed for _ in range(3)] == [True, True, False]
    assert [ask(here, 0, "@other").allowed for _ in range(3)] == [True] * 3


@pytest.mark.parametrize("rule", ["nonsense", "5/x", "slots:5/s", "5", "5/0s"])
def test_a_rule_that_cannot_be_read_is_an_error(rule: str) -> None:
    here = limiter()
    with pytest.raises(ValueError, match="cannot be read"):
        ask(here, 0, ["2/m", rule])
    assert ask(here, 0, "2/m").reply().remaining == 1, "nothing is consumed"


def test_slots_are_free_when_holds_end() -> None:
    here = limiter()

    def hold(id: str, at_ms: float, cost: Cost = 1, refund: bool = False) -> Report:
        return here.decide(Question([Limit("k", ["slots:2,cost=1", "100/m"])], cost, Held(id, 1000, refund)), at_ms)

    assert hold("a", 0, 10).allowed and hold("b", 200, 10, True).allowed
    assert hold("c", 300).wait_ms == 700
    assert hold("a", 400, 10).allowed, "a repeat takes nothing"
    assert here.renew("k", "a", 1000, 900) and not here.renew("k", "x", 1000, 900)
    assert hold("c", 1300).allowed, "b has lapsed, and its units are back"
    assert hold("c", 1300).rules[1].remaining == 89
    assert here.settle("k", "a", 4, False, 1300) and not here.settle("k", "a", None, False, 1300)
    assert hold("d", 1400, 0).rules[1].remaining == 95
    assert here.settle("k", "c", None, True, 1400)
    assert hold("e", 1400, 0).rules[1].remaining == 96


def test_a_thread_with_an_older_time_loses_no_slot() -> None:
    here = limiter()
    for id, at_ms in (("b", 11), ("a", 10)):
        assert here.decide(Question([Limit("k", "slots:2")], held=Held(id, 1000)), at_ms).allowed
    assert here.settle("k", "b", None, False, 12) and here.settle("k", "a", None, False, 11)
    assert ask(here, 12, "slots:2", cost=0).rules[0].remaining == 2
    assert ask(here, 11, "bucket:1000/s,burst=5", cost=5).allowed
    assert ask(here, 7, "bucket:1000/s,burst=5", cost=0).rules[0].remaining == 0


def test_a_range_under_a_leaky_rule_is_granted_at_least_its_least() -> None:
    assert ask(limiter(), 0, "leaky:2/s", cost=(2, 5)).granted == 2


def test_an_excess_on_trial_fills_a_bucket_no_further_than_its_burst() -> None:
    here = limiter()
    limits = [Limit("k", "bucket:2/s,burst=3,shadow")]
    here.decide(Question(limits, held=Held("a", 1000)), 0)
    assert here.settle("k", "a", 50, False, 0)
    assert here.decide(Question(limits, consumes=False), 0).rules[0].reset_ms == 1500


def test_peeks_and_denials_change_nothing() -> None:
    here = limiter()
    assert ask(here, 0, "fixed:1/h,name=x").allowed
    here.decide(Question([Limit("k", "fixed:5/s,name=x")], consumes=False), 2000)
    assert not ask(here, 3000, "fixed:1/h,name=x").allowed


def test_other_keys_end_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "MOST_KEYS", 2)
    here = limiter()
    here.pause("k", 1000, 0)
    for key in ("a", "b", "c"):
        ask(here, 0, "9/m", key=key)
    assert ask(here, 400, "9/m").wait_ms == 600


def test_what_rounding_leaves_denies_nobody() -> None:
    here = limiter()
    assert [ask(here, at_ms, "bucket:7/s", cost=7).allowed for at_ms in (0, 333, 1000)] == [True, False, True]


def test_the_holds_of_a_key_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "MOST_HOLDS", 2)
    here = limiter()

    def take(id: str) -> Report:
        return here.decide(Question([Limit("k", "9/m")], held=Held(id, 1000)), 0)

    assert take("a").allowed and take("b").allowed and take("a").allowed
    with pytest.raises(ValueError, match="too many holds of a key, expected at most 2"):
        take("c")
    assert take("b").rules[0].remaining == 7, "nothing is consumed"


def test_a_renewal_uses_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "MOST_KEYS", 2)
    here = limiter()
    assert here.decide(Question([Limit("jobs", "slots:1")], held=Held("a", 1000)), 0).allowed
    ask(here, 0, "9/m", key="a")
    assert here.renew("jobs", "a", 1000, 0)
    ask(here, 0, "9/m", key="b")
    assert here.renew("jobs", "a", 1000, 0)


def test_a_new_key_evicts_the_least_recently_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "MOST_KEYS", 2)
    here = limiter()
    for key in ("a", "b", "a", "c"):
        ask(here, 0, "2/m", key=key)
    here.decide(Question([Limit("peeked", "2/m")], consumes=False), 0)
    assert not ask(here, 0, "2/m", key="a").allowed, "a peek keeps no key"
    assert ask(here, 0, "2/m", key="b").reply().remaining == 1


def test_a_reset_forgets_what_was_used() -> None:
    here = limiter()
    assert ask(here, 0, "2/m", 2).allowed and not ask(here, 0, "2/m").allowed
    here.reset("k")
    assert ask(here, 0, "2/m").reply().remaining == 1
