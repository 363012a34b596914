"""The real Pushgateway takes what is pushed, keeps the last sample, and lets it be removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from grpo_watch.config.fields import converted
from grpo_watch.config.schema import PushgatewaySink
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot, RunOverview
from grpo_watch.notify.receiver import DeliveryResult, Receiver, ReceiverContext
from grpo_watch.notify.receivers.http import HttpAccess
from grpo_watch.notify.receivers.metrics_text import PushgatewayReceiver, group_url, remove
from tests.metrics.test_exposition import EMPTY
from tests.support.servers import Served, free_port, serving

pytestmark = pytest.mark.system("pushgateway")


@pytest.fixture
def server(program: Callable[[str], str]) -> Iterator[Served]:
    port = free_port()
    with serving([program("pushgateway"), f"--web.listen-address=127.0.0.1:{port}"], port, "/-/ready") as served:
        yield served


def active(server: Served) -> dict[tuple[str, str], float]:
    """``grpo_run_active`` by instance and run."""
    text = httpx.get(f"{server.url}/metrics").text
    return {
        (sample.labels["instance"], sample.labels["run"]): sample.value
        for family in text_string_to_metric_families(text)
        if family.name == "grpo_run_active"
        for sample in family.samples
        if sample.labels["job"] == "grpo-watch"
    }


def receiver(server: Served, instance: str) -> Receiver:
    sink = converted(PushgatewaySink, {"type": "pushgateway", "url": server.url, "instance": instance})
    return PushgatewayReceiver(sink, "p", ReceiverContext(lambda: 0.0))


def test_push_last_sample_next_start_and_clean(server: Served, tmp_path: Path) -> None:
    """Two watchers of one host don't meet; the last sample stays, and goes with a new start or by hand."""
    snapshot = DaemonSnapshot(runs=(RunOverview(EMPTY, "r", active=True),))
    one, two = receiver(server, "gpu7-a"), receiver(server, "gpu7/b")
    assert one.refresh([], snapshot, 0.0).result is DeliveryResult.DELIVERED
    assert two.refresh([], snapshot, 0.0).result is DeliveryResult.DELIVERED
    assert active(server) == {("gpu7-a", "r"): 1.0, ("gpu7/b", "r"): 1.0}
    one.close()
    assert active(server) == {("gpu7-a", "r"): 0.0, ("gpu7/b", "r"): 1.0}
    assert receiver(server, "gpu7-a").refresh([], DaemonSnapshot(), 0.0).result is DeliveryResult.DELIVERED
    assert active(server) == {("gpu7/b", "r"): 1.0}
    assert remove(group_url(server.url, "gpu7/b"), HttpAccess({}), lambda: 0.0).result is DeliveryResult.DELIVERED
    assert active(server) == {}
