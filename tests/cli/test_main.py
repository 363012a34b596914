"""The command line: errors are one line with the right exit code, and starting is cheap."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from grpo_watch import __version__
from grpo_watch.cli.check import parse_time
from grpo_watch.cli.main import run_cli
from grpo_watch.cli.terminal import start_logging
from grpo_watch.errors import RuleError, SourceError, StateInUseError, UsageError
from tests.support.bundles import unpack

COMMANDS = ("run", "check", "sources", "digest", "explain", "config", "demo", "preflight")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Replaces every command's module by one that notes the options it is given."""
    noted: list[dict[str, Any]] = []
    for name in COMMANDS:
        module = ModuleType(f"grpo_watch.cli.{name}")
        setattr(module, f"{name}_command", lambda given: noted.append(vars(given)) or 0)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return noted


COMMON = {"verbose": 0, "no_color": False, "log_format": "logfmt", "launch": (), "color": False}


@pytest.fixture
def config_raises(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(error: BaseException) -> None:
        def config_command(*_: object) -> int:
            raise error

        module = ModuleType("grpo_watch.cli.config")
        module.config_command = config_command  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)

    return install


@pytest.mark.parametrize("group", ["", "rules", "notify", "push"])
def test_the_list_of_commands_says_whole_sentences(
    group: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal of 80 columns, too."""
    monkeypatch.setenv("COLUMNS", "80")
    assert run_cli([*group.split(), "--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:\n")[2].splitlines()
    assert listed
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []


def test_check_hands_over_every_option(calls: list[dict[str, Any]]) -> None:
    line = "check a --format json --output o.json --fail-on critical b --rules r.yaml --rules s.yaml --config c.yaml"
    line += " --with-texts --jobs 2 --engine ray --address head:6379 --resume r.db"
    assert run_cli([*line.split(), "--set", "beta=0.04", "--now", "2026-11-21T10:00:00Z", "--no-examples"]) == 0
    assert calls == [
        {
            **COMMON,
            "paths": ["a", "b"],
            "format": "json",
            "output": Path("o.json"),
            "fail_on": "critical",
            "rules": [Path("r.yaml"), Path("s.yaml")],
            "config": Path("c.yaml"),
            "settings": ["beta=0.04"],
            "now": "2026-11-21T10:00:00Z",
            "running": False,
            "ended": False,
            "examples": False,
            "jobs": 2,
            "engine": "ray",
            "address": "head:6379",
            "resume": Path("r.db"),
            "with_texts": True,
        }
    ]


def test_check_defaults(calls: list[dict[str, Any]]) -> None:
    """What the interface promises without options, also where the call before had some."""
    assert run_cli(["check", "a", "--set", "beta=1", "--rules", "r.yaml"]) == 0
    assert run_cli(["check"]) == 0
    assert calls[1] == {
        **COMMON,
        **dict.fromkeys(("output", "config", "now", "examples", "jobs", "address", "resume")),
        **dict.fromkeys(("running", "ended", "with_texts"), False),
        "paths": [],
        "rules": [],
        "settings": [],
        "format": "text",
        "fail_on": "warning",
        "engine": "local",
    }


def test_the_other_commands_hand_over_their_options(calls: list[dict[str, Any]]) -> None:
    run_cli(["run", "a", "--listen", ":0", "--state-dir", "s", "--exit-when-done", "-v", "-v", "--log-format", "json"])
    run_cli(["run", "--io-limit", "9MB", "--no-examples", "--set", "beta=0.04"])
    run_cli(["sources", "a", "b", "--config", "c.yaml", "--set", "beta=0.04"])
    run_cli(["digest", "a", "b", "--format", "json"])
    run_cli(["demo", "--stay"])
    run_cli(["preflight", "--world-size", "8", "--", "swift", "rlhf", "--", "--help"])
    expected: list[dict[str, Any]] = [
        {"paths": ["a"], "listen": ":0", "state_dir": Path("s"), "exit_when_done": True, "verbose": 2},
        {"paths": [], "io_limit": "9MB", "examples": False, "settings": ["beta=0.04"]},
        {"paths": ["a", "b"], "config": Path("c.yaml"), "settings": ["beta=0.04"], "format": "text"},
        {"first": "a", "second": "b", "format": "json"},
        {"stay": True},
        {"path": None, "world_size": 8, "launch": ("swift", "rlhf", "--", "--help")},
    ]
    assert [{name: call[name] for name in wanted} for call, wanted in zip(calls, expected, strict=True)] == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sources"], "the following arguments are required: PATH..."),
        (["check", "a", "--fromat", "json"], "unrecognized arguments: --fromat"),
        (["check", "a", "--format", "xml"], "argument --format: invalid choice: 'xml'"),
        (["check", "a", "--fail-on", "info"], "argument --fail-on: invalid choice: 'info'"),
        (["check", "a", "--jobs", "0"], "argument --jobs: 0: must be a whole number, at least 1"),
        (["run", "a", "--log-format", "xml"], "argument --log-format: invalid choice: 'xml'"),
        (["explain"], "the following arguments are required: RULE"),
        (["chek", "a"], "no such command: chek (did you mean check?)"),
        (["train", "a"], "no such command: train (see grpo-watch --help)"),
    ],
)
def test_wrong_use_is_one_line_and_2(
    calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """On stderr, naming what is wrong; no command starts."""
    assert run_cli(arguments) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert err.startswith("grpo-watch: ")
    assert err.count("\n") == 1
    assert out == ""
    assert calls == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--now", "yesterday"], "--now 'yesterday' is not an ISO 8601 time"),
        (["--running", "--ended"], "--now, --running and --ended are mutually exclusive"),
    ],
)
def test_times_that_check_refuses(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert run_cli(["check", "a", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("wrong\nuse"), 2),
        (RuleError("broken"), 2),
        (StateInUseError("held by process 7"), 4),
        (SourceError("gone"), 1),
        (ValueError("oops"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_become_exit_codes(
    config_raises: Any, capsys: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    """The interface's codes; never a traceback, at most one line."""
    config_raises(error)
    assert run_cli(["config"]) == code
    err = capsys.readouterr().err
    assert err.count("\n") == (0 if code == 130 else 1)
    assert "Traceback" not in err


def test_verbose_shows_the_traceback_of_an_internal_error(config_raises: Any) -> None:
    """-v lets it out as Python shows it."""
    config_raises(ValueError("oops"))
    with pytest.raises(ValueError, match="oops"):
        run_cli(["config", "-v"])


@pytest.mark.parametrize("command", [(), *((command,) for command in COMMANDS)])
def test_version_and_help_stand_on_every_command(capsys: pytest.CaptureFixture[str], command: tuple[str, ...]) -> None:
    """Both answer before any required argument is asked for."""
    assert run_cli([*command, "--version"]) == 0
    assert capsys.readouterr().out == f"grpo-watch {__version__}\n"
    assert run_cli([*command, "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: grpo-watch")


@pytest.mark.parametrize("command", COMMANDS)
def test_common_options_stand_on_every_command(capsys: pytest.CaptureFixture[str], command: str) -> None:
    """As the interface says: -v, --no-color, --log-format."""
    run_cli([command, "--help"])
    shown = capsys.readouterr().out
    assert all(option in shown for option in ("-v,", "--no-color", "--log-format", "--version", "--help"))


def test_no_arguments_show_the_help_and_count_as_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    """Like git and docker."""
    assert run_cli([]) == 2
    assert "Commands:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "environ", "tty", "color"),
    [
        ([], {}, True, True),
        ([], {}, False, False),
        (["--no-color"], {}, True, False),
        ([], {"NO_COLOR": "1"}, True, False),
        ([], {"NO_COLOR": ""}, True, True),
        ([], {"TERM": "dumb"}, True, False),
    ],
)
def test_colours_only_on_a_terminal_that_wants_them(
    calls: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    environ: dict[str, str],
    *,
    tty: bool,
    color: bool,
) -> None:
    """--no-color, NO_COLOR (non-empty) and a dumb terminal switch them off."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: tty, raising=False)
    run_cli(["config", *arguments])
    assert calls[0]["color"] is color


def test_times() -> None:
    """2026-11-21T10:00:00Z is 1795255200 seconds after 1970."""
    assert parse_time("2026-11-21T10:00:00Z") == 1795255200.0
    assert parse_time("2026-11-21T11:00:00+01:00") == 1795255200.0


@pytest.mark.parametrize("module", ["grpo_watch.cli", "grpo_watch.cli.main"])
def test_importing_the_command_line_imports_nothing_heavy(module: str) -> None:
    """--help must answer within 0.3 s: each of these would cost more than the rest together."""
    heavy = {"pandas", "pyarrow", "wandb", "numpy", "msgspec", "yaml", "starlette", "uvicorn", "sqlite3"}
    code = f"import sys, {module}; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_closed_pipe_is_no_error() -> None:
    """`grpo-watch --help | head -0` ends quietly."""
    code = "import sys; from grpo_watch.cli.main import main; sys.argv = ['grpo-watch', 'check', '--help']; main()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.parametrize(("reader", "code"), [("| head -0", 0), ("> /dev/full", 120)])
def test_output_that_does_not_arrive(reader: str, code: int) -> None:
    """Nobody reads it, which is no error; or the disk is full, which Python reports with its own code."""
    command = f"unset PYTHONUNBUFFERED; {sys.executable} -m grpo_watch check --help {reader}"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, bool(done.stderr)) == (code, code != 0)


def test_log_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """logfmt quotes what has blanks; JSON is one object per line; -v decides the level."""
    log = logging.getLogger("grpo_watch.test")
    try:
        start_logging(0, "logfmt")
        log.info("hidden")
        log.warning("source failed", extra={"fields": {"path": "/a b", "count": 3, "text": 'x="1"\n'}})
        log_text = capsys.readouterr().err
        assert "hidden" not in log_text
        assert 'level=warning msg="source failed" path="/a b" count=3 text="x=\\"1\\"\\n"\n' in log_text
        start_logging(1, "json")
        log.info("started", extra={"fields": {"runs": 2}})
        line = json.loads(capsys.readouterr().err)
        assert (line["level"], line["msg"], line["runs"]) == ("info", "started", 2)
        for log_format in ("logfmt", "json"):  # a terminal obeys none of these
            start_logging(0, log_format)
            log.warning("x", extra={"fields": {"text": "\x1b[2J \x9b2J \u202e \U000e0001"}})
            assert r'"\u001b[2J \u009b2J \u202e \udb40\udc01"' in capsys.readouterr().err
    finally:
        root = logging.getLogger("grpo_watch")
        root.handlers.clear()
        root.propagate = True
        root.setLevel(logging.NOTSET)


def test_a_report_that_cannot_be_written_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1 would mean findings."""
    target = tmp_path / "missing" / "report.json"
    assert run_cli(["check", str(tmp_path), "--output", str(target)]) == 2
    assert capsys.readouterr().err == (f"grpo-watch: --output {target}: can't write: No such file or directory\n")


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "grpo_watch", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"grpo-watch {__version__}\n"


def test_a_csv_of_unknown_origin_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The settings map its columns; a KL that stays 0 with beta known is reported as in any other log."""
    lines = [f"{step},0.{300 + step},0.2,0.0,1e-06" for step in range(1, 41)]
    (tmp_path / "m.csv").write_text("\n".join(["iter,avg_r,spread,to_ref,rate", *lines, ""]))
    (tmp_path / "grpo-watch.yaml").write_text(
        "runs:\n  - path: m.csv\n    settings: {beta: 0.04}\n    columns: {step: iter, reward_mean: avg_r,"
        " reward_group_std: spread, kl_reference: to_ref, learning_rate: rate}\n"
    )
    assert run_cli(["check", str(tmp_path / "m.csv"), "--config", str(tmp_path / "grpo-watch.yaml")]) == 1
    assert "kl-stuck-at-zero" in capsys.readouterr().out


def test_signs_that_a_terminal_lacks_are_replaced(tmp_path: Path) -> None:
    """As in a console of another encoding than UTF-8; the exit code stays that of the verdict."""
    run = unpack("trl-1.16.0-09-frozen-lr0", tmp_path)
    command = [sys.executable, "-m", "grpo_watch", "check", str(run)]
    environ = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environ, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"")
    assert b"CRITICAL" in done.stdout
    assert b"?" in done.stdout
