"""Turns the snapshot of all runs into Prometheus metric families."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

from prometheus_client import ProcessCollector
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder, gzip_accepted
from prometheus_client.registry import Collector

from grpo_watch import __version__
from grpo_watch import lazy_re as re
from grpo_watch.engine.metric_names import LABELLED, METRICS, prometheus_name, split_label
from grpo_watch.engine.records import AlertState
from grpo_watch.engine.snapshot import AlertView, RuleStatus, RunSnapshot
from grpo_watch.metrics.daemon_snapshot import ENGINE_BUCKETS, DaemonSnapshot, RunOverview
from grpo_watch.report.blindness import lacking
from grpo_watch.safe_text import about, clean, visible

Sample = tuple[str, tuple[str, ...], float]
"""Family, label values in the order of its table, value."""
MAX_FUNCTIONS = 32
"""Most values of the label ``function`` per run; the mean of the rest is exported as ``other``."""
GIB = 2.0**30
OTHER = "other"
MAX_SUMMARIES, LONGEST_SUMMARY = 8, 200
"""Most alerts of one rule whose summaries a run exports, and most characters of each."""
GZIP_FROM = 1_000
"""Least bytes of a body that is compressed: below, the CPU time outweighs the saving."""
SAME_SECONDS = 1.0
OPEN_METRICS = "application/openmetrics-text"
FORMATS = ("text/plain; version=0.0.4", f"{OPEN_METRICS}; version=1.0.0")
"""Content types of the two formats. Clients can request any version and escaping, which change nothing here: names hold
ASCII letters, digits and underscores."""


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One row of the table of metrics: its type, its label names (in order), and its HELP text."""

    type: str
    labels: tuple[str, ...]
    help: str


_RUN, _RULE, _SOURCE = ("run",), ("run", "rule"), ("run", "source")

METRIC_TABLE: Mapping[str, MetricFamily] = {
    "grpo_step": MetricFamily("gauge", _RUN, "Latest optimizer step."),
    "grpo_max_steps": MetricFamily("gauge", _RUN, "Planned optimizer steps."),
    "grpo_predicted_max_steps": MetricFamily(
        "gauge", _RUN, "Optimizer steps predicted from the batch settings and the dataset."
    ),
    "grpo_attempt": MetricFamily("gauge", _RUN, "Attempt of this run, starting at 1; each resume is a new attempt."),
    "grpo_last_step_timestamp_seconds": MetricFamily("gauge", _RUN, "Unix time at which the latest step was logged."),
    "grpo_run_active": MetricFamily("gauge", _RUN, "1 while the job is still writing to its log."),
    "grpo_run_ended_timestamp_seconds": MetricFamily("gauge", _RUN, "Unix time at which the run ended."),
    "grpo_run_info": MetricFamily(
        "gauge", ("run", "framework", "framework_version"), "Always 1; carries the run's configured labels."
    ),
    **{
        prometheus_name(name): MetricFamily("gauge", ("run", "function") if name in LABELLED else _RUN, text)
        for name, text in METRICS.items()
    },
    "grpo_memory_bytes": MetricFamily("gauge", _RUN, "Accelerator memory in bytes; grpo_memory_gib is deprecated."),
    "grpo_alert_firing": MetricFamily(
        "gauge", ("run", "rule", "severity"), "1 while the alert is firing, 0 while the rule judges and finds nothing."
    ),
    "grpo_alert_pending": MetricFamily(
        "gauge", _RULE, "1 while the symptom is present but has not lasted long enough to fire."
    ),
    "grpo_alert_fired_total": MetricFamily("counter", _RULE, "Number of times the alert fired."),
    "grpo_alert_first_step": MetricFamily(
        "gauge", _RULE, "First breaching optimizer step of the alert's latest episode."
    ),
    "grpo_alert_info": MetricFamily(
        "gauge",
        ("run", "rule", "key", "summary"),
        "Always 1; carries the summary that a firing alert had when it fired or got worse.",
    ),
    "grpo_alert_explained": MetricFamily(
        "gauge",
        ("run", "rule", "cause"),
        "1 while a firing alert is caused by another one (label cause) and sends no notifications.",
    ),
    "grpo_rule_blind": MetricFamily("gauge", _RULE, "1 if the rule lacks evidence on this run."),
    "grpo_rules_blind": MetricFamily("gauge", _RUN, "Number of rules that lack evidence on this run."),
    "grpo_watch_build_info": MetricFamily("gauge", ("version",), "Always 1; carries the version of grpo-watch."),
    "grpo_watch_page_info": MetricFamily(
        "gauge", ("url",), "Always 1; carries the address of the status page, if known."
    ),
    "grpo_watch_source_up": MetricFamily("gauge", _SOURCE, "1 while all channels of this kind are readable."),
    "grpo_watch_source_lag_seconds": MetricFamily("gauge", _SOURCE, "Seconds since the source was last fully read."),
    "grpo_watch_records_total": MetricFamily("counter", ("source",), "Records read, by kind of channel."),
    "grpo_watch_record_errors_total": MetricFamily(
        "counter", ("source", "reason"), "Records skipped, by kind of channel and reason."
    ),
    "grpo_watch_deliveries_total": MetricFamily(
        "counter", ("sink", "outcome"), "Notifications, by receiver and outcome."
    ),
    "grpo_watch_delivery_queue_length": MetricFamily("gauge", ("sink",), "Notifications waiting for the receiver."),
    "grpo_watch_receiver_up": MetricFamily(
        "gauge", ("sink",), "0 after five failed attempts, a refusal or a full queue, until a notification arrives."
    ),
    "grpo_watch_state_bytes": MetricFamily("gauge", (), "Size of the state on disk in bytes."),
    "grpo_watch_state_ok": MetricFamily("gauge", (), "0 while the state can't be written and is kept in memory only."),
    "grpo_watch_config_last_reload_successful": MetricFamily(
        "gauge", (), "1 if the last reload of settings and rules succeeded, 0 if the previous ones stay in force."
    ),
    "grpo_watch_engine_seconds": MetricFamily("histogram", (), "Duration of one engine cycle in seconds."),
}
"""Every exported metric, except those of the process, by its name in queries."""


