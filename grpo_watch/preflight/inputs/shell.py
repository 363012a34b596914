"""Turns a shell script into the commands it would run, with their arguments and environment; runs nothing.

It supports assignments, quotes, ``${X:-y}``, arrays, sums, ``source``, ``cd`` and ``bash -c``. Variables set in a
branch or a loop are unknown after it; functions are read in place, as if called once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import Setting
from grpo_watch.preflight.inputs.draft import KEPT_VARIABLES, Argument, compute, read_text
from grpo_watch.preflight.inputs.program import inner_script
from grpo_watch.preflight.inputs.shell_lexer import ASSIGNMENT, Lexer, Word, piece_end

PASSED_ON = frozenset({"HOME", "PWD"}) | KEPT_VARIABLES
"""Variables of the calling process that a script may use; none of them can hold a secret."""
EXPORTERS = frozenset({"export", "declare", "typeset", "local", "readonly"})
KEYWORDS = frozenset(
    {"if", "while", "until", "!", "time", "then", "do", "else", "elif", "fi", "done", "esac", "{", "}"}
)
"""Words before a command."""
MAX_SOURCED, MAX_DEPTH, LONGEST_SUM, MAX_WHY = 4, 20, 200, 300
MAX_TEXT, MAX_ITEMS = 200_000, 20_000
TOO_LONG = "a text that grows too long"
"""Reason for a text beyond the limit: ``A=$A$A`` a few dozen times exhausts any memory; no launch comes near it."""
CONDITIONAL = "which is set under a condition only"

PARAMETER = re.compile(
    r"(?P<name>[A-Za-z_]\w*|[@*#?0-9])(?P<list>\[[@*]\])?(?:(?P<op>:?[-=+?])(?P<word>.*))?", re.DOTALL
)
SIGNS = re.compile(r"[$`]")
"""In a partly known text, the unknown rest stays as written."""
OWN_FOLDER = re.compile(
    r"""(?:\$\(|`)(?:cd\s+(?:--\s+)?"?\$\()?\s*dirname\s+(?:--\s+)?["']?\$(?:0|\{?BASH_SOURCE)[^/]*(?P<rest>.*)""",
    re.DOTALL,
)
DOLLAR = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")


class Command(NamedTuple):
    """One simple command, with those of its environment variables that change batches or devices."""

    arguments: tuple[Argument, ...]
    environment: Mapping[str, Setting]
    folder: Path


class Value(NamedTuple):
    """A variable's value: a text or the items of an array; ``why`` is the reason if it is unknown."""

    text: str = ""
    why: str = ""
    items: tuple[Argument, ...] | None = None
    origin: str = ""


UNSET = Value()


class Part(NamedTuple):
    """A piece of a word after expansion; ``items`` if it is a whole array."""

    text: str
    why: str = ""
    quoted: bool = False
    items: tuple[Argument, ...] | None = None


@dataclass(slots=True)
class Script:
    """Reads one script; ``notes`` lists its unread parts.

    Args:
        name: the file, as messages name it.
        folder: where it runs.
        own_folder: where the file lies.
    """

    name: str
    folder: Path
    own_folder: str = ""
    known: dict[str, Value] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    _before: list[dict[str, Value]] = field(default_factory=list)
    _depth: int = 0
    _maybe: bool = False

    def begin(self, environ: Mapping[str, str], arguments: Sequence[Argument] = ()) -> None:
        """Set the variables inherited from the caller, and the script's own arguments."""
        for name in PASSED_ON & environ.keys():
            self.known[name] = Value(environ[name], origin=f"${name}")
            self.exported.add(name)
        for number, argument in enumerate(arguments, 1):
            self.known[str(number)] = Value(argument.text, argument.unknown)
        self.known["@"] = Value(items=tuple(arguments))

    def commands(self, text: str, line: int = 1) -> Iterator[Command]:
        """The commands of the script from top to bottom, including those of branches and functions."""
        words: list[Word] = []
        for token in Lexer(text, line).tokens():
            if isinstance(token, Word):
                words.append(token)
                continue
            yield from self._command(words)
            words = []
            self._maybe = token in {"&&", "||"}
        yield from self._command(words)

    def _command(self, words: list[Word]) -> Iterator[Command]:
        while words and words[0].source in KEYWORDS:
            self._keyword(words.pop(0).source)
        if not words:
            return
        if words[0].source == "for":
            self.known[words[1].source if len(words) > 1 else ""] = Value(why="which a loop sets")
        elif words[0].source == "case":
            self._before.append(dict(self.known))
        elif words[0].source in EXPORTERS:
            exports = words[0].source == "export" or any(word.source == "-x" for word in words)
            names = {self._assign(word) or word.source for word in words[1:]}
            self.exported |= {name for name in names if exports and name.isidentifier()}
        else:
            yield from self._simple(words)

    def _keyword(self, word: str) -> None:
        """Handle a keyword: variables changed in a branch are unknown after it."""
        if word in {"else", "elif", "fi", "done", "esac"} and self._before:
            after, self.known = self.known, self._before.pop()
            for name in [name for name, value in after.items() if self.known.get(name) != value]:
                self.known[name] = Value(why=CONDITIONAL)
        if word in {"then", "do", "else"}:
            self._before.append(dict(self.known))

    def _assign(self, word: Word) -> str:
        """Carry out an assignment; returns the variable's name, empty if the word is not an assignment."""
        found = ASSIGNMENT.match(word.source)
        if found is None:
            return ""
        name, before, origin = found["name"], self.known.get(found["name"]), f"{self.name}:{word.line}"
        if word.items is not None:
            value = Value(items=tuple(item for inner in word.items for item in self.expand(inner)), origin=origin)
        else:
            value = Value(*self.single(word.source[found.end() :]), origin=origin)
        if found["append"] and before is not None:
            items = (*before.items, *(value.items or ())) if before.items is not None else None
            value = Value(before.text + value.text, before.why or value.why, items, origin)
        if len(value.text) > MAX_TEXT or len(value.items or ()) > MAX_ITEMS:
            value = Value(why=TOO_LONG)
        if self._maybe and before != value:
            value = Value(why=CONDITIONAL)
        self.known[name] = value
        return name

    def _simple(self, words: list[Word]) -> Iterator[Command]:
        leading = next((at for at, word in enumerate(words) if not ASSIGNMENT.match(word.source)), len(words))
        if leading == len(words):
            for word in words:
                self._assign(word)
            return
        known, exported = self.known, self.exported
        if leading:
            self.known, self.exported = dict(known), set(exported)
            self.exported |= {self._assign(word) for word in words[:leading]}
        environment = self._environment(words[0].line)
        self.known, self.exported = known, exported
        arguments = [item for word in words[leading:] for item in self.expand(word)]
        if arguments:
            yield from self._run(arguments, environment)

    def _run(self, arguments: list[Argument], environment: Mapping[str, Setting]) -> Iterator[Command]:
        name, rest = arguments[0].text, arguments[1:]
        if name == "cd" and rest and not rest[0].unknown:
            self.folder = self.folder / rest[0].text
        elif name in {"source", "."} and rest:
            yield from self._source(rest[0])
        elif name == "unset":
            for item in rest:
                self.known.pop(item.text, None)
        elif name == "set" and any(item.text in {"-a", "allexport"} for item in rest):
            self.exported |= KEPT_VARIABLES
        elif (inner := inner_script(arguments)) is not None and self._depth < MAX_SOURCED:
            self._depth += 1
            yield from self.commands(inner.text, int(inner.origin.rpartition(":")[2]))
            self._depth -= 1
        else:
            yield Command(tuple(arguments), environment, self.folder)

    def _source(self, argument: Argument) -> Iterator[Command]:
        if argument.unknown or self._depth >= MAX_SOURCED:
            reason = "its name is not known" if argument.unknown else "too many files read one another"
            self.notes.append(f"{argument.origin}: source {argument.text} was not read: {reason}")
            return
        try:
            text = read_text(self.folder / argument.text)
        except ValueError as error:
            self.notes.append(f"{argument.origin}: source {argument.text} was not read: {error}")
            return
        name, self.name, self._depth = self.name, argument.text, self._depth + 1
        yield from self.commands(text)
        self.name, self._depth = name, self._depth - 1

    def _environment(self, line: int) -> Mapping[str, Setting]:
        found: dict[str, Setting] = {}
        for name in sorted(KEPT_VARIABLES & self.known.keys()):
            value = self.known[name]
            if name in self.exported:
                found[name] = Setting(None if value.why else value.text, value.origin or f"{self.name}:{line}")
            elif name in {"NPROC_PER_NODE", "NNODES", "CUDA_VISIBLE_DEVICES"} and value.origin:
                self.notes.append(f"{value.origin}: {name} is set but not exported, so the launch does not see it")
        return found

    def expand(self, word: Word) -> list[Argument]:
        """The arguments a word expands to: none for an empty unquoted variable, several for a list."""
        origin, parts = f"{self.name}:{word.line}", list(self._parts(word.source))
        shown = [part for part in parts if part.text or part.items is not None]
        if len(shown) == 1 and shown[0].items is not None:
            return list(shown[0].items)
        fields, unknown = [""], next((part.why for part in parts if part.why), "")
        for part in parts:
            if len(fields[-1]) + len(part.text) > MAX_TEXT or len(fields) > MAX_ITEMS:
                return [Argument("", origin, TOO_LONG)]
            first, *others = [part.text] if part.quoted or part.why else re.split(r"\s+", part.text)
            fields[-1] += first
            fields += others
        if unknown and len(parts) == 1 and not parts[0].quoted and word.source[1:2] not in {"(", ""}:
            words = [token.source for token in Lexer(fields[0]).tokens() if isinstance(token, Word)]
            return [Argument(source, origin, unknown if SIGNS.search(source) else "") for source in words]
        if unknown:
            return [Argument(" ".join(fields), origin, unknown)]
        started = len(fields) == 1 and any(part.quoted for part in parts)
        return [Argument(text, origin) for text in fields if text or started]

    def single(self, source: str, *, quoted: bool = False, depth: int = 0) -> tuple[str, str]:
        """The text of an assignment's right side, and the reason if it is unknown (else empty)."""
        texts, why, length = [], "", 0
        for part in self._parts(source, quoted=quoted, depth=depth):
            texts.append(part.text)
            why, length = why or part.why, length + len(part.text)
            if length > MAX_TEXT:
                return "", TOO_LONG
        return "".join(texts), why

    def _parts(self, source: str, *, quoted: bool = False, depth: int = 0) -> Iterator[Part]:
        at = 0
        while at < len(source):
            char, begin = source[at], at
            at = begin + 1 if quoted and char not in "\\$`" else piece_end(source, begin)
            piece = source[begin:at]
            if not quoted and (char == "'" or piece.startswith("$'")):
                yield Part(piece.partition("'")[2].removesuffix("'"), quoted=True)
            elif not quoted and char == '"':
                yield Part("", quoted=True)
                yield from self._parts(piece[1:].removesuffix('"'), quoted=True, depth=depth)
            elif char == "\\":
                literal = "" if piece[1:] == "\n" else piece[1:]
                yield Part(piece if quoted and piece[1:] not in {*'"\\$`\n'} else literal, quoted=True)
            elif char in "$`" and len(piece) > 1:
                yield self._expansion(piece, depth, quoted=quoted)._replace(quoted=quoted)
            else:
                yield Part(piece, quoted=quoted)

    def _expansion(self, piece: str, depth: int, *, quoted: bool) -> Part:
        if piece.startswith("$((") and piece.endswith("))"):
            total = self.sum(piece[3:-2])
            return Part(piece, f"{piece}, which could not be computed") if total is None else Part(str(total))
        found = PARAMETER.fullmatch(piece[2:].removesuffix("}") if piece.startswith("${") else piece[1:])
        if found is not None and not piece.startswith(("$(", "`")) and depth < MAX_DEPTH:
            return self._parameter(found, depth, quoted=quoted)
        own = OWN_FOLDER.match(piece)
        if own is not None and ".." not in own["rest"]:
            return Part(self.own_folder)  # the one substitution that needs no execution
        short = piece if len(piece) <= 60 else f"{piece[:57]}..."  # noqa: PLR2004  a line stays readable
        return Part(short, f"{short}, which only a shell can tell")

    def _parameter(self, found: re.Match[str], depth: int, *, quoted: bool) -> Part:
        name, operator, value = found["name"], found["op"] or "", self.known.get(found["name"], UNSET)
        if found["list"] or name in "@*":
            texts = None if value.why else value.items
            if texts is None or any(item.unknown for item in texts):
                return Part(f"${{{name}}}", f"${name}, which is not known here", items=texts)
            return Part(" ".join(item.text for item in texts), items=texts)
        if value.why:
            return Part(value.text or f"${name}", f"${name}, {value.why}"[:MAX_WHY])
        text = value.items[0].text if value.items else value.text
        given = value is not UNSET and (bool(text) or not operator.startswith(":"))
        if (operator.strip(":") in {"-", "="} and not given) or (operator.strip(":") == "+" and given):
            default = self.single(found["word"], quoted=quoted, depth=depth + 1)
            if operator.endswith("="):  # : "${GROUP:=8}"
                self.known[name] = Value(*default)
            return Part(*default)
        if given or operator.strip(":") == "+":
            return Part(text if given else "")
        own = (f"{self.own_folder}/script", "") if name == "0" else (f"${name}", f"${name}, which nothing here sets")
        return Part(*own)

    def sum(self, text: str) -> int | None:
        """The value of an arithmetic expression; None if a name is unknown or it is more than a sum.

        Division truncates towards zero, as in a shell.
        """
        if len(text) > LONGEST_SUM:
            return None
        try:
            tree = ast.parse(DOLLAR.sub(r"\1", text).strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None

        def name(node: ast.expr) -> float | None:
            value = self.known.get(node.id) if isinstance(node, ast.Name) else None
            known = value is not None and not value.why and re.fullmatch(r"[+-]?\d{1,15}", value.text)
            return int(value.text) if known and value is not None else None

        found = compute(tree, name, lambda left, right: int(left / right))
        return None if found is None else int(found)
