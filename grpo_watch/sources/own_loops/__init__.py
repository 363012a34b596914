"""Lines and tables that a training loop of one's own prints."""