@dataclass(frozen=True, slots=True)
class Body:
    """The last body: its snapshot, and when it was rendered (Unix seconds)."""

    snapshot: DaemonSnapshot
    at: float
    content: bytes
    headers: dict[str, str]


class Exporter:
    """Serves ``/metrics`` from the newest snapshot.

    Args:
        snapshot: returns the newest snapshot; called at each scrape.
        clock: Unix seconds, for lags.
        process: whether the metrics of the process are exported too.
    """

    def __init__(
        self, snapshot: Callable[[], DaemonSnapshot], clock: Callable[[], float], *, process: bool = True
    ) -> None:
        self._snapshot, self._clock = snapshot, clock
        self._texts = {content_type: RunTexts(encoder) for encoder, content_type in map(choose_encoder, FORMATS)}
        self._bodies: dict[tuple[str, bool], Body] = {}
        self._process = ProcessCollector(registry=None) if process else None

    def render(self, accept: str, accept_encoding: str) -> tuple[bytes, dict[str, str]]:
        """The body in the format that the headers ask for (text 0.0.4 or OpenMetrics, gzip), and its headers.

        Within ``SAME_SECONDS`` it is rendered again only for a new snapshot: a client that repeats requests, with
        whatever headers, can't keep others waiting.
        """
        snapshot, now, content_type = self._snapshot(), self._clock(), _format(accept)
        packed = gzip_accepted(accept_encoding)
        known = self._bodies.get((content_type, packed))
        if known is None or known.snapshot is not snapshot or not 0 <= now - known.at < SAME_SECONDS:
            content = joined(self._parts(snapshot, now, self._texts[content_type]), content_type)
            headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
            if packed and len(content) >= GZIP_FROM:
                content, headers = gzip.compress(content, 1), {**headers, "Content-Encoding": "gzip"}
            known = self._bodies[content_type, packed] = Body(snapshot, now, content, headers)
        return known.content, known.headers

    def _parts(self, snapshot: DaemonSnapshot, now: float, texts: RunTexts) -> Iterator[FamilyLines]:
        yield from texts.of(snapshot.runs, _run_families)
        lags = (sample for run in snapshot.runs for sample in _lag_samples(run, now))
        yield encoded(texts.encoder, _filled((*lags, *_watcher_samples(snapshot))))
        yield encoded(texts.encoder, (_engine(snapshot), *(self._process.collect() if self._process else ())))


def _format(accept: str) -> str:
    """The content type for an ``Accept`` header; an unknown version gets text."""
    wanted = ""
    with suppress(ValueError, TypeError):
        wanted = choose_encoder(accept)[1]
    return choose_encoder(FORMATS[wanted.startswith(OPEN_METRICS)])[1]


def _run_families(run: RunOverview) -> Iterator[Metric]:
    yield from _filled((*_snapshot_samples(run.snapshot), *_blind_samples(run.snapshot), *_state_samples(run)))
    info = _families("grpo_run_info")["grpo_run_info"]
    info.add_sample("grpo_run_info", _info(run), 1)
    yield info


