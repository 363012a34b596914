"""Settings: the file's shape, who wins over whom, where each came from, and that secrets stay hidden."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from grpo_watch.config.fields import BOOLEANS, NUMBERS, SecretFile, Url
from grpo_watch.config.schema import Settings, SlackSink, WebhookSink, split_listen
from grpo_watch.config.settings import default_state_dir, effective, load_settings, parse_assignments
from grpo_watch.engine.metric_names import SETTINGS
from grpo_watch.engine.reward_functions import weights_in
from grpo_watch.errors import ConfigError, UsageError
from tests.support.receiving import secret_file

FULL = """\
runs:
  - path: runs/*
    name: "{folder}"
    labels: {team: math}
    settings: {beta: 0.04, world_size: 8}
  - path: wandb://entity/project
  - path: "-"
listen: 127.0.0.1:9853
state_dir: /var/lib/grpo-watch
retention: {days: 7, max_mb: 100}
rules: [my-rules.yaml]
notify_backlog: all
sinks:
  - {type: alertmanager, url: "http://127.0.0.1:9093"}
  - {type: slack, webhook_url_file: slack, min_severity: critical}
  - {type: webhook, url: "https://me:geheim@host:8080/hook?token=tokengeheim", secret_file: /etc/hmac}
  - {type: pushgateway, url: "http://127.0.0.1:9091"}
  - {type: textfile, path: /var/lib/node_exporter/grpo.prom}
  - {type: apprise, url_file: /etc/grpo-watch/apprise}
mute: [{run: "exp7*", rule: entropy-collapse, until: 2027-01-31, reason: "known"}]
web: {token_file: /etc/token, tls_cert: c.pem, tls_key: k.pem, allowed_hosts: [gpu7]}
allow_roots: [/shared/checkpoints]
privacy: {examples: false}
"""
NOTHING: MappingProxyType[str, str] = MappingProxyType({})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "grpo-watch.yaml"
    path.write_text(FULL)
    return path


def test_the_whole_file_of_the_interface_is_read(file: Path) -> None:
    """Every key arrives, and paths are relative to the file."""
    settings = load_settings(config=file, environ=NOTHING).settings
    folder = file.parent
    assert [run.path for run in settings.runs] == [str(folder / "runs/*"), "wandb://entity/project", "-"]
    assert settings.runs[0].settings == {"beta": 0.04, "world_size": 8}
    assert settings.state_dir == Path("/var/lib/grpo-watch")
    assert settings.rules == (folder / "my-rules.yaml",)
    assert [sink.type for sink in settings.sinks] == [
        "alertmanager",
        "slack",
        "webhook",
        "pushgateway",
        "textfile",
        "apprise",
    ]
    assert [sink.min_severity.value for sink in settings.sinks[:2]] == ["warning", "critical"]
    assert isinstance(settings.sinks[1], SlackSink)
    assert settings.sinks[1].webhook_url_file == SecretFile(folder / "slack")
    assert str(settings.mute[0].until) == "2027-01-31"
    assert settings.web.allowed_hosts == ("gpu7",)
    assert not settings.privacy.examples


def test_flags_win_over_variables_over_the_file_over_defaults(file: Path) -> None:
    """And each key says where it came from."""
    environ = {"GRPO_WATCH_LISTEN": ":1", "GRPO_WATCH_RETENTION_DAYS": "3", "GRPO_WATCH_RULES": "a.yaml:/b.yaml"}
    loaded = load_settings({"listen": ":2", "state_dir": None, "rules": []}, config=file, environ=environ)
    reported = {item.name: (item.value, item.origin) for item in effective(loaded, environ)}
    assert reported["listen"] == (":2", "--listen")
    assert reported["retention.days"] == (3.0, "GRPO_WATCH_RETENTION_DAYS")
    assert reported["retention.max_mb"] == (100.0, f"{file}:10")
    assert reported["rules"] == (["a.yaml", "/b.yaml"], "GRPO_WATCH_RULES")
    assert reported["state_dir"] == ("/var/lib/grpo-watch", f"{file}:9")
    assert reported["privacy.examples"] == (False, f"{file}:23")


def test_defaults_without_any_file(tmp_path: Path) -> None:
    """An empty folder and environment give the documented defaults."""
    loaded = load_settings(environ=NOTHING, folder=tmp_path)
    assert loaded.settings == Settings()
    assert loaded.file is None
    reported = {item.name: (item.value, item.origin) for item in effective(loaded, {"HOME": "/home/u"})}
    assert reported["listen"] == ("127.0.0.1:9853", "default")
    assert reported["state_dir"] == ("/home/u/.local/state/grpo-watch/<host>-<hash of the paths>", "default")


def test_which_file_is_read(tmp_path: Path, file: Path) -> None:
    """--config, then $GRPO_WATCH_CONFIG, then ./grpo-watch.yaml; a named file must exist."""
    other = tmp_path / "other.yaml"
    other.write_text("listen: ':7'\n")
    environ = {"GRPO_WATCH_CONFIG": str(other)}
    assert load_settings(environ=environ, folder=tmp_path).settings.listen == ":7"
    assert load_settings(config=file, environ=environ).settings.listen == "127.0.0.1:9853"
    assert load_settings(environ=NOTHING, folder=tmp_path).file == file
    with pytest.raises(ConfigError, match=r"^/nowhere/x\.yaml: can't be read: No such file"):
        load_settings(environ={"GRPO_WATCH_CONFIG": "/nowhere/x.yaml"})


def test_variables_that_kubernetes_sets_are_ignored(tmp_path: Path) -> None:
    """A service called grpo-watch puts these into every pod."""
    environ = {"GRPO_WATCH_PORT": "tcp://10.0.0.1:9853", "GRPO_WATCH_SERVICE_HOST": "10.0.0.1"}
    assert load_settings(environ=environ, folder=tmp_path).settings == Settings()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("listen:", "listn:", "8:1: unknown key 'listn' (did you mean listen?)"),
        (
            "webhook_url_file",
            "webhook_url",
            "15:19: unknown key 'webhook_url' (use webhook_url_file: the path",
        ),
        ("webhook_url_file", "url", "15:19: unknown key 'url' (use webhook_url_file: the path"),
        ("type: slack", "type: teams", "15:5: unknown type 'teams' (use `type: apprise` with url_file"),
        ("type: slack", "type: xyz", "15:5: unknown type 'xyz' (known types: alertmanager, slack, "),
        ("listen:", "\tlisten:", "8:1: a tab can't indent YAML (use spaces)"),
        ("path: runs/*", "pth: runs/*", "2:5: unknown key 'pth' (did you mean path?)"),
        ("beta:", "bta:", "5:15: runs.0.settings: unknown setting 'bta' (did you mean beta?)"),
        ("team: math", "team: [1]", "4:13: runs.0.labels: must be a text, not a list"),
        ("type: slack", "type: slak", "15:5: unknown type 'slak' (did you mean slack?)"),
        ("days: 7", "days: -7", "10:19: retention.days: must be a number > 0"),
        (
            "notify_backlog: all",
            "notify_backlog: some",
            "12:17: notify_backlog: must be 'live', 'all' or 'none'",
        ),
        (
            "notify_backlog: all",
            "runbook_url: https://wiki.example.org/",
            "12:14: runbook_url: must be a URL that contains {rule}",
        ),
        (
            "notify_backlog: all",
            "runbook_url: wiki/{rule}",
            "12:14: runbook_url: a URL must start with http:// or https://",
        ),
        (", tls_key: k.pem", "", "21:6: web: set both tls_cert and tls_key"),
        ("http://127.0.0.1:9091", "127.0.0.1:9091", "17:31: sinks.3.url: a URL must start with http:// or https://"),
        ("2027-01-31", "2027-02-31", "20:54: day is out of range for month"),
        (
            "team: math",
            "team: math, 'a b': x",
            "4:13: runs.0.labels: its keys must consist of letters, digits and _,",
        ),
        (
            "team: math",
            '"team\\n": math',
            "4:13: runs.0.labels: its keys must consist of letters, digits and _,",
        ),
        ("beta: 0.04", "beta: [1]", "5:15: runs.0.settings: must be a single value, not a list"),
        ("type: slack", "type: null", "15:12: sinks.1.type: must be a text, not nothing"),
        ("type: slack", "type: [slack]", "15:12: sinks.1.type: must be a text, not a list"),
        ("type: slack", "type: {slack: x}", "15:12: sinks.1.type: must be a text, not a mapping"),
        ("2027-01-31", "'2027-01-31'", "20:55: mute.0.until: must be a day (2027-01-31) or a moment"),
        ("127.0.0.1:9853", "localhost", "8:9: listen: 'localhost' is not HOST:PORT"),
        ("{examples: false}", "no way", "23:10: privacy: must contain `key: value` lines"),
    ],
)
def test_mistakes_name_file_line_and_column(file: Path, old: str, new: str, message: str) -> None:
    """A misspelt key is found in every depth of the file."""
    file.write_text(FULL.replace(old, new))
    with pytest.raises(ConfigError) as refused:
        load_settings(config=file, environ=NOTHING)
    assert str(refused.value).startswith(f"{file}:{message}")


@pytest.mark.parametrize(
    ("environ", "flags", "message"),
    [
        ({"GRPO_WATCH_RETENTION_DAYS": "soon"}, {}, "GRPO_WATCH_RETENTION_DAYS: must be a number"),
        ({"GRPO_WATCH_PRIVACY_EXAMPLES": "maybe"}, {}, "GRPO_WATCH_PRIVACY_EXAMPLES: must be true or false"),
        ({"GRPO_WATCH_LISTEN": "here"}, {}, "GRPO_WATCH_LISTEN: 'here' is not HOST:PORT"),
        ({}, {"listen": "1:99999"}, "--listen: '1:99999' is not HOST:PORT"),
    ],
)
def test_mistakes_in_variables_and_flags_are_named(
    environ: dict[str, str], flags: dict[str, Any], message: str
) -> None:
    """The variable or flag stands where a file's name would."""
    with pytest.raises(ConfigError) as refused:
        load_settings(flags, environ=environ, folder=Path("/nowhere"))
    assert str(refused.value).startswith(message)


def test_secrets_appear_nowhere(file: Path) -> None:
    """Neither in repr, nor in str, nor in what `grpo-watch config` prints; reveal() and read() give them."""
    secret_file(file.parent / "slack", "https://hooks.slack.com/services/T0/B0/topsecret\n")
    loaded = load_settings(config=file, environ=NOTHING)
    shown = repr(loaded) + str(loaded.settings) + repr(effective(loaded, NOTHING))
    for secret in ("geheim", "topsecret"):
        assert secret not in shown
    slack, webhook = loaded.settings.sinks[1:3]
    assert isinstance(slack, SlackSink)
    assert isinstance(webhook, WebhookSink)
    assert slack.webhook_url_file.read() == "https://hooks.slack.com/services/T0/B0/topsecret"
    assert webhook.url is not None
    assert webhook.url.reveal() == "https://me:geheim@host:8080/hook?token=tokengeheim"
    assert str(webhook.url) == "https://***@host:8080/hook?***"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "the secret can't be read: No such file or directory"),
        (b" \n", "the secret is empty"),
        (b"\xff", "the secret is not UTF-8 text"),
        (b"h" * 16_385, "the secret is larger than 16384 bytes"),
        ("hü".encode() * 6_000, "the secret is larger than 16384 bytes"),  # read to the middle of a letter
    ],
    ids=["missing", "empty", "bytes", "large", "cut"],
)
def test_unusable_secret_files(tmp_path: Path, content: bytes | None, problem: str) -> None:
    """One line that names the file."""
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o600)
    with pytest.raises(ConfigError) as refused:
        SecretFile(path).read()
    assert str(refused.value) == f"{path}: {problem}"


@pytest.mark.parametrize(
    ("mode", "refused"), [(0o600, False), (0o440, False), (0o644, True), (0o604, True), (0o602, True)]
)
def test_a_secret_that_everybody_can_read_is_refused(tmp_path: Path, mode: int, refused: bool) -> None:  # noqa: FBT001
    """Its owner and a group may read it; the message holds the fix and not the secret."""
    path = secret_file(tmp_path / "secret", "geheim")
    path.chmod(mode)
    if not refused:
        assert SecretFile(path).read() == "geheim"
        return
    with pytest.raises(ConfigError, match="every user") as problem:
        SecretFile(path).read()
    assert f"chmod 600 {path}" in str(problem.value)
    assert "geheim" not in str(problem.value)


def test_a_secret_that_is_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "secret", 0o600)
    with pytest.raises(ConfigError, match="not a regular file"):
        SecretFile(tmp_path / "secret").read()


def test_urls_without_secrets_are_shown_as_they_are() -> None:
    """Nothing is hidden that need not be."""
    assert str(Url("http://127.0.0.1:9093/api")) == "http://127.0.0.1:9093/api"


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:9853", "127.0.0.1", 9853), (":0", "127.0.0.1", 0), ("[::1]:80", "::1", 80), ("gpu7:1", "gpu7", 1)],
)
def test_listen_addresses(text: str, host: str, port: int) -> None:
    """Host and port; without a host it is the loopback one."""
    assert split_listen(text) == (host, port)


@pytest.mark.parametrize("text", ["", "9853", "host", "host:", "host:-1", "host:65536", "::1:80", "host:\uff19"])
def test_what_is_no_listen_address(text: str) -> None:
    """Anything ambiguous is refused."""
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        split_listen(text)


def test_assignments() -> None:
    """Values are JSON where they can be, else text."""
    texts = ["beta=0.04", "use_vllm=True", "model=org/name=1", "seed=null", "dtype=", "lr_scheduler_type=[1]"]
    assert parse_assignments(texts) == {
        "beta": 0.04,
        "use_vllm": True,
        "model": "org/name=1",
        "seed": None,
        "dtype": "",
        "lr_scheduler_type": "[1]",
    }


@pytest.mark.parametrize(("text", "fix"), [("beta", "use KEY=VALUE"), ("bta=1", "did you mean beta")])
def test_wrong_assignments(text: str, fix: str) -> None:
    """The argument and the fix are in the line."""
    with pytest.raises(UsageError, match=fix):
        parse_assignments([text])


def test_state_folder_depends_on_host_and_set_of_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order and spelling of paths don't matter; another host or path gives another folder."""
    monkeypatch.chdir(tmp_path)
    environ = {"XDG_STATE_HOME": "/state", "HOME": "/home/u"}
    one = default_state_dir(["a", "/b"], "gpu7", environ)
    assert one.parent == Path("/state/grpo-watch")
    assert one.name.startswith("gpu7-")
    assert one == default_state_dir(["/b", str(tmp_path / "a"), "a"], "gpu7", environ)
    assert one != default_state_dir(["a"], "gpu7", environ)
    assert one != default_state_dir(["a", "/b"], "gpu8", environ)
    assert default_state_dir(["a"], "h", {"HOME": "/home/u"}).parent == Path("/home/u/.local/state/grpo-watch")


@pytest.mark.parametrize("weights", ["1 -0.5 0", "1,-0.5,0", "[1.0, -0.5, 0]"])
def test_weights_are_reported_as_a_command_line_or_a_list_has_them(weights: str) -> None:
    assert weights_in(parse_assignments([f"reward_weights={weights}"])["reward_weights"]) == (1.0, -0.5, 0.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("beta=abc", "--set beta: 'abc' is not a number"),
        ("learning_rate=foo", "--set learning_rate: 'foo' is not a number"),
        ("beta=NaN", "--set beta: nan is not a number"),
        ("beta=true", "--set beta: True is not a number"),
        ("beta=-0.1", "--set beta: -0.1 is below 0"),
        ("num_generations=-3", "--set num_generations: -3 is below 1"),
        ("num_generations=0", "--set num_generations: 0 is below 1"),
        ("use_vllm=maybe", "--set use_vllm: 'maybe' is not true or false"),
        (
            "reward_weights=1 b",
            r"--set reward_weights: '1 b' is not a list of numbers, one per reward function \(e.g. 1 -0.5 0\)",
        ),
    ],
)
def test_values_of_the_wrong_kind_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}$"):
        parse_assignments([text])


def test_values_of_the_wrong_kind_are_refused_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "grpo-watch.yaml"
    file.write_text("runs:\n  - path: a\n    settings: {beta: abc}\n")
    with pytest.raises(ConfigError, match=r"grpo-watch.yaml:3:\d+: runs.0.settings: beta: 'abc' is not a number$"):
        load_settings(config=file, environ=NOTHING)


def test_numbers_and_booleans_are_settings() -> None:
    assert SETTINGS.keys() >= NUMBERS | BOOLEANS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("runs: [{path: m, columns: {reward_mean: ''}}]", "1:27: runs.0.columns: must not be empty"),
        ("runs: [{path: m, columns: {step: s, loss: ''}}]", "1:27: runs.0.columns: must not be empty"),
        (
            "sinks: [{type: webhook, url: 'http://h', header_files: {B: x, 'A B': x}}]",
            "1:56: sinks.0.header_files: its keys must consist of letters, digits and hyphens",
        ),
        (
            "sinks: [{type: webhook, url: 'http://h', header_files: {B: x, A: ''}}]",
            "1:56: sinks.0.header_files: must be the path of a file that contains the secret",
        ),
        (
            "sinks: [{type: webhook, url: 'http://h', header_files: {B: x, A: '~nosuchuser/x'}}]",
            "1:56: sinks.0.header_files: ~nosuchuser has no home folder",
        ),
        ("rules: [a.yaml, '~nosuchuser/x']", "1:18: rules.1: ~nosuchuser has no home folder"),
    ],
)
def test_mistakes_in_an_entry_name_the_entry(text: str, message: str, tmp_path: Path) -> None:
    """Of a mapping with free keys the mapping; the home folder of nobody is no file."""
    file = tmp_path / "grpo-watch.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_settings(config=file, environ=NOTHING)
    assert str(refused.value) == f"{file}:{message}"


def test_columns_of_a_file_of_unknown_origin_are_named_by_canonical_metrics(tmp_path: Path) -> None:
    """A misspelt metric is refused with its line and the nearest name; without ``step`` rows keep their own."""
    file = tmp_path / "grpo-watch.yaml"
    file.write_text("runs:\n  - path: m.csv\n    columns: {step: iter, 'reward_function_mean[acc]': a}\n")
    assert load_settings(config=file).settings.runs[0].columns["step"] == "iter"
    file.write_text("runs:\n  - path: m.csv\n    columns: {reward_mean: r}\n")
    assert load_settings(config=file).settings.runs[0].columns == {"reward_mean": "r"}
    file.write_text("runs:\n  - path: m.csv\n    columns:\n      step: iter\n      kl_referenc: k\n")
    with pytest.raises(ConfigError, match=r"grpo-watch.yaml:4:\d+: .*kl_referenc' \(did you mean kl_reference\?\)"):
        load_settings(config=file)
    for columns, says in (
        ("{step: i, reward_mean: i}", "twice"),
        ("{step: i, reward_function_mean: r}", "unknown metric"),
    ):
        file.write_text(f"runs:\n  - path: m.csv\n    columns: {columns}\n")
        with pytest.raises(ConfigError, match=says):
            load_settings(config=file)


@pytest.mark.parametrize(
    "url",
    [
        "http://ada:geheim#x@host/",
        "http://ada:geheim/x@host/",
        "http://host:geheim/",
        "http://ada:geheim@[::1/",
        "http://ada:geheim\u2100@host/",
        "https://[geheim]/",
        "geheim",
    ],
)
def test_a_url_that_is_none_is_not_repeated(url: str, file: Path) -> None:
    """Python's own errors hold a part of it; neither a setting nor a file with one says any of it."""
    file.write_text(json.dumps({"sinks": [{"type": "webhook", "url": url}]}))
    secret = SecretFile(secret_file(file.parent / "url", url))
    for refused in (lambda: load_settings(config=file, environ=NOTHING), secret.read_url):
        with pytest.raises(ConfigError, match=r"%XX|must start with http") as problem:
            refused()
        assert "geheim" not in str(problem.value)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("runs: my-run", "1:7: runs: must be a list, not a text (write `runs: [{path: my-run}]`)"),
        ("runs: [my-run]", "1:8: runs.0: must contain `key: value` lines (write `runs: [{path: my-run}]`)"),
        ("listen: 9853", "1:9: listen: must be a text, not a whole number (write `listen: 127.0.0.1:9853`)"),
        ("mute: [kl-stuck-at-zero]", "write `mute: [{run: my-run, rule: RULE, until: 2027-01-31}]`"),
        *(
            (f"sinks: [{{type: {kind}, url: 'https://x.example'}}]", f"unknown key 'url' (use {name}: the path")
            for kind, name in {
                **dict.fromkeys(("feishu", "dingtalk", "wecom"), "webhook_url_file"),
                **dict.fromkeys(("apprise", "heartbeat"), "url_file"),
            }.items()
        ),
        ("slack: {webhook_url_file: x}", "1:1: unknown key 'slack' (receivers stand under `sinks:`, as `- {type: …}`)"),
    ],
)
def test_what_is_usually_mistaken_is_answered_with_what_to_write(text: str, answer: str, tmp_path: Path) -> None:
    file = tmp_path / "grpo-watch.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_settings(config=file)
    assert answer in str(refused.value)


@pytest.mark.parametrize("text", ["sinks: [{type: slack, webhook: x}]", "web: {listen: 9853}", "web: {runs: [x]}"])
def test_what_to_write_at_the_top_is_no_answer_to_a_key_within_an_entry(text: str, tmp_path: Path) -> None:
    file = tmp_path / "grpo-watch.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"unknown key '(webhook|listen|runs)'(?!.*(stand under|write))"):
        load_settings(config=file)
