"""Turns a command, a script, a file or a run's folder, with the user's options, into one ``Launch``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from grpo_watch.credentials import masked
from grpo_watch.engine.records import Setting
from grpo_watch.errors import UsageError
from grpo_watch.frameworks.launches import Launch, launch_facts
from grpo_watch.preflight.inputs.configurations import read_document, resolve_references
from grpo_watch.preflight.inputs.draft import Argument, LaunchDraft, read_text
from grpo_watch.preflight.inputs.framework_version import find_version, runs_here
from grpo_watch.preflight.inputs.program import Program, inner_script, recognise
from grpo_watch.preflight.inputs.program_settings import find_world, read_program
from grpo_watch.preflight.inputs.python_file import read_python
from grpo_watch.preflight.inputs.shell import Command, Script
from grpo_watch.preflight.inputs.shell_lexer import ASSIGNMENT

ADAPTERS = frozenset({"lora", "qlora", "adapter", "adalora", "longlora", "llamapro", "vera", "boft", "lora_llm"})
ADAPTER_FLAGS = ("use_peft", "lora_r", "lora_rank", "actor_rollout_ref.model.lora_rank", "ds.lora.rank")

SCRIPTS = frozenset({".sh", ".bash", ".slurm", ".sbatch", ".bat"})
METHODS = ("rlhf_type", "rl")
"""Settings of ms-swift and axolotl that name the method."""

SIZE, STEPS, EACH = "generation_batch_size", "steps_per_generation", "per_device_train_batch_size"
"""Generation settings; a run records both of the first two, though only one may be given."""


FOUND = ("framework", "version", "version_origin", "settings", "deepspeed", "packages", "complete")
"""Fields that a launch copies from its draft."""


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """Options on preflight's own command line; they win over everything read."""

    framework: str | None = None
    version: str | None = None
    world_size: int | None = None
    dataset_size: int | None = None
    python: Path | None = None


def read_launch(
    file: Path | None, command: Sequence[str], options: GivenOptions, folder: Path, environ: Mapping[str, str]
) -> Launch:
    """Read a file, then a command line over it.

    Args:
        file: a script, configuration, Python file or run folder; None if there is none.
        command: the words of the launch command; may be empty.
        options: they win over everything read.
        folder: where the launch would run.
        environ: variables that the launch would inherit; only those that change batches or devices are read.

    Raises:
        UsageError: the file or one that the command names can't be read, or launches no training.
    """
    draft = LaunchDraft(folder, environ, framework=options.framework, runs_here=file is None and runs_here(command))
    draft.environment_of = options.python
    if options.version is not None:
        draft.version, draft.version_origin = options.version, "--framework-version"
    if file is not None:
        _read_file(file, draft, alone=not command)
    if command:
        read_command(command, draft)
    draft.framework = options.framework or draft.framework
    return _finished(draft, options)


def _read_file(file: Path, draft: LaunchDraft, *, alone: bool) -> None:
    """Read a file of any kind.

    Raises:
        UsageError: as ``read_launch``.
    """
    path = draft.folder / file
    if not path.exists():
        raise UsageError(f"{file}: no such file or folder")
    if path.is_dir():
        from grpo_watch.preflight.inputs.run_folder import read_run_folder  # noqa: PLC0415  for folders only

        read_run_folder(path, draft)
    else:
        draft.folders.append(path.parent)
        if path.suffix in SCRIPTS or (not path.suffix and draft.text_of(path).startswith("#!")):
            read_script(path, draft)
            return
        if path.suffix == ".ipynb":
            raise UsageError(f"{path.name}: notebooks are not read: save it as Python (jupyter nbconvert --to script)")
        (read_python if path.suffix == ".py" else read_document)(path, draft)
    if alone and _refers(draft):
        find_world(Program(draft.framework or "", "", (), {}), draft)


def _refers(draft: LaunchDraft) -> bool:
    """Whether the framework's settings may refer to others."""
    facts = launch_facts().get(draft.framework or "")
    return facts is not None and facts.refers_to_settings


def _finished(draft: LaunchDraft, options: GivenOptions) -> Launch:
    """Resolve references and the version after all settings are read, and apply the user's options."""
    if _refers(draft):
        resolve_references(draft)
    if draft.recorded:
        _drop_derived(draft)
    _refuse_other_methods(draft)
    if draft.framework is None and {"num_generations", "per_device_train_batch_size"} & draft.settings.keys():
        draft.framework = "trl"
        draft.note("taken for trl by its settings' names: say --framework if it is another")
    find_version(draft)
    size = Setting(options.dataset_size, "--dataset-size") if options.dataset_size is not None else None
    world = Setting(options.world_size, "--world-size") if options.world_size is not None else draft.world_size
    return Launch(
        **{name: getattr(draft, name) for name in FOUND},
        world_size=world,
        dataset_size=size,
        peft=draft.peft if draft.peft is not None else _adapter(draft),
        unresolved=_open_questions(draft, options),
        text=", ".join(draft.read),
    )


def _drop_derived(draft: LaunchDraft) -> None:
    """Remove one of the two generation settings that TRL records: the batch follows from the steps.

    They also give the run's number of processes: ``generation_batch_size / (per device x steps_per_generation)``.
    """
    size, steps, each = (draft.value(name) for name in (SIZE, STEPS, EACH))
    if not (isinstance(size, int) and isinstance(steps, int) and isinstance(each, int)) or steps * each < 1:
        return
    processes, rest = divmod(size, steps * each)
    if rest or processes < 1:
        return
    origin = draft.settings.pop(SIZE).origin
    if draft.world_size is None:
        draft.world_size = Setting(processes, f"{origin}: {size} / ({each} per device x {steps} steps per generation)")


