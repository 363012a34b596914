"""The commands and their options; each imports its own module when it runs, so that nothing heavy is imported here."""

# ruff: noqa: PLC0415, PLR0917  commands import their module when they run; a command has as many options as it has

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from grpo_watch.cli import notify as notify_commands
from grpo_watch.cli import push as push_commands
from grpo_watch.cli import rules as rules_commands
from grpo_watch.cli.audit_options import advisories, audit
from grpo_watch.cli.options import (
    HELP,
    Config,
    Format,
    Jobs,
    LogFormat,
    Logs,
    NoColor,
    NoExamples,
    OutputFormat,
    Paths,
    ReportFormat,
    Rules,
    Sets,
    StateDir,
    Verbose,
    Version,
    begin,
    example,
    parse_time,
)
from grpo_watch.cli.preflight_options import TAKES_ALL, preflight
from grpo_watch.errors import UsageError

app = typer.Typer(
    name="grpo-watch",
    help="Detects within a few steps that a GRPO run is silently failing, and says why and what to do.",
    add_completion=False,
    rich_markup_mode=None,  # plain help: greppable, and no import of rich
    pretty_exceptions_enable=False,
    context_settings=dict(HELP),
)


class FailOn(str, Enum):
    """Severity at which ``check`` exits with 1."""

    WARNING = "warning"
    CRITICAL = "critical"
    NEVER = "never"


class CheckedBy(str, Enum):
    """Where ``check`` does its work."""

    LOCAL = "local"
    RAY = "ray"


app.add_typer(rules_commands.app, name="rules")
app.add_typer(notify_commands.app, name="notify")
app.add_typer(push_commands.app, name="push")
app.command(context_settings=TAKES_ALL)(preflight)
app.command(epilog=example("audit my-run"))(audit)
app.command(epilog=example("advisories --package trl"))(advisories)


@app.callback()
def _root(_version: Version = False) -> None:
    """Detect within a few steps that a GRPO run is silently failing, and say why and what to do."""


@app.command(epilog=example("run my-run --exit-when-done"))
def run(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH...", help="Runs to watch; they may appear later (default: the newest run below here)."
        ),
    ] = None,
    config: Config = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Address to listen on (default: 127.0.0.1:9853; `:0` picks a free port)."
        ),
    ] = None,
    metrics_listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve /metrics and health at this address instead of the page's."),
    ] = None,
    state_dir: StateDir = None,
    rules: Rules = [],  # noqa: B006  typer copies it
    settings: Sets = [],  # noqa: B006  typer copies it
    exit_when_done: Annotated[bool, typer.Option("--exit-when-done", help="Exit when every run has ended.")] = False,
    io_limit: Annotated[
        str | None, typer.Option(metavar="RATE", help="Limit for reading weights in bytes per second, e.g. 200MB.")
    ] = None,
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="Watch share I of N of the runs; other daemons watch the rest.")
    ] = None,
    no_examples: NoExamples = False,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """Watch runs live: status page, /metrics and alerts."""
    from grpo_watch.cli.run import run_command

    color = begin(verbose, no_color, log_format)
    given = (config, listen, state_dir, rules, exit_when_done, log_format.value, verbose, color)
    return run_command(paths or [], *given, io_limit, False if no_examples else None, settings, shard, metrics_listen)


@app.command(epilog=example("check my-run"))
def check(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH...", help="Folders, globs or log files (default: the newest run below here)."),
    ] = None,
    output_format: Annotated[ReportFormat, typer.Option("--format", help="Output format.")] = ReportFormat.TEXT,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead of stdout.")
    ] = None,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="Exit with 1 at this severity or above.")
    ] = FailOn.WARNING,
    rules: Rules = [],  # noqa: B006  typer copies it
    config: Config = None,
    settings: Sets = [],  # noqa: B006  typer copies it
    now: Annotated[
        str | None, typer.Option("--now", metavar="TIME", help="Judge silence as of this ISO 8601 time.")
    ] = None,
    running: Annotated[bool, typer.Option("--running", help="Treat the run as still running.")] = False,
    ended: Annotated[bool, typer.Option("--ended", help="Treat the run as ended.")] = False,
    jobs: Jobs = None,
    engine: Annotated[CheckedBy, typer.Option("--engine", help="Where runs are checked.")] = CheckedBy.LOCAL,
    address: Annotated[
        str | None, typer.Option("--address", metavar="ADDRESS", help="Ray cluster (default: RAY_ADDRESS, or local).")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="FILE", help="Keep results here; skip runs already in it.")
    ] = None,
    with_texts: Annotated[
        bool, typer.Option("--with-texts", help="With --format agent: add names and texts that the run wrote.")
    ] = False,
    no_examples: NoExamples = False,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """Check the files of runs, finished or not. Exits with 1 on findings."""
    from grpo_watch.cli.check import check_command

    if (now is not None) + running + ended > 1:
        raise UsageError("--now, --running and --ended are mutually exclusive")
    if now is not None:
        parse_time(now)
    state = "running" if running else "ended" if ended else "unknown"
    color = begin(verbose, no_color, log_format)
    examples = False if no_examples else None
    given = (rules, config, settings, now, state, color, examples, verbose > 0, jobs, engine.value, address, resume)
    return check_command(paths or [], output_format.value, output, fail_on.value, *given, with_texts)


