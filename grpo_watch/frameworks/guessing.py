"""Guesses the canonical metric of an unknown key from its words, and checks the guess on the values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf, isfinite
from types import MappingProxyType

from grpo_watch.engine.metric_names import LABELLED, labelled, split_label
from grpo_watch.frameworks.framework_tables import frameworks


@dataclass(slots=True)
class CheckedGuesses:
    """The guesses of one channel. One value out of the metric's range refutes a key permanently.

    ``changed``: a key was accepted or refuted since the last ``take_news``.
    """

    standing: dict[str, str] = field(default_factory=dict)
    refuted: set[str] = field(default_factory=set)
    changed: bool = False

    def add(
        self,
        guesses: Sequence[tuple[str, str]],
        raw: Mapping[str, float | None],
        values: dict[str, float | None],
    ) -> str | None:
        """Add the guessed metrics of a row to its values; the key that seems to be the reward's spread, if any."""
        spread = None
        for key, metric in guesses:
            value = raw[key]
            if value is None or key in self.refuted:
                continue
            if not fits(metric, value):
                self.refuted.add(key)
                self.changed |= self.standing.pop(key, None) is not None
                continue
            if key not in self.standing:
                self.standing[key] = metric
                self.changed = True
            if metric == SPREAD:
                spread = key
            else:
                values.setdefault(metric, value)
        return spread

    def take_news(self) -> Mapping[str, str] | None:
        """All keys that stand, with their metrics, if that changed since the last call; None else."""
        changed, self.changed = self.changed, False
        return dict(self.standing) if changed else None


