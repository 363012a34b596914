"""Raw keys of a framework become canonical metrics."""
