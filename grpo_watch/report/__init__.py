"""Findings as JSON and text."""
