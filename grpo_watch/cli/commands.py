"""Declares the commands and their options; a command's module is imported only when it runs, so that help is fast."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from grpo_watch import __version__
from grpo_watch.cli.terminal import begin
from grpo_watch.errors import UsageError

GROUPS = {
    "rules": "List, check, test and backtest rules.",
    "notify": "Test the configured receivers.",
    "push": "Manage metrics pushed to Pushgateways.",
}
"""Commands that only group subcommands, with their help."""
TAKE_LAUNCH = frozenset({"preflight", "audit"})
"""Commands whose own arguments end at the first ``--``; the rest is the launch and is passed on unparsed."""


class Option(NamedTuple):
    """One option or argument, as ``ArgumentParser.add_argument`` takes it."""

    names: tuple[str, ...]
    settings: Mapping[str, Any]


def value(names: str, metavar: str, text: str, **settings: Any) -> Option:
    """An option with a value, or an argument; ``names`` are separated by blanks."""
    return Option(tuple(names.split()), {"metavar": metavar, "help": text, **settings})


def switch(name: str, text: str, **settings: Any) -> Option:
    """An option without a value."""
    return Option((name,), {"action": "store_true", "help": text, **settings})


def choice(name: str, text: str, *values: str) -> Option:
    """An option limited to these values; the first is the default."""
    return Option((name,), {"choices": values, "default": values[0], "help": f"{text} (default: {values[0]})."})


def whole(text: str) -> int:
    """Parse a whole number of at least 1; the type of an option."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text}: must be a whole number, at least 1")
    return int(text)


COMMON = (
    Option(("-v", "--verbose"), {"action": "count", "default": 0, "help": "More verbose; repeat for debug output."}),
    switch("--no-color", "Disable colours (or set NO_COLOR)."),
    choice("--log-format", "Format of the log lines on stderr", "logfmt", "json"),
    Option(("--version",), {"action": "version", "version": f"grpo-watch {__version__}", "help": "Show the version."}),
    Option(("-h", "--help"), {"action": "help", "default": SUPPRESS, "help": "Show this message."}),
)
"""Options of every command."""
REPEATED: Mapping[str, Any] = {"action": "append", "default": []}
FORMAT = choice("--format", "Output format", "text", "json")
CONFIG = value("--config", "FILE", "Settings file (default: ./grpo-watch.yaml).", type=Path)
RULES = value("--rules", "FILE", "Rule file that extends the shipped rules (repeatable).", type=Path, **REPEATED)
SETS = value("--set", "KEY=VALUE", "Setting of the run, e.g. beta=0.04 (repeatable).", dest="settings", **REPEATED)
STATE_DIR = value("--state-dir", "DIR", "State directory of the daemon.", type=Path)
NO_EXAMPLES = switch(
    "--no-examples", "Keep completion excerpts out of findings.", dest="examples", action="store_const", const=False
)
FRAMEWORK = value("--framework", "NAME", "trl, ms-swift, verl, ...")
FRAMEWORK_VERSION = value("--framework-version", "V", "Judge this version, installed or not.")
WORLD_SIZE = value("--world-size", "N", "Training processes over all nodes.", type=whole)
NEWEST = "(default: the newest run below here)."


class Subcommand(NamedTuple):
    """One command: its words (``rules list``), its function, its help, an example, and its options.

    ``function`` (``list_command`` in ``cli.rules``) takes the options as attributes, with ``color`` and ``launch``, and
    returns the exit code.
    """

    name: str
    module: str
    text: str
    example: str
    options: tuple[Option, ...]

    def parser(self) -> _Parser:
        """The parser of its own and the common options."""
        named = (each.settings for each in self.options if not each.names[0].startswith("-"))
        words = [f"[{one['metavar']}]" if one.get("nargs") in {"?", "*"} else one["metavar"] for one in named]
        words += ["[-- COMMAND...]"] if self.name in TAKE_LAUNCH else []
        parser = _Parser(
            prog=f"grpo-watch {self.name}",
            usage=" ".join(["%(prog)s [OPTIONS]", *words]),
            description=self.text,
            epilog=f"Example: grpo-watch {self.example}",
            formatter_class=_Help,
            allow_abbrev=False,
            add_help=False,
        )
        for names, settings in (*self.options, *COMMON):
            parser.add_argument(*names, **settings)
        return parser

    def run(self, arguments: list[str], launch: tuple[str, ...]) -> int:
        """Run the command with its arguments and the launch; returns the exit code.

        Raises:
            UsageError: the arguments are wrong.
        """
        try:
            given = self.parser().parse_intermixed_args(arguments)
        except SystemExit:  # --help or --version, printed
            return 0
        given.launch, given.color = launch, begin(given.verbose, given.log_format, no_color=given.no_color)
        module = import_module(f"grpo_watch.cli.{self.module}")
        function: Callable[[Namespace], int] = getattr(module, f"{self.name.rpartition(' ')[2]}_command")
        return function(given)


