# Everything one does here; `make` alone lists it. Nothing has to be installed first but Rust, Python 3.11, gcc and make:
# what else is needed is fetched into .cache/ the first time (scripts/fetch.py).

.DEFAULT_GOAL := help
SHELL := /bin/bash

# Where the integration tests look for the module, for the servers, for a client, and for the module they compare it with.
export RATELIMIT_MODULE ?= $(CURDIR)/target/release/libredis_ratelimit.so
export RATELIMIT_FAULTY_MODULE ?= $(CURDIR)/target/faulty/libredis_ratelimit.so
export RATELIMIT_SERVERS ?= $(CURDIR)/.cache/servers
export RATELIMIT_IOREDIS ?= $(CURDIR)/.cache/ioredis
export RATELIMIT_GDB ?= $(CURDIR)/.cache/gdb/gdb
export RATELIMIT_PROMETHEUS ?= $(CURDIR)/.cache/prometheus
export RATELIMIT_REDIS_CELL ?= $(CURDIR)/.cache/redis-cell/libredis_cell.so

CARGO := scripts/cargo

# What `make build` leaves, and what cargo built: the same with its debugging symbols, ten times as large.
BUILT := target/release/libredis_ratelimit.so
LINKED := target/release/deps/libredis_ratelimit.so

# What the build calls the folders that it reads: its bytes do not depend on where they are (`make reproducible`).
REGISTRY := $(or $(CARGO_HOME),$(HOME)/.cargo)
RENAMED := --remap-path-prefix=$(CURDIR)=/redis-ratelimit --remap-path-prefix=$(REGISTRY)=/cargo
RENAMED_IN_C := -ffile-prefix-map=$(CURDIR)=/redis-ratelimit -ffile-prefix-map=$(REGISTRY)=/cargo

# Where `make install` copies it to. DESTDIR is for packagers.
PREFIX ?= /usr/local
MODULEDIR ?= $(PREFIX)/lib/redis/modules

.PHONY: help build install run gateway pool express fastapi top quick test test-partitions test-clients test-clients-node test-clients-others test-clients-python test-clients-rust lint doc fmt unit faulty integration soak simulate mutants fuzz fuzz-keep reproducible deny sbom dist unwinder test-dist test-images test-arm64 test-musl standard-library server-suite memcheck out-of-memory asan asan-servers checked fuzz-wire cost bench bench-core bench-instructions accuracy weight dashboard fetch clean

help: ## list these targets
	@awk -F ':.*## ' '/^## / { printf "\n%s\n", substr($$0, 4) } /^[a-z0-9-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' \
		$(firstword $(MAKEFILE_LIST))

## Build and run

build: export RUSTFLAGS := $(RUSTFLAGS) $(RENAMED)
build: export CFLAGS := $(CFLAGS) $(RENAMED_IN_C)
build: ## build the module: target/release/libredis_ratelimit.so, and its debugging symbols beside it
	$(CARGO) build --release
	@objcopy --only-keep-debug $(LINKED) $(BUILT).debug
	@objcopy --strip-all --add-gnu-debuglink=$(BUILT).debug $(LINKED) $(BUILT).stripped
	@mv $(BUILT).stripped $(BUILT)

install: ## copy the built module to PREFIX/lib/redis/modules (PREFIX=/usr/local, DESTDIR, MODULEDIR)
	@test -f $(BUILT) || { echo "there is no $(BUILT): run make build first" >&2; exit 1; }
	install -d "$(DESTDIR)$(MODULEDIR)"
	install -m 755 $(BUILT) "$(DESTDIR)$(MODULEDIR)"

run: build ## start a server with the module and show some commands, until Ctrl-C (PORT=6379)
	@scripts/fetch.py servers redis-7.0
	@scripts/run

gateway: build ## serve a gateway that limits a model's requests, tokens and slots, until Ctrl-C (PORT=8080)
	@scripts/fetch.py servers redis-7.0
	@scripts/fetch.py redis-py
	@examples/gateway/demo.py

