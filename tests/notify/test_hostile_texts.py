"""What a completion, a log line or a folder's name may hold, as every receiver and every output shows it: as text."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace
from typing import Any

import pytest
from markdown_it import MarkdownIt
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from grpo_watch.cli.live_text import show, summary, verdict
from grpo_watch.cli.terminal import _Formatter
from grpo_watch.engine.diagnosis import Finding
from grpo_watch.engine.records import Severity
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot, RunOverview
from grpo_watch.metrics.exposition import Exporter, label_value
from grpo_watch.notify.message_text import annotations_of, body_of
from grpo_watch.notify.receivers.apprise import AppriseMessage, AppriseReceiver
from grpo_watch.notify.receivers.pagerduty import event
from grpo_watch.notify.receivers.slack import SlackReceiver
from grpo_watch.report.check_document import RunReport
from grpo_watch.report.junit import junit
from grpo_watch.report.lines import laid_out
from grpo_watch.report.markdown import markdown
from grpo_watch.report.page import page
from grpo_watch.report.text import render
from tests.support.receiving import a_notification
from tests.support.reports import PROVENANCE, a_finding, a_report

TERMINAL = (
    "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\ \x07\x1b[2J\x1b[31m\x9b1m\x85"
    "\u202eabc\u2066\u200f\u2028\r\x00"
)
MENTIONS = (
    '<!channel> <!here> <@U1> @everyone @here @all <@&7> <at user_id="all">x</at> <at>x</at> <#C1> @octocat #12 GH-7'
)
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&lt;`](http://evil.example) ![x](http://evil.example)"
LINKS = "[here](http://evil.example) <http://evil.example> http://evil.example www.evil.example ||x|| **b** ~~s~~ $x$"
LABEL = '",run="other"} 1\ngrpo_evil{run="x'
HOSTILE = f"{MENTIONS} {LINKS} {MARKUP} {LABEL} {TERMINAL}"
"""Short texts are cut: each part is also tried alone."""
PARTS = {"terminal": TERMINAL, "mentions": MENTIONS, "markup": MARKUP, "links": LINKS, "label": LABEL, "all": HOSTILE}
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters (but for the line feed) and marks that turn the direction of text."""

pytestmark = pytest.mark.parametrize("odd", PARTS.values(), ids=PARTS.keys())


def hostile(odd: str) -> Any:
    """A notification in which everything that a run may say is odd."""
    given = {"run": odd, "message": odd, "summary": odd, "hint": odd, "cause": odd, "key": odd}
    return a_notification(**given, labels={"team": odd}, evidence={odd: odd}, series={odd: (1.0, 2.0)})


def finding(odd: str) -> Finding:
    return a_finding(key=odd, summary=odd, hint=odd, causes=(odd,), evidence={odd: odd})


def report(odd: str) -> RunReport:
    return a_report(finding(odd), a_finding("reward-collapse", caused_by="kl-stuck-at-zero", summary=odd), run=odd)


def texts(value: Any) -> list[str]:
    """Every text in a document."""
    if isinstance(value, dict):
        return [text for key, inner in value.items() for text in (*texts(key), *texts(inner))]
    if isinstance(value, (list, tuple)):
        return [text for inner in value for text in texts(inner)]
    return [value] if isinstance(value, str) else []


def test_slack_shows_it(odd: str) -> None:
    links = {"<http://127.0.0.1:9853/|status page>"}
    for text in texts(SlackReceiver.payload(hostile(odd))):
        bare = text
        for link in links:
            bare = bare.replace(link, "")
        assert not set(bare) & set("<>")
        assert not OBEYED.search(text)
    for block in texts(SlackReceiver.payload(replace(hostile(odd), status="resolved"))):
        assert "<!" not in block


