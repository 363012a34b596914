"""Reads rows of metrics: JSON, tables, printed lines, and pieces of rows."""
