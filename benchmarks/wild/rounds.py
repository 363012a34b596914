"""Public logs that the rules had never seen: what was said of each at first contact, and the means to say it again.

python benchmarks/wild/rounds.py table           the table of rounds and every miss, as Markdown
python benchmarks/wild/rounds.py fetch FOLDER    download what is still public, for scripts/score FOLDER

``logs.json`` holds facts only: where a log is, its label (written from its numbers before the first run), and the
answer at first contact. Logs that were cut out of a thread have no file to fetch; their thread is named.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

FACTS = Path(__file__).parent / "logs.json"
RAW = "https://raw.githubusercontent.com"
TREES = "https://api.github.com/repos"
LARGEST = 200 << 20
OFFLINE = 3
"""Failed downloads before any that worked, from which there is no network."""
Log = dict[str, Any]


def logs() -> list[Log]:
    """All logs, in the order in which they were drawn."""
    found: list[Log] = json.loads(FACTS.read_text("utf-8"))
    return found


# the table


def wrong(log: Log) -> str:
    """What was wrong at first contact, in words; empty where nothing was."""
    first = log["first_contact"]
    parts = ["missed " + " or ".join(rules) for rules in first["missed"]]
    parts += [f"false critical {rule}" for rule in first["false_critical"]]
    parts += [f"false warning {rule}" for rule in first["false_warning"]]
    return "; ".join([*parts, *first["untrue"]])


def summary(drawn: Sequence[Log]) -> str:
    """One line of the table: what was found, what was false, what was untrue of the run itself."""
    faulty = [log for log in drawn if log["label"] == "faulty"]
    broken = [log for log in drawn if log["label"] == "config-error"]
    healthy = [log for log in drawn if log["label"] == "healthy"]
    repositories = len({log["repo"] for log in drawn})
    cells = [
        str(drawn[0]["round"]),
        f"{len(drawn)} of {repositories}",
        f"{_found(faulty)} of {len(faulty)}",
        f"{_found(broken)} of {len(broken)}",
        f"{_with(healthy, 'false_critical')} of {len(healthy)}",
        f"{_with(healthy, 'false_warning')} of {len(healthy)}",
        f"{_with(drawn, 'untrue')} of {len(drawn)}",
    ]
    return f"| {' | '.join(cells)} |"


def _found(drawn: Sequence[Log]) -> int:
    return sum(not log["first_contact"]["missed"] for log in drawn)


def _with(drawn: Sequence[Log], what: str) -> int:
    return sum(bool(log["first_contact"][what]) for log in drawn)


def table() -> Iterator[str]:
    """The rounds, then each answer that was wrong."""
    head = ("round", "logs of repositories", "faults named", "configurations named")
    head += ("healthy with a false critical", "healthy with a false warning", "answers untrue of the run")
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    every = logs()
    for number in sorted({log["round"] for log in every}):
        yield summary([log for log in every if log["round"] == number])
    yield ""
    yield "| log | label | wrong at first contact |"
    yield "|---|---|---|"
    for log in every:
        if wrong(log):
            yield f"| {log['round']}: {log['repo']}, {place(log)} | {log['label']} | {wrong(log)} |"


def place(log: Log) -> str:
    """Where the log is in its repository, or the thread that it was cut out of."""
    paths = log["paths"]
    shown = f"`{paths[0]}`" if log["commit"] else paths[0]
    return f"{shown} and {len(paths) - 1} more" if len(paths) > 1 else shown


# the download


def fetch(folder: Path, chosen: Sequence[Log]) -> int:
    """Download the logs that have files; returns how many could not be had. The first that fail end it: no network."""
    folder.mkdir(parents=True, exist_ok=True)
    labels: list[Log] = []
    gone = 0
    chosen = [log for log in chosen if log["commit"]]
    for log in chosen:
        if gone == OFFLINE and not labels:
            gone = len(chosen)
            break
        try:
            for path in log["paths"]:
                _download(log["repo"], log["commit"], path, folder / log["id"])
        except (URLError, OSError, ValueError) as error:
            gone += 1
            print(f"{log['id']}: {error}", file=sys.stderr)
            continue
        labels.append({key: log[key] for key in LABEL_KEYS} | {"entry": log["id"]})
    (folder / "labels.json").write_text(json.dumps(labels, indent=1), "utf-8")
    print(f"{len(labels)} logs in {folder}, {gone} not to be had")
    return gone


LABEL_KEYS = ("id", "framework", "format", "rows", "label", "fault_start_step", "must", "may")


def _download(repo: str, commit: str, path: str, folder: Path) -> None:
    """A file, or all files of a folder; only the part of their path from the named one on is kept."""
    parent = PurePosixPath(path).parent
    for name in _files(repo, commit, path):
        target = folder / PurePosixPath(name).relative_to(parent)
        if not target.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{name} leads out of the folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_get(f"{RAW}/{repo}/{commit}/{quote(name)}"))


def _files(repo: str, commit: str, path: str) -> list[str]:
    tree = json.loads(_get(f"{TREES}/{repo}/git/trees/{commit}?recursive=1"))
    named = [one["path"] for one in tree["tree"] if one["type"] == "blob"]
    return [name for name in named if name == path or name.startswith(f"{path}/")] or [path]


def _get(address: str) -> bytes:
    with urlopen(address, timeout=60) as answer:
        data: bytes = answer.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"{address} is larger than {LARGEST >> 20} MiB")
    return data


def main() -> int:
    """Print or download."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("table")
    commands.add_parser("fetch").add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.command == "table":
        print("\n".join(table()))
        return 0
    return int(fetch(options.folder, logs()) > 0)


if __name__ == "__main__":
    sys.exit(main())
