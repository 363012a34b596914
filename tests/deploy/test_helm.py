"""The chart, rendered by the real helm: its objects are taken by Kubernetes, closed, scraped, and of our files."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from grpo_watch import __version__
from grpo_watch.config.schema import HeartbeatSink
from grpo_watch.config.settings import load_settings
from tests.support.image import DOCKERFILE, read_image
from tests.support.kubernetes import assert_closed, assert_mounted, objects, pod_specs, validate, watchers

CHART = Path("deploy/helm/grpo-watch")
USER = read_image(DOCKERFILE.read_text()).user
MONITORED = {
    name: {"enabled": True, "labels": {"release": "stack"}} for name in ("podMonitor", "prometheusRule", "dashboards")
}
TRAINER = {
    "image": "trainer:1",
    "command": ["python", "train.py"],
    "env": [{"name": "WORLD_SIZE", "value": "8"}],
    "resources": {"limits": {"nvidia.com/gpu": 8}},
}
TRAINER_IN_FULL = {
    **TRAINER,
    "env": [{"name": "A", "value": "1"}],
    "envFrom": [{"secretRef": {"name": "wandb"}}],
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "datasets"}}],
    "volumeMounts": [{"name": "data", "mountPath": "/datasets", "readOnly": True}],
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "priorityClassName": "training",
    "serviceAccountName": "trainer",
    "ttlSecondsAfterFinished": 0,
}
ON = {"enabled": True}
OWN_FOLDER = {"runs": {"subPath": "night"}}
FULL = {
    "imagePullSecrets": [{"name": "registry"}],
    "runs": {"claim": "nfs", "path": "/data", "subPath": "grpo", "group": 4000},
    "config": {
        "sinks": [{"type": "slack", "webhook_url_file": "/etc/grpo-watch-secrets/slack"}],
        "notify_backlog": "all",
    },
    "secret": "sinks",
    "nodeSelector": {"pool": "cpu"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "podLabels": {"team": "math"},
}
CASES: Mapping[str, Mapping[str, Any]] = {
    "stand-alone": {},
    "stand-alone, everything": {**FULL, **MONITORED, "state": {"storageClass": "fast"}},
    "stand-alone, heartbeat": {"secret": "sinks", "heartbeat": {"key": "ping"}},
    "sidecar": {"mode": "sidecar", "trainer": TRAINER, **OWN_FOLDER},
    "sidecar, heartbeat": {**FULL, "mode": "sidecar", "trainer": TRAINER, "heartbeat": {"key": "ping", "every": 30}},
    "sidecar, everything": {
        **FULL,
        **MONITORED,
        "mode": "sidecar",
        "onePerCluster": True,
        "trainer": TRAINER_IN_FULL,
    },
    "sidecar, a volume of its own": {"mode": "sidecar", "trainer": TRAINER, "runs": {"claim": ""}},
    "sidecar for other charts": {"mode": "sidecar", **OWN_FOLDER},
    "sidecar, a claim of its own": {"mode": "sidecar", "trainer": TRAINER, "runs": {"claim": "mine", "whole": True}},
    "sidecar, its own PodMonitor": {
        "mode": "sidecar",
        "trainer": TRAINER,
        "podMonitor": {"enabled": True, "labels": {"release": "stack"}},
        **OWN_FOLDER,
    },
    "rules, dashboards and PodMonitor only": {
        "mode": "sidecar",
        "onePerCluster": True,
        "runs": {"claim": ""},
        **MONITORED,
    },
}
EMBEDDED = """{{- $watch := index .Subcharts "grpo-watch" }}
apiVersion: batch/v1
kind: Job
metadata: {name: mine}
spec:
  template:
    spec:
      restartPolicy: Never
      initContainers:
        - {{- include "grpo-watch.sidecar" $watch | nindent 10 }}
      containers: [{name: trainer, image: "trainer:1"}]
      volumes:
        {{- include "grpo-watch.volumes" $watch | nindent 8 }}
        - {name: grpo-watch-state, emptyDir: {}}
        - {name: runs, persistentVolumeClaim: {claimName: mine}}