SPREAD = "reward_std"
"""Stands for the logged spread of the reward, whose meaning (a group's, the batch's) the rows decide."""
LONGEST_KEY = 200
WORD = re.compile(r"[a-z]+|\d+")
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
FUNCTION = re.compile(
    r"(?:^|[/._])rewards?[/._ -]{1,3}(?P<name>[A-Za-z][\w.-]{0,60}?)[/._ -]{1,3}(?P<what>mean|avg|std)$", re.IGNORECASE
)
"""``rewards/format/mean`` as writers of CSV flatten it: ``rewards_format_mean``, ``train.rewards.format.mean``."""
PREFIXES = frozenset(
    {"train", "training", "trainer", "metrics", "metric", "log", "logs", "rollout", "rollouts", "env", "all", "actor"}
    | {"policy", "optim", "global", "batch", "progress", "data", "misc", "perf", "stats", "loss", "objective", "rl"}
    | {"info", "learner"}
    | {"grpo", "dapo", "dr", "summary"}
)
"""Words that name a namespace; before a known key they change nothing."""
SAME: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("rewards", "return", "returns", "score", "scores", "rew", "rews"), "reward"),
        **dict.fromkeys(("completions", "response", "responses", "generation", "generations", "output"), "completion"),
        **dict.fromkeys(("outputs", "sequence", "seq", "gen"), "completion"),
        **dict.fromkeys(("len", "lens", "lengths", "token", "tokens"), "length"),
        **dict.fromkeys(("frac", "fraction", "rate", "share", "ratios", "portion"), "ratio"),
        **dict.fromkeys(("adv", "advs", "advantages"), "advantage"),
        **dict.fromkeys(("gradient", "gradients", "grads"), "grad"),
        **dict.fromkeys(("clipped", "clipping"), "clip"),
        **dict.fromkeys(("truncated", "truncation", "trunc", "overlong", "cutoff"), "truncated"),
        **dict.fromkeys(("average", "avg"), "mean"),
        **dict.fromkeys(("divergence", "div", "reference"), "ref"),
        **dict.fromkeys(("groups", "grouped"), "group"),
        **dict.fromkeys(("stddev", "stdev", "deviation", "spread"), "std"),
        "degenerate": "zero",
    }
)
WHOLE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "lr": ("learning", "ratio"),
        "clipfrac": ("clip", "ratio"),
        "cliprate": ("clip", "ratio"),
        "gradnorm": ("grad", "norm"),
        "gnorm": ("grad", "norm"),
    }
)
"""Words that stand for several."""
DROPPED = frozenset({"mean", "total", "overall", "the", "current", "of", "per"})
_PHRASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "reward_mean": ("reward", "group reward", "raw reward", "episode reward", "ep reward"),
        SPREAD: ("reward std",),
        "reward_group_std": ("group reward std", "within group reward std", "reward std within group"),
        "reward_zero_std_ratio": (
            "zero std ratio", "reward zero std ratio", "zero advantage ratio", "zero std group ratio",
            "zero variance ratio", "zero signal ratio", "group zero std ratio", "zero variance group ratio",
            "reward zero variance ratio", "group zero variance ratio", "all same ratio", "group filtered ratio",
            "group filtered", "filtered group ratio",
        ),
        "kl_reference": ("kl", "kl ref", "ref kl", "kl ref model", "kl to ref", "kl policy ref"),
        "policy_clip_ratio": ("clip ratio", "policy clip ratio", "ratio clip ratio", "pg clip ratio"),
        "completion_length_mean": ("completion length", "length"),
        "completion_length_max": ("completion length max", "max completion length"),
        "completion_length_min": ("completion length min", "min completion length"),
        "completion_truncated_ratio": (
            "truncated ratio", "completion truncated ratio", "completion clip ratio", "completion length clip ratio",
        ),
        "kl_policy_update": ("approx kl",),
        "entropy": ("entropy", "length entropy"),
        "grad_norm": ("grad norm", "policy grad norm"),
        "learning_rate": ("learning ratio", "policy learning ratio"),
        "loss": ("loss", "policy loss", "grpo loss", "pg loss", "train loss"),
        "step_seconds": ("step time", "step seconds", "time step"),
        "completion_duplicate_ratio": ("duplicate ratio", "completion duplicate ratio"),
    }
)  # fmt: skip
OTHERS = frozenset(
    {"eval", "val", "validation", "test", "critic", "value", "values", "vf", "teacher", "baseline", "best", "ema"}
    | {"coef", "coefficient", "beta", "weight", "penalty", "limit", "target", "threshold", "sum", "running", "old"}
)
"""A key with one of these words is about something else; only a framework's own key may have it."""
REWARD = "reward_mean"
REWARDS = frozenset({"reward", "rewards", "return", "returns"})
WHOLES = frozenset(
    {"total", "overall", "combined", "final", "mean", "avg", "average", "outcome", "task", "episode", "env"}
)
LETTERS = frozenset({"R", "r"})
"""The reward in formulas, and in the prints of own loops: ``loss 0.1 | kl 0.02 | R 1.5``."""
OF_PREFERENCES = frozenset({"chosen", "rejected", "margins", "margin"})
NO_REWARD = (
    OTHERS
    | OF_PREFERENCES
    | {"std", "var", "variance", "min", "max", "median", "zero", "frac", "fraction", "ratio", "format"}
)
NO_REWARD |= {
    "component",
    "model",
    "time",
    "func",
    "fn",
    "function",
    "length",
    "len",
    "num",
    "count",
    "accuracies",
    "history",
}
"""Words with which a reward's name is that of a part, a spread or something else."""
COUNTED = frozenset({"tokens"})
MEANS = frozenset({"mean", "avg", "average", "per"})
"""Tokens are a length only where they are averaged; else they are a total."""
SPREADS = frozenset({"reward_group_std", "reward_batch_std"})
"""What the logged spread of the reward may be: no name decides it."""
_SHARES = (0.0, 1.0)
RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "reward_zero_std_ratio": _SHARES,
        "policy_clip_ratio": _SHARES,
        "policy_clip_low_ratio": _SHARES,
        "policy_clip_high_ratio": _SHARES,
        "completion_truncated_ratio": _SHARES,
        "prompt_truncated_ratio": _SHARES,
        "completion_duplicate_ratio": _SHARES,
        "effective_sample_rollout": _SHARES,
        "kl_reference": (-0.5, inf),
        "kl_policy_update": (-0.5, inf),
        "completion_length_mean": (1.0, 1e7),
        "completion_length_min": (0.0, 1e7),
        "completion_length_max": (1.0, 1e7),
        "learning_rate": (0.0, 0.999),
        "entropy": (0.0, 20.0),
        "grad_norm": (0.0, inf),
        "reward_group_std": (0.0, inf),
        "reward_batch_std": (0.0, inf),
        "reward_function_std": (0.0, inf),
        SPREAD: (0.0, inf),
        "step_seconds": (0.0, 1e7),
        "step_seconds_average": (0.0, 1e7),
        "memory_gib": (0.0, 1e6),
        "tokens_seen": (0.0, inf),
        "epoch": (0.0, 1e6),
    }
)
"""What a value must lie in for the guess to stand: a share in 0..1, a KL not below the noise of its signed estimator
(-0.5), a length of a token at least, a rate below 1, an entropy below the logarithm of any vocabulary (20 nats)."""
OF_LEARNING = frozenset(
    {"kl_reference", "kl_policy_update", "policy_clip_ratio", "entropy", SPREAD, "reward_group_std"}
    | {"reward_zero_std_ratio", "completion_length_mean", "completion_truncated_ratio"}
)
"""Metrics of training with rewards; supervised fine-tuning prints loss, learning rate and gradient norm as well."""
OF_UPDATES = OF_LEARNING - {"completion_length_mean"} | {"loss", "grad_norm", "learning_rate"}
"""What is known of an update and not of a single completion: a row without a step has one of these beside a reward."""
AMBIGUOUS = frozenset({"loss", "epoch", "step", "time", "ratio"})
"""Words too common to mean a metric when a framework's own key has nothing else; ``policy_ratio`` is PPO's."""


