# Every target is one script in scripts/; without make, run the script itself.
.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-one test-lowest test-pythons test-unprivileged check bench robustness truth soak channels container lock docs docs-site golden test-frameworks swift-live writers-live preflight-envs preflight-differential system-deps setup release wheel audit frameworks-new

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-29s%s\n", $$1, $$2 }'
demo: ## replay a recorded run with a real fault through the real daemon
	@scripts/demo
test: ## nine tests in ten, in five minutes on two cores
	@scripts/test
test-all: ## all tests but those that need torch
	@scripts/test-all
test-pythons: ## engine, detectors and replays under each supported Python that is installed here, or that uv can fetch
	@scripts/test-pythons
test-lowest: ## the tests that lean on dependencies, with the oldest versions that pyproject.toml allows
	@scripts/test-lowest
test-one: ## one file or folder of tests in seconds: scripts/test-one PATH
	@scripts/test-one
check: ## lint, types, import contracts, docs, all tests: what CI runs
	@scripts/check
test-unprivileged: ## tests of files, processes and servers as nobody, with an empty home and long paths (root)
	@scripts/test-unprivileged
frameworks-new: ## keys that the newest TRL, ms-swift, verl … log and no table knows (downloads them, runs nothing)
	@scripts/frameworks-new
test-frameworks: ## train a tiny model with real TRL on the CPU with the daemon watching (installs torch)
	@scripts/test-frameworks
preflight-differential: ## hold preflight against six versions of real TRL, 600 random launches each (half an hour)
	@scripts/preflight-differential
swift-live: ## train a tiny model with real ms-swift and the callback on the CPU, beside the daemon (installs ms-swift)
	@scripts/swift-live
writers-live: ## read checkpoints that real DeepSpeed and Megatron save on the CPU (installs them)
	@scripts/writers-live
preflight-envs: ## make an environment for each version of TRL that preflight is held against
	@scripts/preflight-envs
bench: ## measure, beside xxhsum, with a fleet and archives (an hour)
	@scripts/bench
robustness: ## measure false alarms and detection over some 4,000 synthetic runs, write docs/robustness.md and what quotes it
	@scripts/robustness
truth: ## judge the same labelled runs with grpo-watch and with other tools from PyPI (ten minutes)
	@scripts/truth
soak: ## random histories of a log and of alerts, and 500 kills of the daemon while a receiver misbehaves (half an hour)
	@scripts/soak
score: ## how the rules do on labelled runs: detection, false alarms, delay (scripts/score FOLDER for your own)
	@scripts/score
channels: ## the verdict on labelled runs by each channel alone, and written in other ways (scripts/channels FOLDER for your own)
	@scripts/channels
container: ## do what the Dockerfile does without an engine, and start it as the image does (root)
	@scripts/container
release: ## build, check, list and sign a release in dist/ (scripts/release FOLDER for another place)
	@scripts/release
wheel: ## build the wheel and try it without the checkout: with pip in an empty environment, uvx and pipx
	@scripts/wheel
audit: ## known vulnerabilities of the pinned dependencies, where the index can be asked
	@scripts/audit
lock: ## pin what the container image installs, with hashes (needs uv)
	@scripts/lock
docs: ## write the generated parts of the documentation
	@scripts/docs
docs-site: ## build the documentation as a searchable site in build/site (installs mkdocs-material)
	@scripts/docs-site
golden: ## rewrite the expected results of the bundled runs, to be read before they are committed
	@scripts/golden
system-deps: ## install Prometheus and the other real components that tests talk to (root on Debian or Ubuntu)
	@scripts/system-deps
setup: ## make .venv with the development tools
	@scripts/setup dev
