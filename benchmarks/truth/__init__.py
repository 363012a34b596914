"""The same labelled runs for grpo-watch and for other tools: what is found, what is a false alarm, what is not read."""
