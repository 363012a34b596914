"""Metrics that are pushed or written, and the heartbeat."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from grpo_watch.config.fields import converted
from grpo_watch.config.schema import Settings
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot, RunOverview
from grpo_watch.notify.receiver import DeliveryResult, Receiver, ReceiverContext, build
from grpo_watch.notify.receivers.metrics_text import group_url
from tests.metrics.test_exposition import EMPTY
from tests.support.receiving import a_notification, receiving, secret_file

PICTURE = DaemonSnapshot(runs=(RunOverview(EMPTY, "r", active=True),))


def made(around: ReceiverContext | None = None, **settings: Any) -> Receiver:
    sinks = converted(Settings, {"sinks": [settings]}).sinks
    (routed,) = build(sinks, around or ReceiverContext(clock=lambda: 0.0, instance="gpu7-abc"))
    return routed.receiver


def families(text: str) -> dict[str, list[float]]:
    return {family.name: [sample.value for sample in family.samples] for family in text_string_to_metric_families(text)}


def test_textfile_is_replaced_whole_and_left_with_no_run_active(tmp_path: Path) -> None:
    """Readable for node_exporter's user whatever the umask is; nothing is left beside it; no metric of the process."""
    path = tmp_path / "grpo.prom"
    receiver = made(type="textfile", path=str(path), every=3)
    assert receiver.refresh_every == 3
    before = os.umask(0o077)
    try:
        assert receiver.refresh([], PICTURE, 0.0).result is DeliveryResult.DELIVERED
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    written = families(path.read_text())
    assert written["grpo_run_active"] == [1.0]
    assert not any(name.startswith("process_") for name in written)
    first = path.stat().st_ino
    receiver.close()
    assert families(path.read_text())["grpo_run_active"] == [0.0]
    assert path.stat().st_ino != first
    assert os.listdir(tmp_path) == ["grpo.prom"]  # noqa: PTH208  with hidden ones
    assert receiver.send(a_notification()).result is DeliveryResult.DELIVERED


def test_textfile_that_can_not_be_written(tmp_path: Path) -> None:
    outcome = made(type="textfile", path=str(tmp_path / "no" / "grpo.prom")).refresh([], PICTURE, 0.0)
    assert outcome.result is DeliveryResult.RETRY
    assert "No such file" in outcome.detail


def test_pushgateway_replaces_its_group(tmp_path: Path) -> None:
    token = secret_file(tmp_path / "token", "Bearer geheim")
    with receiving() as server:
        receiver = made(type="pushgateway", url=f"{server.url}/push/", header_files={"Authorization": str(token)})
        assert receiver.refresh([], PICTURE, 0.0).result is DeliveryResult.DELIVERED
        receiver.close()
        first, last = server.sent
    assert (first.method, first.path) == ("PUT", "/push/metrics/job/grpo-watch/instance/gpu7-abc")
    assert first.headers["authorization"] == "Bearer geheim"
    assert families(first.body.decode())["grpo_run_active"] == [1.0]
    assert families(last.body.decode())["grpo_run_active"] == [0.0]


def test_a_watcher_that_saw_nothing_leaves_nothing() -> None:
    with receiving() as server:
        made(type="pushgateway", url=server.url).close()
        assert server.sent == []


@pytest.mark.parametrize(
    ("instance", "path"),
    [("gpu7", "instance/gpu7"), ("a b?", "instance/a%20b%3F"), ("a/b", "instance@base64/YS9i")],
)
def test_groups(instance: str, path: str) -> None:
    assert group_url("http://h:9091/", instance) == f"http://h:9091/metrics/job/grpo-watch/{path}"


def test_heartbeat_only_while_the_engine_is_on_time(tmp_path: Path) -> None:
    late: list[float | None] = [None, 42.0]
    with receiving() as server:
        file = secret_file(tmp_path / "ping", f"{server.url}/ping/geheim")
        around = ReceiverContext(clock=lambda: 0.0, late=lambda: late[0])
        receiver = made(around, type="heartbeat", url_file=str(file))
        assert receiver.refresh_every == 60
        assert receiver.refresh([], DaemonSnapshot(), 0.0).result is DeliveryResult.DELIVERED
        late.pop(0)
        stuck = receiver.refresh([], DaemonSnapshot(), 0.0)
        assert (stuck.result, stuck.detail) == (DeliveryResult.RETRY, "no heartbeat: the engine is 42 s late")
        assert [(sent.method, sent.path) for sent in server.sent] == [("GET", "/ping/geheim")]
        file.unlink()
        late[0] = None
        assert "geheim" not in receiver.refresh([], DaemonSnapshot(), 0.0).detail
        receiver.close()