def _filled(samples: Iterable[Sample]) -> Iterator[Metric]:
    """The families of these samples, in the order of the table."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample[0], []).append(sample)
    for name, family in _families(*by_name).items():
        for _, labels, value in by_name[name]:
            family.add_sample(name, dict(zip(METRIC_TABLE[name].labels, map(label_value, labels), strict=True)), value)
        yield family


def _families(*names: str) -> dict[str, Metric]:
    """Families without samples; a counter's name lacks the ``_total`` of its samples."""
    table = ((name, METRIC_TABLE[name]) for name in names)
    return {name: Metric(name.removesuffix("_total"), family.help, family.type) for name, family in table}


def _snapshot_samples(snapshot: RunSnapshot) -> Iterator[Sample]:
    run = (snapshot.run,)
    yield "grpo_step", run, snapshot.step
    yield "grpo_attempt", run, snapshot.attempt
    if snapshot.max_steps is not None:
        yield "grpo_max_steps", run, snapshot.max_steps
    if snapshot.predicted_max_steps is not None:
        yield "grpo_predicted_max_steps", run, snapshot.predicted_max_steps
    yield from _metric_samples(snapshot)
    yield from _alert_samples(snapshot)


def _blind_samples(snapshot: RunSnapshot) -> Iterator[Sample]:
    """The rules that lack evidence; one that does not apply to the run, or waits for more steps, has no sample."""
    blind = lacking(snapshot)
    yield "grpo_rules_blind", (snapshot.run,), len(blind)
    yield from (("grpo_rule_blind", (snapshot.run, rule), 1) for rule in blind)


def _metric_samples(snapshot: RunSnapshot) -> Iterator[Sample]:
    """A sample per metric logged with a number; metrics that are not logged, or logged as null, have none."""
    by_function: dict[str, dict[str, float]] = {}
    for key, value in snapshot.values.items():
        metric, label = split_label(key)
        if value is None or metric not in METRICS or (label is None) == (metric in LABELLED):
            continue
        if label is None:
            yield prometheus_name(metric), (snapshot.run,), value
            if metric == "memory_gib":
                yield "grpo_memory_bytes", (snapshot.run,), value * GIB
        else:
            by_function.setdefault(metric, {})[label.encode("utf-8", "replace").decode()] = value
    for metric, values in by_function.items():
        for function, value in _bounded(values).items():
            yield prometheus_name(metric), (snapshot.run, function), value


def _bounded(values: Mapping[str, float]) -> Mapping[str, float]:
    """The first ``MAX_FUNCTIONS`` functions by name, and the mean of the rest; unchanged if there are no more."""
    if len(values) <= MAX_FUNCTIONS:
        return values
    names = sorted(values.keys() - {OTHER})
    rest = [values[name] for name in values.keys() - set(names[:MAX_FUNCTIONS])]
    return {**{name: values[name] for name in names[:MAX_FUNCTIONS]}, OTHER: sum(rest) / len(rest)}


def _alert_samples(snapshot: RunSnapshot) -> Iterator[Sample]:
    alerts: dict[str, list[AlertView]] = {}
    for alert in snapshot.alerts:
        alerts.setdefault(alert.rule, []).append(alert)
    for rule in snapshot.rules:
        mine = alerts.get(rule.rule, [])
        firing = [alert for alert in mine if alert.state is AlertState.FIRING]
        severity = max((alert.severity for alert in firing), key=lambda s: s.rank, default=rule.severity)
        labels = (snapshot.run, rule.rule)
        if mine or (rule.evaluated and rule.status is not RuleStatus.BLIND):
            yield "grpo_alert_firing", (*labels, severity.value), float(bool(firing))
        for alert in firing[:MAX_SUMMARIES]:
            text = clean(about(alert.key, alert.summary), LONGEST_SUMMARY)
            yield "grpo_alert_info", (*labels, alert.key, text), 1
        if firing and all(alert.caused_by for alert in firing):
            yield "grpo_alert_explained", (*labels, firing[0].caused_by or ""), 1
        if mine:
            yield "grpo_alert_pending", labels, float(any(alert.state is AlertState.PENDING for alert in mine))
        fired = sum(alert.fired_total for alert in mine)
        if fired:
            yield "grpo_alert_fired_total", labels, fired
            newest = firing or [alert for alert in mine if alert.fired_total]
            yield "grpo_alert_first_step", labels, min(alert.first_step for alert in newest)


