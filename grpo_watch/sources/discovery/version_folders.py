"""Tells the jobs apart that a framework's version folders (``v0-…``, ``v1-…``) below one output folder belong to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from grpo_watch.engine.records import Scalar
from grpo_watch.errors import SourceError
from grpo_watch.sources.discovery.grouping import FoundPart, RunDraft, split_logs, version_of, version_order
from grpo_watch.sources.discovery.sniff import ChannelContent
from grpo_watch.sources.files.decompress import beginning
from grpo_watch.sources.settings.documents import json_object
from grpo_watch.sources.settings.run_config import ARGUMENTS, read_run_config

RESUMED_FROM = "resume_from_checkpoint"
"""The argument of transformers' trainers; a path, or null."""
MAY_CHANGE = frozenset(
    {"max_steps", "num_train_epochs", "save_steps", "logging_steps", "eval_steps", "log_completions"}
)
"""Settings that a continued job may change; another value of any other one makes another job."""
BOTH_WROTE_SECONDS = 2.0
"""Two jobs wrote at the same time for at least this long; files that are copied one after the other never do."""
LARGEST_ARGUMENTS = 4 << 20


@dataclass(slots=True)
class _Version:
    """One version folder: its channels, when its files were written (Unix seconds), and the job's settings."""

    folder: Path
    parts: list[FoundPart] = field(default_factory=list)
    first: float = 0.0
    last: float = 0.0
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    resumed_from: str = ""

    def continues(self, job: Sequence[_Version], *, one_console: bool) -> bool:
        """Whether this folder is the next attempt of a job: it resumes from it, or follows it with its settings.

        One console beside the folders stands for a shell that started each of them, with whatever settings.
        """
        if any(before.folder.name in self.resumed_from for before in job):
            return True
        before = job[-1]
        together = min(self.last, before.last) - max(self.first, before.first)
        if self.resumed_from or together >= BOTH_WROTE_SECONDS:
            return False
        if one_console:
            return True
        both = self.settings.keys() & before.settings.keys() - MAY_CHANGE
        return all(self.settings[name] == before.settings[name] for name in both)


class VersionFolders:
    """Remembers each folder's settings, which do not change while a job writes to it."""

    def __init__(self) -> None:
        self._settings: dict[Path, tuple[Mapping[str, Scalar], str]] = {}

    def runs(self, draft: RunDraft, roots: Sequence[Path]) -> list[RunDraft]:
        """The draft itself, or one draft per job if its version folders belong to several.

        A folder is an attempt of the job before it if it resumes from there, or if it was written after it under the
        same settings.
        """
        versions = self._versions(draft, roots)
        inside = [part for version in versions for part in version.parts]
        beside = [part for part in draft.parts if part not in inside]
        one_console = sum(part.what is ChannelContent.CONSOLE for part in beside) == 1
        if len(versions) < 2:  # noqa: PLR2004 (one folder: one job)
            return [draft]
        jobs: list[list[_Version]] = []
        for version in versions:
            job = next((job for job in reversed(jobs) if version.continues(job, one_console=one_console)), None)
            if job is None:
                jobs.append([version])
            else:
                job.append(version)
        if len(jobs) == 1:
            return [draft]
        rest = split_logs(replace(draft, parts=beside)) if beside else []
        return [*(_of_job(draft, job) for job in jobs), *rest]

    def _versions(self, draft: RunDraft, roots: Sequence[Path]) -> list[_Version]:
        found: dict[Path, _Version] = {}
        for part in draft.parts:
            folder = version_of(part.folder, draft.root)
            if folder is not None:
                found.setdefault(folder, _Version(folder)).parts.append(part)
        if len(found) > 1:
            for version in found.values():
                version.settings, version.resumed_from = self._asked(version.folder, roots)
                times = sorted(_times(version))
                version.first, version.last = (times[0], times[-1]) if times else (0.0, 0.0)
        return sorted(found.values(), key=lambda version: version_order(version.folder.name))

    def _asked(self, folder: Path, roots: Sequence[Path]) -> tuple[Mapping[str, Scalar], str]:
        """The settings in the folder, and where the job resumed from; read until there are some."""
        held = self._settings.get(folder)
        if held is None:
            configs = read_run_config(folder, roots)
            settings = {name: each.value for config in reversed(configs) for name, each in config.settings.items()}
            held = (settings, _resumed_from(folder, roots))
            if settings:
                self._settings[folder] = held
        return held


def _times(version: _Version) -> Iterator[float]:
    """When the arguments, written at the start, and the logs, written until the end, were changed last."""
    files = [part.path for part in version.parts if part.path != part.folder]
    for path in (*files, *(version.folder / name for name in ARGUMENTS)):
        with suppress(OSError):  # not there, or gone meanwhile: it says nothing
            yield path.stat().st_mtime


def _resumed_from(folder: Path, roots: Sequence[Path]) -> str:
    for name in ARGUMENTS:
        with suppress(OSError, SourceError, ValueError):
            text = beginning(folder / name, roots, LARGEST_ARGUMENTS)
            return str(json_object(text.decode("utf-8", "replace")).get(RESUMED_FROM) or "")
    return ""


def _of_job(draft: RunDraft, job: Sequence[_Version]) -> RunDraft:
    """A job of one folder is the run of that folder; one of several keeps the common root, by its first one's name."""
    parts = [part for version in job for part in version.parts]
    if len(job) == 1:
        return RunDraft(job[0].folder, parts)
    return RunDraft(draft.root, parts, job=job[0].folder.name)
