"""The exporter: what is exported, what is not, and that every format parses."""

from __future__ import annotations

import gzip
import math
from collections.abc import ItemsView
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from grpo_watch.engine.metric_names import METRICS, labelled
from grpo_watch.engine.records import AlertState, Severity
from grpo_watch.engine.snapshot import AlertView, RuleStatus, RuleView, RunSnapshot, RunVerdict
from grpo_watch.metrics.daemon_snapshot import ENGINE_BUCKETS, ChannelStatus, DaemonSnapshot, Histogram, RunOverview
from grpo_watch.metrics.exposition import LONGEST_SUMMARY, MAX_SUMMARIES, METRIC_TABLE, Exporter

NOW = 1_000.0
EMPTY = RunSnapshot(
    run="r",
    framework=None,
    version=None,
    attempt=1,
    step=0,
    rows=0,
    max_steps=None,
    last_step_time=None,
    verdict=RunVerdict.HEALTHY,
    values={},
    config={},
    rules=(),
    alerts=(),
    findings=(),
)


def alert(state: AlertState, severity: Severity = Severity.CRITICAL, key: str = "", fired: int = 0) -> AlertView:
    return AlertView("kl-stuck-at-zero", key, state, severity, 2, 10 if fired else None, fired, {}, "s", "h", None)


def samples(*runs: RunOverview, **rest: object) -> dict[str, float]:
    """``name{label="value",…}`` → value, labels sorted, process metrics left out."""
    snapshot = replace(DaemonSnapshot(runs=runs), **rest)
    body, _ = Exporter(lambda: snapshot, lambda: NOW).render("", "")
    found = {}
    for family in parse_text(body.decode()):
        for sample in family.samples:
            labels = ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_the_pages_address_is_reported_where_it_is_known() -> None:
    known = samples(page="https://gpu7:9853/")
    assert known['grpo_watch_page_info{url="https://gpu7:9853/"}'] == 1
    assert not any(name.startswith("grpo_watch_page_info") for name in samples())


def run(**changes: object) -> RunOverview:
    return RunOverview(replace(EMPTY, **changes), "r", active=True)


def test_absence_is_never_zero() -> None:
    """A metric not logged, or logged as null, has no sample; NaN and infinities are samples."""
    found = samples(run(values={"kl_reference": 0.0, "entropy": None, "loss": math.nan, "grad_norm": math.inf}))
    assert found['grpo_kl_reference{run="r"}'] == 0.0
    assert math.isnan(found['grpo_loss{run="r"}'])
    assert found['grpo_grad_norm{run="r"}'] == math.inf
    assert not any(name.startswith(("grpo_entropy", "grpo_reward_mean", "grpo_max_steps")) for name in found)


def test_progress_and_life() -> None:
    found = samples(
        replace(
            run(step=33, max_steps=80, predicted_max_steps=100, attempt=2, last_step_time=990.5),
            active=False,
            ended=995.0,
        )
    )
    assert found['grpo_step{run="r"}'] == 33
    assert found['grpo_max_steps{run="r"}'] == 80
    assert found['grpo_predicted_max_steps{run="r"}'] == 100
    assert found['grpo_attempt{run="r"}'] == 2
    assert found['grpo_last_step_timestamp_seconds{run="r"}'] == 990.5
    assert found['grpo_run_active{run="r"}'] == 0
    assert found['grpo_run_ended_timestamp_seconds{run="r"}'] == 995.0


def test_a_firing_alert_is_one_series_with_its_severity() -> None:
    rules = (RuleView("kl-stuck-at-zero", Severity.CRITICAL, RuleStatus.FIRING),)
    alerts = (
        alert(AlertState.FIRING, Severity.WARNING, "a", fired=2),
        alert(AlertState.RESOLVED, Severity.CRITICAL, "b", fired=1),
    )
    found = samples(run(rules=rules, alerts=alerts))
    label = 'rule="kl-stuck-at-zero",run="r"'
    assert found[f'grpo_alert_firing{{{label},severity="warning"}}'] == 1
    assert sum(name.startswith("grpo_alert_firing") for name in found) == 1
    assert found[f"grpo_alert_fired_total{{{label}}}"] == 3
    assert found[f"grpo_alert_first_step{{{label}}}"] == 2
    assert found[f"grpo_alert_pending{{{label}}}"] == 0


