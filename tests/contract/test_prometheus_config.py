"""The shipped Prometheus configurations: valid, and pods become one target each."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path("deploy/prometheus")
PODS = re.compile(r"    kubernetes_sd_configs:\n      - role: pod\n")
META = "__meta_kubernetes_pod_"


def promtool(program: Callable[[str], str], *arguments: str | Path) -> str:
    done = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.system("promtool")
def test_they_are_valid(program: Callable[[str], str]) -> None:
    """The agent's in agent mode; of that for Kubernetes what Debian's build knows."""
    assert {file.name for file in FOLDER.glob("*.yml")} == {"prometheus.yml", "agent.yml", "kubernetes.yml"}
    assert "rule files found" in promtool(program, "check", "config", FOLDER / "prometheus.yml")
    promtool(program, "check", "config", "--agent", FOLDER / "agent.yml")


@pytest.mark.parametrize("name", ["prometheus.yml", "kubernetes.yml"])
def test_who_evaluates_alerts_notifies_an_alertmanager(name: str) -> None:
    """Rules without an address for their alerts would fire for nobody."""
    config = yaml.safe_load((FOLDER / name).read_text())
    assert config["rule_files"]
    targets = [
        target
        for alertmanager in config["alerting"]["alertmanagers"]
        for group in alertmanager["static_configs"]
        for target in group["targets"]
    ]
    assert targets
    assert all(target.endswith(":9093") for target in targets)


def pod(name: str, phase: str = "Running", port: str = "", scrape: str = "true") -> dict[str, Any]:
    """What discovery says of one container of a pod."""
    labels = {
        f"{META}annotation_grpo_watch_scrape": scrape,
        f"{META}ip": "10.0.0.7",
        f"{META}name": name,
        f"{META}phase": phase,
        "__meta_kubernetes_namespace": "ml",
        **({f"{META}container_port_number": port} if port else {}),
    }
    return {"targets": [f"10.0.0.7:{port or 80}"], "labels": labels}


@pytest.mark.slow
@pytest.mark.system("promtool")
def test_a_pod_is_one_target(tmp_path: Path, program: Callable[[str], str]) -> None:
    """Whatever other containers it has; no pod that is over, or that did not ask for it."""
    pods = [
        *(pod("job-1"), pod("job-1", port="9853"), pod("job-1", port="8080")),
        *(pod("over", phase="Succeeded"), pod("other", scrape="")),
    ]
    text = (FOLDER / "kubernetes.yml").read_text()
    assert len(PODS.findall(text)) == 1
    config = tmp_path / "prometheus.yml"
    static = f"    static_configs: {json.dumps(pods)}\n"
    config.write_text(PODS.sub(static, text).replace("../../rules", str(Path("rules").resolve())))
    promtool(program, "check", "config", config)
    found = json.loads(promtool(program, "check", "service-discovery", "--timeout=5s", config, "grpo-watch"))
    kept = [target["labels"] for target in found if target["labels"]]
    assert {(one["__address__"], one["namespace"], one["pod"]) for one in kept} == {("10.0.0.7:9853", "ml", "job-1")}
    assert all(one["instance"] == "10.0.0.7:9853" for one in kept)
