"""Decides which channels belong to one run: turns a listed folder tree into draft runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import Scalar
from grpo_watch.errors import SourceError
from grpo_watch.frameworks.framework_tables import frameworks
from grpo_watch.frameworks.row_numbers import place
from grpo_watch.sources.completions.completion_table import holds_tables
from grpo_watch.sources.completions.rollout_dumps import folder_of
from grpo_watch.sources.discovery.channels import TRACKERS, ChannelContent
from grpo_watch.sources.discovery.look import VERSION_FOLDER, WalkedFolder
from grpo_watch.sources.discovery.sniff import SniffedFile
from grpo_watch.sources.files.decompress import beginning
from grpo_watch.sources.rows.jsonl import decode
from grpo_watch.sources.rows.pieces import step_in_name
from grpo_watch.sources.settings.documents import json_object
from grpo_watch.sources.settings.run_config import ARGUMENTS, read_run_config
from grpo_watch.sources.trackers.tracker_source import FramedLog

MEMBER = re.compile(
    "|".join(re.escape(name) for table in frameworks().values() for name in table.traces.folders)
    + r"|outputs?|runs|wandb|swanlog|completions|logs?|tensorboard|tb|files|checkpoints|"
    r"v\d{1,6}-\d{8}-\d{6}|checkpoint-\d+|(?:offline-)?run-\d{8}_\d{6}-\w+|[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_.+"
)
"""Folders that belong to the run above them when they hold channels themselves."""
SERIES = re.compile(
    "("
    + "|".join(re.escape(table.traces.numbered) for table in frameworks().values() if table.traces.numbered)
    + r")\d{3,6}"
)
"""Folders that each start of a job creates again."""
OF_STEPS = (ChannelContent.COMPLETION_DUMPS, ChannelContent.ROLLOUT_SUMMARIES)


class FoundPart(Struct, frozen=True):
    """A channel before it has a name: content, path, the folder it was found in, and its job if that has another name.

    ``named_by``: the columns that name the job if other jobs' rows are in the same file.
    """

    what: ChannelContent
    path: Path
    folder: Path
    framework: str | None = None
    problem: str = ""
    job: str | None = None
    named_by: tuple[str, ...] = ()

    @property
    def from_wandb(self) -> bool:
        """Whether it is wandb's copy of the console."""
        return self.what is ChannelContent.CONSOLE and self.path.parent.name == "files" and _in_wandb(self.path)


class RunDraft(Struct):
    """A draft of a run. ``lone``: the log file that is a run of its own among others.

    ``job``: the first of its version folders, if other jobs have theirs below the same root.
    """

    root: Path
    parts: list[FoundPart] = field(default_factory=list)
    lone: str = ""
    job: str = ""

    def consoles(self) -> list[FoundPart]:
        """The job's own consoles."""
        return [part for part in self.parts if part.what is ChannelContent.CONSOLE and not part.from_wandb]


def drafts(folder: WalkedFolder, sniff: Callable[[Path], SniffedFile]) -> list[RunDraft]:
    """Return the draft runs at and below ``folder``, outermost first, in the order of names."""
    here = RunDraft(folder.path, _own_parts(folder, sniff))
    others: list[RunDraft] = []
    lone: list[RunDraft] = []
    for child in folder.folders:
        for draft in drafts(child, sniff):
            if draft.root == child.path and (MEMBER.fullmatch(child.path.name) or _only_dumps(draft, here)):
                lone += [draft] if draft.lone else []
                here.parts += [] if draft.lone else [part for part in draft.parts if part not in here.parts]
            else:
                others.append(draft)
    if here.parts:
        here.parts += [part for draft in lone for part in draft.parts]
    else:
        others += lone
    _adopt_silent(here, others)
    return [*split_logs(here), *others] if here.parts else others


def _only_dumps(draft: RunDraft, parent: RunDraft) -> bool:
    """Whether a folder with only rollouts, or only one step's rows, belongs to the one run next to it."""
    if all(part.what is ChannelContent.ROW_PIECES for part in draft.parts):
        return step_in_name(draft.root / "rows") is not None
    return all(part.what in OF_STEPS for part in draft.parts) and len(parent.consoles()) <= 1


