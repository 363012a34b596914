"""Known bugs of packages that silently break training: one YAML file per package, and the code that applies them."""