"""
pytestmark = pytest.mark.system("helm")
Render = Callable[[Mapping[str, Any]], list[dict[str, Any]]]
each_case = pytest.mark.parametrize("values", CASES.values(), ids=CASES.keys())


@pytest.fixture
def helm(program: Callable[[str], str], tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs helm over the chart with these values."""

    def run(command: str, values: Mapping[str, Any], *more: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "values.json").write_text(json.dumps(values))
        name = ["night"] if command == "template" else []
        words = [program("helm"), command, *name, str(CHART), "--values", str(tmp_path / "values.json"), *more]
        environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        return subprocess.run(words, capture_output=True, text=True, check=False, env=environment)

    return run


@pytest.fixture
def rendered(
    helm: Callable[..., subprocess.CompletedProcess[str]],
) -> Callable[[Mapping[str, Any]], list[dict[str, Any]]]:
    """The objects that the chart makes of these values."""

    def render(values: Mapping[str, Any]) -> list[dict[str, Any]]:
        done = helm("template", values, "--kube-version", "1.35.0")
        assert done.returncode == 0, done.stderr
        return objects(done.stdout)

    return render


@each_case
def test_helms_own_linter_is_content(helm: Callable[..., Any], values: Mapping[str, Any]) -> None:
    done = helm("lint", values, "--strict", "--quiet")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.slow
@each_case
def test_kubernetes_takes_what_it_renders(rendered: Render, values: Mapping[str, Any]) -> None:
    """Every object by its schema; none twice; each watcher closed, and reading only where others write."""
    documents = rendered(values)
    for document in documents:
        validate(document)
    names = [(document["kind"], document["metadata"]["name"]) for document in documents]
    assert len(names) == len(set(names))
    for spec in pod_specs(documents):
        (watcher,) = watchers([document for document in documents if document["kind"] in {"Deployment", "Job"}])
        assert_closed(watcher, USER)
        assert_mounted(spec, watcher)
        assert watcher["image"] == f"grpo-watch:{__version__}"


@pytest.mark.slow
@each_case
def test_the_settings_watch_what_is_mounted(rendered: Render, values: Mapping[str, Any], tmp_path: Path) -> None:
    documents = rendered(values)
    (config,) = [each for each in documents if each["kind"] == "ConfigMap" and "grpo-watch.yaml" in each["data"]]
    (tmp_path / "grpo-watch.yaml").write_text(config["data"]["grpo-watch.yaml"])
    settings = load_settings(config=tmp_path / "grpo-watch.yaml", environ={}).settings
    for watcher in watchers(documents):
        paths = [mount["mountPath"] for mount in watcher["volumeMounts"] if mount["name"] == "runs"]
        assert [entry.path for entry in settings.runs] == paths
    assert len(settings.sinks) == len(values.get("config", {}).get("sinks", [])) + ("heartbeat" in values)


@pytest.mark.parametrize("case", ["stand-alone, heartbeat", "sidecar, heartbeat"])
def test_a_heartbeat_takes_one_key(rendered: Render, case: str, tmp_path: Path) -> None:
    """It is among the sinks, its address is mounted, and it is let out."""
    documents = rendered(CASES[case])
    (config,) = [each for each in documents if each["kind"] == "ConfigMap" and "grpo-watch.yaml" in each["data"]]
    (tmp_path / "grpo-watch.yaml").write_text(config["data"]["grpo-watch.yaml"])
    *_, beat = load_settings(config=tmp_path / "grpo-watch.yaml", environ={}).settings.sinks
    assert isinstance(beat, HeartbeatSink)
    assert beat.every == CASES[case]["heartbeat"].get("every", 60)
    (watcher,) = watchers(documents)
    (mounted,) = [m["mountPath"] for m in watcher["volumeMounts"] if m["name"] == "grpo-watch-secret"]
    assert yaml.safe_load(config["data"]["grpo-watch.yaml"])["sinks"][-1]["url_file"] == f"{mounted}/ping"
    for policy in [each for each in documents if each["kind"] == "NetworkPolicy"]:
        assert {"ports": [{"port": 443, "protocol": "TCP"}]} in policy["spec"]["egress"]