@app.command(epilog=example("sources my-run"))
def sources(
    paths: Paths,
    output_format: Format = OutputFormat.TEXT,
    config: Config = None,
    settings: Sets = [],  # noqa: B006  typer copies it
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """Show the sources in PATH. Lists blind rules and the reason."""
    from grpo_watch.cli.sources import sources_command

    return sources_command(paths, output_format.value, begin(verbose, no_color, log_format), config, settings)


@app.command(epilog=example("status"))
def status(
    config: Config = None,
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Address of the daemon.")] = None,
    state_dir: StateDir = None,
    output_format: Format = OutputFormat.TEXT,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """Show the running daemon: verdicts, alerts, coverage."""
    from grpo_watch.cli.status import status_command

    begin(verbose, no_color, log_format)
    return status_command(config, listen, state_dir, output_format.value, verbose=verbose > 0)


@app.command(epilog=example("wait my-run --timeout 60s"))
def wait(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Run, or folder of runs; it may appear later.")],
    until: Annotated[
        str, typer.Option("--until", metavar="EVENT", help="critical, warning, end or step=N.")
    ] = "critical",
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="TIME", help="Stop waiting after this, e.g. 90m or 6h.")
    ] = None,
    config: Config = None,
    rules: Rules = [],  # noqa: B006  typer copies it
    settings: Sets = [],  # noqa: B006  typer copies it
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """Block until a run is in trouble, has ended, or reached a step."""
    from grpo_watch.cli.wait import wait_command

    begin(verbose, no_color, log_format)
    return wait_command(path, until, timeout, config, rules, settings)


@app.command(epilog=example("digest my-run/output/checkpoint-60 my-run/output/checkpoint-80"))
def digest(
    first: Annotated[str, typer.Argument(metavar="A", help="A checkpoint folder or weight file.")],
    second: Annotated[str | None, typer.Argument(metavar="[B]", help="Checkpoint or file to compare with.")] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, max=64, help="Tensors to read in parallel.")] = 1,
    io_limit: Annotated[
        str, typer.Option("--io-limit", metavar="RATE", help="Limit in bytes per second, e.g. 200MB.")
    ] = "",
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Ignore cached digests and read all files.")] = False,
    output_format: Format = OutputFormat.TEXT,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """Show a checkpoint's checksums, or what changed between two."""
    from grpo_watch.cli.digest import digest_command

    color = begin(verbose, no_color, log_format)
    return digest_command(first, second, output_format.value, color, threads, io_limit, not no_cache)


@app.command(epilog=example("diff my-run healthy"))
def diff(
    first: Annotated[str, typer.Argument(metavar="RUN", help="Output folder or log file of a run.")],
    second: Annotated[str, typer.Argument(metavar="RUN", help="Run to compare it with.")],
    output_format: Format = OutputFormat.TEXT,
    rules: Rules = [],  # noqa: B006  typer copies it
    config: Config = None,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """Find where two runs diverge. Exits with 0: they don't, 1: they do, 3: not evaluable."""
    from grpo_watch.cli.diff import diff_command

    color = begin(verbose, no_color, log_format)
    return diff_command(first, second, output_format.value, rules, config, color)


@app.command(epilog=example("explain kl-stuck-at-zero"))
def explain(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="Rule id, e.g. kl-stuck-at-zero.")],
    output_format: Format = OutputFormat.TEXT,
    rules: Rules = [],  # noqa: B006  typer copies it
    config: Config = None,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """Show a rule's runbook. What it detects, how, when it is wrong, what to do."""
    from grpo_watch.cli.explain import explain_command

    return explain_command(rule, output_format.value, rules, config, begin(verbose, no_color, log_format))


@app.command("config", epilog=example("config"))
def config_(
    what: Annotated[
        str | None,
        typer.Argument(metavar="[schema]", help="`schema`: the JSON schema of grpo-watch.yaml, for editors."),
    ] = None,
    config: Config = None,
    output_format: Format = OutputFormat.TEXT,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """Show the settings in effect and where each comes from. Secrets are masked."""
    if what == "schema":
        from grpo_watch.cli.config import schema_command

        return schema_command()
    if what is not None:
        raise UsageError(f"config {what}: use `config` or `config schema`")
    from grpo_watch.cli.config import config_command

    return config_command(config, output_format.value, begin(verbose, no_color, log_format))


@app.command(epilog=example("mcp"))
def mcp(verbose: Verbose = 0, log_format: Logs = LogFormat.LOGFMT, _version: Version = False) -> int:
    """Serve the tools for agents over stdio (MCP)."""
    from grpo_watch.cli.mcp_server import mcp_command

    begin(verbose, True, log_format)
    return mcp_command()


@app.command(epilog=example("skill"))
def skill(_version: Version = False) -> int:
    """Print how an agent looks after a run (SKILL.md)."""
    from importlib.resources import files

    typer.echo((files("grpo_watch") / "SKILL.md").read_text(encoding="utf-8"), nl=False)
    return 0


@app.command(epilog=example("demo"))
def demo(
    stay: Annotated[
        bool, typer.Option("--stay", help="Keep running after the replay, even without a terminal.")
    ] = False,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """Replay a real faulty run through the daemon."""
    from grpo_watch.cli.demo import demo_command

    return demo_command(stay, begin(verbose, no_color, log_format))