def _state_samples(run: RunOverview) -> Iterator[Sample]:
    """Samples that can change without a new snapshot."""
    name = run.snapshot.run
    yield "grpo_run_active", (name,), float(run.active)
    if run.last_step_time is not None:
        yield "grpo_last_step_timestamp_seconds", (name,), run.last_step_time
    if run.ended is not None:
        yield "grpo_run_ended_timestamp_seconds", (name,), run.ended
    for channel in run.channels:
        yield "grpo_watch_source_up", (name, channel.source), float(channel.up)


def _lag_samples(run: RunOverview, now: float) -> Iterator[Sample]:
    for channel in run.channels:
        if channel.read_at is not None:
            yield "grpo_watch_source_lag_seconds", (run.snapshot.run, channel.source), max(0.0, now - channel.read_at)


def _watcher_samples(snapshot: DaemonSnapshot) -> Iterator[Sample]:
    yield "grpo_watch_build_info", (__version__,), 1
    if snapshot.page:
        yield "grpo_watch_page_info", (snapshot.page,), 1
    for source, count in snapshot.records.items():
        yield "grpo_watch_records_total", (source,), count
    for labels, count in snapshot.errors.items():
        yield "grpo_watch_record_errors_total", labels, count
    for labels, count in snapshot.deliveries.items():
        yield "grpo_watch_deliveries_total", labels, count
    for sink, length in snapshot.queues.items():
        yield "grpo_watch_delivery_queue_length", (sink,), length
        yield "grpo_watch_receiver_up", (sink,), float(sink not in snapshot.troubled)
    if snapshot.state_bytes is not None:
        yield "grpo_watch_state_bytes", (), snapshot.state_bytes
    yield "grpo_watch_state_ok", (), float(snapshot.state_ok)
    yield "grpo_watch_config_last_reload_successful", (), float(snapshot.reload_ok)


def _info(run: RunOverview) -> dict[str, str]:
    own = {
        "run": run.snapshot.run,
        "framework": run.snapshot.framework or "unknown",
        "framework_version": run.snapshot.version or "unknown",
    }
    return {name: label_value(value) for name, value in {**run.labels, **own}.items()}


def label_value(value: str) -> str:
    """The value without control characters; a line end stays: the exposition formats have an escape for it."""
    return value if value.isprintable() else "\n".join(map(visible, value.split("\n")))


def _engine(snapshot: DaemonSnapshot) -> Metric:
    name = "grpo_watch_engine_seconds"
    bounds = [*_bucket_names(), "+Inf"]
    buckets: Iterable[tuple[str, float]] = zip(bounds, accumulate(snapshot.turns.counts), strict=True)
    family: Any = HistogramMetricFamily(name, METRIC_TABLE[name].help)
    family.add_metric([], list(buckets), snapshot.turns.sum)
    return family  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _bucket_names() -> tuple[str, ...]:
    return tuple(str(bound) for bound in ENGINE_BUCKETS)


Encoder = Callable[[Collector], bytes]
FamilyLines = Mapping[bytes, bytes]
"""Header of a family (HELP and TYPE lines) → its sample lines."""

_END = b"# EOF\n"
_FAMILY = re.compile(rb"((?:^# .*\n)+)((?:^[^#].*\n)*)", re.MULTILINE)


class _Collected(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def encoded(encoder: Encoder, families: Iterable[Metric]) -> FamilyLines:
    """The text of some families, by header."""
    text = encoder(_Collected(families)).removesuffix(_END)
    return {family[1]: family[2] for family in _FAMILY.finditer(text)}


def joined(parts: Iterable[FamilyLines], content_type: str) -> bytes:
    """Join parts into one document; families are in the order of their first appearance."""
    families: dict[bytes, list[bytes]] = {}
    for part in parts:
        for header, lines in part.items():
            families.setdefault(header, []).append(lines)
    document = b"".join(piece for header, lines in families.items() for piece in (header, *lines))
    return document + _END if content_type.startswith("application/openmetrics-text") else document


class RunTexts:
    """The newest text of every run in one format."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._kept: dict[str, tuple[RunOverview, FamilyLines]] = {}

    def of(
        self, runs: Iterable[RunOverview], families: Callable[[RunOverview], Iterable[Metric]]
    ) -> Iterable[FamilyLines]:
        """The text of each run, rendered again only after a change; runs that are gone are dropped."""
        before, self._kept = self._kept, {}
        for run in runs:
            kept = before.get(run.snapshot.run)
            if kept is None or kept[0].snapshot is not run.snapshot or _beside(kept[0]) != _beside(run):
                kept = run, encoded(self.encoder, families(run))
            self._kept[run.snapshot.run] = kept
        return [text for _, text in self._kept.values()]


def _beside(run: RunOverview) -> tuple[object, ...]:
    up = [(channel.source, channel.up) for channel in run.channels]
    return run.active, run.ended, run.labels, up