def _adopt_silent(here: RunDraft, others: list[RunDraft]) -> None:
    """Join one log and folders without logs that each hold another kind of channel into one run.

    Examples are the output folder of a job started from here, and the logs, checkpoints and events that a framework
    puts into separate folders (``tensorboard_log/project/experiment``). Numbered folders of one series (``exp_001``,
    ``exp_002``) count as one: each start of the job makes another. Two folders of one kind are two runs.
    """
    if len(here.consoles()) != 1 or any(draft.consoles() for draft in others):
        return
    kinds = {part.what for part in here.parts}
    for series in _series(others):
        own = {part.what for draft in series for part in draft.parts}
        if own & kinds:
            return
        kinds |= own
    while others:
        here.parts += others.pop(0).parts


def _series(found: Sequence[RunDraft]) -> Iterable[list[RunDraft]]:
    """Group drafts whose folders are siblings with equal names up to the number."""
    by_name: dict[tuple[Path, str], list[RunDraft]] = {}
    for draft in found:
        stem = SERIES.fullmatch(draft.root.name)
        by_name.setdefault((draft.root.parent, stem[1] if stem else f"{draft.root.name}/"), []).append(draft)
    return by_name.values()


def split_logs(here: RunDraft) -> list[RunDraft]:
    """Split a folder of nothing but logs into runs; the two streams of one job stay together.

    Of several notebooks, each is a run, whatever lies next to them.
    """
    notebooks = [part for part in here.parts if part.what is ChannelContent.NOTEBOOK]
    if len(notebooks) > 1:
        rest = replace(here, parts=[part for part in here.parts if part not in notebooks])
        split = [RunDraft(here.root, [part], lone=part.path.name) for part in notebooks]
        return [*(split_logs(rest) if rest.parts else []), *split]
    consoles = here.consoles()
    by_job: dict[str, list[FoundPart]] = {}
    for part in consoles:
        by_job.setdefault(job_name(part.path.name) if part.job is None else part.job, []).append(part)
    if len(consoles) != len(here.parts) or len(by_job) < 2:  # noqa: PLR2004 (one job: one run)
        return [here]
    return [RunDraft(here.root, parts, lone=job) for job, parts in by_job.items()]


def job_name(file_name: str) -> str:
    """Return the part of a log's name that both streams of a job share."""
    stem = re.sub(r"(?:\.(?:log|txt|out|err|jsonl?))+(?:\.\d+)?$", "", file_name)
    return re.sub(r"(?:^|[._-])(?:stdout|stderr)(?:$|(?=[._-]))", "", stem)


def _own_parts(folder: WalkedFolder, sniff: Callable[[Path], SniffedFile]) -> list[FoundPart]:
    parts = list(_file_parts(folder, sniff))
    for what in (*OF_STEPS, ChannelContent.PROBE):  # one file per step, or per process: the folder is the channel
        of_folder = [part for part in parts if part.what is what]
        if of_folder:
            parts = [part for part in parts if part.what is not what]
            place = folder_of(of_folder[0].path) if what in OF_STEPS else folder.path
            parts.append(FoundPart(what, place, place, of_folder[0].framework))
    tables = folder.path / "media" / "table"
    if folder.path.name == "files" and holds_tables(tables):
        parts.append(FoundPart(ChannelContent.WANDB_TABLES, tables, folder.path))
    if folder.checkpoints:
        parts.append(FoundPart(ChannelContent.CHECKPOINTS, folder.path, folder.path))
    if folder.states:
        parts.append(FoundPart(ChannelContent.TRAINER_STATE, folder.path, folder.path))
    if folder.parquet:
        parts.append(FoundPart(ChannelContent.COMPLETIONS_PARQUET, folder.path, folder.path, folder.parquet))
    return parts


def _file_parts(folder: WalkedFolder, sniff: Callable[[Path], SniffedFile]) -> Iterable[FoundPart]:
    parts, bars = [], []
    for path in folder.files:
        wanted = path.suffix in {".wandb", ".swanlab"} or path.parts[-2:] == ("files", "output.log")
        found = sniff(path) if wanted or not _in_wandb(path) else SniffedFile(None)
        if found.what is not None:
            parts.append(FoundPart(found.what, path, folder.path, found.framework, found.problem))
        elif found.bars:
            bars.append(path)
    return [*parts, *_other_streams(parts, bars)]


