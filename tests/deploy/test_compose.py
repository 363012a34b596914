"""compose.yaml: of the published schema, closed, pinned, and everything that it mounts is there and understood."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from grpo_watch.config.schema import HeartbeatSink
from grpo_watch.config.settings import load_settings
from tests.support.image import DOCKERFILE, read_image

FOLDER = Path("deploy/compose")
FILE = FOLDER / "compose.yaml"
SERVICES: Mapping[str, Any] = yaml.safe_load(FILE.read_text())["services"]
each_service = pytest.mark.parametrize("name", SERVICES)


def mounts(name: str) -> list[tuple[str, str, str]]:
    """Source, place inside, and mode."""
    split = [re.sub(r"\$\{(\w+)[^}]*\}", r"$\1", volume).split(":") for volume in SERVICES[name]["volumes"]]
    return [(source, inside, *mode) if mode else (source, inside, "rw") for source, inside, *mode in split]


def shipped(name: str) -> list[tuple[Path, str]]:
    """What of this repository is mounted, and where."""
    return [(FOLDER / source, inside) for source, inside, _ in mounts(name) if source.startswith(".")]


def inside(name: str, folder: Path) -> Path:
    """A folder in which this repository's files lie as in the container."""
    for source, place in shipped(name):
        target = folder / place.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source.resolve())
    return folder


def option(name: str, flag: str) -> str:
    """The value of a command line's option."""
    return next(part.partition("=")[2] for part in SERVICES[name]["command"] if part.startswith(f"--{flag}="))


def test_it_is_of_the_published_schema(tmp_path: Path) -> None:
    """That of the Compose Specification, as check-jsonschema carries it; a misspelt key is not of it."""
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*check, FILE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    worse = tmp_path / FILE.name
    worse.write_text(FILE.read_text().replace("cap_drop", "cap_dropped"))
    assert subprocess.run([*check, worse], capture_output=True, check=False).returncode == 1


@each_service
def test_every_service_is_closed_and_pinned(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert re.fullmatch(r"[a-z/-]+:v?\d+\.\d+\.\d+", service["image"])


@each_service
def test_what_is_mounted_is_there_and_read_only(name: str) -> None:
    volumes = yaml.safe_load(FILE.read_text())["volumes"]
    for source, place, mode in mounts(name):
        if source.startswith(".") or source == "$RUNS":
            assert mode == "ro", place
        else:
            assert source in volumes
    for source, _ in shipped(name):
        assert source.exists(), source


@each_service
def test_it_listens_on_the_loopback_address_only(name: str) -> None:
    """They use the machine's own network; Alertmanager would open another port for its peers."""
    service = SERVICES[name]
    assert service["network_mode"] == "host"
    said = "\n".join([*service.get("command", []), *map(str, service.get("environment", {}).values())])
    assert "127.0.0.1" in said
    assert "0.0.0.0" not in said  # noqa: S104  looked for, not bound
    assert name != "alertmanager" or option(name, "cluster.listen-address") == ""


def test_the_watcher_is_the_image_that_the_dockerfile_makes() -> None:
    service = SERVICES["grpo-watch"]
    image = read_image(DOCKERFILE.read_text())
    assert (FOLDER / service["build"]["context"]).resolve() == Path.cwd()
    assert service["build"]["dockerfile"] == str(DOCKERFILE)
    assert service["user"] == f"{image.user}:{image.user}"
    assert ("state", str(Path(image.environment["GRPO_WATCH_STATE_DIR"]).parent), "rw") in mounts("grpo-watch")


def test_the_watchers_settings_load_and_watch_what_is_mounted() -> None:
    (config,) = [source for source, place in shipped("grpo-watch") if place.endswith(".yaml")]
    settings = load_settings(config=config, environ=SERVICES["grpo-watch"]["environment"]).settings
    assert [entry.path for entry in settings.runs] == ["/runs"]
    assert settings.listen == "127.0.0.1:9853"
    assert "/runs" in [place for _, place, _ in mounts("grpo-watch")]


def test_a_heartbeat_takes_one_line(tmp_path: Path) -> None:
    """The line is there to be uncommented; the folder of its address is mounted, and what lies there is not of Git."""
    (config,) = [source for source, place in shipped("grpo-watch") if place.endswith(".yaml")]
    changed = tmp_path / "grpo-watch.yaml"
    changed.write_text(config.read_text().replace("# - {type: heartbeat", "- {type: heartbeat"))
    before = load_settings(config=config, environ={}).settings.sinks
    *others, beat = load_settings(config=changed, environ={}).settings.sinks
    assert tuple(others) == before
    assert isinstance(beat, HeartbeatSink)
    (folder,) = [source for source, place in shipped("grpo-watch") if place == "/etc/grpo-watch-secrets"]
    assert "url_file: /etc/grpo-watch-secrets/heartbeat}" in changed.read_text()
    command = ["git", "check-ignore", "--quiet", str(folder / "heartbeat")]
    assert subprocess.run(command, check=False).returncode == 0


@pytest.mark.system("promtool")
def test_prometheus_understands_what_it_finds_there(tmp_path: Path, program: Callable[[str], str]) -> None:
    """Its rule files are found from its configuration; it scrapes the watcher and notifies Alertmanager."""
    config = inside("prometheus", tmp_path) / option("prometheus", "config.file").lstrip("/")
    rules = tmp_path / "shipped" / "rules"
    command = [program("promtool"), "check", "config", config]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "rule files found" in done.stdout
    assert rules.is_dir()
    assert "127.0.0.1:9853" in config.read_text()
    assert option("alertmanager", "web.listen-address") in config.read_text()


@pytest.mark.system("amtool")
def test_alertmanager_understands_what_it_finds_there(tmp_path: Path, program: Callable[[str], str]) -> None:
    config = inside("alertmanager", tmp_path) / option("alertmanager", "config.file").lstrip("/")
    done = subprocess.run([program("amtool"), "check-config", config], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_grafana_finds_the_dashboards_and_prometheus(tmp_path: Path) -> None:
    """The providers' folders hold dashboards; every variable that the provisioning uses is set."""
    root = inside("grafana", tmp_path)
    environment = SERVICES["grafana"]["environment"]
    for provisioning in (root / "etc/grafana/provisioning").rglob("*.yaml"):
        text = provisioning.read_text()
        assert set(re.findall(r"\$\{?(\w+)\}?", re.sub(r"#.*", "", text))) <= environment.keys()
        for provider in yaml.safe_load(text).get("providers", []):
            assert list((root / provider["options"]["path"].lstrip("/")).glob("*.json"))
    assert environment["PROMETHEUS_URL"] == f"http://{option('prometheus', 'web.listen-address')}"


def test_grafana_asks_nothing_of_its_makers() -> None:
    """Grafana 12 installs plugins from grafana.com at its start unless a setting forbids it."""
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_PLUGINS_PREINSTALL_DISABLED"] == "true"
    off = ("NEWS_NEWS_FEED", "ANALYTICS_REPORTING", "PLUGINS_PLUGIN_ADMIN")
    assert {environment[f"GF_{name}_ENABLED"] for name in off} == {"false"}
    assert {environment[f"GF_ANALYTICS_CHECK_FOR_{what}UPDATES"] for what in ("", "PLUGIN_")} == {"false"}
