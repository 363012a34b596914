"""Guesses the canonical metric of an unknown key from its words, and checks the guess on the values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import inf, isfinite
from pathlib import Path
from types import MappingProxyType

import msgspec
from msgspec import Struct, field

from grpo_watch import lazy_re as re
from grpo_watch.engine.metric_names import LABELLED, labelled, split_label
from grpo_watch.frameworks.framework_tables import frameworks
from grpo_watch.shipped_yaml import shipped_yaml


class CheckedGuesses(Struct):
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
        """Add a row's guessed metrics to ``values``; returns the key that seems to be the reward's spread, if any."""
        spread = None
        for key, metric in guesses:
            value = raw[key]
            if value is None or key in self.refuted or (not isfinite(value) and is_success(key)):
                continue  # a NaN accuracy was not measured at this step
            if not fits(metric, value):
                self.refuted.add(key)
                self.changed |= self.standing.pop(key, None) is not None
                continue
            if key not in self.standing:
                if not 0.0 < value < 1.0 and is_maybe_count(key):
                    continue
                self.standing[key] = metric
                self.changed = True
            if metric == SPREAD:
                spread = key
            else:
                values.setdefault(metric, value)
        return spread

    def take_news(self) -> Mapping[str, str] | None:
        """All accepted keys with their metrics, if that changed since the last call, else None."""
        changed, self.changed = self.changed, False
        return dict(self.standing) if changed else None


SPREAD = "reward_std"
"""Stands for the logged spread of the reward; the rows decide whether it is a group's or the batch's."""
REWARD = "reward_mean"
LONGEST_KEY = 200
WORD = re.compile(r"[a-z]+|\d+")
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
FUNCTION = re.compile(
    r"(?:^|[/._])rewards?[/._ -]{1,3}(?P<name>[A-Za-z][\w.-]{0,60}?)[/._ -]{1,3}(?P<what>mean|avg|std)$", re.IGNORECASE
)
"""``rewards/format/mean`` as writers of CSV flatten it: ``rewards_format_mean``, ``train.rewards.format.mean``."""


class Vocabulary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The word lists of ``guessing.yaml``, where each is explained."""

    prefixes: frozenset[str]
    same: Mapping[str, tuple[str, ...]]
    several: Mapping[str, tuple[str, ...]]
    dropped: frozenset[str]
    phrases: Mapping[str, tuple[str, ...]]
    maybe_counts: Mapping[str, tuple[str, ...]]
    names: Mapping[str, tuple[str, ...]]
    letters: frozenset[str]
    others: frozenset[str]
    rewards: frozenset[str]
    successes: tuple[str, ...]
    statistics: frozenset[str]
    wholes: frozenset[str]
    of_preferences: frozenset[str]
    no_reward: frozenset[str]
    ambiguous: frozenset[str]
    ranges: Mapping[str, tuple[float, float]]


WORDS = msgspec.convert(shipped_yaml(Path(__file__).with_suffix(".yaml")), Vocabulary)
SAME = MappingProxyType({word: spelled for spelled, words in WORDS.same.items() for word in words})
NO_REWARD = WORDS.others | WORDS.of_preferences | WORDS.no_reward
COUNTED = frozenset({"tokens"})
MEANS = frozenset({"mean", "avg", "average", "per"})
"""Tokens are a length only if they are averaged; else they are a total."""
SPREADS = frozenset({"reward_group_std", "reward_batch_std"})
"""Possible meanings of the logged spread of the reward, which no name decides."""
OF_LEARNING = frozenset(
    {"kl_reference", "kl_policy_update", "policy_clip_ratio", "entropy", SPREAD, "reward_group_std"}
    | {"reward_zero_std_ratio", "completion_length_mean", "completion_truncated_ratio"}
)
"""Metrics of training with rewards; supervised fine-tuning prints loss, learning rate and gradient norm as well."""
OF_GROUPS = frozenset({SPREAD, "reward_group_std", "reward_zero_std_ratio", "policy_clip_ratio"})
OF_COMPLETIONS = frozenset({"completion_length_mean", "completion_truncated_ratio"})
"""With an accuracy, a metric of ``OF_GROUPS`` shows training with rewards; so does a KL with one of these, while
distillation logs a KL alone."""
OF_UPDATES = OF_LEARNING - {"completion_length_mean"} | {"loss", "grad_norm", "learning_rate"}
"""Metrics of an update, not of a single completion: a row without a step needs one of these beside a reward."""

OF_STEPS = frozenset({"loss", "grad_norm", "learning_rate", "kl_reference", "kl_policy_update", "policy_clip_ratio"})
"""Metrics that evaluations lack; they do log entropies and lengths."""


@lru_cache(maxsize=4_096)
def guess(key: str) -> str | None:
    """The canonical metric (with its label), or ``SPREAD``, that the words of an unknown key name; None: no guess.

    Case, separators and namespaces before it don't matter: ``Train/Clip-Fraction`` is ``clip_fraction``.
    """
    if len(key) > LONGEST_KEY:
        return None
    words = _bare(_words(key))
    if not words:
        return None
    known = _known_keys().get(words)
    if known is not None:
        return known
    if WORDS.others.intersection(_words(key)) or (COUNTED.intersection(words) and not MEANS.intersection(words)):
        return None
    essence = _essence(words)
    named = _names().get(_words(key)) or _function(key)
    return named or _by_essence(maybe_counts=False).get(essence) or _by_essence(maybe_counts=True).get(essence)