def _other_streams(parts: Sequence[FoundPart], bars: Sequence[Path]) -> Iterable[FoundPart]:
    """Yield files of only progress bars: a job's stderr beside its stdout, matched by name or as the only one.

    If the folder has several jobs and no name matches, the bars belong to none.
    """
    jobs = {job_name(part.path.name) for part in parts if part.what is ChannelContent.CONSOLE}
    for path in bars:
        own = job_name(path.name)
        if own in jobs or len(jobs) == len(bars) == 1:
            yield FoundPart(ChannelContent.CONSOLE, path, path.parent, job=own if own in jobs else next(iter(jobs)))


def _in_wandb(path: Path) -> bool:
    return any(part == "wandb" or re.fullmatch(r"(?:offline-)?run-\d{8}_\d{6}-\w+", part) for part in path.parts[-5:-1])


def segments(draft: RunDraft) -> dict[FoundPart, int]:
    """Return the order of channels of one kind: ``vN-`` folders, event folders, wandb runs."""
    folders = {part: version_of(part.folder, draft.root) for part in draft.parts}
    versions = sorted({folder.name for folder in folders.values() if folder}, key=version_order)
    found = {part: versions.index(folder.name) if folder else 0 for part, folder in folders.items()}
    for what, tracker in TRACKERS:
        if not versions and issubclass(tracker, FramedLog):
            found.update(_in_turn([part for part in draft.parts if part.what is what]))
    return found


def _in_turn(parts: Sequence[FoundPart]) -> dict[FoundPart, int]:
    """Order each job's files by the times in their names; the files of one process belong together."""
    found: dict[FoundPart, int] = {}
    writers: dict[tuple[Path, str], tuple[int, int]] = {}
    for part in sorted(parts, key=_time_of_file):
        writer, number = _writer(part)
        before, turn = writers.get((part.folder, writer), (number, 0))
        if number <= before:  # a process numbers its files from 0
            turn = max(found.values(), default=-1) + 1
        found[part] = turn
        writers[part.folder, writer] = (number, turn)
    return found


def _writer(part: FoundPart) -> tuple[str, int]:
    """Return host and process in an event file's name, and the file's number; else the file itself."""
    found = re.search(r"\.tfevents\.\d{1,12}\.(.+\.\d{1,10})\.(\d{1,6})$", part.path.name)
    return (found[1], int(found[2])) if found is not None else (str(part.path), 0)


def version_of(folder: Path, root: Path) -> Path | None:
    """Return the version folder below ``root`` that a folder is or lies in."""
    try:
        below = folder.relative_to(root).parts
    except ValueError:
        return None
    depth = next((depth for depth, name in enumerate(below, 1) if VERSION_FOLDER.fullmatch(name)), None)
    return None if depth is None else root.joinpath(*below[:depth])


def version_order(name: str) -> tuple[str, int]:
    """Sort version folders by their times, then numbers."""
    found = VERSION_FOLDER.fullmatch(name)
    return (found[2], int(found[1])) if found else ("", 0)


def _time_of_file(part: FoundPart) -> tuple[int, str]:
    """Return the second in an event file's name, or the time in wandb's folder name; equal times sort by path."""
    found = re.search(r"\.tfevents\.(\d{1,12})\.|run-(\d{8}_\d{6})-", f"{part.folder.name}/{part.path.name}")
    time = (found[1] or found[2].replace("_", "")) if found is not None else "0"
    return (int(time), str(part.path))


RESUMED_FROM = "resume_from_checkpoint"
"""The argument of transformers' trainers; a path, or null."""
MAY_CHANGE = frozenset(
    {"max_steps", "num_train_epochs", "save_steps", "logging_steps", "eval_steps", "log_completions"}
)
"""Settings that a continued job may change; a change of any other setting makes it another job."""
BOTH_WROTE_SECONDS = 2.0
"""Two jobs write at the same time for at least this many seconds; files copied one after the other never do."""
LARGEST_ARGUMENTS, FIRST_ROWS = 4 << 20, 64 << 10


