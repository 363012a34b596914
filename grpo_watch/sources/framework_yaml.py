"""Reads the YAML that a framework was launched with, or wrote down, into canonical settings by its data file."""

from __future__ import annotations

from grpo_watch.normalise.settings import canonical_settings, flatten, framework_of_settings
from grpo_watch.sources.config_files import Read, RefusedYamlError, plain_yaml


def framework_yaml(text: str, origin: str) -> Read:
    """The settings of NeMo-RL, axolotl, ROLL, SkyRL and others; nothing for a YAML of anything else.

    Files that are no YAML (templates) say nothing either: what lies in a folder may be anyone's.

    Raises:
        RefusedYamlError: it has aliases or is nested too deeply: it may be the run's, and is not read.
    """
    try:
        raw = plain_yaml(text)
    except RefusedYamlError:
        raise
    except ValueError:
        return Read()
    if not isinstance(raw, dict):
        return Read()
    framework = framework_of_settings({key for key, _ in flatten(raw)})
    return Read(canonical_settings(raw, framework, origin), framework) if framework is not None else Read()
