"""Sources turn what a job writes into items. They read only, hold bounded memory, and never raise on bad input."""