def test_a_firing_alert_carries_its_summary_with_the_name_of_what_it_is_about() -> None:
    rules = (RuleView("kl-stuck-at-zero", Severity.CRITICAL, RuleStatus.FIRING),)
    firing = alert(AlertState.FIRING, key="style", fired=1)
    named = replace(firing, key="format", summary="format \x1b[31m is 0")
    alerts = (firing, named, alert(AlertState.RESOLVED, key="old", fired=1), alert(AlertState.PENDING, key="new"))
    found = {name for name in samples(run(rules=rules, alerts=alerts)) if name.startswith("grpo_alert_info")}
    assert found == {
        'grpo_alert_info{key="style",rule="kl-stuck-at-zero",run="r",summary="style: s"}',
        'grpo_alert_info{key="format",rule="kl-stuck-at-zero",run="r",summary="format \\x1b[31m is 0"}',
    }


def test_summaries_are_bounded() -> None:
    rules = (RuleView("kl-stuck-at-zero", Severity.CRITICAL, RuleStatus.FIRING),)
    alerts = tuple(replace(alert(AlertState.FIRING, key=f"f{n}", fired=1), summary="x" * 999) for n in range(40))
    exporter = Exporter(lambda: DaemonSnapshot(runs=(run(rules=rules, alerts=alerts),)), lambda: 0.0)
    lines = [line for line in exporter.render("", "")[0].decode().splitlines() if line.startswith("grpo_alert_info{")]
    assert len(lines) == MAX_SUMMARIES
    assert max(map(len, lines)) < LONGEST_SUMMARY + 100


def test_quiet_blind_and_never_evaluated_rules() -> None:
    rules = (
        RuleView("a", Severity.WARNING, RuleStatus.OK, evaluated=True),
        RuleView("b", Severity.WARNING, RuleStatus.BLIND, "beta is 0", evaluated=True),
        RuleView("kl-stuck-at-zero", Severity.CRITICAL, RuleStatus.BLIND, "beta is 0"),
        RuleView("c", Severity.WARNING, RuleStatus.BLIND, "needs checkpoints"),
        RuleView("d", Severity.WARNING, RuleStatus.BROKEN, "ValueError"),
    )
    found = samples(run(rules=rules, alerts=(alert(AlertState.FIRING, fired=1),)))
    assert found['grpo_alert_firing{rule="a",run="r",severity="warning"}'] == 0
    assert not any('"b"' in name for name in found if "firing" in name)  # it judged, and no longer can
    assert found['grpo_alert_firing{rule="kl-stuck-at-zero",run="r",severity="critical"}'] == 1
    assert not any('"c"' in name or '"d"' in name for name in found if "firing" in name)
    assert found['grpo_rule_blind{rule="c",run="r"}'] == 1
    assert found['grpo_rules_blind{run="r"}'] == 3
    assert 'grpo_rule_blind{rule="a",run="r"}' not in found
    assert not any(name.startswith("grpo_alert_fired") and '"a"' in name for name in found)


def test_functions_are_bounded() -> None:
    """32 functions keep their name; the mean of the others is reported once."""
    values = {f"reward_function_mean[f{number:02}]": float(number) for number in range(40)}
    found = samples(run(values=values))
    mine = {name: value for name, value in found.items() if name.startswith("grpo_reward_function_mean")}
    assert len(mine) == 33
    assert mine['grpo_reward_function_mean{function="f07",run="r"}'] == 7
    assert mine['grpo_reward_function_mean{function="other",run="r"}'] == sum(range(32, 40)) / 8


def test_few_functions_keep_a_function_called_other() -> None:
    found = samples(run(values={"reward_function_mean[other]": 0.5}))
    assert found['grpo_reward_function_mean{function="other",run="r"}'] == 0.5


def test_labels_of_the_user_go_on_run_info_only() -> None:
    snapshot = replace(run(framework="trl", version="1.16.0"), labels={"team": 'ma"th\n', "run": "forged"})
    found = samples(snapshot)
    info = [name for name in found if name.startswith("grpo_run_info")]
    assert len(info) == 1
    assert 'run="r"' in info[0]
    assert 'framework_version="1.16.0"' in info[0]
    assert 'team="ma"th\n"' in info[0]  # escaped on the wire, as it was after parsing
    assert not any("team" in name for name in found if not name.startswith("grpo_run_info"))


def test_the_watcher_itself() -> None:
    channels = (ChannelStatus("jsonl", up=True, read_at=999.5), ChannelStatus("console", up=False, read_at=None))
    found = samples(
        replace(run(), channels=channels),
        records={"jsonl": 7},
        errors={("console", "not-a-row"): 3},
        state_bytes=4096,
        state_ok=False,
        reload_ok=False,
    )
    assert found['grpo_watch_source_up{run="r",source="jsonl"}'] == 1
    assert found['grpo_watch_source_up{run="r",source="console"}'] == 0
    assert found['grpo_watch_source_lag_seconds{run="r",source="jsonl"}'] == 0.5
    assert 'grpo_watch_source_lag_seconds{run="r",source="console"}' not in found
    assert found['grpo_watch_records_total{source="jsonl"}'] == 7
    assert found['grpo_watch_record_errors_total{reason="not-a-row",source="console"}'] == 3
    assert found["grpo_watch_state_bytes"] == 4096
    assert found["grpo_watch_state_ok"] == 0
    assert found["grpo_watch_config_last_reload_successful"] == 0
    assert "process_resident_memory_bytes" in found


