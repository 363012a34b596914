"""Turns the shipped rules into Prometheus alerts, one for each, so that the alert carries the rule's own words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.metric_names import LABELLED, METRICS, prometheus_name
from grpo_watch.engine.records import Severity
from grpo_watch.engine.rule import Rule, general

ALERT = "GrpoRunAlert"
NOTIFIED = "run:grpo_alert_firing:told"
TO_NOTIFY = """(grpo_alert_firing{severity=~"critical|warning"} == 1)
  unless on (job, instance, run, rule) grpo_alert_explained
  unless on (job, instance, run) (time() - grpo_run_ended_timestamp_seconds > 3600)
"""
"""No `info`, nothing that follows from another finding, and nothing of a run that ended more than an hour ago: as long
as the watcher shows an ended run after it found it (``Plan.linger``)."""
INFO = "grpo_run_info{run=%q,namespace=%q}"
"""The run that the alert is about, and no other one of its name; a label that is missing equals an empty one."""
PAGE = (
    f'{{{{ with printf "grpo_watch_page_info and on (job, instance) {INFO}" $labels.run $labels.namespace'
    ' | query }}{{ . | first | label "url" }}'
    '{{ if match "^[A-Za-z0-9_.-]+$" $labels.run }}#/run/{{ $labels.run }}{{ end }}{{ end }}'
)
"""The status page where its watcher says that it can be opened; of the run, where its name needs no encoding."""
HELD = "2m"
"""How long an alert outlives its series: a missed scrape or a restart of the watcher does not resolve it."""
NOT_OURS = "instance, job, pod, container, endpoint, node, service, exported_namespace, framework, framework_version"
"""Labels of the target and of ``grpo_run_info`` that the direct sink's alerts don't have.

``namespace`` tells runs of the same name apart. Given to grpo-watch as a label too, it comes out of the scrape as
``exported_namespace`` beside that of the target.
"""
APART = "namespace, team"
"""The user's labels that a rule of the user's own takes along; other ones can't be joined without their names."""
HEAD = """\
# Forwards what grpo-watch finds, one alert per rule, labelled like the direct sink's, so that Alertmanager takes both
# for one alert. Written by `make docs` from rules/*.yaml; change the source instead.
"""


FROZEN = re.compile(r'(?<=rule=~")[^"]+')
"""The list of rules that show a frozen policy, in expressions that are written by hand."""


class _Text(str):
    """Text that is written as a block."""

    __slots__ = ()


def page(rules: Iterable[Rule]) -> str:
    """The whole file."""
    shipped = [rule for rule in sorted(rules, key=lambda rule: rule.name) if rule.severity is not Severity.INFO]
    notified = {"record": NOTIFIED, "expr": _Text(TO_NOTIFY)}
    alerts = [notified, *map(_shipped, shipped), _others([rule.name for rule in shipped])]
    dumper = type("Dumper", (yaml.SafeDumper,), {})
    dumper.add_representer(_Text, _block)
    document = {"groups": [{"name": "grpo-runs", "rules": alerts}]}
    return HEAD + yaml.dump(document, Dumper=dumper, sort_keys=False, width=116, allow_unicode=True)


def with_frozen_rules(folder: Path) -> Iterator[tuple[Path, str]]:
    """The files of hand-written rules, with the list of rules that show a frozen policy as it should be."""
    frozen = "|".join(name for name, detector in sorted(catalogue().items()) if detector.shows_frozen_policy)
    for name in ("grpo-fleet.rules.yaml", "grpo-recording.rules.yaml"):
        yield folder / name, FROZEN.sub(frozen, (folder / name).read_text())


def _block(dumper: Any, text: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else ">")


def _shipped(rule: Rule) -> Mapping[str, Any]:
    """The user's labels stand on ``grpo_run_info``; a join inside one target brings them in, whatever they are."""
    joined = f'grpo_run_info * on (job, instance, run) group_left (severity) {NOTIFIED}{{rule="{rule.name}"}}'
    sentence = _sentence(f'"{rule.name}"', rule.summary)
    notes = {
        "headline": _Text(_headline(rule)),
        "summary": _Text(f"{{{{ $labels.run }}}}{_ended()}: {sentence}"),
        "evidence": _Text(_evidence(rule)),
        "fix": _Text(_fix(rule)),
        "runbook": f"grpo-watch explain {rule.name}",
        "page": _Text(PAGE),
    }
    return _alert(joined, {"rule": rule.name}, notes)


