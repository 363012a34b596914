"""Rule packs: loading, lint, tests, runbooks."""
