"""The dashboards of training itself: one run, and what is sampled and whether weights move."""

from __future__ import annotations

from grafana_panels import Dashboard, Query, Row, lines, number, states, table
from grafana_queries import (
    BY_SEVERITY,
    LOG,
    ONE,
    SEVERITY,
    SOME_BAD,
    TO_PAGE,
    findings,
    one,
    paged,
    series,
    wide,
)

from grpo_watch.catalogue import catalogue


def run() -> Dashboard:
    """One run."""
    top = Row(
        "Now",
        [
            number("Verdict", "none", f"max(run:grpo_severity:max{ONE})", *BY_SEVERITY, words=SEVERITY),
            number("Step", "none", f"max(grpo_step{ONE})"),
            number("Done", "percentunit", f"max(run:grpo_progress:ratio{ONE})"),
            number("Remaining", "s", f"max(run:grpo_remaining:seconds{ONE})"),
            number(
                "Newest step",
                "s",
                f"max(run:grpo_last_step_age:seconds{ONE})",
                about="Seconds since it was logged. Rising without end: see run-stalled.",
            ),
            number("Attempt", "none", f"max(grpo_attempt{ONE})"),
        ],
    )
    firing = Query(
        f"max by (rule) (grpo_alert_firing{ONE} == 1) or max by (rule) (grpo_alert_pending{ONE} * 0.5)", "{{rule}}"
    )
    alerts = lines(
        "Findings over time", "none", firing, about="1 while a finding fires, 0.5 while it is pending.", min=0
    )
    unseen = paged(f"grpo_rule_blind{ONE}", "rule", "job, instance, run, rule")
    blind = table("Rules that can't see", {"": (unseen, "none")}, 12, [TO_PAGE])
    watched = table("Watched by", {"": (paged(f"grpo_run_info{ONE}", "run"), "none")}, 24, [TO_PAGE])
    reward = [
        lines("Reward", "none", one("grpo_reward_mean", "mean")),
        lines(
            "Spread of rewards",
            "none",
            one("grpo_reward_group_std", "inside groups"),
            one("grpo_reward_batch_std", "whole batch"),
            about="Without spread inside groups there is nothing to learn from.",
        ),
        lines(
            "Groups without spread",
            "percentunit",
            one("grpo_reward_zero_std_ratio", "share"),
            min=0,
            max=1,
        ),
        lines("Evaluation scores", "none", one("grpo_eval_score", "{{function}}")),
        lines("Reward functions", "none", one("grpo_reward_function_mean", "{{function}}")),
        lines("Spread of reward functions", "none", one("grpo_reward_function_std", "{{function}}")),
        lines("Advantages", "none", one("grpo_advantage_max", "max"), one("grpo_advantage_min", "min")),
    ]
    policy = [
        lines(
            "KL to the reference",
            "none",
            one("grpo_kl_reference", "KL"),
            about="Exactly 0 for more than the first steps: the policy does not change (kl-stuck-at-zero).",
        ),
        lines("KL of an update", "none", one("grpo_kl_policy_update", "KL, new to old policy")),
        lines("Loss", "none", one("grpo_loss", "loss"), about="Near 0 is normal for on-policy GRPO."),
        lines("Gradient norm", "none", one("grpo_grad_norm", "norm before clipping")),
        lines("Learning rate", "sci", one("grpo_learning_rate", "applied")),
        lines("Entropy", "none", one("grpo_entropy", "per token")),
        lines(
            "Clipped tokens",
            "percentunit",
            one("grpo_policy_clip_ratio", "all"),
            one("grpo_policy_clip_low_ratio", "low"),
            one("grpo_policy_clip_high_ratio", "high"),
            min=0,
        ),
        lines(
            "Pace",
            "s",
            one("grpo_step_seconds", "step"),
            one("grpo_step_seconds_average", "average of this attempt"),
            min=0,
        ),
        lines("Accelerator memory", "gbytes", one("grpo_memory_gib", "memory"), min=0),
        lines("Tokens", "short", one("grpo_tokens_seen", "seen")),
        lines("Passes over the dataset", "none", one("grpo_epoch", "epoch")),
    ]
    return Dashboard(
        "grpo-run",
        "GRPO / Run",
        "One run: its findings, what they rest on, and how training goes.",
        [
            top,
            Row("Findings", [findings(ONE), blind, wide(alerts, 24), watched]),
            Row("Reward", reward),
            Row("Policy", policy),
        ],
        one_run=True,
    )


