"""Puts completions that lie in no order back into their groups, by a group's id or by the prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

import xxhash

from grpo_watch.core.records import GroupSummary
from grpo_watch.extract.completions import Grouping, Sample, group


def group_by_key(
    samples: Sequence[Sample],
    keys: Sequence[Hashable] | None,
    rewards: Mapping[str, Sequence[object]],
    group_size: int | None,
) -> Grouping:
    """Summarise a batch in any order.

    Args:
        samples: the completions, reduced.
        keys: per completion the id of its group; None groups by equal prompts. By id a group may have any size (a
            rollout can fail). By prompt it must have the expected size: two groups of one prompt can't be told apart
            and are left out.
        rewards: per reward function one value per completion.
        group_size: G as configured; None takes the commonest number of completions per prompt.
    """
    members: dict[Hashable, list[int]] = {}
    for at, one in enumerate(samples):
        members.setdefault(one.prompt if keys is None else keys[at], []).append(at)
    prompts = xxhash.xxh3_128_hexdigest(b"".join(one.prompt for one in samples))
    digest = xxhash.xxh3_128_hexdigest(b"".join(part for one in samples for part in (one.prompt, one.text)))
    if not samples:
        return Grouping((), "an empty table", digest, prompts)
    sizes = Counter(map(len, members.values()))
    wanted = None if keys is not None else group_size or sizes.most_common(1)[0][0]
    chosen = [at for at in members.values() if wanted is None or len(at) == wanted]
    if not chosen:
        return Grouping((), f"no prompt has {wanted} completions, but {_told(sizes)}", digest, prompts)
    return Grouping(tuple(_group(at, samples, rewards) for at in chosen), "", digest, prompts)


def _group(at: Sequence[int], samples: Sequence[Sample], rewards: Mapping[str, Sequence[object]]) -> GroupSummary:
    columns = {name: [column[i] for i in at] for name, column in rewards.items() if len(column) == len(samples)}
    return group([samples[i] for i in at], columns, len(at)).groups[0]


def _told(sizes: Counter[int]) -> str:
    return ", ".join(f"{count} x {size}" for size, count in sizes.most_common(3))
