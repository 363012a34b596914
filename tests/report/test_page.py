"""The HTML report as text: one file, nothing loaded, nothing from a run is markup, small however long the run."""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser

import pytest

from grpo_watch.engine.records import MetricRow, Severity, Stream
from grpo_watch.report.check_document import RunReport
from grpo_watch.report.page import page, timeline
from grpo_watch.report.series import Series
from tests.support.reports import EVIL, PROVENANCE, a_finding, a_hostile_report, a_report, frozen


class Outline(HTMLParser):
    """Tags, attributes that load or run something, texts, and the contents of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loading: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.blocks: list[tuple[str, str]] = []
        self.policy = ""
        self._block = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._block = tag if tag in {"script", "style"} else ""
        given = dict(attributes)
        if given.get("type") == "application/json":
            self._block = "json"
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""
        self.loading += [
            (name, value) for name, value in attributes if name in {"src", "href"} or name.startswith("on")
        ]

    def handle_endtag(self, _tag: str) -> None:
        self._block = ""

    def handle_data(self, data: str) -> None:
        if self._block:
            self.blocks.append((self._block, data))
        else:
            self.texts.append(data)


def outline(*reports: RunReport, problems: Sequence[str] = ()) -> Outline:
    return Outline(page(reports, problems, PROVENANCE))


def test_the_first_sign_and_reported_severity_stay() -> None:
    texts = outline(a_report(*frozen())).texts
    assert " since step 60, fired at 80; first sign: step 2 (kl-stuck-at-zero)" in texts
    document = "warning since step 2, fired at 10 as critical, later explained by parameters-unchanged"
    assert document in texts
    assert "critical since step 60, fired at 80" in texts


def test_the_whole_story() -> None:
    consequence = a_finding("reward-collapse", caused_by="kl-stuck-at-zero", severity=Severity.WARNING, summary="fell")
    document = outline(a_report(a_finding(), consequence), problems=["x: permission denied"])
    for text in (
        "critical: my run · grpo-watch",
        "Root cause: kl-stuck-at-zero",
        "The optimizer holds nothing.",
        "this",
        "8 steps, 30 minutes on 8 GPUs",
        "Consequences",
        "fell",
        "3 of 4 applicable rules judged · 1 blind: set log_completions=True",
        "reference KL 0",
        "args.json",
        "x: permission denied",
        "grpo-watch check 'my run' --now 2026-11-21T10:00:00Z",
        "checked 2026-11-21T10:00:00Z by grpo-watch 9.9.9",
    ):
        assert text in document.texts


def test_nothing_is_loaded_and_only_our_scripts_may_run() -> None:
    document = outline(a_report(a_finding()), a_report(run="other", verdict="healthy"))
    assert {value for name, value in document.loading if name != "href"} == set()
    assert {value for _, value in document.loading} == {"data:,", "#run-0", "#run-1"}
    scripts = [text for kind, text in document.blocks if kind == "script"]
    hashes = {f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in scripts}
    policy = dict(part.strip().split(" ", 1) for part in document.policy.split(";"))
    assert len(scripts) == 2
    assert set(policy["script-src"].split()) == hashes
    assert (policy["default-src"], policy["img-src"]) == ("'none'", "data:")
    assert "style=" not in re.sub(r"(?s)<script>.*?</script>", "", page([a_report(a_finding())], [], PROVENANCE))


def test_hostile_texts_are_text() -> None:
    """No tag and no attribute comes from them, and each is shown, control characters as their codes."""
    hostile, harmless = outline(a_hostile_report(), problems=[EVIL]), outline(a_report(a_finding()))
    assert set(hostile.tags) - set(harmless.tags) <= {"ul", "li", "td", "noscript"}
    assert [kind for kind, _ in hostile.blocks] == [kind for kind, _ in harmless.blocks]
    assert not [name for name, _ in hostile.loading if name != "href"]
    shown = EVIL.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e").replace("\x00", "\\x00")
    assert shown in hostile.texts
    assert not {"\x1b", "\u202e", "\x00"} & set("".join(hostile.texts))
    ((_, data),) = [block for block in hostile.blocks if block[0] == "json"]
    assert json.loads(data)[0]["bands"][0]["rule"] == "reward-collapse"
    assert "<" not in data


@pytest.mark.slow
def test_a_hundred_thousand_rows_are_small_and_keep_their_spikes() -> None:
    """Ten charts of a long run, one gradient spike of 77 at step 54,321."""
    series = Series()
    for step in range(1, 100_001):
        wave = math.sin(step / 50)
        values = {
            "reward_mean": 0.512345 + wave / 9,
            "reward_function_mean[a]": 0.3 + wave / 7,
            "reward_function_mean[b]": 0.2 - wave / 7,
            "reward_group_std": 0.212345 + wave / 9,
            "reward_zero_std_ratio": 0.25,
            "kl_reference": 0.0123456 + step * 1e-8,
            "entropy": 2.123456 - wave / 8,
            "completion_length_mean": 211.5 + wave,
            "completion_length_min": 11.0,
            "completion_length_max": 512.0,
            "completion_truncated_ratio": 0.0123,
            "grad_norm": 77.0 if step == 54_321 else 0.9 + wave / 6,
            "learning_rate": 1e-6 * (1 - step / 100_000),
            "logprob_gap_rollout": 0.012345 + wave / 400,
        }
        series.take(MetricRow("r", Stream.TRAIN, 1, step, values))
    text = page([replace(a_report(), series=series)], [], PROVENANCE)
    assert len(text.encode()) <= 300_000
    ((_, data),) = [block for block in Outline(text).blocks if block[0] == "json"]
    gradient = next(chart for chart in json.loads(data)[0]["charts"] if chart["title"] == "Gradient norm")
    assert gradient["lines"][0]["y"][gradient["x"].index(54_321)] == 77.0


def test_the_worst_run_comes_first() -> None:
    document = outline(a_report(run="fine", verdict="healthy"), a_report(a_finding(), run="dead"))
    assert document.texts.index("dead") < document.texts.index("fine")
    assert "2 runs · grpo-watch" in document.texts


def test_bands_are_explained_only_where_there_are_any() -> None:
    drag = "Drag to zoom, double-click to reset."
    assert drag in outline(a_report(verdict="healthy")).texts
    assert any(text.startswith("Shaded: an alert.") for text in outline(a_report(a_finding())).texts)


def test_no_run() -> None:
    assert "Nothing to check: no run found." in outline().texts


def test_odd_backticks_are_characters() -> None:
    assert "KL ` is 0" in outline(a_report(a_finding(summary="KL ` is 0"))).texts


def test_what_the_run_noted_stands_on_the_timeline_without_any_finding() -> None:
    snapshot = a_report(verdict="healthy", notes=((5, "trackio error: <b>diverged</b>"),)).snapshot
    drawn = timeline(snapshot)
    assert "step 5: trackio error: &lt;b&gt;diverged&lt;/b&gt;" in drawn
    assert '<line x1="25.0%" x2="25.0%" y1="1" y2="19" class="info fired">' in drawn
