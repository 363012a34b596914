"""``grpo-watch rules``: turns the arguments of its four commands into calls of their modules."""

# ruff: noqa: PLC0415, PLR0917  commands import their module when they run; a command has as many options as it has

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grpo_watch.cli.options import (
    Config,
    Format,
    Jobs,
    LogFormat,
    Logs,
    NoColor,
    OutputFormat,
    Rules,
    Verbose,
    begin,
    example,
    group,
)

app = group("List, check, test and backtest rules.")


@app.command("list", epilog=example("rules list my-run"))
def list_(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH]...", help="Runs to list blind rules for.")
    ] = None,
    output_format: Format = OutputFormat.TEXT,
    rules: Rules = [],  # noqa: B006  typer copies it
    config: Config = None,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
) -> int:
    """Show the rules in effect. Severity, required data and origin; with PATH, which ones are blind."""
    from grpo_watch.cli.rules_list import list_command

    begin(verbose, no_color, log_format)
    return list_command(paths or [], output_format.value, rules, config)


@app.command(epilog=example("rules lint"))
def lint(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Rule files (default: those in effect).")
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option("--framework", metavar="NAME", help="Also report rules that can never be evaluated there."),
    ] = None,
    output_format: Format = OutputFormat.TEXT,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    config: Config = None,
) -> int:
    """Check rule files. Reports each error as file:line:column with a fix; exits with 1 on problems."""
    from grpo_watch.cli.rules_check import lint_command

    begin(verbose, no_color, log_format)
    return lint_command(files or [], framework, output_format.value, config)


@app.command("test", epilog=example("rules test"))
def run_tests(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Test files (default: those of the shipped rules).")
    ] = None,
    output_format: Format = OutputFormat.TEXT,
    rules: Rules = [],  # noqa: B006  typer copies it
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    config: Config = None,
) -> int:
    """Run tests of rules. Each gives series of values and expects alerts; exits with 1 if a test fails."""
    from grpo_watch.cli.rules_check import test_command

    begin(verbose, no_color, log_format)
    return test_command(files or [], output_format.value, rules, config)


@app.command(epilog=example("rules backtest my-rules.yaml my-run"))
def backtest(
    rules: Annotated[Path, typer.Argument(metavar="RULES", help="Rule file, or folder of rule files.")],
    paths: Annotated[list[str], typer.Argument(metavar="RUNS...", help="Past runs: folders, globs, log files.")],
    output_format: Format = OutputFormat.TEXT,
    jobs: Jobs = None,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
) -> int:
    """Show when each rule would have fired on past runs."""
    from grpo_watch.cli.rules_backtest import backtest_command

    begin(verbose, no_color, log_format)
    return backtest_command(rules, paths, output_format.value, jobs)
