"""What the dashboards share: how runs are chosen, where links lead, and what the colours mean."""

from __future__ import annotations

from grafana_panels import GREEN, ORANGE, RED, Panel, Query, table

OF = '{instance=~"$instance", run=~"$run"}'
ONE = '{instance="$instance", run="$run"}'
"""Grafana escapes a chosen value for a regular expression only where several can be chosen."""
HERE = '{instance=~"$instance"}'
RUN_LINK = "/d/grpo-run?var-instance=${__data.fields.instance}&var-run=${__data.fields.run}"
PAGE_LINK = "http://${__data.fields.instance}/"
RULE_LINK = f"{PAGE_LINK}#/rule/${{__data.fields.rule}}"
RUN_PAGE_LINK = f"{PAGE_LINK}#/run/${{__data.fields.run}}"
RUNS_LINKS = (("run", RUN_LINK), ("instance", RUN_PAGE_LINK))
SEVERITY = {0: "fine", 1: "warning", 2: "critical"}
BY_SEVERITY = ((None, GREEN), (1.0, ORANGE), (2.0, RED))
SOME_BAD = ((None, GREEN), (1.0, RED))
SOME_GOOD = ((None, RED), (1.0, GREEN))
LOG = {"scaleDistribution": {"type": "log", "log": 10}}


def series(metric: str, legend: str = "{{run}}") -> Query:
    """A metric of the runs as it is."""
    return Query(f"{metric}{OF}", legend)


def one(metric: str, legend: str) -> Query:
    """A metric of the run as it is."""
    return Query(f"{metric}{ONE}", legend)


def findings(of: str) -> Panel:
    """What fires now, and since which step."""
    columns = {
        "firing": (f"grpo_alert_firing{of} == 1", "none"),
        "since step": (
            f"grpo_alert_first_step{of} and on (job, instance, run, rule) grpo_alert_firing{of} == 1",
            "none",
        ),
    }
    return table("Findings", columns, 12, [*RUNS_LINKS, ("rule", RULE_LINK)])


def wide(panel: Panel, width: int) -> Panel:
    """The chart, made larger."""
    return Panel(
        panel.kind, panel.title, panel.unit, panel.queries, width, panel.height + 2, panel.about, custom=panel.custom
    )