def _refuse_other_methods(draft: LaunchDraft) -> None:
    """Refuse other training methods, to which the rules of GRPO don't apply.

    Raises:
        UsageError: the settings name another method, such as DPO or GKD.
    """
    for name in METHODS:
        given = draft.settings.get(name)
        if given is not None and isinstance(given.value, str) and given.value not in {"grpo", "gdpo"}:
            raise UsageError(f"{given.origin}: {name} is {given.value}, and preflight judges GRPO only")


def _open_questions(draft: LaunchDraft, options: GivenOptions) -> tuple[str, ...]:
    """The unread parts that the user's options don't settle."""
    answers = {
        "--framework-version": options.version,
        "--framework if": options.framework,
        "--world-size": options.world_size,
    }
    answered = [flag for flag, value in answers.items() if value is not None]
    return tuple(text for text in draft.unresolved if not any(f"say {flag}" in text for flag in answered))


def _adapter(draft: LaunchDraft) -> bool | None:
    """Whether the settings ask for an adapter; None if the framework has no such setting."""
    kind = draft.value("tuner_type", "train_type", "sft_type", "adapter")
    if isinstance(kind, str):
        return kind.lower() in ADAPTERS
    given = [draft.value(name) for name in ADAPTER_FLAGS if name in draft.settings]
    if given:
        return any(value is True or (isinstance(value, (int, float)) and value > 0) for value in given)
    facts = launch_facts().get(draft.framework or "")
    return True if facts is not None and facts.trains_adapter and draft.settings else None


ORIGIN = "command line"
MAX_SCRIPTS = 4
GRPO_SIGNS = ("GRPO", "grpo")


class _Candidate(NamedTuple):
    command: Command
    program: Program
    rank: int


def read_command(words: Sequence[str], draft: LaunchDraft) -> None:
    """Read a command line, split into words.

    Raises:
        UsageError: it launches nothing that preflight knows, or names a file that can't be read.
    """
    command = Command(tuple(Argument(word, ORIGIN) for word in words), {}, draft.folder)
    if inner_script(command.arguments) is not None:
        _from_text(shlex.join(words), ORIGIN, draft)
    elif (launch := _candidate(command, draft)) is not None:
        _read(launch, draft)
    else:
        first = next((word for word in words if not ASSIGNMENT.match(word)), "the command")  # others may hold secrets
        raise UsageError(f"{masked(first)[:60]}: not a GRPO training launch (see docs/preflight.md for what is read)")


def read_script(path: Path, draft: LaunchDraft, arguments: Sequence[Argument] = (), depth: int = 0) -> None:
    """Read the training command of a shell script.

    Raises:
        UsageError: the script can't be read, or launches nothing that preflight knows.
    """
    name, text = draft.shown(path), draft.text_of(path)
    draft.name_input(name)
    _from_text(text, name, draft, path, arguments, depth)


def _from_text(
    text: str, name: str, draft: LaunchDraft, path: Path = Path("-"), arguments: Sequence[Argument] = (), depth: int = 0
) -> None:
    folder = Path(os.path.abspath(path)).parent  # noqa: PTH100  a link's own folder, not its target's
    script = Script(name, draft.folder, str(folder))
    script.begin(draft.environ, arguments)
    candidates = [found for command in script.commands(text) if (found := _candidate(command, draft)) is not None]
    draft.folders.append(folder)
    for note in script.notes:
        draft.note(note)
    if not candidates:
        raise UsageError(f"{name}: no command launches GRPO training")
    _read(_best(candidates, draft), draft, depth)


def _read(chosen: _Candidate, draft: LaunchDraft, depth: int = 0) -> None:
    command, program, _ = chosen
    draft.folders.insert(0, command.folder)
    draft.environment.update(command.environment)
    if program.kind != "shell":
        read_program(program, draft)
        return
    path = draft.path_of(program.name)
    if path is None or depth >= MAX_SCRIPTS:
        raise UsageError(f"{program.name}: no such file")
    read_script(path, draft, program.arguments, depth + 1)


def _candidate(command: Command, draft: LaunchDraft) -> _Candidate | None:
    """The command with a rank, from 4 for a framework's own command to 1 for any Python file; None: no training."""
    program = recognise(command.arguments)
    if program is None:
        return None
    if program.kind == "shell":
        return _Candidate(command, program, 0)
    if program.kind != "script":
        return _Candidate(command, program, 4)
    path = draft.path_of(program.name) or (command.folder / program.name)
    if any(sign in program.name for sign in GRPO_SIGNS) or _mentions_grpo(path):
        return _Candidate(command, program, 3)
    return _Candidate(command, program, 2 if program.options.keys() - {"python"} else 1)


def _mentions_grpo(path: Path) -> bool:
    try:
        return path.is_file() and "GRPO" in read_text(path)
    except (OSError, ValueError):
        return False


def _best(candidates: Sequence[_Candidate], draft: LaunchDraft) -> _Candidate:
    """The candidate of highest rank; of several the first, with a note."""
    best = max(candidates, key=lambda candidate: candidate.rank)
    equal = [candidate for candidate in candidates if candidate.rank == best.rank]
    if len(equal) > 1:
        places = ", ".join(candidate.command.arguments[0].origin for candidate in equal)
        draft.note(f"{len(equal)} commands train ({places}); the first is judged")
    return best