def test_a_sidecar_starts_first_ends_last_and_leaves_the_trainers_files_alone(rendered: Render) -> None:
    """No fsGroup: it would hand over the volume that the trainer writes."""
    documents = rendered(CASES["sidecar, everything"])
    (spec,) = pod_specs(documents)
    (watcher,) = spec["initContainers"]
    assert watcher["restartPolicy"] == "Always"
    assert watcher["lifecycle"]["preStop"]["sleep"]["seconds"] < spec["terminationGracePeriodSeconds"]
    assert spec["securityContext"] == {"supplementalGroups": [4000]}
    trainer_mount = next(mount for mount in spec["containers"][0]["volumeMounts"] if mount["name"] == "runs")
    assert trainer_mount == {"name": "runs", "mountPath": "/data", "subPath": "grpo"}


def test_the_trainer_is_given_what_it_needs_and_the_watcher_none_of_it(rendered: Render) -> None:
    (job,) = [each for each in rendered(CASES["sidecar, everything"]) if each["kind"] == "Job"]
    assert job["spec"]["ttlSecondsAfterFinished"] == 0
    spec = job["spec"]["template"]["spec"]
    for key in ("affinity", "priorityClassName", "serviceAccountName"):
        assert spec[key] == TRAINER_IN_FULL[key]
    assert spec["volumes"][-1:] == TRAINER_IN_FULL["volumes"]
    (trainer,), (watcher,) = spec["containers"], spec["initContainers"]
    assert trainer["envFrom"] == TRAINER_IN_FULL["envFrom"]
    assert trainer["volumeMounts"][-1:] == TRAINER_IN_FULL["volumeMounts"]
    assert "envFrom" not in watcher
    assert "data" not in {mount["name"] for mount in watcher["volumeMounts"]}


def test_a_pod_monitor_of_a_job_leaves_other_jobs_alone(rendered: Render) -> None:
    """Else each of N jobs in a namespace would have every pod scraped once more."""

    def selected(values: Mapping[str, Any]) -> dict[str, str]:
        (monitor,) = [each for each in rendered(values) if each["kind"] == "PodMonitor"]
        labels: dict[str, str] = monitor["spec"]["selector"]["matchLabels"]
        return labels

    every = {"grpo-watch/scrape": "true"}
    assert selected(CASES["sidecar, its own PodMonitor"]) == {**every, "app.kubernetes.io/instance": "night"}
    assert selected(CASES["rules, dashboards and PodMonitor only"]) == every
    assert selected(CASES["stand-alone, everything"]) == every


def test_runs_of_different_jobs_are_called_differently(rendered: Render) -> None:
    """Alertmanager and Prometheus tell runs apart by their name, and many jobs write to a folder called `output`."""

    def runs(values: Mapping[str, Any]) -> list[dict[str, Any]]:
        (config,) = [each for each in rendered(values) if "grpo-watch.yaml" in each.get("data", {})]
        found: list[dict[str, Any]] = yaml.safe_load(config["data"]["grpo-watch.yaml"])["runs"]
        return found

    labels = {"namespace": "default"}
    assert runs(CASES["sidecar"]) == [{"path": "/runs", "name": "night/{folder}", "labels": labels}]
    assert runs(CASES["stand-alone"]) == [{"path": "/runs", "labels": labels}]


