"""A real Prometheus under the shipped configuration and rules, with short intervals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.servers import Served, free_port, prometheus_command, serving

SHIPPED = Path("deploy/prometheus/prometheus.yml").resolve()
RULES = Path("rules/prometheus").resolve()


@contextmanager
def shipped_prometheus(
    program: str,
    folder: Path,
    watcher: str,
    alertmanager: str = "http://127.0.0.1:9",
    interval: str = "1s",
    namespace: str = "",
) -> Iterator[Served]:
    """Scrapes ``watcher`` and tells ``alertmanager`` (addresses with ``http://``); stores in ``folder``.

    ``namespace`` is a label of the target, as in Kubernetes; empty: it has none.
    """
    target = '      - targets: ["127.0.0.1:9853"]\n'
    text = SHIPPED.read_text().replace(target, f"{target}        labels: {{namespace: '{namespace}'}}\n")
    assert "labels: {namespace:" in text
    changes = {
        "127.0.0.1:9853": watcher.removeprefix("http://"),
        "127.0.0.1:9093": alertmanager.removeprefix("http://"),
        "15s": interval,
        "../../rules/prometheus": str(RULES),
    }
    for shipped, here in changes.items():
        assert shipped in text
        text = text.replace(shipped, here)
    config = folder / "prometheus.yml"
    config.write_text(text)
    port = free_port()
    command = prometheus_command(program, config, folder, port)
    with serving(command, port, "/-/ready") as server:
        yield server
