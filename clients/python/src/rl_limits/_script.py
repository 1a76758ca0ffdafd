"""The engine for servers that load no module: `ratelimit.lua`. It answers checks, peeks, refunds and resets with the
same integers as the module, and stores its state under the key with `:script` appended."""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path

from ._commands import Cost, Limit, Rules, Words, texts
from ._errors import is_answer
from ._replies import Reply, Report, RuleReport
from ._rules import Rule, read

#: What the script answers.
COMMANDS = {f"RL.{name}": name for name in ("CHECK", "PEEK", "REFUND", "RESET")}

RANGE = re.compile(r"\d+\.\.\d+")
OPTION = re.compile(r",(ban|keep)=")


@functools.cache
def text() -> str:
    return Path(__file__).with_name("ratelimit.lua").read_text(encoding="utf-8")


@functools.cache
def digest() -> str:
    return hashlib.sha1(text().encode(), usedforsecurity=False).hexdigest()


def needs_module(what: str) -> ValueError:
    return ValueError(f"{what} needs the module, but the engine is 'script'")


def evalsha(words: Words) -> Words:
    """The words that ask the script instead of the module. A command that it cannot answer is an error."""
    command, key, *rest = words
    name = COMMANDS.get(str(command).upper())
    if name is None:
        raise needs_module(str(command))
    for word in rest:
        test(str(word))
    return ("EVALSHA", digest(), 1, f"{key}:script", name, *rest)


def evaluate(words: Words) -> Words:
    """The words for a server that has forgotten the script."""
    return ("EVAL", text(), *words[2:])


def has_forgotten(error: Exception) -> bool:
    return type(error).__name__ == "NoScriptError" or (is_answer(error) and str(error).startswith("NOSCRIPT"))


def test(word: str) -> None:
    """Refuses a rule or an option that the script does not have."""
    if (what := _beyond(word)) is not None:
        raise needs_module(what)


@functools.lru_cache(1024)
def _beyond(word: str) -> str | None:
    if word.upper() in ("FULL", "HOLD", "META"):
        return word.upper()
    if word.startswith("@"):
        return f"the policy {word!r}"
    if RANGE.fullmatch(word):
        return "a range of costs"
    option = OPTION.search(word)
    part = "slots" if word.startswith("slots:") else option and option[1]
    return part and f"{part} in the rule {word!r}"


def report(reply: Reply, limit: Limit, cost: Cost) -> Report:
    """The report on the rule that decides for a key. The five integers identify it only by its limit. If several rules
    share that limit, this takes the one with the shortest period that is not below the reset. `next_ms` is an upper
    bound: more units may be back sooner."""
    found = [rule for rule in map(read, texts(limit.rules)) if not rule.shadow and _capacity(rule) == reply.limit]
    denies = not reply.allowed
    next_ms = reply.wait_ms if denies and reply.wait_ms >= 0 else reply.reset_ms
    rules = [
        RuleReport(
            rule=rule.text,
            name=rule.name,
            cost=rule.charge(cost, 1),
            denies=denies,
            shadow=False,
            limit=reply.limit,
            quota=rule.quota,
            period_ms=rule.period_ms,
            remaining=reply.remaining,
            wait_ms=reply.wait_ms if denies else 0,
            next_ms=next_ms,
            reset_ms=reply.reset_ms,
            key=limit.key,
        )
        for rule in sorted(found, key=lambda rule: (rule.period_ms < reply.reset_ms, rule.period_ms))[:1]
    ]
    return Report(reply.verdict, reply.wait_ms, tuple(rules), limit.key)


def charges(rules: Rules, cost: Cost) -> dict[int, list[str]]:
    """Maps each cost to the rules that a check has charged that cost."""
    found: dict[int, list[str]] = {}
    for rule in map(read, texts(rules)):
        if units := rule.charge(cost, 1):
            found.setdefault(units, []).append(rule.text)
    return found


def _capacity(rule: Rule) -> int:
    queue = re.search(r",queue=(\d+)", rule.text)
    if rule.quota and rule.text.startswith("leaky:"):
        return 1 + (int(queue[1]) if queue else rule.quota)
    return rule.limit if rule.quota else 0