def test_an_alert_that_follows_from_another_one_says_so() -> None:
    """While it fires, and only when nothing that fires under this rule is unexplained."""
    rules = (RuleView("kl-stuck-at-zero", Severity.CRITICAL, RuleStatus.FIRING),)
    explained = replace(alert(AlertState.FIRING, fired=1), caused_by="gradient-lost")
    name = 'grpo_alert_explained{cause="gradient-lost",rule="kl-stuck-at-zero",run="r"}'
    assert samples(run(rules=rules, alerts=(explained,)))[name] == 1
    over = replace(explained, state=AlertState.RESOLVED)
    other = alert(AlertState.FIRING, key="other", fired=1)
    for alerts in ((over,), (explained, other), (other,)):
        assert not any(key.startswith("grpo_alert_explained") for key in samples(run(rules=rules, alerts=alerts)))


def test_engine_histogram_is_cumulative() -> None:
    counts = (1, 2) + (0,) * (len(ENGINE_BUCKETS) - 2) + (4,)
    found = samples(turns=Histogram(counts, 9.5))
    assert found['grpo_watch_engine_seconds_bucket{le="0.001"}'] == 1
    assert found['grpo_watch_engine_seconds_bucket{le="0.0025"}'] == 3
    assert found['grpo_watch_engine_seconds_bucket{le="+Inf"}'] == 7
    assert found["grpo_watch_engine_seconds_count"] == 7
    assert found["grpo_watch_engine_seconds_sum"] == 9.5


def test_text_by_default_openmetrics_on_request_gzip_on_request() -> None:
    snapshot = DaemonSnapshot(runs=(run(values=dict.fromkeys(METRICS, 1.0)),))
    exporter = Exporter(lambda: snapshot, lambda: NOW)
    plain, headers = exporter.render("text/plain;version=0.0.4", "")
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    opened, headers = exporter.render("application/openmetrics-text;version=1.0.0", "gzip, deflate")
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert headers["Content-Encoding"] == "gzip"
    text = gzip.decompress(opened).decode()
    assert text.endswith("# EOF\n")
    names = {family.name for family in parse_openmetrics(text)}
    assert {family.name for family in parse_text(plain.decode())} - names == set()


def test_every_canonical_metric_has_a_family_of_its_name() -> None:
    assert {f"grpo_{name}" for name in METRICS} < METRIC_TABLE.keys()


def test_only_metrics_of_the_table_are_exported() -> None:
    """Metrics that some rule pack or detector put among the values, but that are not canonical, are left out."""
    found = samples(run(values={"raw:oddity": 1.0, "made_up": 2.0}))
    exported = {name.partition("{")[0] for name in found if name.startswith("grpo_")}
    histogram = {f"grpo_watch_engine_seconds_{part}" for part in ("bucket", "count", "sum")}
    assert exported <= METRIC_TABLE.keys() | histogram


@pytest.mark.parametrize("name", ["run with spaces", 'quo"te', "back\\slash", "new\nline", "ünïcödé"])
def test_any_run_name_survives(name: str) -> None:
    body, _ = Exporter(lambda: DaemonSnapshot(runs=(run(run=name, step=5),)), lambda: NOW).render("", "")
    steps = [s for f in parse_text(body.decode()) if f.name == "grpo_step" for s in f.samples]
    assert [(sample.labels["run"], sample.value) for sample in steps] == [(name, 5.0)]