pool: build ## serve a page of workers that wait in line for a limited service, and kill one, until Ctrl-C (PORT=8081)
	@scripts/fetch.py servers redis-7.0
	@scripts/fetch.py redis-py
	@examples/pool/demo.py

express: export PATH := $(CURDIR)/.cache/clients-node/bin:$(PATH)
express: ## serve a web application with limits by address and user, beside `make run`, until Ctrl-C (PORT=3000, REDIS_URL)
	@scripts/fetch.py clients-node
	@cd clients/node && npm run --silent build
	@node examples/express/app.js

PYTHON_CLIENT := $(CURDIR)/.cache/clients-python:$(CURDIR)/clients/python/src
fastapi: export PYTHONPATH := $(PYTHON_CLIENT)
fastapi: ## serve such an application on FastAPI, beside `make run`, until Ctrl-C (PORT=8000, REDIS_URL)
	@scripts/fetch.py clients-python
	@python3 -B examples/fastapi/app.py

top: ## watch a server: denials a second, the keys most often denied, blocks (ARGS='-h host -p port --user monitor', REDISCLI_AUTH)
	@scripts/fetch.py redis-py
	@scripts/fetch.py rich
	@scripts/rl-top $(ARGS)

## Test

# What `make quick` runs on one server, and tests of these that take long: load, crashes, bounds of time and memory.
QUICK := command:: durability:: panics:: policy:: replication:: server::
SLOW := bounds:: crash:: hammer:: many:: million out_of_memory:: ten_clients
quick: export RATELIMIT_ONLY := redis-7.0
quick: export PROPTEST_CASES := 100
quick: export RUST_TEST_THREADS := 4
quick: lint unit build faulty ## in 90 s after a build: lint, few cases of unit tests, integration on Redis 7.0 but no tests of load, crashes, clients, guides
	@scripts/fetch.py servers redis-7.0
	$(CARGO) test --profile checked --test integration -- $(QUICK) $(foreach word,$(SLOW),--skip $(word))

test: lint unit integration test-clients ## everything that CI runs

lint: doc ## rustfmt, clippy, rustdoc, imports between rooms (scripts/walls), names in documents (scripts/names), licences, workflows
	cargo fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	scripts/walls --self-test
	scripts/walls
	scripts/names --self-test
	scripts/names
	scripts/licences --self-test
	scripts/licences
	@scripts/fetch.py zizmor
	.cache/zizmor/bin/zizmor --offline --quiet --strict-collection .github

unit: ## tests of the core, the protocol and the module that need no server
	cargo test --profile checked -p ratelimit-core -p ratelimit-protocol
	$(CARGO) test --profile checked --lib
	cargo run --locked --quiet --manifest-path core/no_std/Cargo.toml --target-dir target/no_std

# Each test runs several servers and mostly waits for them: as many at once on any machine.
integration: export RUST_TEST_THREADS ?= 6
integration: build faulty fetch ## tests against Redis 6.2, 7.0, 8.2 and Valkey 8.1, 9.1
	@scripts/fetch.py chromium
	$(CARGO) test --profile checked --test integration

# Root may make network namespaces. Any other user gets a user namespace, where it may, if the system allows one.
AS_ROOT = $(if $(filter-out 0,$(shell id -u)),unshare --map-root-user)
test-partitions: export RUST_TEST_THREADS ?= 1
test-partitions: build ## cut and delay the links between primary, replica and clients on all servers (needs root or user namespaces, iproute2)
	@scripts/fetch.py servers
	$(CARGO) test --profile checked --test integration --no-run
	@$(AS_ROOT) unshare --net true || { echo "no network namespace can be made here: run this as root, or allow user namespaces" >&2; exit 1; }
	$(AS_ROOT) $(CARGO) test --profile checked --test integration -- --ignored --nocapture partition::

