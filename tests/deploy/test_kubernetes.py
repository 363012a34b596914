"""The plain manifest: objects that Kubernetes takes, with a watcher that is a sidecar and can write its state only."""

from __future__ import annotations

from pathlib import Path

import kubernetes_validate
import pytest

from grpo_watch.config.schema import HeartbeatSink
from grpo_watch.config.settings import load_settings
from tests.support.image import DOCKERFILE, read_image
from tests.support.kubernetes import assert_closed, assert_mounted, objects, pod_specs, validate, watchers

MANIFEST = Path("deploy/kubernetes/sidecar.yaml")
DOCUMENTS = objects(MANIFEST.read_text())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document["kind"])
def test_kubernetes_takes_it(document: dict[str, object]) -> None:
    """By the schema of its version; a misspelt key is not of it."""
    validate(document)
    with pytest.raises(kubernetes_validate.ValidationError):
        validate({**document, "specs": {}})


def test_the_watcher_is_a_closed_sidecar_that_reads_what_the_trainer_writes() -> None:
    (spec,) = pod_specs(DOCUMENTS)
    (watcher,) = watchers(DOCUMENTS)
    assert watcher in spec["initContainers"]
    assert watcher["restartPolicy"] == "Always"
    assert_closed(watcher, read_image(DOCKERFILE.read_text()).user)
    assert_mounted(spec, watcher)
    (trainer,) = spec["containers"]
    assert ("runs", "/runs") in [(mount["name"], mount["mountPath"]) for mount in trainer["volumeMounts"]]


def test_its_settings_load(tmp_path: Path) -> None:
    (settings,) = [document for document in DOCUMENTS if document["kind"] == "ConfigMap"]
    (tmp_path / "grpo-watch.yaml").write_text(settings["data"]["grpo-watch.yaml"])
    loaded = load_settings(config=tmp_path / "grpo-watch.yaml", environ={}).settings
    assert [entry.path for entry in loaded.runs] == ["/runs"]
    (job,) = [document for document in DOCUMENTS if document["kind"] == "Job"]
    assert [entry.name for entry in loaded.runs] == [f"{job['metadata']['name']}/{{folder}}"]
    assert [entry.labels for entry in loaded.runs] == [{"namespace": "default"}]


def test_a_heartbeat_takes_one_line(tmp_path: Path) -> None:
    """The line is there to be uncommented; its address comes from a secret, which the pod does without."""
    (settings,) = [document for document in DOCUMENTS if document["kind"] == "ConfigMap"]
    text = settings["data"]["grpo-watch.yaml"]
    assert load_settings(config=written(tmp_path, text), environ={}).settings.sinks == ()
    enabled = text.replace("# sinks: [{type: heartbeat", "sinks: [{type: heartbeat")
    (beat,) = load_settings(config=written(tmp_path, enabled), environ={}).settings.sinks
    assert isinstance(beat, HeartbeatSink)
    (watcher,), (spec,) = watchers(DOCUMENTS), pod_specs(DOCUMENTS)
    (mount,) = [each for each in watcher["volumeMounts"] if each["name"] == "secret"]
    assert f"url_file: {mount['mountPath']}/heartbeat}}" in enabled
    (volume,) = [each for each in spec["volumes"] if each["name"] == "secret"]
    assert volume["secret"] == {"secretName": "grpo-watch", "optional": True, "defaultMode": 0o440}
    assert watcher["securityContext"]["runAsGroup"] == 0


def written(folder: Path, text: str) -> Path:
    (folder / "grpo-watch.yaml").write_text(text)
    return folder / "grpo-watch.yaml"
