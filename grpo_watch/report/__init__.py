"""Reports on runs: JSON, text, Markdown, JUnit, HTML, and comparisons."""
