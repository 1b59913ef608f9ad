# Everything a person needs here. `make demo` and `make test` install what they miss and need no other preparation.

SHELL := /bin/bash
CACHE ?= $(HOME)/.cache/oribi
export CARGO_TARGET_DIR ?= $(CURDIR)/target
ORIBI := $(CARGO_TARGET_DIR)/debug/oribi
VENV := $(CACHE)/python
NODE := $(CACHE)/node
KUDU := $(CACHE)/kudu
JARS := $(CACHE)/jars
GO_MODULES := $(CACHE)/go

.PHONY: demo test release check rust-test client-test pytest clients build bench bench-kv bench-kudu bench-exchange fuzz clean-cache

demo: build
	ORIBI=$(ORIBI) scripts/demo

# Format, lints and licences first, since they are quick; then the tests in Rust, then the real clients.
test:
	scripts/test

# What a server is given: target/oribi, for every processor and for newer ones.
release:
	scripts/prepare build
	scripts/release

build:
	scripts/prepare build
	cargo build --locked -p oribi-server

check:
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --no-deps -- -D warnings
	scripts/check-licences
	scripts/tidy

rust-test:
	cargo test --locked --workspace

client-test: build pytest

# With the binary as it is.
pytest: clients
	ORIBI=$(ORIBI) NODE_CLIENTS=$(NODE) KUDU_CLI=$(KUDU) JARS=$(JARS) GO_MODULES=$(GO_MODULES) \
		$(VENV)/bin/python -m pytest -q -rs tests/clients

# The clients, in versions that are pinned, outside the repository.
clients: $(VENV)/ready $(NODE)/ready $(KUDU)/ready $(JARS)/ready $(GO_MODULES)/ready
$(VENV)/ready: tests/clients/requirements.txt
	scripts/prepare clients
	python3 -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --requirement tests/clients/requirements.txt
	touch $@

$(NODE)/ready: tests/clients/package.json tests/clients/package-lock.json
	scripts/prepare clients
	mkdir -p $(NODE)
	cp tests/clients/package.json tests/clients/package-lock.json $(NODE)
	# Not `npm ci`: it insists on packages for other systems, which not every registry has.
	npm install --silent --no-audit --no-fund --prefix $(NODE)
	touch $@

$(KUDU)/ready: scripts/prepare-kudu
	scripts/prepare-kudu $(KUDU)
	touch $@

$(JARS)/ready: tests/clients/jars.txt scripts/prepare-jars
	scripts/prepare clients
	scripts/prepare-jars $(JARS)
	touch $@

$(GO_MODULES)/ready: $(wildcard tests/clients/*-go/go.mod tests/clients/*-go/go.sum) scripts/prepare-go
	scripts/prepare clients
	scripts/prepare-go $(GO_MODULES)
	touch $@

bench:
	cargo bench --locked -p oribi-wal -p oribi-sstable -p oribi-engine -p oribi-client

# Beside memcached, which must be installed. BENCH_KV holds arguments of the script.
bench-kv:
	cargo build --release --locked -p oribi-server
	ORIBI=$(CARGO_TARGET_DIR)/release/oribi scripts/bench-kv $(BENCH_KV)

# Kudu's client and server and Oribi's, in all four pairings. BENCH_KUDU holds arguments of the script.
bench-kudu: $(KUDU)/ready
	cargo build --release --locked -p oribi-server
	ORIBI=$(CARGO_TARGET_DIR)/release/oribi KUDU_CLI=$(KUDU) scripts/bench-kudu $(BENCH_KUDU)

# TPC-H over an owner and compute nodes, with rows handed over in a process and sent. BENCH_EXCHANGE holds arguments of the script.
bench-exchange:
	cargo build --release --locked -p oribi-server
	ORIBI=$(CARGO_TARGET_DIR)/release/oribi scripts/bench-exchange $(BENCH_EXCHANGE)

# FUZZ_SECONDS per target, of all or of FUZZ_TARGETS; needs the nightly toolchain and cargo-fuzz.
fuzz:
	scripts/fuzz

clean-cache:
	rm -rf $(CACHE)
