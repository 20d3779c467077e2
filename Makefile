# make help lists the targets. Everything that is installed goes to .cache,
# everything that is built to bin and build; all are ignored by git.

SHELL         := bash
.SHELLFLAGS   := -euo pipefail -c
.DEFAULT_GOAL := help

# The caller may set these variables. PKG names the packages of test, race,
# gobench and soak. TEST_TIMEOUT bounds the tests of one package. BENCH selects
# benchmarks. BENCH_FLAGS are further flags of stepvan bench. FUZZ_SECONDS is the
# time per fuzz target. PYTEST_WORKERS is how many tests of Python run at a time.
PKG          ?= ./...
TEST_TIMEOUT ?= 5m
BENCH        ?= .
BENCH_FLAGS  ?=
FUZZ_SECONDS ?= 300
GO           ?= go

PYTEST_WORKERS ?= 3

# Where make capi builds, and with which flags more (-asan).
CAPI_DIR   ?= build
CAPI_FLAGS ?=

# The profile that the compiler follows; off for none.
PGO ?= $(CURDIR)/cmd/stepvan/default.pgo

# Where make install puts library, headers and command, below DESTDIR for packages.
PREFIX  ?= /usr/local
DESTDIR ?=

.PHONY: help build capi install compat demo demo-torch demo-refit demo-replay demo-particles test race test-rdma test-cuda bench-cuda oracle check lint docs wheel installed-wheel pytest pytest-asan pyexamples bench pgo gobench fuzz fuzz-short soak soak-peers stress clean FORCE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/stepvan
	$(GO) build -pgo=$(PGO) -o bin/stepvan ./cmd/stepvan

capi: ## build build/libstepvan.so and build/stepvan.h, for C and what can call it (needs a C compiler)
	CGO_ENABLED=1 $(GO) build -pgo=$(PGO) -buildmode=c-shared -trimpath $(CAPI_FLAGS) -o $(CAPI_DIR)/libstepvan.so \
		-ldflags '-extldflags "-Wl,--version-script=$(CURDIR)/capi/exports.map -Wl,-soname,libstepvan.so"' ./capi
	rm -f $(CAPI_DIR)/libstepvan.h
	cp capi/stepvan.h $(CAPI_DIR)/

install: build capi ## install library, headers, pkg-config file and command in PREFIX (/usr/local), for packages below DESTDIR
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/pkgconfig
	install bin/stepvan $(DESTDIR)$(PREFIX)/bin/
	install $(CAPI_DIR)/libstepvan.so $(DESTDIR)$(PREFIX)/lib/
	install -D -m 644 $(CAPI_DIR)/stepvan.h $(DESTDIR)$(PREFIX)/include/stepvan.h
	version=$$(git describe --tags --match 'v[0-9]*' --abbrev=0 2>/dev/null || echo v0.0.0); \
		sed "s|@PREFIX@|$(PREFIX)|; s|@VERSION@|$${version#v}|" capi/stepvan.pc.in >$(DESTDIR)$(PREFIX)/lib/pkgconfig/stepvan.pc
	cd capi/compat && find . -name '*.h' -not -path './testdata/*' -exec install -D -m 644 {} $(DESTDIR)$(PREFIX)/include/stepvan/compat/{} \;

compat: ## test the C++ headers for programs of StepMesh (needs a C++ compiler and libtorch; minutes)
	scripts/compat.sh

demo: build ## run a real transformer, attention and FFN in different processes
	bin/stepvan demo

demo-torch: installed-wheel ## the same in torch
	$(VENV)/bin/python examples/torch/demo.py

demo-refit: installed-wheel ## train a real transformer in two processes, and serve the weights of each step in three others
	$(VENV)/bin/python examples/refit/demo.py

demo-replay: installed-wheel ## two collectors and a learner, which trains on their rows, each in a process of its own
	$(VENV)/bin/python examples/replay/demo.py

demo-particles: installed-wheel ## an ensemble, SWAG and SVGD of particles in two processes, with the bits of one
	$(VENV)/bin/python examples/particles/demo.py

test: ## run the tests
	$(GO) test -timeout $(TEST_TIMEOUT) $(PKG)

race: ## run the tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 $(GO) test -race -timeout $(TEST_TIMEOUT) $(PKG)

test-rdma: ## run the tests that need RDMA devices, in machines with software RDMA (minutes)
	scripts/test-rdma.sh

oracle: ## compare layout, reshard, bus and replay with the originals, in CPython 3.12 (needs PyPI; minutes)
	scripts/oracle.sh

