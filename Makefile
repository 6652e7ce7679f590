# The one command surface: `make help` lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help demo test install uninstall build generate lint fmt bench fuzz soak

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

demo: ## everything on a fresh machine: cluster, install, image from packages, Ray cluster, Ray job
	@tests/demo.sh

test: ## lint, unit, mocked, integration and end-to-end tests; ends with the counts
	@tests/run.sh

install: ## CRDs, webhook and operator into $KUBECONFIG (default .local/kubeconfig)
	@tests/install.sh

uninstall: ## take them away again; asks first, since clusters and images go with their CRDs
	@tests/install.sh --uninstall

build: ## the three binaries
	cargo build --workspace --release

generate: ## rewrite generated files: CRDs, CLI and API reference, snapshots
	UPDATE=1 cargo test --workspace --quiet generated

bench: ## figures beside the peer's; BENCH="serve …" picks rows
	@tests/bench/run.sh $(BENCH)

fuzz: ## ten minutes of made-up input; TARGET=admission or templates (fuzz/README.md)
	@fuzz/run.sh $(or $(TARGET),admission)

soak: ## the long fault tests; SOAK="gates …" picks rows
	@tests/soak.sh $(SOAK)

lint: ## rustfmt, clippy, generated files in sync
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

fmt: ## format
	cargo fmt --all

-include tests/cluster/cluster.mk