def test_a_chart_of_ones_own_takes_the_sidecar(program: Callable[[str], str], tmp_path: Path) -> None:
    """With the two lines that values.yaml and the documentation name."""
    pod = tmp_path / "mine" / "templates" / "pod.yaml"
    pod.parent.mkdir(parents=True)
    (tmp_path / "mine" / "Chart.yaml").write_text("{apiVersion: v2, name: mine, version: 1.0.0}")
    (tmp_path / "mine" / "values.yaml").write_text("grpo-watch: {mode: sidecar, runs: {path: /data, subPath: mine}}")
    shutil.copytree(CHART, tmp_path / "mine" / "charts" / "grpo-watch")
    pod.write_text(EMBEDDED)
    command = [program("helm"), "template", "mine", str(tmp_path / "mine"), "--kube-version", "1.35.0"]
    documents = objects(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    (taken,) = [each for each in documents if each["kind"] == "Job"]
    validate(taken)
    (watcher,) = watchers([taken])
    assert watcher["restartPolicy"] == "Always"
    assert_mounted(taken["spec"]["template"]["spec"], watcher)


def test_the_network_policy_is_for_the_watchers_own_pods_only(rendered: Render) -> None:
    (policy,) = [each for each in rendered(CASES["stand-alone"]) if each["kind"] == "NetworkPolicy"]
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert [port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]] == [53, 53]
    assert not [each for each in rendered(CASES["sidecar"]) if each["kind"] == "NetworkPolicy"]


@pytest.mark.parametrize("case", ["stand-alone, everything", "sidecar, everything", "sidecar, its own PodMonitor"])
def test_the_pod_monitor_finds_the_pods_and_their_port(rendered: Render, case: str) -> None:
    documents = rendered(CASES[case])
    (monitor,) = [each for each in documents if each["kind"] == "PodMonitor"]
    (pod,) = [each["spec"]["template"] for each in documents if each["kind"] in {"Deployment", "Job"}]
    assert monitor["metadata"]["labels"]["release"] == "stack"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (watcher,) = watchers(documents)
    assert endpoint["port"] in [port["name"] for port in watcher["ports"]]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "grpo-watch"}]


@pytest.mark.parametrize(("web", "scheme"), [({}, "http"), ({"tls_cert": "/c.pem", "tls_key": "/k.pem"}, "https")])
def test_it_is_probed_and_scraped_as_it_answers(rendered: Render, web: dict[str, str], scheme: str) -> None:
    documents = rendered({**MONITORED, "config": {"web": web}})
    (monitor,) = [each for each in documents if each["kind"] == "PodMonitor"]
    (watcher,) = watchers(documents)
    assert [endpoint["scheme"] for endpoint in monitor["spec"]["podMetricsEndpoints"]] == [scheme]
    for probe in ("livenessProbe", "readinessProbe"):
        assert watcher[probe]["httpGet"]["scheme"] == scheme.upper()


@pytest.mark.slow
@pytest.mark.system("promtool")
@pytest.mark.parametrize("case", ["stand-alone, everything", "sidecar, everything"])
def test_prometheus_takes_the_rules(rendered: Render, case: str, tmp_path: Path, program: Callable[[str], str]) -> None:
    """They are those of rules/prometheus; that a watcher is missing is no alert where watchers come and go."""
    shipped = {path.name.removesuffix(".rules.yaml"): path for path in Path("rules/prometheus").glob("*.rules.yaml")}
    if case.startswith("sidecar"):
        del shipped["grpo-standalone"]
    rules = [each for each in rendered(CASES[case]) if each["kind"] == "PrometheusRule"]
    assert len(rules) == len(shipped)
    for rule in rules:
        name = "grpo-" + rule["metadata"]["name"].removeprefix("night-grpo-watch-")
        assert rule["spec"] == yaml.safe_load(shipped[name].read_text())
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(rule["spec"]))
    files = sorted(str(path) for path in tmp_path.glob("grpo-*.yaml"))
    assert (
        subprocess.run([program("promtool"), "check", "rules", *files], capture_output=True, check=False).returncode
        == 0
    )


