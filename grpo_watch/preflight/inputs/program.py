"""Recognises the training program and its launchers in a command, and splits arguments into flags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

import msgspec

from grpo_watch import lazy_re as re
from grpo_watch.frameworks.launches import launch_facts
from grpo_watch.preflight.inputs.draft import Argument, LaunchDraft
from grpo_watch.preflight.inputs.shell_lexer import ASSIGNMENT
from grpo_watch.shipped_yaml import shipped_yaml
from grpo_watch.sources.settings.documents import typed

FLAG = re.compile(r"--?(?P<name>[A-Za-z][\w.-]*)(?:=(?P<value>.*))?", re.DOTALL)


class Flag(NamedTuple):
    """``--name value …``; the name has underscores, even where it was written with dashes."""

    name: str
    values: tuple[Argument, ...]
    origin: str

    @property
    def unknown(self) -> str:
        """The reason why one of the values is unknown, else empty."""
        return next((value.unknown for value in self.values if value.unknown), "")

    @property
    def text(self) -> str:
        """The values joined by a space."""
        return " ".join(value.text for value in self.values)


class Flags(NamedTuple):
    """A command line: flags in order, words before the first flag, and unknown variables."""

    flags: tuple[Flag, ...]
    words: tuple[Argument, ...]
    unseen: tuple[Argument, ...]


def parse_flags(arguments: Iterable[Argument]) -> Flags:
    """Split arguments into flags. ``$EXTRA`` after a flag's first value stands for unknown arguments."""
    flags: list[Flag] = []
    words: list[Argument] = []
    unseen: list[Argument] = []
    for argument in arguments:
        found = FLAG.fullmatch(argument.text)
        if found is not None:
            value = found["value"]
            given = () if value is None else (Argument(value, argument.origin, argument.unknown),)
            flags.append(Flag(found["name"].replace("-", "_"), given, argument.origin))
        elif argument.unknown and argument.text.startswith("$") and (not flags or flags[-1].values):
            unseen.append(argument)
        elif flags:
            flags[-1] = flags[-1]._replace(values=(*flags[-1].values, argument))
        else:
            words.append(argument)
    return Flags(tuple(flags), tuple(words), tuple(unseen))


def put_flags(flags: Flags, draft: LaunchDraft, without: frozenset[str] = frozenset()) -> None:
    """Store all flags as settings except those in ``without``."""
    for flag in flags.flags:
        if flag.name not in without:
            put_flag(flag, draft)
    for argument in flags.unseen:
        draft.note(f"{argument.origin}: {argument.unknown}: arguments in it are not seen")


def put_flag(flag: Flag, draft: LaunchDraft) -> None:
    """Store one flag: without a value it is true, ``--no_x`` is false, several values are joined."""
    if flag.unknown:
        draft.put_unknown(flag.name, flag.origin, flag.unknown)
    elif not flag.values:
        name = flag.name.removeprefix("no_")
        draft.put(name, name == flag.name, flag.origin)
    elif len(flag.values) == 1:
        draft.put(flag.name, typed(flag.values[0].text), flag.values[0].origin)
    else:
        draft.put(flag.name, flag.text, flag.values[0].origin)


def split_options(
    arguments: Sequence[Argument], switches: frozenset[str]
) -> tuple[dict[str, Argument], tuple[Argument, ...]]:
    """A launcher's options and the remaining words; an option that is not a switch takes the next word."""
    options: dict[str, Argument] = {}
    at = 0
    while at < len(arguments):
        found = FLAG.fullmatch(arguments[at].text)
        if found is None:
            break
        name = found["name"].replace("-", "_")
        if found["value"] is not None:
            options[name] = Argument(found["value"], arguments[at].origin, arguments[at].unknown)
        elif name in switches or at + 1 >= len(arguments):
            options[name] = Argument("true", arguments[at].origin)
        else:
            at += 1
            options[name] = arguments[at]
        at += 1
    return options, tuple(arguments[at:])


class _Launchers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``launchers.yaml``: commands with their options that take no value; modules equivalent to a command."""

    wrappers: Mapping[str, frozenset[str]]
    runners: frozenset[str]
    runner_switches: frozenset[str]
    launchers: Mapping[str, frozenset[str]]
    modules: Mapping[str, str]


KNOWN = msgspec.convert(shipped_yaml(Path(__file__).with_name("launchers.yaml")), _Launchers)
LONGEST_NAME = 500
"""Characters of a program's path that are examined, from its end."""
INLINE = re.compile(r"-[a-z]*c")
"""The flag after which a shell takes a script as text."""
SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
PYTHON = re.compile(r"python[\d.]*")
MAX_WRAPPERS = 12


class Program(NamedTuple):
    """The training program of a command.

    ``kind`` is a framework's name, ``script`` (a Python file) or ``shell`` (a script whose text is read next).
    ``options`` maps each launcher around it to its options; ``variables`` are ``NAME=value`` words before it.
    """

    kind: str
    name: str
    arguments: tuple[Argument, ...]
    options: Mapping[str, Mapping[str, Argument]]
    variables: tuple[Argument, ...] = ()