@lru_cache(maxsize=4_096)
def guess(key: str) -> str | None:
    """The canonical metric (with its label), or ``SPREAD``, that the words of an unknown key name; None: no guess.

    Case, separators and namespaces before it change nothing: ``Train/Clip-Fraction`` is ``clip_fraction``.
    """
    if len(key) > LONGEST_KEY:
        return None
    words = _bare(_words(key))
    if not words:
        return None
    known = _known_keys().get(words)
    if known is not None:
        return known
    if OTHERS.intersection(_words(key)) or (COUNTED.intersection(words) and not MEANS.intersection(words)):
        return None
    return _function(key) or _phrases().get(_essence(words))


def only_reward(unknown: Sequence[str], keys: Sequence[str]) -> str | None:
    """The one unknown key that can be the reward where no key's words are a reward's: ``outcome_reward``.

    Of several the one that names a whole (``task_reward``) counts; of parts alone none. Preference training has none.
    Without any such key it is a lone ``R`` in a row of an update.
    """
    rewards = [
        key
        for key in unknown
        if not REWARDS.isdisjoint(words := frozenset(_words(key))) and words.isdisjoint(NO_REWARD)
    ]
    if any(not OF_PREFERENCES.isdisjoint(_words(key)) for key in keys):
        return None
    whole = [key for key in rewards if not WHOLES.isdisjoint(_words(key))]
    letters = [key for key in unknown if key in LETTERS] if not rewards and names_update(keys) else []
    return next((one[0] for one in (whole, rewards, letters) if len(one) == 1), None)


def fits(metric: str, value: float) -> bool:
    """Whether a value may be one of the metric; one that is not finite refutes nothing."""
    low, high = RANGES.get(split_label(metric)[0], (-inf, inf))
    return not isfinite(value) or low <= value <= high


def names_training(keys: Iterable[str]) -> frozenset[str]:
    """The metrics that these keys are guessed to be, without a loss, which any training has."""
    return frozenset(metric for key in keys if (metric := guess(key)) is not None and metric not in AMBIGUOUS)


def names_update(keys: Iterable[str]) -> bool:
    """Whether keys name what is known of an update with rewards alone, beside the loss."""
    known = {guess(key) for key in keys}
    return not (OF_LEARNING - {"completion_length_mean"}).isdisjoint(known)


def names_updates(keys: Iterable[str]) -> bool:
    """Whether keys name a reward and what is known of an update alone: a row of training, even without a step."""
    known = {guess(key) for key in keys}
    return "reward_mean" in known and not OF_UPDATES.isdisjoint(known)


def _words(key: str) -> tuple[str, ...]:
    return tuple(WORD.findall(CAMEL.sub(" ", key).lower()))


def _bare(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words without the namespaces before them; what consists of such words alone keeps its last."""
    start = 0
    while start < len(words) - 1 and words[start] in PREFIXES:
        start += 1
    return words[start:]


def _essence(words: tuple[str, ...]) -> frozenset[str]:
    """The words that matter, each in one spelling, in no order."""
    spelled = [part for word in words for part in WHOLE.get(word, (SAME.get(word, word),))]
    return frozenset(word for word in spelled if word not in DROPPED and word not in PREFIXES - {"loss"})


def _function(key: str) -> str | None:
    found = FUNCTION.search(key)
    if found is None or not set(_words(found["name"])) - DROPPED - PREFIXES:
        return None
    what = "reward_function_std" if found["what"].lower() == "std" else "reward_function_mean"
    about_groups = {"group", "groups"} | COUNTED | OTHERS
    return labelled(what, found["name"]) if about_groups.isdisjoint(_words(found["name"])) else None


@lru_cache(maxsize=1)
def _phrases() -> Mapping[frozenset[str], str]:
    return {_essence(tuple(text.split())): metric for metric, texts in _PHRASES.items() for text in texts}


@lru_cache(maxsize=1)
def _known_keys() -> Mapping[tuple[str, ...], str]:
    """The words of every key that one data file or several, agreeing, give a metric without conditions."""
    found: dict[tuple[str, ...], set[str | None]] = {}
    for table in frameworks().values():
        for key, (_, rule) in table.exact.items():
            plain = rule.metric not in LABELLED | SPREADS and not (rule.convert or rule.beside or rule.unless)
            found.setdefault(_bare(_words(key)), set()).add(rule.metric if plain else None)
    return {
        words: metric
        for words, metrics in found.items()
        if len(metrics) == 1 and (metric := next(iter(metrics))) is not None and not AMBIGUOUS.issuperset(words)
    }
