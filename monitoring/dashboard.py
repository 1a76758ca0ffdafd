#!/usr/bin/env python3
"""Builds the Grafana dashboard with Grafana's own builders, so that Grafana knows every option.

    make dashboard                   writes monitoring/dashboard.json, the file to import
    dashboard.py                     prints the dashboard
    dashboard.py --queries           prints a line for each query of each panel: title, tab, PromQL
"""

import json
import sys

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as model

SOURCE = model.DataSourceRef(type_val="prometheus", uid="$datasource")
GREEN, ORANGE, RED, BLUE = "green", "orange", "red", "blue"


def field(names):
    """The fields of INFO ratelimit with these names, of the servers that the reader chose."""
    match = f'key="ratelimit_{names}"' if names.isidentifier() else f'key=~"ratelimit_({names})"'
    return f'redis_script_values{{{match}, instance=~"$instance"}}'


def rate(names):
    return f"rate({field(names)}[$__rate_interval])"


def by_name(names):
    """One series a field, of all servers together, labelled with the field's name."""
    return f'label_replace(sum by (key) ({rate(names)}), "name", "$1", "key", "ratelimit_(.*)")'


def by_policy(count):
    """One series a policy, of all servers together, labelled with the policy's name."""
    return f'label_replace(sum by (key) ({rate(f"policy_.*_{count}")}), "name", "$1", "key", "ratelimit_policy_(.*)_{count}")'


def server(metric, condition=""):
    """A metric of the server itself, for servers that have the module."""
    return f'{metric}{{instance=~"$instance"}}{condition} and on (job, instance) {field("checks")}'


def share(part, whole):
    """For each server, the share of a bound that is taken."""
    return f"sum by (instance) ({field(part)}) / sum by (instance) ({field(whole)})"


def described(panel, title, text, queries):
    panel.title(title).description(text).datasource(SOURCE)
    for expr, legend in queries:
        panel.with_target(prometheus.Dataquery().expr(expr).legend_format(legend))
    return panel


def number(title, text, expr, unit, limits=()):
    """A number at the top, which changes its colour at these limits."""
    steps = [model.Threshold(value=None, color=GREEN)]
    steps += [model.Threshold(value=value, color=color) for value, color in limits]
    absolute = dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)
    panel = described(stat.Panel(), title, text, [(expr, "")])
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"])).graph_mode(options.BigValueGraphMode.AREA)
    return panel.unit(unit).thresholds(absolute).height(4).span(3)


def graph(title, text, unit, queries, stacked=False, colors=(), span=12):
    panel = described(timeseries.Panel(), title, text, queries).unit(unit).min(0).height(8).span(span)
    panel.fill_opacity(10).show_points(options.VisibilityMode.NEVER)
    panel.tooltip(common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI))
    if stacked:
        panel.stacking(common.StackingConfig().mode(options.StackingMode.NORMAL)).fill_opacity(40)
    for name, color in colors:
        fixed = {"mode": "fixed", "fixedColor": color}
        panel.override_by_name(name, [model.DynamicConfigValue(id_val="color", value=fixed)])
    return panel


NOW = [
    number("Checks", "Decided checks of all servers.", f"sum({rate('checks')})", "cps"),
    number(
        "Denied",
        "Share of the checks that a rule or a block denied.",
        f"sum({rate('limited|blocked')}) / sum({rate('checks')})",
        "percentunit",
        [(0.05, ORANGE), (0.2, RED)],
    ),
    number(
        "Waiting",
        "Clients in RL.WAIT, as a share of those that may wait. At 100 % callers are denied at once.",
        f"max({share('waiting_clients', 'max_waiters')})",
        "percentunit",
        [(0.5, ORANGE), (0.8, RED)],
    ),
    number("Limiters", "Keys with a limiter, including those that are not freed yet.", f"sum({field('values')})", "short"),
    number(
        "Servers silent",
        "Servers that had the module within the last day, but that the exporter does not reach now.",
        f'count(redis_up{{instance=~"$instance"}} == 0 and on (job, instance) last_over_time({field("checks")}[1d])) or vector(0)',
        "short",
        [(1, RED)],
    ),
    number(
        "Internal errors",
        "Panics that the module caught since it was loaded. Please report them: each has a line in the server's log.",
        f"sum({field('internal_errors')})",
        "short",
        [(1, RED)],
    ),
    number(
        "Not enforcing",
        "Servers whose ratelimit.enforce is not yes: they deny nothing.",
        f"count({field('enforcing')} == 0) or vector(0)",
        "short",
        [(1, RED)],
    ),
    number(
        "Sets of policies",
        "One if all servers have the same policies. rl-policies shows what differs.",
        f'count(count_values("digest", {field("policies_digest")}))',
        "short",
        [(2, RED)],
    ),
]