def only_reward(unknown: Sequence[str], keys: Sequence[str]) -> str | None:
    """The one unknown key that can be the reward if no key is named like one: ``outcome_reward``.

    If there are several, the one named as a whole (``task_reward``) counts; parts alone don't. Preference training has
    none. Otherwise it is a lone ``R`` in a row of an update, or its only share of right answers.
    """
    rewards = [
        key
        for key in unknown
        if not WORDS.rewards.isdisjoint(words := frozenset(_words(key))) and words.isdisjoint(NO_REWARD)
    ]
    if any(not WORDS.of_preferences.isdisjoint(_words(key)) for key in keys):
        return None
    whole = [key for key in rewards if not WORDS.wholes.isdisjoint(_words(key))]
    stands_in = _instead_of_rewards(unknown, keys) if not rewards and names_update(keys) else []
    return next((one[0] for one in (whole, rewards, stands_in) if len(one) == 1), None)


def _instead_of_rewards(unknown: Sequence[str], keys: Sequence[str]) -> list[str]:
    """A lone letter (``loss 0.1 | kl 0.02 | R 1.5``), or the share of right answers."""
    letters = [key for key in unknown if " ".join(_words(key)) in WORDS.letters]
    known = set(map(guess, keys))
    scored = not OF_GROUPS.isdisjoint(known) or ("kl_reference" in known and not OF_COMPLETIONS.isdisjoint(known))
    return letters or [key for key in unknown if scored and is_success(key)]


@lru_cache(maxsize=1_024)
def is_success(key: str) -> bool:
    """Whether the key is a share of right answers, which rows of an update may have in place of a reward."""
    return _essence(_bare(_words(key))) in {_essence(tuple(text.split())) for text in WORDS.successes}


def fits(metric: str, value: float) -> bool:
    """Whether a value is in the metric's range; values that are not finite refute nothing."""
    low, high = WORDS.ranges.get(split_label(metric)[0], (-inf, inf))
    return not isfinite(value) or low <= value <= high


@lru_cache(maxsize=1_024)
def is_maybe_count(key: str) -> bool:
    """Whether the key of a share may also be a count, such as ``zero_std_groups``."""
    words = _bare(_words(key))
    return words not in _known_keys() and _essence(words) in _by_essence(maybe_counts=True)


def names_training(keys: Iterable[str]) -> frozenset[str]:
    """The metrics guessed for these keys, without those that any training has, such as a loss."""
    return frozenset(metric for key in keys if (metric := guess(key)) is not None and metric not in WORDS.ambiguous)


def names_update(keys: Iterable[str]) -> bool:
    """Whether keys name a metric that only updates with rewards have."""
    known = {guess(key) for key in keys}
    return not (OF_LEARNING - {"completion_length_mean"}).isdisjoint(known)


def names_updates(keys: Iterable[str]) -> bool:
    """Whether keys name a reward and a metric of updates: a row of training, even without a step."""
    known = {guess(key) for key in keys}
    return "reward_mean" in known and not OF_UPDATES.isdisjoint(known)


def _words(key: str) -> tuple[str, ...]:
    return tuple(WORD.findall(CAMEL.sub(" ", key).lower()))


def _bare(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words without leading namespaces; at least the last word is kept."""
    start = 0
    while start < len(words) - 1 and words[start] in WORDS.prefixes:
        start += 1
    return words[start:]


def _essence(words: tuple[str, ...]) -> frozenset[str]:
    """The significant words, in one spelling each, unordered."""
    namespaces = WORDS.prefixes - {"loss"}
    spelled = [part for word in words for part in WORDS.several.get(word, (SAME.get(word, word),))]
    return frozenset(word for word in spelled if word not in WORDS.dropped and word not in namespaces)


def _function(key: str) -> str | None:
    found = FUNCTION.search(key)
    if found is None or not set(_words(found["name"])) - WORDS.dropped - WORDS.prefixes - WORDS.statistics:
        return None
    what = "reward_function_std" if found["what"].lower() == "std" else "reward_function_mean"
    about_groups = {"group", "groups"} | COUNTED | WORDS.others
    return labelled(what, found["name"]) if about_groups.isdisjoint(_words(found["name"])) else None


@lru_cache(maxsize=1)
def _names() -> Mapping[tuple[str, ...], str]:
    return {tuple(text.split()): metric for metric, texts in WORDS.names.items() for text in texts}


@lru_cache(maxsize=2)
def _by_essence(*, maybe_counts: bool) -> Mapping[frozenset[str], str]:
    phrases = WORDS.maybe_counts if maybe_counts else WORDS.phrases
    return {_essence(tuple(text.split())): metric for metric, texts in phrases.items() for text in texts}


@lru_cache(maxsize=1)
def _known_keys() -> Mapping[tuple[str, ...], str]:
    """The words of every key to which all data files that list it give the same metric, without conditions."""
    found: dict[tuple[str, ...], set[str | None]] = {}
    for table in frameworks().values():
        for key, (_, rule) in table.exact.items():
            plain = rule.metric not in LABELLED | SPREADS and not (rule.convert or rule.beside or rule.unless)
            found.setdefault(_bare(_words(key)), set()).add(rule.metric if plain else None)
    return {
        words: metric
        for words, metrics in found.items()
        if len(metrics) == 1
        and (metric := next(iter(metrics))) is not None
        and not (WORDS.ambiguous | WORDS.statistics).issuperset(words)
    }