def test_an_unchanged_snapshot_is_worked_out_once() -> None:
    """The samples come from the cache while the snapshot is the same object, and leave it with the run."""

    class Counting(dict[str, float]):
        asked = 0

        def items(self) -> ItemsView[str, float]:
            Counting.asked += 1
            return super().items()

    snapshots = [DaemonSnapshot(runs=(run(values=Counting(loss=1.0)),)), DaemonSnapshot()]
    exporter = Exporter(lambda: snapshots[0], lambda: NOW)
    exporter.render("", "")
    exporter.render("", "")
    assert Counting.asked == 1
    snapshots.pop(0)
    assert b'run="r"' not in exporter.render("", "")[0]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\x7f\x00\x9b", "a\\x7f\\x00\\x9b"),
        ("a\u202eb", "a\\u202eb"),
        ("a\nb", "a\nb"),
        ("groß é 数", "groß é 数"),
    ],
    ids=["escape", "controls", "backwards", "line end", "letters"],
)
def test_label_values_hold_nothing_that_a_terminal_obeys(name: str, shown: str) -> None:
    """Of runs, functions and the user's labels; parsers read the escaped text."""
    one = run(values={labelled("reward_function_mean", name): 1.0})
    one = replace(one, snapshot=replace(one.snapshot, run=name), labels={"team": name})
    body, _ = Exporter(lambda: DaemonSnapshot(runs=(one,)), lambda: NOW).render("", "")
    assert all(char.isprintable() or char == "\n" for char in body.decode())
    found = [sample for family in parse_text(body.decode()) for sample in family.samples]
    assert {sample.labels["run"] for sample in found if "run" in sample.labels} == {shown}
    assert {sample.labels["team"] for sample in found if "team" in sample.labels} == {shown}
    assert {sample.labels["function"] for sample in found if "function" in sample.labels} == {shown}


def test_text_kept_between_scrapes_is_never_stale() -> None:
    """Whatever changes between two scrapes, an exporter that has served others says what a new one says."""
    names = ("one", "two")
    first = tuple(RunOverview(replace(EMPTY, run=name), name, active=True) for name in names)
    changed = (
        first,
        (replace(first[0], snapshot=replace(first[0].snapshot, step=3)), first[1]),
        (replace(first[0], ended=5.0, active=False), first[1]),
        (replace(first[0], labels={"team": "a"}), first[1]),
        (replace(first[0], channels=(ChannelStatus("log", up=False, read_at=5.0),)), first[1]),
        (replace(first[0], channels=(ChannelStatus("log", up=True, read_at=6.0),)), first[1]),
        first[1:],
        (),
        first,
    )
    newest = [DaemonSnapshot()]
    old = Exporter(lambda: newest[0], lambda: NOW, process=False)
    seen = set()
    for runs in changed:
        newest[0] = DaemonSnapshot(runs=runs)
        for accept in ("", "application/openmetrics-text;version=1.0.0", "text/plain;version=1.0.0"):
            body, _ = old.render(accept, "")
            assert body == Exporter(lambda: newest[0], lambda: NOW, process=False).render(accept, "")[0]
            seen.add(body)
    assert len(seen) == 2 * (len(changed) - 1)  # two of these formats are one, and the last runs are the first ones


def test_who_asks_again_and_again_gets_what_was_rendered() -> None:
    """Under any version and escaping; a second later, or of another snapshot, it is rendered again."""
    now, newest = [NOW], [DaemonSnapshot(runs=(run(),))]
    exporter = Exporter(lambda: newest[0], lambda: now[0], process=False)
    open_metrics = [
        f"application/openmetrics-text; version={text}" for text in ("1.0.0", "1.0.7", "9.9.9; escaping=dots")
    ]
    asked = [*open_metrics, "", "text/plain; version=1.2.3; escaping=values", "application/openmetrics-text; version=x"]

    def bodies() -> list[int]:
        return [id(exporter.render(accept, encoding)[0]) for encoding in ("", "gzip") for accept in asked]

    first = bodies()
    assert len(set(first)) == 4  # two formats, each plain and compressed
    assert bodies() == first
    held = [exporter.render(accept, "")[0] for accept in asked]
    now[0] += 1.0
    assert exporter.render("", "")[0] is not held[3]
    held = [exporter.render("", "")[0]]
    newest[0] = DaemonSnapshot(runs=(run(),))
    assert exporter.render("", "")[0] is not held[0]


VALUES = st.dictionaries(st.sampled_from(["loss", "kl_reference", "entropy", "memory_gib"]), st.none() | st.floats())


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
@given(st.lists(st.tuples(VALUES, st.integers(0, 9), st.sampled_from(["math", 'a "b"\n'])), min_size=1, max_size=4))
def test_a_document_is_the_same_however_many_were_rendered_before(
    accept: str, moments: list[tuple[dict[str, float | None], int, str]]
) -> None:
    """What was kept of a run is used only where nothing of it changed."""
    shown: list[RunOverview] = [run()]

    def exporter() -> Exporter:
        return Exporter(lambda: DaemonSnapshot(runs=tuple(shown)), lambda: 0.0, process=False)

    lasting = exporter()
    for values, step, team in moments:
        shown[0] = replace(run(values=values, step=step), labels={"team": team})
        assert lasting.render(accept, "")[0] == exporter().render(accept, "")[0]
