"""Turns raw rows into canonical names and units; the only place that resolves the meaning of frameworks' keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from grpo_watch.engine.records import NOTHING, RawRow, RunConfig, Scalar, Setting, Stream
from grpo_watch.frameworks.framework import Facts, Framework
from grpo_watch.frameworks.framework_tables import fallback, frameworks, recognise
from grpo_watch.frameworks.guessing import CheckedGuesses
from grpo_watch.frameworks.key_plan import MAX_SCORES, TIED, FunctionNames, KeyPlan, compile_plan, train_keys
from grpo_watch.frameworks.row_corrections import AppliedRate, Meaning, SpreadEvidence, corrected_ratio

INFERRED = 9
"""Precedence of settings inferred from keys: those from a file or from the user override it."""

BEHIND = "behind "
MANY_TIED, SET_LENGTHS = 0.25, 64
"""If this share of completions is as long as the longest, and 64 divides that length, it is the limit."""
MAX_PLANS = 256
MAX_UNKNOWN = 256


class Resolved(NamedTuple):
    """One row in canonical names: its training metrics, and the ``scores`` of an evaluation.

    ``config`` is set on the row whose keys settled something new about the run.
    """

    stream: Stream
    values: dict[str, float | None]
    raw: Mapping[str, float | None]
    config: RunConfig | None = None
    scores: Mapping[str, float | None] = NOTHING


class _KnownSettings(Struct):
    """The settings so far, each with its precedence (lower is stronger, at equal precedence the later wins)."""

    framework: tuple[int, str] | None = None
    versions: dict[str, tuple[int, str]] = field(default_factory=dict)
    settings: dict[str, tuple[int, Scalar]] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    unused: dict[str, str] = field(default_factory=dict)
    own_keys: Mapping[str, str] = field(default_factory=dict)

    def add(self, config: RunConfig) -> None:
        rank = config.precedence
        for metric, column in config.columns.items():
            self.columns.update({metric: metric, column: metric})
            self.unused[column] = metric
        if config.framework is not None:
            if self.framework is None or rank <= self.framework[0]:
                self.framework = (rank, config.framework)
            held = self.versions.get(config.framework)
            if config.version is not None and (held is None or rank <= held[0]):
                self.versions[config.framework] = (rank, config.version)
        for name, setting in config.settings.items():
            if name not in self.settings or rank <= self.settings[name][0]:
                self.settings[name] = (rank, setting.value)

    def note_keys(self, keys: Mapping[str, str]) -> None:
        """Note the rows' key of each metric; the first counts. Replaces the mapping, which other threads read."""
        if not keys.keys() <= self.own_keys.keys():
            self.own_keys = {**keys, **self.own_keys}

    def version(self, framework: Framework) -> str | None:
        found = self.versions.get(framework.based_on or framework.name) or (None, None)
        return found[1]

    def setting(self, name: str) -> Scalar:
        return self.settings.get(name, (0, None))[1]

    def switched_on(self) -> frozenset[str]:
        return frozenset(name for name, (_, value) in self.settings.items() if value is True)

    def groups(self) -> int | None:
        """Groups per generation batch, if both factors are known."""
        batch, size = self.setting("generation_batch_size"), self.setting("num_generations")
        return int(batch) // int(size) if isinstance(batch, int) and isinstance(size, int) and size > 0 else None


class Resolver:
    """Resolves the rows of one run.

    Rows are evidence for their own channel only, so that the result for a channel depends on that channel's rows and on
    the configurations given before them, never on how channels interleave.
    """

    def __init__(self, framework: str | None = None) -> None:
        self._known = _KnownSettings()
        if framework is not None:
            self._known.framework = (INFERRED, framework)
        self._channels: dict[str, _Channel] = {}
        self._unknown: dict[str, None] = {}

    @property
    def framework(self) -> str | None:
        """The framework as far as it is known, by the rows' keys if they decide it."""
        seen = [channel.recognised.name for channel in self._channels.values() if channel.recognised is not None]
        return seen[0] if seen else self._known.framework[1] if self._known.framework else None

    @property
    def unknown_keys(self) -> tuple[str, ...]:
        """Raw keys that no data file lists, by first appearance (256 at most); they stay usable as raw metrics."""
        return tuple(self._unknown)

    @property
    def unused_columns(self) -> Mapping[str, str]:
        """Columns that the user mapped to a metric and that no row had so far, with that metric."""
        return self._known.unused

    @property
    def own_keys(self) -> Mapping[str, str]:
        """The raw key of each metric seen in training rows; safe to read from any thread."""
        return self._known.own_keys

    def set_config(self, config: RunConfig) -> None:
        """Take framework, version and settings. Configurations inferred by a resolver are ignored."""
        if config.precedence >= INFERRED:
            return
        self._known.add(config)
        for channel in self._channels.values():
            channel.plans.clear()  # tables and meanings are looked up again

    def resolve(self, raw: RawRow) -> Resolved:
        """The row in canonical names; ``values`` keeps NaN, infinities and None as they were logged."""
        channel = self._channels.get(raw.channel)
        if channel is None:
            channel = self._channels[raw.channel] = _Channel(self._known)
        plan = channel.plan(raw)
        if plan.unknown and len(self._unknown) < MAX_UNKNOWN:
            self._unknown.update(dict.fromkeys(plan.unknown))
        return channel.resolve(raw, plan)


