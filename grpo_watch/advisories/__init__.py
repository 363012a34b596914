"""Known bugs of packages that let training go on quietly: one YAML file per package, and what judges a run by them."""