def sampling() -> Dashboard:
    """What is sampled, and whether weights move and arrive."""
    texts = [
        lines(
            "Repeated completions",
            "percentunit",
            series("grpo_completion_duplicate_ratio"),
            about="Share of completions that repeat another one of their group: a shared seed, or a collapsed policy.",
            min=0,
        ),
        lines("Groups without spread", "percentunit", series("grpo_reward_zero_std_ratio"), min=0),
        lines("Truncated completions", "percentunit", series("grpo_completion_truncated_ratio"), min=0),
        lines(
            "Prompts cut",
            "percentunit",
            series("grpo_prompt_truncated_ratio"),
            about="Share of prompts as long as the prompt limit allows. Only verl logs it.",
            min=0,
        ),
        lines("Length, mean", "none", series("grpo_completion_length_mean"), min=0),
        lines(
            "Length, shortest and longest",
            "none",
            series("grpo_completion_length_min", "{{run}} min"),
            series("grpo_completion_length_max", "{{run}} max"),
            min=0,
        ),
        lines("Entropy", "none", series("grpo_entropy"), min=0),
        lines("Failed tool calls", "percentunit", series("grpo_tool_failure_ratio"), min=0, max=1),
        lines(
            "Turns and tool calls",
            "none",
            series("grpo_turns_mean", "{{run}} turns"),
            series("grpo_tool_calls_mean", "{{run}} calls"),
            min=0,
        ),
        lines(
            "Failed reward computations and tool calls",
            "none",
            series("grpo_reward_failures", "{{run}} rewards"),
            series("grpo_tool_errors", "{{run}} tools"),
            min=0,
        ),
    ]
    gap = [
        lines("Log-probability gap", "none", series("grpo_logprob_gap_rollout"), min=0),
        lines("KL between trainer and engine", "none", series("grpo_kl_rollout"), min=0),
        lines("Chi-squared divergence", "none", series("grpo_chi2_rollout")),
        lines("Importance ratio", "none", series("grpo_importance_ratio_rollout")),
        lines("Age of the samples", "none", series("grpo_sample_staleness_steps"), min=0),
        lines("Effective sample size", "percentunit", series("grpo_effective_sample_rollout"), min=0),
        lines(
            "Token probabilities",
            "none",
            series("grpo_probability_gap_rollout", "{{run}} gap"),
            series("grpo_probability_error_rollout", "{{run}} error factor"),
        ),
    ]
    weights = [
        lines(
            "Tensors that changed",
            "percentunit",
            series("grpo_parameters_changed_ratio"),
            about="Between two saved checkpoints. 0: no tensor changed at all (parameters-unchanged).",
            min=0,
            max=1,
        ),
        lines("Gradient norm", "none", series("grpo_grad_norm"), **LOG),
        lines("KL to the reference", "none", series("grpo_kl_reference")),
    ]
    uid = "grpo-sampling-weights"
    rules = "|".join(name for name, detector in catalogue().items() if uid in detector.dashboards)
    judged = f'max by (run, rule) (grpo_alert_firing{{instance=~"$instance", run=~"$run", rule=~"{rules}"}})'
    lanes = states(
        "Rules on sampling and weights", Query(judged, "{{run}} {{rule}}"), {0: "quiet", 1: "firing"}, *SOME_BAD
    )
    return Dashboard(
        uid,
        "GRPO / Sampling and weights",
        "Whether completions differ, whether weights change, and whether the rollout engine has the trainer's weights.",
        [
            Row("Completions", texts),
            Row("Trainer against rollout engine (where the framework logs it)", gap),
            Row("Weights", weights),
            Row("Rules", [lanes]),
        ],
    )