class _Channel:
    """State of one channel: plans by key set, evidence on the spread, the previous row's learning rate."""

    def __init__(self, known: _KnownSettings) -> None:
        self._known = known
        self.plans: dict[tuple[str, ...], KeyPlan] = {}
        self._evidence = SpreadEvidence()
        self._rate = AppliedRate()
        self._meaning = Meaning.UNKNOWN
        self._facts_of_keys: Facts | None = None
        self._settled: tuple[str | None, bool | None] = (None, None)
        self._changed = False
        self._guesses = CheckedGuesses()
        self._functions = FunctionNames()
        self._scores = FunctionNames(MAX_SCORES)
        self.recognised: Framework | None = None

    def plan(self, raw: RawRow) -> KeyPlan:
        """The plan for the row's key set."""
        keys = tuple(raw.values)
        cached = self.plans.get(keys if raw.stream is None else (raw.stream.value, *keys))
        return cached if cached is not None else self._new_plan(raw, keys)

    def resolve(self, raw: RawRow, plan: KeyPlan) -> Resolved:
        """Apply the plan, then the corrections that need more than one value: units, learning rate, spread."""
        values = dict(zip(plan.metrics, plan.pick(raw.values), strict=True))
        for metric, how in plan.converted:
            self._convert(values, metric, how, raw)
        scores = {metric: raw.values[key] for metric, key in plan.scores} if plan.scores else NOTHING
        for metric in plan.off_at_zero:
            if values[metric] == 0.0:
                del values[metric]
        if plan.rate_key is not None:
            rate = self._rate.shift(raw.step, raw.segment, raw.values[plan.rate_key])
            if rate is not None:
                values["learning_rate"] = rate
        spread_key, guessed = plan.spread_key, None
        if plan.guesses:
            guessed = self._guesses.add(plan.guesses, raw.values, values)
            spread_key = guessed or spread_key
            self._changed = self._changed or self._guesses.changed
        if spread_key is not None:
            self._add_spread(raw, plan, values, raw.values[spread_key], guessed=guessed is not None)
        return Resolved(plan.stream, values, raw.values, self._inferred(raw) if self._changed else None, scores)

    def _convert(self, values: dict[str, float | None], metric: str, how: str, raw: RawRow) -> None:
        """Convert one metric; a share of prompts is dropped if their number is unknown."""
        value, prompts = values[metric], self._known.setting("prompts_per_step")
        if how == "of_prompts" and not (isinstance(prompts, int) and prompts):
            del values[metric]
        elif how == "of_prompts" and isinstance(prompts, int):
            values[metric] = None if value is None else value / prompts
        elif how.startswith(BEHIND):
            newest = raw.values.get(how[len(BEHIND) :])
            values[metric] = None if value is None or newest is None else newest - value
        elif how == TIED:
            longest = values.get("completion_length_max")
            if value is None or value < MANY_TIED or not longest or longest % SET_LENGTHS:
                del values[metric]
        elif how == "complement":
            values[metric] = None if value is None else 1.0 - value
        else:
            values[metric] = 1.0 / value if value else None

    def _add_spread(
        self, raw: RawRow, plan: KeyPlan, values: dict[str, float | None], spread: float | None, *, guessed: bool
    ) -> None:
        """Add the logged spread under its meaning.

        An unknown framework's counts as the batch's, which shows something about groups only at zero: all are dead.
        """
        mean = values.get("reward_mean")
        ratio = values.get("reward_zero_std_ratio")
        if self._meaning is Meaning.UNKNOWN or (ratio == 1.0 and self._meaning is Meaning.GROUP):
            self._learn(plan, values, spread)
        unknown = self._meaning is Meaning.UNKNOWN and guessed
        for metric in Meaning.BATCH.value if unknown else self._meaning.value:
            values[metric] = spread
            if metric not in self._known.own_keys:
                self._known.note_keys({metric: plan.spread_key or ""})
        if ratio is not None:
            values["reward_zero_std_ratio"] = corrected_ratio(spread, ratio, mean, raw.resolution)

    def _learn(self, plan: KeyPlan, values: Mapping[str, float | None], spread: float | None) -> None:
        """Take a training row as evidence (an evaluation may have one completion per prompt)."""
        if plan.stream is not Stream.TRAIN:
            return
        mean = values.get("reward_mean")
        changed = self._evidence.add(spread, mean, values.get("reward_zero_std_ratio"))
        if plan.function is not None:
            f_mean, f_spread = values[plan.function[0]], values.get(plan.function[1])
            changed |= self._evidence.add_function(spread, mean, f_spread, f_mean)
        elif plan.functions > 1 and not self._evidence.several_functions:
            changed = self._evidence.several_functions = True
        if changed:
            self._settle()

    def _new_plan(self, raw: RawRow, keys: tuple[str, ...]) -> KeyPlan:
        table = self._table()
        trains = train_keys((*keys, *raw.text), table)
        if raw.stream in (None, Stream.TRAIN):
            table = self._refine(table, trains)
            self._facts_of_keys = self._facts_of_keys or table.facts_of_keys(trains)
        if len(self.plans) >= MAX_PLANS:
            self.plans.clear()
        for key in keys if self._known.unused else ():
            self._known.unused.pop(key, None)
            metric = self._known.columns.get(key)
            self._known.unused = {name: held for name, held in self._known.unused.items() if held != metric}
        known = self._known
        plan = compile_plan(keys, raw.stream, table, known.switched_on(), known.columns, self._functions.admits)
        plan = replace(plan, scores=tuple(score for score in plan.scores if self._scores.admits(score[0])))
        self.plans[keys if raw.stream is None else (raw.stream.value, *keys)] = plan
        self._settle()
        if plan.stream is Stream.TRAIN:
            self._known.note_keys({**{metric: key for key, metric in plan.guesses}, **plan.keys})
        return plan

    def _table(self) -> Framework:
        if self.recognised is not None and self._fits(self.recognised):
            return self.recognised
        configured = self._known.framework
        return (frameworks().get(configured[1]) if configured else None) or fallback()

    def _refine(self, table: Framework, keys: frozenset[str]) -> Framework:
        """The framework that the keys name, unless a different, unrelated one is configured."""
        found = recognise(keys)
        if (
            found is None
            or not self._fits(found)
            or (self.recognised is not None and self.recognised.order <= found.order)
        ):
            return table
        self.recognised = found
        self.plans.clear()
        return found

    def _fits(self, framework: Framework) -> bool:
        configured = self._known.framework
        if configured is None or configured[1] not in frameworks():
            return True
        return configured[1] in {framework.name, framework.based_on}

    def _facts(self) -> Facts:
        table = self._table()
        from_version = table.facts_of_version(self._known.version(table))
        era = from_version or self._facts_of_keys or Facts()
        return Facts(
            table.reward_std if table.reward_std != "unknown" else era.reward_std,
            table.kl_implies_beta if table.kl_implies_beta is not None else era.kl_implies_beta,
        )

    def _settle(self) -> None:
        """Decide the meaning of the spread and whether the run's configuration changed."""
        facts = self._facts()
        scaled = self._known.setting("scale_rewards") == "batch"
        groups = self._known.groups()
        self._meaning = self._evidence.meaning(facts.reward_std, scaled_by_batch=scaled, groups=groups)
        settled = (self.recognised.name if self.recognised else None, facts.kl_implies_beta)
        self._changed = self._changed or settled not in (self._settled, (None, None))
        self._settled = settled

    def _inferred(self, raw: RawRow) -> RunConfig:
        self._changed = False
        framework, implies = self._settled
        settings = {} if implies is None else {"kl_implies_beta": Setting(implies, "inferred from the logged keys")}
        return RunConfig(
            framework, None, settings, raw.channel, raw.segment, INFERRED, guessed=self._guesses.take_news()
        )
