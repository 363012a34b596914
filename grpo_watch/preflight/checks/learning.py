"""Settings that the framework accepts but that prevent learning: sampling, KL, learning rate, warm-up, known bugs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from grpo_watch import lazy_re as re
from grpo_watch.advisories import judge as by_advisories
from grpo_watch.engine.records import Setting, Severity
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem, critical, info, warning
from grpo_watch.preflight.launch_setup import setup_of
from grpo_watch.preflight.predict import predict

COLD = 0.05
"""Temperature: a logit 1 below the best then has a chance of exp(-20); near-greedy runs were seen at 0.01."""
NARROW = 0.05
"""top_p: only the top 5 % of the probability mass is sampled, nearly always one token."""
SAMPLING_PLACES = ("generation_kwargs", "vllm_sampling_params", "sampling_params", "rollout.sampling_params")
SEED = re.compile(r"""(?:^|[\s{,'"])seed['"]?\s*[:=]\s*\d""")
STEPS_OF_BF16 = 256
"""bf16 keeps 8 bits: a change below 1/256 of a weight can round away (Adam changes weights by about the rate)."""
LOST = 1e-5
"""Below this rate, weights over 256 x 1e-5 = 0.0026 don't change; those of language models spread over about 0.02."""
HALF = frozenset({"bfloat16", "bf16", "torch.bfloat16"})
MODEL_DTYPES = ("torch_dtype", "dtype")
"""Names of the dtype argument of models; ``use_peft`` is off unless set."""
DTYPES = ("torch_dtype", "dtype", "model_init_kwargs.torch_dtype", "model_init_kwargs.dtype")
LONG_WARMUP = 0.5
"""Share of the run from which a warm-up is reported."""


def sampling_greedy(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem per sampling setting that makes sampling greedy. top_k 0 or -1 is off."""
    for what, usual in (("temperature", "0.9 to 1.0"), ("top_p", "0.9 to 1.0"), ("top_k", "0 or -1 (off)")):
        name = settings.name_of(what)
        value = settings.number(name) if name else None
        greedy = {"temperature": (value or 0) <= COLD, "top_p": (value or 0) <= NARROW, "top_k": value == 1}
        if value is not None and greedy[what]:
            own = settings.own_name(name)
            message = f"{own} is {value:g}: the completions of a prompt will be equal and every advantage 0"
            yield critical(message, f"set {own} to {usual}", settings.where(name))


def seed_per_request(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem per sampling setting that gives every request to the engine the same seed."""
    for name, setting in settings.launch.settings.items():
        place, _, last = name.rpartition(".")
        inside = any(place.endswith(each) for each in SAMPLING_PLACES) and last == "seed" and setting.value is not None
        written = any(name.endswith(each) for each in SAMPLING_PLACES) and SEED.search(str(setting.value)) is not None
        if inside or written:
            yield critical(
                f"{name} gives every request the same seed: the completions of a prompt will be equal",
                "remove the seed from the sampling parameters; the engine's own seed is enough",
                setting.origin,
            )


def kl_without_effect(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem per KL setting that provably has no effect, or the wrong one."""
    if settings.facts.on_trainer:
        beta, name = settings.number("beta"), settings.own_name("beta")
        if beta is not None and beta < 0:
            message = f"{name} is {beta:g}: the policy is rewarded for leaving the reference"
            yield warning(message, f"set {name} to 0 or more", settings.where("beta"))
        yield from _reference(settings)
    elif settings.name_of("kl_in_loss"):
        yield from _switched(settings)


def _reference(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """A reference synced at every step always equals the policy; without beta it isn't used."""
    if not settings.flag("sync_ref_model"):
        return
    where = settings.where("sync_ref_model", "ref_model_sync_steps", "ref_model_mixup_alpha")
    copies = settings.number("ref_model_mixup_alpha") == 1.0  # a mixup of this share makes a copy
    if settings.number("beta") == 0:
        message = "sync_ref_model is on and beta is 0: there is no reference model to sync"
        yield warning(message, "set beta, or sync_ref_model to false", where)
    elif settings.number("ref_model_sync_steps") == 1 and copies:
        message = "the reference model becomes a copy of the policy after every step: the KL penalty is always 0"
        yield warning(message, "raise ref_model_sync_steps (512 is the default) or lower ref_model_mixup_alpha", where)


def _switched(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """A coefficient without its switch; two switches at once count the penalty twice."""
    actor, reward, coefficient = map(settings.name_of, ("kl_in_loss", "kl_in_reward", "kl_coefficient"))
    on, where = settings.flag(actor), settings.where(coefficient)
    if settings.given(coefficient) is not None and not on and (settings.number(coefficient) or 0) > 0:
        yield warning(
            f"{coefficient} is set, but {actor} is off: there is no KL term in the loss", f"set {actor}=True", where
        )
    if on and settings.number(coefficient) == 0:
        message = f"{actor} is on with a coefficient of 0: the reference model costs time and changes nothing"
        yield warning(message, f"set {coefficient} or switch it off", where)
    if on and settings.flag(reward):
        message = f"{actor} and {reward} are both on: the KL penalty is counted twice"
        yield warning(message, f"set {reward}=False for GRPO", settings.where(reward, actor))


def learning_rate_below_resolution(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """The rate is 0; or the launch loads bf16 weights, trains all of them, and nothing keeps an fp32 copy."""
    name = settings.name_of("learning_rate")
    rate = settings.number(name)
    if rate == 0:
        message = f"{settings.own_name(name)} is 0: no weight ever changes"
        yield warning(message, "set it to 1e-6 or more", settings.where(name))
    keeps_copies = ("deepspeed", "fsdp", "fsdp_config")  # their optimizers keep fp32 copies
    copied = bool(settings.launch.deepspeed) or any(settings.given(name) is not None for name in keeps_copies)
    if not settings.facts.on_trainer or rate is None or not 0 < rate < LOST or copied:
        return
    dtype, condition = _half(settings)
    if dtype is None or not _all_weights(settings, dtype):
        return
    yield warning(
        f"at rate {rate:g}, bf16 rounds away the update of every weight over {rate * STEPS_OF_BF16:.2g}{condition}",
        "load the weights in float32 and train with --bf16 true, or use DeepSpeed or FSDP with fp32 masters",
        settings.where("learning_rate", dtype),
    )


def _half(settings: LaunchSettings) -> tuple[str | None, str]:
    """The setting that makes the weights bf16, and the condition if the model decides it."""
    if settings.facts.loads_models_dtype and settings.given("torch_dtype") is None:
        own = f"; {settings.framework} uses the model's own type if torch_dtype is not set, and most are bf16"
        return "torch_dtype", own
    return next((name for name in DTYPES if settings.word(name) in HALF), None), ""


def _all_weights(settings: LaunchSettings, dtype: str) -> bool:
    """Whether the settings say that no adapter is trained."""
    if settings.facts.trains_adapter:
        return (settings.word("tuner_type") or settings.word("train_type")) == "full"
    if settings.launch.peft is None and settings.facts.loads_dtype_of_arguments and dtype in MODEL_DTYPES:
        return not settings.flag("use_peft") and not settings.unreadable("use_peft")
    return settings.launch.peft is False


def warmup_longer_than_run(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """The warm-up takes half of the predicted run or more."""
    names = settings.name_of("warmup_steps"), settings.name_of("warmup_ratio")
    if not all(names):
        return
    steps, ratio = (max(settings.number(name) or 0, 0) for name in names)  # -1 is off
    prediction = predict(settings)
    total = prediction.max_steps if prediction else None
    if 0 < steps < 1 and settings.facts.on_trainer:  # newer transformers take a share here
        ratio, steps = steps, 0
    share = steps / total if steps and total else ratio
    if share < LONG_WARMUP:
        return
    length = f"{steps:g} of {total} steps" if steps and total else f"{share:.0%} of the run"
    message = f"the warm-up takes {length}: the learning rate seldom reaches its set value"
    yield warning(message, "5 to 10 % of the steps are usual", settings.where(*names))


def gradients_lost_with_offload(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """Offload combined with accumulation, as in most reports; versions with wrong gradients are advisories."""
    (stage, device), accumulation = settings.zero(), settings.whole("gradient_accumulation_steps") or 1
    offloads = _offloads(settings, device)
    if not settings.facts.on_trainer or stage is None or stage.value is None or not offloads or accumulation <= 1:
        return
    version = settings.launch.packages.get("deepspeed")
    named = "" if version is None else f", DeepSpeed {version.value}"
    yield warning(
        f"ZeRO-{stage.value} with {offloads} and {accumulation} accumulated steps{named}: such runs were reported to "
        "lose gradients",
        "use ZeRO-2 without offload, or watch the first 10 steps with kl-stuck-at-zero and gradient-lost",
        settings.where("deepspeed", "offload_optimizer", "offload_model"),
    )


def _offloads(settings: LaunchSettings, device: Setting | None) -> str:
    """The offloaded parts in words; empty if there are none."""
    if (device is not None and str(device.value).lower() in {"cpu", "nvme"}) or settings.flag("offload_optimizer"):
        return "an offloaded optimizer"
    return "an offloaded model" if settings.flag("offload_model") else ""


def known_bug(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem per advisory that applies, and one line for all that depend on an unknown version."""
    unsettled = []
    for match in by_advisories.judge(setup_of(settings.launch)):
        advisory = match.advisory
        if match.applies:
            message = f"{advisory.package} {match.version} {advisory.title} ({advisory.id})"
            yield LaunchProblem(advisory.severity, message, advisory.fix, match.where, check=advisory.check)
        elif match.version is None and advisory.severity is not Severity.INFO:
            unsettled.append(advisory)
    if unsettled:
        packages = " ".join(sorted({advisory.package for advisory in unsettled}))
        bugs = "a known bug depends" if len(unsettled) == 1 else f"{len(unsettled)} known bugs depend"
        message = f"{bugs} on the version of {packages.replace(' ', ', ')}: {', '.join(each.id for each in unsettled)}"
        yield info(message, f"pip show {packages}, then grpo-watch advisories ID")


class ReplaySwitch(NamedTuple):
    """A framework's settings: the model, the sign that Megatron trains it, and the switch that replays its routing."""

    model: str
    megatron: str
    switches: tuple[str, ...]


MIXTURE = re.compile(r"\db-a\d[\d.]{0,4}b|moe|mixtral|gpt-oss|deepseek-(?:v[23]|r1)(?!-distill)")
"""Mixtures of experts by their names: Qwen3-30B-A3B, Moonlight-16B-A3B, Qwen1.5-MoE."""
REPLAYS: Mapping[str, ReplaySwitch] = MappingProxyType(
    {
        "verl": ReplaySwitch(
            "actor_rollout_ref.model.path",
            "actor_rollout_ref.actor.strategy",
            ("actor_rollout_ref.actor.router_replay.mode",),
        ),
        "ms-swift": ReplaySwitch("model", "expert_model_parallel_size", ("router_replay_mode",)),
        "nemo-rl": ReplaySwitch("policy.model_name", "policy.megatron_cfg.enabled", ("policy.router_replay.enabled",)),
        "slime": ReplaySwitch("hf_checkpoint", "hf_checkpoint", ("use_routing_replay", "use_rollout_routing_replay")),
    }
)
NOT_MEGATRON = frozenset({"", "no", "false", "fsdp", "fsdp2"})
SWITCHED_OFF = frozenset({"", "no", "false", "none", "disabled"})


def routing_not_replayed(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """A mixture of experts is trained where its routing could be replayed, but is not."""
    known = REPLAYS.get(settings.framework or "")
    if known is None or settings.word(known.megatron) in NOT_MEGATRON or not MIXTURE.search(settings.word(known.model)):
        return
    if all(settings.word(name) in SWITCHED_OFF for name in known.switches):
        message = "a mixture of experts without routing replay: trainer and engine choose other experts for some tokens"
        hint = f"watch train-rollout-mismatch; {known.switches[-1]} makes the trainer take the engine's choice"
        yield info(message, hint, settings.where(*known.switches, known.model))


CHECKS = (
    gradients_lost_with_offload,
    kl_without_effect,
    known_bug,
    learning_rate_below_resolution,
    routing_not_replayed,
    sampling_greedy,
    seed_per_request,
    warmup_longer_than_run,
)