test-clients: test-clients-rust test-clients-node test-clients-python test-clients-others ## tests of the adapters in clients/, on all servers

# A workspace of its own: its crates are not the module's.
RUST_CLIENT := --manifest-path clients/rust/Cargo.toml
test-clients-rust: build fetch ## lint and test the adapter for tower, axum and hyper
	cargo fmt $(RUST_CLIENT) --check
	cargo clippy $(RUST_CLIENT) --target-dir target/clients-rust --locked --all-targets --all-features -- -D warnings
	cargo test $(RUST_CLIENT) --target-dir target/clients-rust --locked --all-features

test-clients-node: export PATH := $(CURDIR)/.cache/clients-node/bin:$(PATH)
test-clients-node: build ## tests of clients/node against its libraries and all servers
	@scripts/fetch.py servers
	@scripts/fetch.py clients-node
	@scripts/fetch.py chromium
	cd clients/node && npm run --silent build && npm test --silent

LIMITS_TESTS := $(addprefix tests/,test_storage.py test_strategy.py aio/test_storage.py aio/test_strategy.py integration/test_concurrency.py)
# `limits` has tests of its own for storages: each process of them has its own servers.
test-clients-python: export PYTHONPATH := $(PYTHON_CLIENT):$(CURDIR)/clients/python/tests
test-clients-python: build ## tests of clients/python against its libraries and all servers
	@scripts/fetch.py servers
	@scripts/fetch.py clients-python
	@scripts/fetch.py chromium
	cd clients/python && python3 -B -m ruff check --no-cache && python3 -B -m ruff format --no-cache --check
	cd clients/python && python3 -B -m mypy --cache-dir=/dev/null
	cd clients/python && python3 -B -m pytest -q -n 3
	cd .cache/clients-python/limits-sources && python3 -B -m pytest -p limits_own --noconftest -q -n 6 -c $(CURDIR)/clients/python/tests/limits_own.ini $(LIMITS_TESTS)

test-clients-others: export PYTHONPATH := $(PYTHON_CLIENT):$(CURDIR)/clients/python/tests
test-clients-others: build ## run the programs of docs/guide/clients.md in PHP, Ruby, Go and a shell
	@scripts/fetch.py servers
	@scripts/fetch.py clients-python
	@scripts/fetch.py languages
	cd clients/python && python3 -B -m ruff check --no-cache --config pyproject.toml ../others
	cd clients/others && python3 -B -m pytest -q -p no:cacheprovider

faulty: ## build the module so that tests can make it panic: target/faulty/libredis_ratelimit.so
	$(CARGO) build --profile checked --lib --features fault-injection
	mkdir -p target/faulty
	cp target/checked/libredis_ratelimit.so target/faulty/

checked: ## build the module with the checks that the shipped one omits: target/with-checks/libredis_ratelimit.so
	$(CARGO) build --profile checked --lib
	mkdir -p target/with-checks
	cp target/checked/libredis_ratelimit.so target/with-checks/

## Test for long

# What memcheck runs under valgrind: some minutes. Other words are other tests.
MEMCHECK ?= command::check:: command::holds:: command::mcheck:: command::wait:: durability::persistence:: server::events::
memcheck: export RUST_TEST_THREADS ?= 2
memcheck: build faulty fetch ## run tests with their servers under valgrind's memcheck (MEMCHECK='words of their names')
	@scripts/fetch.py valgrind
	scripts/memcheck $(MEMCHECK)

HOST = $(shell rustc -vV | sed -n 's/^host: //p')
ASAN := RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address
ASAN_BUILD = --profile checked --lib --target-dir target/asan --target $(HOST)

asan: ## run the unit tests with AddressSanitizer, which finds leaks as well
	$(ASAN) $(CARGO) test --workspace $(ASAN_BUILD)

