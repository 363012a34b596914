"""Known versions of each framework, and which of them a launch is judged by."""

from __future__ import annotations

from types import MappingProxyType

from grpo_watch.detectors.shared.batch_plan import release

NEWEST = MappingProxyType(
    {
        "trl": "1.16.0",
        "ms-swift": "4.6.0",
        "ms-swift-megatron": "4.6.0",
        "verl": "0.9.0",
        "openrlhf": "0.11.0",
        "nemo-rl": "0.7.0",
        "unsloth": "1.16.0",
        "axolotl": "1.8.0",
        "open-r1": "0.18.0",
    }
)
"""The newest version whose rules were read, by framework; that of TRL where TRL makes the batches.

open-r1 and axolotl pin their TRL (0.18.0, 1.8.0), Unsloth patches the one that is installed.
"""

FIRST = MappingProxyType(
    {
        **dict.fromkeys(("trl", "unsloth", "axolotl", "open-r1"), "0.14"),
        "ms-swift": "3.1",
        "ms-swift-megatron": "3.8",
    }
)
"""The first version with GRPO whose defaults and rules were read."""

PINNING = frozenset({"axolotl", "open-r1"})
"""Frameworks whose newest release pins its TRL, so that this version is exact for that release."""

ON_TRL = frozenset({"trl", "unsloth", "axolotl", "open-r1"})
ON_HF = ON_TRL | {"ms-swift"}
"""Frameworks whose steps the Hugging Face trainer counts."""


def known(framework: str, version: str | None) -> str:
    """The version, or the newest one known if it was not given."""
    return version or NEWEST[framework]


def assumed(framework: str) -> str:
    """The version that is assumed if none was given, in words."""
    newest = NEWEST[framework]
    return f"TRL {newest}, which {framework} pins," if framework in PINNING else f"{newest}, the newest known,"


def older_than_known(framework: str, version: str | None) -> tuple[str, ...]:
    """A line where the version came before the first whose rules were read."""
    first = FIRST.get(framework)
    if version is None or first is None or at_least(version, first):
        return ()
    return (f"the rules of {version} are not known; the oldest known are those of {first} (--framework-version)",)


def newer_than_known(framework: str, version: str | None) -> tuple[str, ...]:
    """A line where the version, patch releases aside, is newer than any whose rules were read."""
    newest = NEWEST[framework]
    if version is None or release(version)[:2] <= release(newest)[:2]:
        return ()
    return (f"{version} is newer than {newest}, whose rules are applied",)


def at_least(version: str, bound: str) -> bool:
    """Whether ``version`` is ``bound`` or newer; a pre-release counts as its release."""
    return release(version) >= release(bound)


def within(version: str, since: str, before: str) -> bool:
    """Whether ``since <= version < before``."""
    return at_least(version, since) and not at_least(version, before)