def _headline(rule: Rule) -> str:
    """What is wrong in plain words, since when; none of an alert milder than the rule, which proves less."""
    step = _asked("grpo_alert_first_step{run=%q,rule=%q}", f'"{rule.name}"')
    since = f"{{{{ with {step} }}}} since step {{{{ . | first | value }}}}{{{{ end }}}}"
    what, colon, why = rule.headline.partition(": ")
    said = f"{what}{since}{colon}{why}"
    if "{step}" in rule.headline:
        said = rule.headline.replace("{step}", f"{{{{ with {step} }}}}{{{{ . | first | value }}}}{{{{ end }}}}")
    if rule.severity is Severity.CRITICAL:
        return f'{{{{ if eq $labels.severity "critical" }}}}{said}{{{{ end }}}}'
    return said


def _others(known: Iterable[str]) -> Mapping[str, Any]:
    """Rules of the user's own: they bring no words along."""
    own = f'{NOTIFIED}{{rule!~"{"|".join(known)}"}}'
    expression = f"{own} * on (job, instance, run) group_left ({APART}) grpo_run_info"
    sentence = _sentence("$labels.rule", "{{ $labels.rule }}")
    summary = f"{{{{ $labels.run }}}}{_ended()}: {sentence}"
    notes = {"summary": _Text(summary), "evidence": _Text(_first_step("$labels.rule"))}
    return _alert(expression, {}, {**notes, "runbook": "grpo-watch explain {{ $labels.rule }}", "page": _Text(PAGE)})


def _alert(expression: str, labels: Mapping[str, str], notes: Mapping[str, str]) -> Mapping[str, Any]:
    return {
        "alert": ALERT,
        "expr": _Text(f"max without ({NOT_OURS}) ({expression})"),
        "keep_firing_for": HELD,
        **({"labels": labels} if labels else {}),
        "annotations": notes,
    }


def _evidence(rule: Rule) -> str:
    """When it began, and the newest value of each metric that the detector judges."""
    detector = catalogue()[rule.detector or rule.name]
    judged = dict.fromkeys(name for way in detector.needs for name in way if name in METRICS and name not in LABELLED)
    return "".join([_first_step(f'"{rule.name}"'), *(_value(prometheus_name(name), name) for name in judged)])


def _fix(rule: Rule) -> str:
    """What to do, in the settings of the run's framework where the rule has words for it."""
    if not rule.hints:
        return general(rule.hint)
    asked = f'printf "max by (framework) ({INFO})" $labels.run $labels.namespace | query'
    taken = '{{ $framework = . | first | label "framework" }}'
    found = f'{{{{ $framework := "" }}}}{{{{ with {asked} }}}}{taken}{{{{ end }}}}'
    ways = [f'if eq $framework "{name}" }}}}{general(hint)}' for name, hint in sorted(rule.hints.items())]
    return f"{found}{{{{ {'{{ else '.join(ways)}{{{{ else }}}}{general(rule.hint)}{{{{ end }}}}"


def _ended() -> str:
    """Alertmanager sends the last annotations with its resolve, when the series of a run that ended goes away."""
    asked = _asked("grpo_run_ended_timestamp_seconds{run=%q}")
    return f"{{{{ with {asked} }}}} (run ended, still broken){{{{ end }}}}"


def _sentence(rule: str, otherwise: str) -> str:
    """The summaries of a rule's alerts, one per reward function or rank, once for several watchers.

    ``otherwise`` stands where they are not scraped.
    """
    series = f"grpo_alert_info{{run=%q,rule=%q}} and on (job, instance, run) {INFO}"
    given = f"$labels.run {rule} $labels.run $labels.namespace"
    asked = f'printf "max by (key, summary) ({series})" {given} | query'
    each = '{{ if $i }}; {{ end }}{{ $alert | label "summary" }}'
    shown = f'{{{{ range $i, $alert := . | sortByLabel "key" }}}}{each}{{{{ end }}}}'
    return f"{{{{ with {asked} }}}}{shown}{{{{ else }}}}{otherwise}{{{{ end }}}}"


def _first_step(rule: str) -> str:
    asked = _asked("grpo_alert_first_step{run=%q,rule=%q}", rule)
    return f"{{{{ with {asked} }}}}since step {{{{ . | first | value }}}}{{{{ end }}}}"


def _value(metric: str, name: str) -> str:
    shown = f'{name} {{{{ . | first | value | printf "%.4g" }}}}'
    return f"{{{{ with {_asked(f'{metric}{{run=%q}}')} }}}} · {shown}{{{{ end }}}}"


def _asked(series: str, *more: str) -> str:
    """The largest value of this run's series; ``more`` are what else it names."""
    given = " ".join(["$labels.run", *more, "$labels.run $labels.namespace"])
    return f'printf "max({series} and on (job, instance, run) {INFO})" {given} | query'
