"""One run: order of channels, rows by step and attempt, the engine; live and offline alike."""