DECISIONS = [
    graph(
        "Checks by verdict",
        "Checks by their verdicts. A block refuses a check before any rule decides.",
        "cps",
        [(by_name("allowed|limited|blocked"), "{{name}}")],
        stacked=True,
        colors=[("allowed", GREEN), ("limited", ORANGE), ("blocked", RED)],
    ),
    graph(
        "Denied, by server",
        "Share of the checks that were denied. RL.TOP on the server names the keys, RL.PEEK with FULL the rule.",
        "percentunit",
        [(f"sum by (instance) ({rate('limited|blocked')}) / sum by (instance) ({rate('checks')})", "{{instance}}")],
    ),
    graph(
        "Denied, by policy",
        "Denied checks, by the policies that they named.",
        "cps",
        [(by_policy("limited"), "{{name}}")],
    ),
    graph(
        "Bans, trials, exemptions, refunds",
        "Bans that rules set; denials that shadow rules would have made; checks of exempt keys; refunds.",
        "cps",
        [(by_name("bans|shadow_limited|exempt|refunds"), "{{name}}")],
    ),
    graph(
        "Would be denied, by policy",
        "Denials that shadow rules of policies would have made. RL.TOP SHADOW on the server names the keys.",
        "cps",
        [(by_policy("shadowed"), "{{name}}")],
    ),
    graph(
        "Errors of checks",
        "Checks that named an unknown policy, found no memory, or failed otherwise; and those that passed only because "
        "ratelimit.enforce is not yes.",
        "cps",
        [
            (by_name("errors_unknown_policy|errors_other|unenforced"), "{{name}}"),
            (
                'sum(rate(redis_errors_total{err="OOM", instance=~"$instance"}[$__rate_interval])'
                f" and on (job, instance) {field('checks')})",
                "out_of_memory",
            ),
        ],
    ),
]

WAITING = [
    graph(
        "Clients that wait",
        "Length of all lines. A line that grows for long means more work than the limits allow.",
        "short",
        [(f"sum by (instance) ({field('waiting_clients')})", "{{instance}}")],
    ),
    graph(
        "Room for clients that wait",
        "Share that is taken of max-waiters and max-waiter-bytes. No key holds this memory, so it is never evicted.",
        "percentunit",
        [
            (share("waiting_clients", "max_waiters"), "clients, {{instance}}"),
            (share("waiting_bytes", "max_waiter_bytes"), "bytes, {{instance}}"),
        ],
    ),
    graph(
        "How waits end",
        "If waits expire and none is admitted, slots are held by owners that died or do not settle.",
        "cps",
        [(by_name("waits_admitted|waits_expired"), "{{name}}")],
        colors=[("waits_admitted", GREEN), ("waits_expired", RED)],
    ),
    graph(
        "Holds",
        "A hold that is neither settled nor renewed lapses by itself.",
        "cps",
        [(by_name("holds_taken|holds_settled|holds_renewed|holds_repeated"), "{{name}}")],
    ),
]

SERVER = [
    graph(
        "Time of a command",
        "Mean time in the server, without the network.",
        "s",
        [
            (
                'sum by (cmd) (rate(redis_commands_duration_seconds_total{cmd=~"rl[.].*", instance=~"$instance"}[$__rate_interval]))'
                ' / (sum by (cmd) (rate(redis_commands_total{cmd=~"rl[.].*", instance=~"$instance"}[$__rate_interval])) > 0)',
                "{{cmd}}",
            )
        ],
    ),
    graph(
        "Rules by algorithm",
        "Rules that checks evaluated.",
        "cps",
        [(by_name("log_rules|window_rules|fixed_rules|bucket_rules|leaky_rules|slots_rules"), "{{name}}")],
        stacked=True,
    ),
    graph(
        "Memory of the server",
        "With noeviction, checks get errors once the memory is full; otherwise limiters are evicted early.",
        "bytes",
        [
            (server("redis_memory_used_bytes"), "{{instance}}"),
            (f"sum by (instance) ({field('bytes')})", "{{instance}}: limiters"),
            (server("redis_memory_max_bytes", " > 0"), "{{instance}}: most"),
        ],
    ),
    graph(
        "What should stay at zero",
        "Evicted keys; steps back of the clock; effects that a replica skipped; panics. Since the server started.",
        "short",
        [
            (f"sum by (instance) ({server('redis_evicted_keys_total')})", "evicted keys, {{instance}}"),
            (f"sum by (instance) ({field('clock_steps_back')})", "clock steps, {{instance}}"),
            (f"sum by (instance) ({field('unreadable_effects')})", "skipped effects, {{instance}}"),
            (f"sum by (instance) ({field('internal_errors')})", "panics, {{instance}}"),
        ],
    ),
]

ROWS = {"Decisions": DECISIONS, "Waiting and holds": WAITING, "Server": SERVER}


def built():
    servers = dashboard.QueryVariable("instance").label("server").datasource(SOURCE)
    servers.query('label_values(redis_script_values{key="ratelimit_checks"}, instance)')
    servers.refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(model.VariableSort.ALPHABETICAL_ASC)
    servers.multi(True).include_all(True).all_value(".*")
    servers.current(model.VariableOption(text="All", value="$__all", selected=True))
    board = dashboard.Dashboard("Rate limits").uid("redis-ratelimit").tags(["redis", "valkey", "ratelimit"])
    board.description("The module redis-ratelimit, by redis_exporter with --script prometheus.lua.")
    board.time("now-3h", "now").refresh("30s").timezone("browser").tooltip(model.DashboardCursorSync.CROSSHAIR)
    board.with_variable(dashboard.DatasourceVariable("datasource").label("source").type("prometheus"))
    board.with_variable(servers)
    for panel in NOW:
        board.with_panel(panel)
    for title, panels in ROWS.items():
        board.with_row(dashboard.Row(title))
        for panel in panels:
            board.with_panel(panel)
    return board.build()


def numbered(board):
    """Gives each query of a panel, and each panel, the name that Grafana's editor would give it."""
    for place, panel in enumerate(board["panels"]):
        panel["id"] = place + 1
        for query, letter in zip(panel.get("targets", []), "ABCDEF"):
            query["refId"] = letter
    return board


if __name__ == "__main__":
    board = numbered(json.loads(json.dumps(built(), cls=JSONEncoder)))
    if sys.argv[1:] == ["--queries"]:
        for panel in board["panels"]:
            for query in panel.get("targets", []):
                print(panel["title"], query["expr"], sep="\t")
    else:
        print(json.dumps(board, indent=2))
