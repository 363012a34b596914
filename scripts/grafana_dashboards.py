"""The dashboards: which panels there are, and what each asks Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from grafana_panels import (
    GREEN,
    ORANGE,
    RED,
    Dashboard,
    Panel,
    Query,
    Row,
    lines,
    number,
    render,
    states,
    table,
)

OF = '{instance=~"$instance", run=~"$run"}'
ONE = '{instance="$instance", run="$run"}'
"""Grafana escapes a chosen value for a regular expression only where several can be chosen."""
HERE = '{instance=~"$instance"}'
RUN_LINK = "/d/grpo-run?var-instance=${__data.fields.instance}&var-run=${__data.fields.run}"
PAGE_LINK = "http://${__data.fields.instance}/"
RULE_LINK = f"{PAGE_LINK}#/rule/${{__data.fields.rule}}"
RUN_PAGE_LINK = f"{PAGE_LINK}#/run/${{__data.fields.run}}"
RUNS_LINKS = (("run", RUN_LINK), ("instance", RUN_PAGE_LINK))
SEVERITY = {0: "fine", 1: "warning", 2: "critical"}
BY_SEVERITY = ((None, GREEN), (1.0, ORANGE), (2.0, RED))
SOME_BAD = ((None, GREEN), (1.0, RED))
SOME_GOOD = ((None, RED), (1.0, GREEN))
LOG = {"scaleDistribution": {"type": "log", "log": 10}}


def dashboards() -> Iterator[tuple[str, str]]:
    """File name and text of each."""
    for dashboard in (fleet(), run(), sampling(), watcher()):
        yield f"{dashboard.uid}.json", render(dashboard)


def files(folder: Path) -> Iterator[tuple[Path, str]]:
    """The same with the place of each file."""
    yield from ((folder / name, text) for name, text in dashboards())


def series(metric: str, legend: str = "{{run}}") -> Query:
    """A metric of the runs as it is."""
    return Query(f"{metric}{OF}", legend)


def one(metric: str, legend: str) -> Query:
    """A metric of the run as it is."""
    return Query(f"{metric}{ONE}", legend)


def findings(of: str) -> Panel:
    """What fires now, and since which step."""
    columns = {
        "firing": (f"grpo_alert_firing{of} == 1", "none"),
        "since step": (
            f"grpo_alert_first_step{of} and on (job, instance, run, rule) grpo_alert_firing{of} == 1",
            "none",
        ),
    }
    return table("Findings", columns, 12, [*RUNS_LINKS, ("rule", RULE_LINK)])


def fleet() -> Dashboard:
    """All runs at once."""
    top = Row(
        "Now",
        [
            number("Active runs", "none", f"sum(grpo_run_active{OF})"),
            number("Critical", "none", f"count(run:grpo_severity:max{OF} == 2) or vector(0)", *SOME_BAD),
            number(
                "Warning", "none", f"count(run:grpo_severity:max{OF} == 1) or vector(0)", (None, GREEN), (1, ORANGE)
            ),
            number(
                "Frozen policies",
                "percentunit",
                "fleet:grpo_runs_frozen:ratio or vector(0)",
                *((None, GREEN), (0.01, ORANGE), (0.3, RED)),
                about="Share of all active runs with a critical finding of a frozen policy.",
            ),
            number("Watchers that answer", "none", f"count(grpo_watch_build_info{HERE}) or vector(0)", *SOME_GOOD),
            number(
                "Rules that can't see",
                "percentunit",
                f"sum(grpo_rules_blind{OF}) / (sum(grpo_rules_blind{OF}) + count(grpo_alert_firing{OF}))",
                *((None, GREEN), (0.7, ORANGE)),
                about="Blind rules beside those that judge, over all runs. `grpo-watch sources` says what each lacks.",
            ),
        ],
    )
    columns = {
        "verdict": (f"run:grpo_severity:max{OF}", "none"),
        "active": (f"grpo_run_active{OF}", "none"),
        "step": (f"grpo_step{OF}", "none"),
        "done": (f"run:grpo_progress:ratio{OF}", "percentunit"),
        "remaining": (f"run:grpo_remaining:seconds{OF}", "s"),
        "newest step": (f"run:grpo_last_step_age:seconds{OF}", "s"),
        "reward": (f"grpo_reward_mean{OF}", "none"),
        "KL": (f"grpo_kl_reference{OF}", "none"),
    }
    runs = table("Runs", columns, 24, RUNS_LINKS, words=SEVERITY, steps=BY_SEVERITY)
    lanes = states("Verdicts", Query(f"run:grpo_severity:max{OF}"), SEVERITY, *BY_SEVERITY)
    told = Query(f"sum by (rule, severity) (run:grpo_alert_firing:told{OF})", "{{rule}} ({{severity}})")
    return Dashboard(
        "grpo-fleet",
        "GRPO / Fleet",
        "All runs that grpo-watch sees: which are in trouble, since when, and how far they are.",
        [
            top,
            Row("Runs", [runs, lanes]),
            Row("What is wrong", [findings(OF), _wide(lines("Alerts by rule", "none", told), 12)]),
            Row(
                "Training",
                [
                    lines("Progress", "percentunit", series("run:grpo_progress:ratio"), min=0, max=1),
                    lines("Reward", "none", series("grpo_reward_mean")),
                    lines("KL to the reference", "none", series("grpo_kl_reference")),
                ],
            ),
        ],
    )


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
    blind = table("Rules that can't see", {"blind": (f"grpo_rule_blind{ONE}", "none")}, 12, [("rule", RULE_LINK)])
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
        [top, Row("Findings", [findings(ONE), blind, _wide(alerts, 24)]), Row("Reward", reward), Row("Policy", policy)],
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
        lines("Length, mean", "none", series("grpo_completion_length_mean"), min=0),
        lines(
            "Length, shortest and longest",
            "none",
            series("grpo_completion_length_min", "{{run}} min"),
            series("grpo_completion_length_max", "{{run}} max"),
            min=0,
        ),
        lines("Entropy", "none", series("grpo_entropy"), min=0),
    ]
    gap = [
        lines("Log-probability gap", "none", series("grpo_logprob_gap_rollout"), min=0),
        lines("KL between trainer and engine", "none", series("grpo_kl_rollout"), min=0),
        lines("Chi-squared divergence", "none", series("grpo_chi2_rollout")),
        lines("Importance ratio", "none", series("grpo_importance_ratio_rollout")),
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
    rules = "duplicate-completions|near-duplicate-completions|mixed-prompt-group|repeated-prompts|stale-rollout-weights"
    rules += "|train-rollout-mismatch|parameters-unchanged|adapter-never-trained|base-weights-drift|ranks-diverged"
    rules += "|checkpoint-unusable|gradient-lost|kl-stuck-at-zero|learning-rate-zero|reference-follows-policy"
    judged = f'max by (run, rule) (grpo_alert_firing{{instance=~"$instance", run=~"$run", rule=~"{rules}"}})'
    lanes = states(
        "Rules on sampling and weights", Query(judged, "{{run}} {{rule}}"), {0: "quiet", 1: "firing"}, *SOME_BAD
    )
    return Dashboard(
        "grpo-sampling-weights",
        "GRPO / Sampling and weights",
        "Whether completions differ, whether weights change, and whether the rollout engine has the trainer's weights.",
        [
            Row("Completions", texts),
            Row("Trainer against rollout engine (where the framework logs it)", gap),
            Row("Weights", weights),
            Row("Rules", [lanes]),
        ],
    )


def watcher() -> Dashboard:
    """The watcher itself."""
    of = '{instance=~"$instance"}'
    by = "{{instance}}"
    top = Row(
        "Now",
        [
            number("Answer", "none", f"count(grpo_watch_build_info{of}) or vector(0)", *SOME_GOOD),
            number("State is kept", "none", f"min(grpo_watch_state_ok{of})", *SOME_GOOD),
            number("Settings in force", "none", f"min(grpo_watch_config_last_reload_successful{of})", *SOME_GOOD),
            number("Channels unreadable", "none", f"count(grpo_watch_source_up{of} == 0) or vector(0)", *SOME_BAD),
            number(
                "Messages that wait",
                "none",
                f"sum(grpo_watch_delivery_queue_length{of}) or vector(0)",
                (None, GREEN),
                (10, ORANGE),
            ),
            number("Runs", "none", f"count(grpo_run_active{of})"),
        ],
    )
    rate = "[$__rate_interval]"
    reading = [
        lines(
            "Records read", "cps", Query(f"sum by (source) (rate(grpo_watch_records_total{of}{rate}))", "{{source}}")
        ),
        lines(
            "Input passed over",
            "cps",
            Query(
                f"sum by (source, reason) (rate(grpo_watch_record_errors_total{of}{rate}))",
                "{{source}}: {{reason}}",
            ),
        ),
        lines(
            "Seconds since a channel was read", "s", Query(f"grpo_watch_source_lag_seconds{of}", "{{run}} {{source}}")
        ),
    ]
    buckets = f"sum by (le, instance) (rate(grpo_watch_engine_seconds_bucket{of}{rate}))"
    engine = [
        lines(
            "A turn of the engine",
            "s",
            Query(f"histogram_quantile(0.99, {buckets})", "99 %, {{instance}}"),
            Query(f"histogram_quantile(0.5, {buckets})", "median, {{instance}}"),
        ),
        lines(
            "Turns",
            "cps",
            Query(f"rate(grpo_watch_engine_seconds_count{of}{rate})", by),
            about="None while runs are active: the engine is stuck (GrpoWatchStuck).",
        ),
        lines("Share of a core", "percentunit", Query(_ours(f"rate(process_cpu_seconds_total{of}{rate})"), by), min=0),
        lines("Resident memory", "bytes", Query(_ours(f"process_resident_memory_bytes{of}"), by), min=0),
        lines("Open files", "none", Query(_ours(f"process_open_fds{of}"), by), min=0),
        lines("Size of the state", "bytes", Query(f"grpo_watch_state_bytes{of}", by), min=0),
    ]
    telling = [
        lines(
            "Deliveries",
            "none",
            Query(f"sum by (sink, outcome) (increase(grpo_watch_deliveries_total{of}{rate}))", "{{sink}} {{outcome}}"),
        ),
        lines(
            "Messages that wait", "none", Query(f"grpo_watch_delivery_queue_length{of}", "{{instance}} {{sink}}"), min=0
        ),
        lines("Seconds per scrape", "s", Query(_ours(f"scrape_duration_seconds{of}"), by), min=0),
    ]
    versions = table("Versions", {"up": (f"grpo_watch_build_info{of}", "none")}, 12, [("instance", PAGE_LINK)])
    sources = table("Channels", {"readable": (f"grpo_watch_source_up{of}", "none")}, 12, [("instance", PAGE_LINK)])
    return Dashboard(
        "grpo-watcher",
        "GRPO / Watcher",
        "Whether the monitor itself is well: a monitor that is down or blind must not look like health.",
        [
            top,
            Row("Reading", reading),
            Row("Engine", engine),
            Row("Telling", telling),
            Row("What runs", [versions, sources]),
        ],
        one_run=None,
    )


def _ours(expr: str) -> str:
    """Of the processes that Prometheus scrapes, the watchers."""
    return f"{expr} and on (job, instance) grpo_watch_build_info"


def _wide(panel: Panel, width: int) -> Panel:
    return Panel(
        panel.kind, panel.title, panel.unit, panel.queries, width, panel.height + 2, panel.about, custom=panel.custom
    )