def test_services_behind_apprise_show_it(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Title and body: nobody is mentioned in any service's way, and no link hides where it leads."""
    sent: list[AppriseMessage] = []

    class Post:
        def post(self, letter: AppriseMessage) -> str:
            sent.append(letter)
            return ""

    receiver = AppriseReceiver.__new__(AppriseReceiver)
    receiver._url, receiver._process = lambda: "json://x", Post()  # type: ignore[assignment]
    digest = replace(hostile(odd), parts=(hostile(odd),) * 3)
    for one in (hostile(odd), replace(hostile(odd), status="resolved"), digest):
        receiver.send(one)
        assert sent[-1].body == body_of(one)
        for text in (sent[-1].title, sent[-1].body):
            assert not re.search(r"@\w|<[!@#a-zA-Z/]|\]\(", text)
            assert not OBEYED.search(text)


def test_pagerduty_and_alertmanager_show_it(odd: str) -> None:
    document = event(hostile(odd), "key")
    assert not any(OBEYED.search(text) for text in texts(document["payload"]))
    assert [link["href"] for link in document["links"]] == ["http://127.0.0.1:9853/"]
    notes = annotations_of(hostile(odd))
    assert not any(OBEYED.search(text) for name, text in notes.items() if name != "page")
    assert "runbook_url" not in notes


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text"])
def test_a_label_stays_in_its_label(odd: str, accept: str) -> None:
    """The same families and samples as of a run with a plain name, each with the odd text as the label's value."""

    def samples(name: str) -> list[tuple[str, tuple[str, ...]]]:
        snapshot = replace(report("x").snapshot, run=name, framework=name, values={"reward_function_mean[a]": 1.0})
        run = RunOverview(snapshot, "slug", active=True, labels={"team": name})
        body = Exporter(lambda: DaemonSnapshot(runs=(run,)), lambda: 0.0).render(accept, "")[0].decode()
        families = parse_openmetrics(body) if accept else parse_text(body)
        found = [(each.name, tuple(sorted(each.labels))) for family in families for each in family.samples]
        runs = {
            each.labels["run"]
            for family in (parse_openmetrics(body) if accept else parse_text(body))
            for each in family.samples
            if "run" in each.labels
        }
        assert runs == {label_value(name)}  # and so nothing that a terminal would obey
        return [one for one in found if one[0].startswith("grpo_") and "bucket" not in one[0]]

    assert samples(odd) == samples("plain")


def test_markdown_has_no_link_image_or_tag_of_it(odd: str) -> None:
    """As a renderer of GitHub's dialect sees it, with everything on; and nothing that GitHub itself would link."""
    text = markdown([report(odd)], [odd], PROVENANCE)
    assert not OBEYED.search(text)
    renderer = MarkdownIt("gfm-like", {"linkify": False, "html": True})
    seen = {child.type for token in renderer.parse(text) for child in (token, *(token.children or ()))}
    assert not seen & {"link_open", "image", "html_inline"}
    html = [token.content for token in renderer.parse(text) if token.type == "html_block"]
    assert all(re.fullmatch(r"(</?details>|<summary>[\w ;,]+</summary>|\s)+", block) for block in html)
    plain = [child.content for t in renderer.parse(text) for child in t.children or () if child.type == "text"]
    for words in plain:
        assert not re.search(r"(?<!\w)@\w|#\d|https?://|(?i:www\.)\w|GH-\d", words)


def test_reports_hold_it_as_text(odd: str) -> None:
    shown = page([report(odd)], [odd], PROVENANCE)
    assert "<script>alert" not in shown
    assert "<img" not in shown
    assert 'href="http://evil' not in shown
    assert not OBEYED.search(shown.replace("\t", " "))
    assert not OBEYED.search(junit([report(odd)], [odd], PROVENANCE, Severity.WARNING))


@pytest.mark.parametrize("color", [False, True])
def test_a_terminal_obeys_nothing_of_it(odd: str, color: bool, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: FBT001
    """The text of ``check``, and what ``run`` says; our own colours are the only escapes."""
    text = laid_out(render([report(odd)]), 200, color=color)
    shown = re.sub(r"\x1b\[[\d;]*m", "", text) if color else text
    assert not OBEYED.search(shown)
    show(*summary(report(odd).snapshot), *verdict(RunOverview(report(odd).snapshot, "slug", active=False)))
    assert not OBEYED.search(capsys.readouterr().out)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_log_line_stays_one_line(odd: str, as_json: bool) -> None:  # noqa: FBT001
    record = logging.LogRecord("grpo_watch", logging.WARNING, "", 0, "said", (), None)
    record.fields = {"run": odd, "answer": odd}
    line = _Formatter(as_json=as_json).format(record)
    assert not OBEYED.search(line)
    assert "\n" not in line
    if as_json:
        assert json.loads(line)["run"] == odd
