"""verl: its keys by version, its console format, dumps and launch rules."""