export TEST_TIMEOUT PYTEST_WORKERS
check: ## everything that continuous integration runs, with the time of each step
	@scripts/check.sh

lint: ## format, vet, golangci-lint (with staticcheck), shellcheck
	@scripts/check.sh format vet golangci-lint shellcheck

docs: ## write docs/settings.md from the table of settings
	$(GO) run ./config/gen -o docs/settings.md
	@git diff --stat -- docs || true

bench: build ## measure all goals: a table, and bench.html with curves (some minutes)
	bin/stepvan bench --html bench.html $(BENCH_FLAGS)

pgo: ## measure the profile that the compiler follows, and write cmd/stepvan/default.pgo (two minutes, nothing else running)
	scripts/pgo.sh

gobench: ## Go benchmarks
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem $(PKG)

fuzz: ## fuzz every target for FUZZ_SECONDS (300)
	@scripts/fuzz.sh $(FUZZ_SECONDS)

fuzz-short: ## fuzz every target for seconds
	@scripts/fuzz.sh

soak: ## a million exchanges, a thousand lives, connections and large regions, all checked: nothing grows (an hour)
	$(GO) test -run Soak -timeout 60m -v ./ps -long
	CGO_ENABLED=1 $(GO) test -race -run Soak -timeout 60m -v ./ps -long
	$(GO) test -run Soak -timeout 120m -v ./internal/stress -long
	CGO_ENABLED=1 $(GO) test -race -run Soak -timeout 60m -v ./internal/link/progress -long
	$(MAKE) installed-wheel
	cd python && STEPVAN_TEST_EXCHANGES=1000000 ../$(VENV)/bin/python -m pytest -o timeout=600 tests/test_steady.py tests/test_memory.py::test_nothing_grows
	cd python && STEPVAN_TEST_EXCHANGES=100000 ../$(VENV)/bin/python -m pytest -o timeout=600 tests/test_particles.py -k test_nothing_grows

stress: ## processes killed, stopped and interrupted at any moment, frames damaged: told in time, nothing corrupted, nothing left
	$(GO) test -run Stress -timeout 60m -v ./internal/stress -long
	CGO_ENABLED=1 $(GO) test -race -run Stress -timeout 60m -v ./internal/stress -long
	$(GO) test -run Stress -timeout 60m -v ./peer/peertest -long

PEERS_FOR ?= 10m
soak-peers: ## 64 peers that are all busy, for PEERS_FOR (10m): none is taken for dead, and their mesh takes little memory
	$(GO) test -run BusyPeers -timeout 120m -v ./internal/stress -long -busy=$(PEERS_FOR)

# The Python that builds and tests, in an environment of its own which sees what is installed
# beside it: torch. Debian's python3-torch is for its own python3.
VENV_PYTHON ?= /usr/bin/python3
VENV        := .cache/venv
PYTOOLS     := python/requirements-test.txt

$(VENV)/ready: FORCE # the script knows whether there is something to do
	@scripts/venv.sh $(VENV_PYTHON) $(VENV) $(PYTOOLS)

wheel: $(VENV)/ready ## build a Python wheel in python/dist that needs neither Go nor a compiler
	rm -rf python/dist python/build/bdist.* python/build/lib.*
	$(VENV)/bin/python -m pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps -w python/dist ./python
	@ls python/dist/*.whl

installed-wheel: wheel
	$(VENV)/bin/python -m pip install -q --disable-pip-version-check --no-deps --force-reinstall python/dist/*.whl
	$(VENV)/bin/python -c 'import torch' || { echo "torch is needed: apt-get install python3-torch, or VENV_PYTHON=... make $(MAKECMDGOALS)"; exit 1; }

pytest: installed-wheel ## test the wheel with torch, numpy and ml_dtypes, and check its types
	scripts/python.sh test

pytest-asan: ## test the Python extension under the address and undefined behaviour sanitizers, and for leaks (minutes)
	scripts/python-asan.sh long

test-cuda: ## test the installed package on a device of CUDA: PYTHON is an interpreter with torch for CUDA, pytest and stepvan
	scripts/cuda/run.sh test

bench-cuda: ## measure exchanges of tensors of CUDA, and copies of batches, beside their limits
	scripts/cuda/run.sh bench

pyexamples: installed-wheel ## test the examples in Python: programs of StepMesh, the model split in torch, the refit, the tensor bus, particles
	scripts/python.sh examples

clean: ## remove what was built and installed here
	rm -rf bin build .cache python/build python/dist