def recognise(arguments: Sequence[Argument]) -> Program | None:
    """The training program of a command; None if the command trains nothing (``echo``, ``swift deploy``)."""
    options: dict[str, Mapping[str, Argument]] = {}
    variables: list[Argument] = []
    words: tuple[Argument, ...] | None = tuple(arguments)
    for _ in range(MAX_WRAPPERS):
        while words and ASSIGNMENT.match(words[0].text):
            variables.append(words[0])
            words = words[1:]
        if not words:
            return None
        found = _known(words, options)
        if found is not None:
            return found._replace(variables=tuple(variables))
        words = _unwrap(words, options)
    return None


def _known(words: tuple[Argument, ...], options: dict[str, Mapping[str, Argument]]) -> Program | None:
    head = PurePath(words[0].text).name
    for kind, facts in launch_facts().items():
        if len(words) > 1 and words[1].text in facts.program.commands.get(head, ()):
            return Program(kind, f"{head} {words[1].text}", words[2:], options)
    if head == "rl" and any(word.text.startswith("@") for word in words):
        return Program("prime-rl", "rl", words[1:], options)
    if head in SHELLS and len(words) > 1:
        flags, rest = split_options(words[1:], frozenset("exuli") | {"ex", "eux", "l", "euo"})
        return Program("shell", rest[0].text, rest[1:], options) if rest and "c" not in flags else None
    if head.endswith(".sh"):
        return Program("shell", words[0].text, words[1:], options)
    if head.endswith(".py"):
        return _python(words[0].text, words[1:], options)
    return None


def _python(name: str, rest: tuple[Argument, ...], options: Mapping[str, Mapping[str, Argument]]) -> Program:
    """A Python file or module: a framework's, or the user's own."""
    bare = name.removesuffix(".py")[-LONGEST_NAME:]
    given = {word.text.lstrip("+").partition("=")[0] for word in rest}
    own = None
    for kind, facts in launch_facts().items():
        if facts.program.modules and re.search(facts.program.modules, bare):
            skipped = bool(rest) and any(rest[0].text in each for each in facts.program.commands.values())
            return Program(kind, name, rest[skipped:], options)
        own = own or (None if facts.program.own_arguments.isdisjoint(given) else kind)
    return Program(own or "script", name, rest, options)


def _unwrap(words: tuple[Argument, ...], options: dict[str, Mapping[str, Argument]]) -> tuple[Argument, ...] | None:
    """The command inside a wrapper or a launcher; None if there is none."""
    head = PurePath(words[0].text).name
    if head in KNOWN.wrappers:
        rest = split_options(words[1:], KNOWN.wrappers[head])[1]
        return rest[1:] if head == "timeout" else rest
    if head in KNOWN.runners:
        given, rest = split_options(words[2:], KNOWN.runner_switches)
        module = given.get("m") or given.get("module")
        return (
            rest
            if module is None
            else (Argument("python", module.origin), Argument("-m", module.origin), module, *rest)
        )
    if head == "ray" and any(word.text == "--" for word in words):
        return words[[word.text for word in words].index("--") + 1 :]
    if head in KNOWN.launchers:
        rest = words[2:] if head == "accelerate" and words[1:2] and words[1].text == "launch" else words[1:]
        return _launched(head, rest, options)
    return _interpreter(words, options) if PYTHON.fullmatch(head) else None


def _launched(
    launcher: str, words: tuple[Argument, ...], options: dict[str, Mapping[str, Argument]]
) -> tuple[Argument, ...]:
    found, rest = split_options(words, KNOWN.launchers[launcher])
    options[launcher] = found
    if rest and ("m" in found or "module" in found) and launcher != "mpirun":
        return (Argument("python", rest[0].origin), Argument("-m", rest[0].origin), *rest)
    return rest


def _interpreter(
    words: tuple[Argument, ...], options: dict[str, Mapping[str, Argument]]
) -> tuple[Argument, ...] | None:
    """``python -m torch.distributed.run …``, ``python -m module …``, ``python file.py …``."""
    at = 1
    while at < len(words) and words[at].text.startswith("-") and words[at].text not in {"-m", "-c"}:
        at += 2 if words[at].text in {"-X", "-W"} else 1
    rest = words[at:]
    options.setdefault("python", {})
    if not rest or rest[0].text == "-c":
        return None
    if rest[0].text != "-m":
        return rest if rest[0].text.endswith(".py") else None
    module = rest[1].text if len(rest) > 1 else ""
    if (launcher := KNOWN.modules.get(module)) is not None:
        return _launched(launcher, rest[3:] if module.endswith("cli") else rest[2:], options)
    return (Argument(f"{module.replace('.', '/')}.py", rest[1].origin), *rest[2:]) if module else None


def inner_script(arguments: Sequence[Argument]) -> Argument | None:
    """The text that ``bash -c TEXT`` or ``eval TEXT`` would run, also behind ``srun`` and the like.

    Its unknown parts are left as written, and are unknown again when the text is read.
    """
    if arguments[0].text == "eval":
        unknown = next((item.unknown for item in arguments if item.unknown), "")
        return Argument(" ".join(item.text for item in arguments[1:]), arguments[0].origin, unknown)
    for shell, flag, text in zip(arguments, arguments[1:], arguments[2:], strict=False):
        if PurePath(shell.text).name in SHELLS and INLINE.fullmatch(flag.text):
            return text
    return None
