"""A training-health monitor for GRPO fine-tuning: reads what a job writes, says when the run is silently dead."""

__version__ = "0.1.0"