# A server with the allocator of the system, and gcc's runtime in front of it: an error ends the server, and so fails the test.
asan-servers: export RATELIMIT_ONLY := valkey-8.1
asan-servers: export RATELIMIT_PATIENCE ?= 5
asan-servers: export RATELIMIT_MODULE = $(CURDIR)/target/asan/$(HOST)/checked/libredis_ratelimit.so
asan-servers: export ASAN_OPTIONS := verify_asan_link_order=0:detect_leaks=0:allocator_may_return_null=1
asan-servers: export RATELIMIT_WRAPPER = $(CURDIR)/tests/asan/server $(CURDIR)/target/asan/dlopen.so $(shell gcc -print-file-name=libasan.so)
asan-servers: faulty fetch ## run tests with the module under AddressSanitizer in a server (TESTS=command::)
	$(ASAN) $(CARGO) build $(ASAN_BUILD)
	gcc -O2 -Wall -Wextra -shared -fPIC -o target/asan/dlopen.so tests/asan/dlopen.c -ldl
	$(CARGO) test --profile checked --test integration -- $(or $(TESTS),command::)

server-suite: build ## run the servers' own tests with the module loaded (SUITES='redis-7.0 valkey-8.1')
	@scripts/fetch.py servers
	@scripts/fetch.py redis-benchmark
	@scripts/server-suite $(SUITES)

out-of-memory: export RATELIMIT_STRIDE ?= 1
out-of-memory: build fetch ## let each allocation of a scenario fail, then load the server's files (RATELIMIT_STRIDE=10: each tenth)
	$(CARGO) test --profile checked --test integration -- --nocapture durability::out_of_memory::

fuzz-wire: export RATELIMIT_WIRE_S ?= 600
fuzz-wire: export RATELIMIT_MODULE := $(CURDIR)/target/with-checks/libredis_ratelimit.so
fuzz-wire: checked fetch ## send hostile commands, effects and files to all servers at once (RATELIMIT_WIRE_S=600, RATELIMIT_WIRE_SEED, RATELIMIT_WIRE_REPLAY)
	$(CARGO) test --profile checked --test integration -- --nocapture wire::

soak: export RATELIMIT_SOAK_S ?= 600
soak: build fetch ## minutes of load on all servers at once: full speed, saves, replicas, kills, takeovers (RATELIMIT_SOAK_S=600, RATELIMIT_SOAK_SEED)
	$(CARGO) test --profile checked --test integration -- --nocapture soak::

simulate: export RATELIMIT_SIM_RUNS ?= 9000
simulate: ## simulate failing servers and a jumping clock, without a server (RATELIMIT_SIM_RUNS=9000: a minute, RATELIMIT_SIM_SEED)
	cargo test --profile checked -p ratelimit-protocol --test simulation -- --nocapture