class _Version(Struct):
    """One version folder: its channels, when its files were written (Unix seconds), and the job's settings.

    ``begins``: the step of its first row; 0 before there is one.
    """

    folder: Path
    parts: list[FoundPart] = field(default_factory=list)
    first: float = 0.0
    last: float = 0.0
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    resumed_from: str = ""
    begins: int = 0

    def continues(self, job: Sequence[_Version], *, one_console: bool) -> bool:
        """Whether this folder is the next attempt of a job: it resumes it, or continues after it with its settings.

        Without a resume setting, a folder that begins at the first logged step is another job under the same settings.
        One console beside the folders means a shell that started them all, with any settings.
        """
        if any(before.folder.name in self.resumed_from for before in job):
            return True
        before = job[-1]
        together = min(self.last, before.last) - max(self.first, before.first)
        if self.resumed_from or together >= BOTH_WROTE_SECONDS:
            return False
        if one_console:
            return True
        logged_every = self.settings.get("logging_steps")
        if self.begins <= (logged_every if isinstance(logged_every, int) else 1):
            return False
        both = self.settings.keys() & before.settings.keys() - MAY_CHANGE
        return all(self.settings[name] == before.settings[name] for name in both)


class VersionFolders:
    """Remembers each folder's settings and first step, which don't change while a job writes to it."""

    def __init__(self) -> None:
        self._begins: dict[Path, int] = {}
        self._settings: dict[Path, tuple[Mapping[str, Scalar], str]] = {}

    def runs(self, draft: RunDraft, roots: Sequence[Path]) -> list[RunDraft]:
        """Return the draft itself, or one draft per job if its version folders belong to several.

        A folder is an attempt of the previous job if it resumes from it, or if it was written later under the same
        settings and its first row does not begin a job.
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
                version.begins = self._begins.get(version.folder) or _first_step(version, roots)
                if version.begins:
                    self._begins[version.folder] = version.begins
                times = sorted(_times(version))
                version.first, version.last = (times[0], times[-1]) if times else (0.0, 0.0)
        return sorted(found.values(), key=lambda version: version_order(version.folder.name))

    def _asked(self, folder: Path, roots: Sequence[Path]) -> tuple[Mapping[str, Scalar], str]:
        """Return the settings in the folder, and where the job resumed from; read until there are some."""
        held = self._settings.get(folder)
        if held is None:
            configs = read_run_config(folder, roots)
            settings = {name: each.value for config in reversed(configs) for name, each in config.settings.items()}
            held = (settings, _resumed_from(folder, roots))
            if settings:
                self._settings[folder] = held
        return held


def _times(version: _Version) -> Iterator[float]:
    """Yield the mtimes of the arguments, written at the start, and the logs, written until the end."""
    files = [part.path for part in version.parts if part.path != part.folder]
    for path in (*files, *(version.folder / name for name in ARGUMENTS)):
        with suppress(OSError):  # missing or gone: no evidence
            yield path.stat().st_mtime


def _first_step(version: _Version, roots: Sequence[Path]) -> int:
    """Return the step of the first row of its log; 0 while there is none."""
    for path in (part.path for part in version.parts if part.what is ChannelContent.JSONL):
        with suppress(OSError, SourceError):  # unreadable: no evidence
            rows = map(decode, beginning(path, roots, FIRST_ROWS).split(b"\n"))
            return next((step for row in rows if row is not None and (step := place(row).step)), 0)
    return 0


def _resumed_from(folder: Path, roots: Sequence[Path]) -> str:
    for name in ARGUMENTS:
        with suppress(OSError, SourceError, ValueError):
            text = beginning(folder / name, roots, LARGEST_ARGUMENTS)
            return str(json_object(text.decode("utf-8", "replace")).get(RESUMED_FROM) or "")
    return ""


def _of_job(draft: RunDraft, job: Sequence[_Version]) -> RunDraft:
    """Return a job's draft: a single folder's run, or the common root, named by the first of several folders."""
    parts = [part for version in job for part in version.parts]
    if len(job) == 1:
        return RunDraft(job[0].folder, parts)
    return RunDraft(draft.root, parts, job=job[0].folder.name)
