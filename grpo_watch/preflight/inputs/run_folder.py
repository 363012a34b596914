"""Reads the launch of a run that exists: its arguments, a wandb or Hydra configuration, or what its files say."""

from __future__ import annotations

from pathlib import Path

from grpo_watch.core.records import Setting
from grpo_watch.errors import UsageError
from grpo_watch.preflight.inputs.documents import read_document
from grpo_watch.preflight.inputs.draft import Draft

KNOWN_FILES = (
    "args.json",
    ".hydra/config.yaml",
    "files/config.yaml",
    "wandb/latest-run/files/config.yaml",
    "config.yaml",
)
"""Where runs keep the whole of their configuration, the most exact first."""

DECISIVE = ("num_generations", "per_device_train_batch_size", "gradient_accumulation_steps", "num_iterations")
"""Settings that a folder without arguments may not know; to take their defaults would be a guess."""


def read_run_folder(folder: Path, draft: Draft) -> None:
    """Read the configuration of an existing run into the draft.

    Raises:
        UsageError: there is none in it, or it can't be read.
    """
    name = draft.shown(folder)
    draft.folders.append(folder)
    places = [folder, *sorted((child for child in folder.iterdir() if child.is_dir()), reverse=True)]
    for place in places:
        for known in KNOWN_FILES:
            if (place / known).is_file():
                try:
                    read_document(place / known, draft)
                except ValueError as error:
                    raise UsageError(str(error)) from None
                return
    _from_checkpoints(folder, draft)
    if not draft.settings:
        raise UsageError(f"{name}: no configuration of a run in it (args.json, a wandb or Hydra config)")


def _from_checkpoints(folder: Path, draft: Draft) -> None:
    """What TRL leaves behind has no arguments; its model card and newest checkpoint say a little."""
    from grpo_watch.sources.run_config import read_run_config  # noqa: PLC0415  needed for such folders only

    for config in sorted(read_run_config(folder), key=lambda config: -config.precedence):
        draft.framework = config.framework or draft.framework
        if config.version is not None and draft.version is None:
            draft.version, draft.version_origin = config.version, draft.shown(folder / "README.md")
        for key, setting in config.settings.items():
            if key == "world_size":
                draft.world_size = setting
            elif key == "adapter":
                draft.peft = setting.value is True
            else:
                draft.put(key, setting.value, setting.origin)
    if not draft.settings:
        return
    name = draft.shown(folder)
    draft.saw(name)
    for key in DECISIVE:
        if key not in draft.settings:
            draft.settings[key] = Setting(None, name)
    draft.note(f"{name}: holds no arguments, only what checkpoints and the model card say")