def test_alerts_link_to_runbooks_as_the_generator_makes_them(rendered: Render, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend("scripts")
    linked = import_module("prometheus_runbooks").linked
    urls = "https://wiki.example.org/{rule}.md", "https://wiki.example.org/alerts#{alert}"
    values = {"enabled": True, "runbookUrl": urls[0], "alertRunbookUrl": urls[1]}
    made = [each["spec"] for each in rendered({"prometheusRule": values}) if each["kind"] == "PrometheusRule"]
    files = sorted(Path("rules/prometheus").glob("*.rules.yaml"))
    assert made == [yaml.safe_load(linked(file.read_text(), *urls)) for file in files]
    assert "https://wiki.example.org/{{ $labels.rule }}.md" in json.dumps(made)


@pytest.mark.parametrize(
    "url", ["https://wiki.example.org/", 'https://x/"{rule}', "ftp://x/{rule}", "https://x/$1{rule}"]
)
def test_an_address_of_runbooks_that_can_not_be_is_refused(helm: Callable[..., Any], url: str) -> None:
    assert "runbookUrl" in helm("template", {"prometheusRule": {"runbookUrl": url}}).stderr


def test_the_dashboards_are_ours_and_small_enough_for_a_configmap(rendered: Render) -> None:
    """1 MiB is what Kubernetes takes."""
    maps = [
        each for each in rendered(CASES["stand-alone, everything"]) if "grafana_dashboard" in each["metadata"]["labels"]
    ]
    found = {name: text for each in maps for name, text in each["data"].items()}
    shipped = {path.name: path.read_text() for path in Path("deploy/grafana/dashboards").glob("*.json")}
    assert {name: json.loads(text) for name, text in found.items()} == {n: json.loads(t) for n, t in shipped.items()}
    assert max(len(text) for text in found.values()) < 2**20


def test_nothing_is_left_of_files_that_went() -> None:
    """`make docs` writes the copies; what has no source any more has to be removed by hand."""
    sources = {path.name for path in Path("rules/prometheus").glob("*.rules.yaml")}
    sources |= {path.name for path in Path("deploy/grafana/dashboards").glob("*.json")}
    assert {path.name for path in (CHART / "files").rglob("*") if path.is_file()} == sources


@pytest.mark.parametrize(
    ("values", "reported"),
    [
        ({"mode": "side-car"}, "mode"),
        ({"imagePullSecret": []}, "imagePullSecret"),
        ({"runs": {"path": "relative"}}, "path"),
        ({"runs": {"claim": ""}}, "the stand-alone watcher needs the volume"),
        ({"mode": "sidecar"}, "runs.subPath: a sidecar watches its own job only"),
        ({"mode": "sidecar", "trainer": TRAINER, "runs": {"claim": "nfs"}}, "runs.subPath: a sidecar watches"),
        ({"mode": "sidecar", **OWN_FOLDER, "prometheusRule": ON}, "prometheusRule.enabled is needed once per cluster"),
        ({"mode": "sidecar", **OWN_FOLDER, "dashboards": ON}, "dashboards.enabled is needed once per cluster"),
        (
            {"mode": "sidecar", **OWN_FOLDER, "podMonitor": {**ON, "anyNamespace": True}},
            "podMonitor.anyNamespace is needed once per cluster",
        ),
        ({"trainer": {"ttlSecondsAfterFinished": -1}}, "ttlSecondsAfterFinished"),
        ({"heartbeat": {"key": "ping"}}, "heartbeat.key: name the Secret"),
        ({"heartbeat": {"key": "../ping"}, "secret": "s"}, "heartbeat"),
    ],
)
def test_values_that_make_no_sense_are_refused(
    helm: Callable[..., Any], values: Mapping[str, Any], reported: str
) -> None:
    done = helm("template", values)
    assert done.returncode != 0
    assert reported in done.stderr


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__


def test_the_documented_installations_render(program: Callable[[str], str], tmp_path: Path) -> None:
    """The commands of the page, with `template` for `install`."""
    page = Path("docs/deployment.md").read_text().replace("\\\n", "")
    commands = [line.split()[2:] for line in page.splitlines() if line.startswith("helm install ")]
    assert len(commands) == 3
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    for words in commands:
        command = [program("helm"), "template", *words, "--kube-version", "1.35.0"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