# Some 2,000 changes, each a build and a run of both crates' tests but the slowest, up to the first that fails: hours. SHARD=3/8
# makes every eighth. `--fail-fast` needs RUSTC_BOOTSTRAP.
mutants: export PATH := $(CURDIR)/.cache/cargo-mutants/bin:$(PATH)
mutants: export PROPTEST_CASES ?= 24
mutants: export PROPTEST_DISABLE_FAILURE_PERSISTENCE := 1
mutants: export RUSTC_BOOTSTRAP := 1
mutants: ## change the core and the protocol one place at a time, and list what no test notices (FILES='protocol/src/waiting/**', SHARD=0/8, ITERATE=--iterate)
	@mkdir -p target
	@scripts/fetch.py cargo mutants
	cargo mutants --no-config $(foreach crate,core protocol,-p ratelimit-$(crate) --test-package ratelimit-$(crate)) --profile mutants --timeout 20 -o target/mutants $(ITERATE) \
		$(foreach files,$(or $(FILES),core/src/algorithm/** core/src/key/** core/src/check/** protocol/src/effect/** protocol/src/waiting/**),-f '$(files)') \
		-e '**/tests/**' -e '**/tests.rs' -e '**/naive.rs' -e core/src/key/codec/parts.rs $(if $(SHARD),--shard $(SHARD) --sharding round-robin) \
		$(foreach arg,--lib --test=heap,--cargo-arg=$(arg)) --cargo-test-arg=-- --cargo-test-arg=-Zunstable-options --cargo-test-arg=--fail-fast \
		$(foreach slow,drift:: explained:: memory:: fuzz:: top:: a_flood dense_payloads,--cargo-test-arg=--skip=$(slow))

fuzz: export RATELIMIT_FUZZ_S ?= 600
fuzz: ## fuzz each target of protocol/src/fuzz, or one (INPUT=rule_text, RATELIMIT_FUZZ_S=600 seconds each, RATELIMIT_FUZZ_SEED)
	@scripts/fetch.py cargo fuzz
	@scripts/fuzz run $(INPUT)

fuzz-keep: ## add to fuzz/corpus the fewest inputs that reach all code that `make fuzz` reached (INPUT=)
	@scripts/fetch.py cargo fuzz
	@scripts/fuzz keep $(INPUT)

## Measure

cost: ## time decisions as the limit grows, without a server
	cargo run --release -p ratelimit-core --example cost

bench: build fetch ## compare throughput and memory with alternatives and with the least that a module costs (ARGS=--help: options)
	@scripts/fetch.py redis-benchmark
	@scripts/fetch.py plots
	@PYTHONPATH=.cache/python:.cache/plots python3 -m benches.server $(ARGS)

bench-core: ## time the core, without a server: parsing, deciding, the saved form; and the sketch behind RL.TOP
	cargo bench -p ratelimit-core --bench core
	cargo bench -p ratelimit-protocol --bench top

bench-instructions: build ## count the instructions of each command, and fail if the module needs over 1 % more than before
	@scripts/fetch.py servers redis-7.0
	@scripts/fetch.py redis-py
	@scripts/fetch.py valgrind
	@benches/instructions/instructions.py

accuracy: build ## draw what each algorithm lets through of the same requests: docs/images/accuracy.svg
	@scripts/fetch.py servers redis-7.0
	@scripts/fetch.py redis-py
	@scripts/fetch.py plots
	@benches/accuracy/accuracy.py

weight: ## count lines of shipped code and of clients, words of documents, lines of integration tests
	@scripts/weight

## Release

reproducible: ## build the module in two folders, and fail unless both builds have the same bytes
	@scripts/reproducible

deny: ## check licences, sources, duplicates and advisories of the module's crates (CHECKS=)
	@scripts/fetch.py cargo deny
	.cache/cargo-deny/bin/cargo-deny check $(CHECKS)

sbom: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
sbom: ## list the module's crates in CycloneDX: target/redis-ratelimit.cdx.json
	@scripts/fetch.py cargo cyclonedx
	scripts/sbom

# The oldest glibc whose systems can load what is released: CentOS 7 has it, Debian 11 and RHEL 8 have newer ones.
GLIBC ?= 2.17
TARGET ?= $(HOST)
# zig would put an unwinder of its own into the module, which fails in servers that have brought another: a panic that is
# caught would end the server. The module takes that of the system, as `make build` does.
UNWINDER = $(CURDIR)/target/unwinder/$(TARGET)
dist test-dist: export CARGO_ZIGBUILD_ZIG_PATH := $(CURDIR)/.cache/zigbuild/ziglang/zig
# What zig and cargo-zigbuild keep for the next time, which is in the home folder otherwise.
dist test-dist: export ZIG_GLOBAL_CACHE_DIR := $(CURDIR)/target/zig
dist test-dist: export CARGO_ZIGBUILD_CACHE_DIR := $(CURDIR)/target/zig
dist test-dist: export PATH := $(CURDIR)/.cache/zigbuild/bin:$(PATH)
sbom dist test-dist: export TARGET := $(TARGET)
dist test-dist: export GLIBC := $(GLIBC)
dist test-dist: export RUSTFLAGS := $(RUSTFLAGS) $(RENAMED) -Lnative=$(UNWINDER) -ldylib:+verbatim=libgcc_s.so.1 \
	-Clink-arg=-Wl,--build-id=sha1
dist test-dist: export CFLAGS := $(CFLAGS) $(RENAMED_IN_C)
# What Alpine's libc is called. A module is a shared library, which needs the system's libc too. rustup has the standard
# library; where it is missing, Debian's compiler brings one.
MUSL := $(CURDIR)/.cache/musl
ifneq ($(findstring -musl,$(TARGET)),)
dist test-dist: export RUSTFLAGS += -Ctarget-feature=-crt-static
ifeq ($(wildcard $(shell $(or $(RUSTC),rustc) --print target-libdir --target $(TARGET))/libstd-*.rlib),)
dist test-dist: export RUSTC := $(MUSL)/rust/rustc
endif
endif
# zig names its headers by paths from this folder if they are in it, which bindgen, run elsewhere, does not find.
ZIGBUILD := cd src && ../$(CARGO) zigbuild --lib --locked --target $(TARGET)$(if $(findstring -gnu,$(TARGET)),.$(GLIBC))

dist: standard-library sbom unwinder ## build an archive, a Debian package and an RPM for systems with glibc 2.17 and later, or with musl (TARGET=): target/dist/
	$(ZIGBUILD) --release
	scripts/dist

standard-library:
	$(if $(filter $(MUSL)/%,$(RUSTC)),@env -u RUSTC -u RUSTFLAGS -u CFLAGS scripts/fetch.py musl)

unwinder:
	@scripts/fetch.py zigbuild
	@mkdir -p $(UNWINDER)
	@cp -L "$(or $(LIBGCC),$(shell gcc -print-file-name=libgcc_s.so.1))" $(UNWINDER)

# What the archive and the package hold is one module, with which tests of every command pass; and one that is linked like
# it survives panics. For musl there is no package.
UNPACKED = $(CURDIR)/target/unpacked/$(TARGET)
RPM = $(wildcard target/dist/*.$(firstword $(subst -, ,$(TARGET))).rpm)
test-dist: export RATELIMIT_MODULE = $(UNPACKED)/usr/lib/redis/modules/libredis_ratelimit.so
test-dist: export RATELIMIT_FAULTY_MODULE := $(CURDIR)/target/$(TARGET)/checked/libredis_ratelimit.so
test-dist: export RUST_TEST_THREADS ?= 4
test-dist: standard-library unwinder fetch ## test the files of `make dist`: sums, contents, commands and panics on all servers
	cd target/dist && sha256sum --check --strict SHA256SUMS
	rm -rf $(UNPACKED) && mkdir -p $(UNPACKED)
	tar -xzf target/dist/redis-ratelimit-*-$(TARGET).tar.gz -C $(UNPACKED)
	$(if $(findstring -musl,$(TARGET)),install -D -m 755 $(UNPACKED)/redis-ratelimit-*/libredis_ratelimit.so $(RATELIMIT_MODULE),\
		dpkg-deb --extract target/dist/redis-ratelimit_*_$(if $(filter aarch64%,$(TARGET)),arm64,amd64).deb $(UNPACKED))
	cmp $(UNPACKED)/redis-ratelimit-*/libredis_ratelimit.so $(RATELIMIT_MODULE)
	$(if $(RPM),mkdir $(UNPACKED)/rpm && \
		$(AS_ROOT) rpm --root $(UNPACKED)/rpm --nodeps --ignorearch --install $(RPM) && \
		$(AS_ROOT) rpm --root $(UNPACKED)/rpm --nodeps --verify redis-ratelimit && \
		cmp $(UNPACKED)/rpm/usr/lib64/redis/modules/libredis_ratelimit.so $(RATELIMIT_MODULE))
	for server in $(RATELIMIT_SERVERS)/*/server; do \
		scripts/try-archive $(UNPACKED)/redis-ratelimit-*/ $$server $(RATELIMIT_SERVERS)/redis-7.0/cli || exit 1; \
	done
	$(ZIGBUILD) --profile checked --features fault-injection
	env -u RUSTC -u RUSTFLAGS -u CFLAGS $(CARGO) test --profile checked --test integration -- $(or $(TESTS),command:: panics::)

test-images: ## build the images of packaging/docker and run them with podman, without a network (needs root; see scripts/test-images)
	$(MAKE) dist
	$(MAKE) dist TARGET=x86_64-unknown-linux-musl
	@scripts/fetch.py zigbuild
	@scripts/fetch.py musl
	@scripts/fetch.py podman-compose
	@scripts/test-images

# Debian's compiler, which has the standard library for arm64, and servers under an emulator, which makes them five times slower.
# redis-cell is built for this machine's processor.
ARM64 := $(CURDIR)/.cache/arm64
test-arm64: export RATELIMIT_OTHER_SERVERS := $(RATELIMIT_SERVERS)
test-arm64: export RATELIMIT_OTHER_MODULE := $(RATELIMIT_MODULE)
test-arm64: export RATELIMIT_SERVERS := $(ARM64)
test-arm64: export RATELIMIT_ONLY := redis-7.0 redis-8.2 valkey-8.1 valkey-9.1
test-arm64: export RATELIMIT_PATIENCE ?= 5
test-arm64: export RATELIMIT_CC := $(CURDIR)/.cache/zigbuild/ziglang/zig cc -target aarch64-linux-gnu.2.17
test-arm64: build fetch ## build the release for arm64 and test it, in servers under an emulator (TESTS=command::)
	@scripts/fetch.py arm64
	PATH=$(ARM64)/bin:$$PATH RUSTC=$(ARM64)/rust/rustc LIBGCC=$(ARM64)/libgcc_s.so.1 \
		$(MAKE) dist test-dist TARGET=aarch64-unknown-linux-gnu \
		TESTS='$(or $(TESTS),command:: panics:: durability:: replication::) --skip throttle::redis_cell::'
	RATELIMIT_MODULE=$(CURDIR)/target/unpacked/aarch64-unknown-linux-gnu/usr/lib/redis/modules/libredis_ratelimit.so \
		RUST_TEST_THREADS=4 $(CARGO) test --profile checked --test integration -- --ignored processors::

# A server and libraries for musl, which that server finds by a wrapper. redis-cell, with which some tests compare, is built
# for glibc and cannot be loaded there.
test-musl: fetch ## build the release for Alpine's libc, musl, and test it in a server with that (TESTS=command::)
	@scripts/fetch.py musl
	RATELIMIT_SERVERS=$(MUSL) RATELIMIT_ONLY=redis-7.0 $(MAKE) dist test-dist TARGET=x86_64-unknown-linux-musl \
		TESTS='$(or $(TESTS),command:: panics:: durability::persistence) --skip throttle::redis_cell::'

## The rest

fmt: ## format the code
	cargo fmt --all

doc: ## build the documentation of the code: target/doc/redis_ratelimit/index.html
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --lib --document-private-items

dashboard: ## write monitoring/dashboard.json for Grafana, after a change of dashboard.py
	@scripts/fetch.py grafana-sdk
	PYTHONPATH=.cache/grafana monitoring/dashboard.py >monitoring/dashboard.json.new
	@mv monitoring/dashboard.json.new monitoring/dashboard.json

fetch: ## fetch the test servers, clients of Python and Node.js, gdb, Prometheus, and redis-cell to compare with
	@scripts/fetch.py servers
	@scripts/fetch.py redis-py
	@scripts/fetch.py ioredis
	@scripts/fetch.py redis-cell
	@scripts/fetch.py gdb
	@scripts/fetch.py rich
	@scripts/fetch.py pyte
	@scripts/fetch.py prometheus
	@scripts/fetch.py grafana-sdk

clean: ## remove what was built and fetched
	rm -rf target .cache
