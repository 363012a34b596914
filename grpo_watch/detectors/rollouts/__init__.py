"""What the rollout engine generates: copies, truncated texts, gibberish, samples of stale weights."""
