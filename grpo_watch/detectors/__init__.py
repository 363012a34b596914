"""The detectors, one symptom per module with its runbook beside it; found by importing, without registration."""
