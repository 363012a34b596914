"""Rows as JSON, and rows that arrive in pieces."""