class _Help(RawDescriptionHelpFormatter):
    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        """Print the usage as the list of commands does."""
        super().add_usage(usage, actions, groups, prefix or "Usage: ")


class _Parser(ArgumentParser):
    """Raises ``UsageError``, so that wrong usage is reported in one line with code 2, like any other user error."""

    def error(self, message: str) -> NoReturn:
        """Refuse a command line.

        Raises:
            UsageError: always.
        """
        launches = self.prog.rpartition(" ")[2] in TAKE_LAUNCH and message.startswith("unrecognized")
        raise UsageError(f"{message}{'; put `--` before the launch' if launches else ''} (see {self.prog} --help)")


def _command(name: str, module: str, text: str, example: str, *options: Option) -> Subcommand:
    return Subcommand(name, module, text, example, options)


_DECLARED = (
    _command(
        "run",
        "run",
        "Watch runs live: status page, /metrics and alerts.",
        "run my-run --exit-when-done",
        value("paths", "PATH...", f"Runs to watch; they may appear later {NEWEST}", nargs="*"),
        CONFIG,
        value("--listen", "HOST:PORT", "Address to listen on (default: 127.0.0.1:9853; `:0` picks a free port)."),
        STATE_DIR,
        RULES,
        SETS,
        switch("--exit-when-done", "Exit when every run has ended."),
        value("--io-limit", "RATE", "Limit for reading weights in bytes per second, e.g. 200MB."),
        NO_EXAMPLES,
    ),
    _command(
        "check",
        "check",
        "Check the files of runs, finished or not. Exits with 1 on findings.",
        "check my-run",
        value("paths", "PATH...", f"Folders, globs or log files {NEWEST}", nargs="*"),
        choice("--format", "Output format", "text", "json", "junit", "markdown", "html", "agent"),
        value("--output -o", "FILE", "Write to this file instead of stdout.", type=Path),
        choice("--fail-on", "Exit with 1 at this severity or above", "warning", "critical", "never"),
        RULES,
        CONFIG,
        SETS,
        value("--now", "TIME", "Judge silence as of this ISO 8601 time."),
        switch("--running", "Treat the run as still running."),
        switch("--ended", "Treat the run as ended."),
        value("--jobs", "N", "Processes (default: by the size of the runs).", type=whole),
        choice("--engine", "Where runs are checked", "local", "ray"),
        value("--address", "ADDRESS", "Ray cluster (default: RAY_ADDRESS, or local)."),
        value("--resume", "FILE", "Keep results here; skip runs already in it.", type=Path),
        switch("--with-texts", "With --format agent: add names and texts that the run wrote."),
        NO_EXAMPLES,
    ),
    _command(
        "preflight",
        "preflight",
        "Check a launch before it starts. Reports batch settings that can't work, and the number of steps.",
        "preflight -- trl grpo --model_name_or_path m --num_generations 8",
        value("path", "FILE", "Launch script, configuration, Python file or run folder.", nargs="?", type=Path),
        FRAMEWORK,
        FRAMEWORK_VERSION,
        WORLD_SIZE,
        value("--dataset-size", "N", "Rows of the training data before any split.", type=whole),
        FORMAT,
    ),
    _command(
        "audit",
        "audit",
        "List known bugs that a run or a launch (after --) has. Exits with 1 if there are any, 3: not judged.",
        "audit my-run",
        value("path", "PATH", "Run, folder of runs, launch script or configuration.", nargs="?", type=Path),
        value("--python", "PATH", "Interpreter or environment whose packages are used (only read).", type=Path),
        FRAMEWORK,
        FRAMEWORK_VERSION,
        WORLD_SIZE,
        FORMAT,
    ),
    _command(
        "advisories",
        "audit",
        "List known bugs that let training go on quietly.",
        "advisories --package trl",
        value("name", "ID", "Show this one with all that is known.", nargs="?"),
        value("--package", "P", "Only those of this package."),
        FORMAT,
    ),
    _command(
        "sources",
        "sources",
        "Show the sources in PATH. Lists blind rules and the reason.",
        "sources my-run",
        value("paths", "PATH...", "Output folder, folder of runs, glob, or log file.", nargs="+"),
        FORMAT,
        CONFIG,
        SETS,
    ),
    _command(
        "status",
        "status",
        "Show the running daemon: verdicts, alerts, coverage.",
        "status",
        CONFIG,
        value("--listen", "HOST:PORT", "Address of the daemon."),
        STATE_DIR,
        FORMAT,
    ),
    _command(
        "wait",
        "wait",
        "Block until a run is in trouble, has ended, or reached a step.",
        "wait my-run --timeout 60s",
        value("path", "PATH", "Run, or folder of runs; it may appear later."),
        value("--until", "EVENT", "critical, warning, end or step=N.", default="critical"),
        value("--timeout", "TIME", "Stop waiting after this, e.g. 90m or 6h."),
        CONFIG,
        RULES,
        SETS,
    ),
    _command(
        "digest",
        "digest",
        "Show a checkpoint's checksums, or what changed between two.",
        "digest my-run/output/checkpoint-60 my-run/output/checkpoint-80",
        value("first", "A", "A checkpoint folder or weight file."),
        value("second", "B", "Checkpoint or file to compare with.", nargs="?"),
        FORMAT,
    ),
    _command(
        "diff",
        "check",
        "Find where two runs diverge. Exits with 0: they don't, 1: they do, 3: not evaluable.",
        "diff my-run healthy",
        value("first", "RUN", "Output folder or log file of a run."),
        value("second", "RUN", "Run to compare it with."),
        FORMAT,
        RULES,
        CONFIG,
    ),
    _command(
        "explain",
        "explain",
        "Show a rule's runbook, a check of preflight, or a known bug. What it is, how it shows, what to do.",
        "explain kl-stuck-at-zero",
        value("name", "RULE", "Rule, check or advisory, e.g. kl-stuck-at-zero."),
        FORMAT,
        RULES,
        CONFIG,
    ),
    _command(
        "rules list",
        "rules",
        "Show the rules in effect. Severity, required data and origin.",
        "rules list",
        FORMAT,
        RULES,
        CONFIG,
    ),
    _command(
        "rules lint",
        "rules",
        "Check rule files. Reports each error as file:line:column with a fix; exits with 1 on problems.",
        "rules lint",
        value("files", "FILE...", "Rule files (default: those in effect).", nargs="*", type=Path),
        FORMAT,
        CONFIG,
    ),
    _command(
        "rules test",
        "rules",
        "Run tests of rules. Each gives series of values and expects alerts; exits with 1 if a test fails.",
        "rules test",
        value("files", "FILE...", "Test files (default: those of the shipped rules).", nargs="*", type=Path),
        FORMAT,
        RULES,
        CONFIG,
    ),
    _command(
        "rules backtest",
        "rules",
        "Show when each rule would have fired on past runs.",
        "rules backtest my-rules.yaml my-run",
        value("rules", "RULES", "Rule file, or folder of rule files.", type=Path),
        value("paths", "RUNS...", "Past runs: folders, globs, log files.", nargs="+"),
        FORMAT,
    ),
    _command(
        "notify test",
        "notify",
        "Send a sample notification to each receiver. Exits with 0: all accepted, 1: one failed, 2: none configured.",
        "notify test --config grpo-watch.yaml",
        value("--run", "PATH", "Send the alert of this finished run instead of a sample.", type=Path),
        CONFIG,
    ),
    _command(
        "push clean",
        "push",
        "Remove the groups that `run` left in its Pushgateways. Use the same PATH and settings as for `run`.",
        "push clean my-run --config grpo-watch.yaml",
        value("paths", "PATH...", "Paths that were watched, if no state_dir is set.", nargs="*"),
        CONFIG,
        STATE_DIR,
    ),
    _command(
        "config",
        "config",
        "Show the settings in effect and where each comes from. Secrets are masked.",
        "config",
        value("what", "schema", "The JSON schema of grpo-watch.yaml, for editors.", nargs="?", choices=("schema",)),
        CONFIG,
        RULES,
        FORMAT,
    ),
    _command("mcp", "mcp_server", "Serve the tools for agents over stdio (MCP).", "mcp"),
    _command("skill", "mcp_server", "Print how an agent looks after a run (SKILL.md).", "skill"),
    _command(
        "demo",
        "demo",
        "Replay a real faulty run through the daemon.",
        "demo",
        switch("--stay", "Keep running after the replay, even without a terminal."),
    ),
)
COMMANDS: Mapping[str, Subcommand] = MappingProxyType({command.name: command for command in _DECLARED})
"""Every command by its words, in the order of the help."""


def overview(group: str = "") -> str:
    """The help that lists all commands, or those of a group."""
    inside = f"{group} " if group else ""
    listed = {name[len(inside) :]: each.text for name, each in COMMANDS.items() if name.startswith(inside)}
    if not group:
        listed = {name: text for name, text in listed.items() if " " not in name} | GROUPS
    width = max(map(len, listed))
    what = GROUPS.get(
        group, "Detects within a few steps that a GRPO run is silently failing, and says why and what to do."
    )
    head = [f"Usage: grpo-watch {inside}COMMAND [OPTIONS] [ARGS]...", "", what, "", "Options:"]
    head += ["  --version   Show the version.", "  -h, --help  Show this message.", "", "Commands:"]
    return "\n".join(
        [*head, *(f"  {name:{width}}  {text.partition('. ')[0].rstrip('.')}." for name, text in listed.items()), ""]
    )
