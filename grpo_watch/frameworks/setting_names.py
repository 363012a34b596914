"""Turns a framework's own configuration, nested or flat, into canonical settings by the framework's data file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from grpo_watch.advisories.entries import own_settings
from grpo_watch.credentials import masked
from grpo_watch.engine.expression import RAW
from grpo_watch.engine.metric_names import SETTINGS
from grpo_watch.engine.records import Scalar, Setting
from grpo_watch.engine.reward_functions import spelled
from grpo_watch.frameworks.framework_tables import frameworks

MAX_DEPTH = 12
ENOUGH = 3
OWN = 2
"""Keys known to a single framework's data file that identify its configuration."""
MAX_TEXT = 300
"""Longest text value kept (a model name or path)."""


def flatten(raw: Mapping[str, object], depth: int = 0) -> Iterator[tuple[str, object]]:
    """Each leaf with its dotted path: ``{"data": {"seed": 1}}`` gives ``("data.seed", 1)``. Lists are leaves."""
    for key, value in raw.items():
        if isinstance(value, Mapping) and depth < MAX_DEPTH:
            for below, leaf in flatten(value, depth + 1):
                yield f"{key}.{below}", leaf
        else:
            yield str(key), value


def framework_of_settings(keys: Collection[str]) -> str | None:
    """The framework whose data file knows three of these dotted keys, two of them alone; None if there is none.

    Names that several data files know, or that are transformers' arguments (``learning_rate``, ``seed``), are in
    anyone's configuration and decide nothing.
    """
    everyones = Counter(key for table in frameworks().values() for key in table.settings)
    own = {key for key in keys if everyones[key] == 1 and key not in SETTINGS}
    known = {name: sum(key in own for key in table.settings) for name, table in frameworks().items()}
    best = max(known, key=lambda name: known[name], default=None)
    if best is None or known[best] < OWN:
        return None
    agree = sum(key in keys and key not in SETTINGS for key in frameworks()[best].settings)
    return best if agree >= ENOUGH else None


def canonical_settings(raw: Mapping[str, object], framework: str, origin: str) -> dict[str, Setting]:
    """The settings that the framework's data file names (``settings:``), nothing else, so that no secret is taken.

    Args:
        raw: the configuration as the framework writes it, nested or with dotted keys.
        framework: name of a data file; an unknown one gives nothing.
        origin: where it was read, kept with each setting.

    Returns:
        Canonical name to setting, and settings that only an advisory needs as ``raw:<key>``. Null, lists other than
        weights, texts longer than 300 characters, references (``${…}``) and numbers below 0 (-1 means "not set"
        everywhere) give nothing. If two keys mean one setting, the one further up in the data file wins.
    """
    table = frameworks().get(framework)
    if table is None:
        return {}
    leaves = dict(flatten(raw))
    found: dict[str, Setting] = {}
    for key, terms in table.settings.items():
        name, value = terms.means, terms.read(leaves.get(key), leaves)
        scalar = spelled(value) if name == "reward_weights" else _scalar(value)
        if name not in found and scalar is not None:
            found[name] = Setting(scalar, f"{origin}: {key}" if key != name else origin)
    return {**found, **kept_own(leaves, origin)}


def kept_own(leaves: Mapping[str, object], origin: str) -> dict[str, Setting]:
    """The framework's own settings that advisories' conditions name, as ``raw:<key>``."""
    known = ((key, _scalar(leaves[key])) for key in sorted(own_settings() & leaves.keys()))
    return {f"{RAW}{key}": Setting(scalar, f"{origin}: {key}") for key, scalar in known if scalar is not None}


def _scalar(value: object) -> Scalar:
    if isinstance(value, str):
        return masked(value) if len(value) <= MAX_TEXT and "${" not in value else None
    if isinstance(value, (int, float)) and (isinstance(value, bool) or value >= 0):
        return value
    return None
