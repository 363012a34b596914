"""The logs, settings and dumps of each training framework, one folder per framework, mapped to canonical metrics."""
