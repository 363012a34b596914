"""What every kind of receiver is held against, besides its own tests, with no list of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.config.fields import converted
from grpo_watch.config.schema import SINKS, BaseSink, Settings
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot, RunOverview
from grpo_watch.notify.receiver import ReceiverContext, build
from tests.notify.test_hostile_texts import OBEYED, PARTS, hostile, report, texts
from tests.support.every_receiver import KINDS, pointed, shown
from tests.support.receiving import receiving

EACH = pytest.mark.parametrize("sink", shown(), ids=lambda sink: sink.type)


def strict(body: bytes) -> Any:
    """JSON as every parser reads it; of anything else its text."""
    try:
        return json.loads(body, parse_constant=pytest.fail)
    except ValueError:
        return body.decode()


def test_every_kind_is_shown() -> None:
    assert {sink.type for sink in shown()} == KINDS
    assert len(KINDS) == len(SINKS) >= 8


@EACH
@pytest.mark.filterwarnings("ignore:.*imghdr.*:DeprecationWarning")  # apprise's
def test_what_a_run_says_stays_text(sink: BaseSink, tmp_path: Path) -> None:
    """Alone, resolved, in a digest and in the metrics: strict JSON, and where people read it nothing that is obeyed."""
    with receiving() as service:
        settings = pointed(sink, service.url, tmp_path, lambda _: "geheim")
        (routed,) = build(converted(Settings, {"sinks": [settings]}).sinks, ReceiverContext(lambda: 1.8e9))
        receiver = routed.receiver
        for odd in PARTS.values():
            said = hostile(odd)
            overview = RunOverview(replace(report(odd).snapshot, run=odd), "slug", active=True, labels={"team": odd})
            snapshot = DaemonSnapshot(runs=(overview,))
            for each in (said, replace(said, status="resolved", ended=1.0), replace(said, parts=(said, said))):
                assert receiver.send(each).result.value == "delivered"
            assert receiver.refresh((said,), snapshot, 1.8e9).result.value == "delivered"
        receiver.close()
    bodies = [strict(sent.body) for sent in service.sent if sent.body]
    bodies += [file.read_text() for file in tmp_path.glob("*.prom")]
    if not receiver.for_programs:
        assert [text for body in bodies for text in texts(body) if OBEYED.search(text.replace("\t", " "))] == []
    elif not receiver.metrics_only:
        assert any(odd in text for body in bodies for text in texts(body) for odd in ("@everyone", "<script>"))
