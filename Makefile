# indef's front door. On a fresh Debian 12 or 13 machine with make and cargo (https://rustup.rs):
#
#   make demo     show the main job on a file system of its own
#   make test     everything that a change must pass
#
# Both install the system packages that they need where they may (root), and else say what is
# missing; without what compiles indef they stop. Further: check (some minutes, while working), proof
# (hours), build, fresh, bench, figures, fuzz, install, lab, dist, packages, deps, clean.

CARGO   ?= cargo
PREFIX  ?= /usr/local
DESTDIR ?=

.PHONY: all build demo check test tests fmt clippy licences abi-check fresh bench experiments figures proof fuzz install \
        uninstall lab install-lab uninstall-lab install-flashd uninstall-flashd dist packages \
        build-deps demo-deps deps clean

all: build

build: build-deps
	$(CARGO) build --locked --release --package indef

demo: demo-deps
	$(MAKE) --no-print-directory build
	target/release/indef demo

# What can be known within three minutes of a change: style, lints of libraries and programs, unit tests.
check: fmt
	$(CARGO) clippy --locked --workspace -- -D warnings
	$(CARGO) xtask test --tier check

# fmt to abi-check take seconds and say what is wrong with the code; tests takes minutes.
# `make --keep-going test` runs all of them whatever fails.
test: fmt clippy licences abi-check tests

fmt: deps
	$(CARGO) fmt --all -- --check
	@command -v clang-format >/dev/null || { echo "fmt: no clang-format, BPF programs not looked at"; exit 0; }; \
	clang-format --dry-run --Werror crates/indef-trace/src/bpf/*.[ch]

clippy: deps
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

licences: deps
	$(CARGO) xtask licences

abi-check: deps
	$(CARGO) xtask abi-check

# Without newer XFS tools and Prometheus (and a network to fetch them from) some tests are skipped, and say so.
tests: deps
	-@CARGO="$(CARGO)" scripts/xfsprogs
	-@CARGO="$(CARGO)" scripts/prometheus
	$(CARGO) xtask test

# `make demo` of what is committed, in clean Debian 12 and 13 roots: some 10 minutes, wants root.
fresh: deps
	$(CARGO) xtask fresh

# Against the conventional tools; takes a while, wants an idle machine and root.
bench: deps
	$(CARGO) lab bench all

# The papers' figures that are built, in virtual time, ours beside theirs: under 3 minutes (docs/experiments.md).
# TIER=M measures on file systems of this machine (root, an idle machine, and patience), TIER=G on F2FS in guests (QEMU and
# f2fs-tools; the first time a network).
TIER ?= V
experiments: build-deps
	$(CARGO) run --locked --release --quiet --package indef-lab -- experiments --tier $(TIER)

# The figures of README.md and docs/, from the results in figures/. `cargo lab bench NAME --keep` measures one
# anew; `make test` fails where a page differs from its result.
figures: build-deps
	$(CARGO) xtask figures
	$(CARGO) lab experiments --pages

# Hours: tests on further kernels and in their long versions (xtask/src/test/tiers.rs), every kind of
# file system hammered while indef moves its files (docs/hammer.md), and all that parses fuzzed. Needs
# root.
PROOF_MINUTES ?= 120
proof: deps
	-@CARGO="$(CARGO)" scripts/xfsprogs
	-@CARGO="$(CARGO)" scripts/prometheus
	$(CARGO) xtask test --tier proof
	$(CARGO) build --locked --release --package indef --package hammer
	target/release/hammer run --minutes $(PROOF_MINUTES) --log target/hammer
	target/release/hammer run --minutes $(PROOF_MINUTES) --log target/hammer --kernel 6.12 \
		--volume xfs-offload --volume f2fs-offload
	@if $(CARGO) +nightly fuzz --version >/dev/null 2>&1; then scripts/fuzz; \
	else echo "proof: no nightly toolchain with cargo-fuzz, nothing was fuzzed"; fi

# A short round of every fuzz target; FUZZ_SECONDS=600 for a longer one.
fuzz:
	scripts/fuzz

# Copies what `make build` made, so root needs no cargo: make && sudo make install. PREFIX and DESTDIR as usual.
install uninstall:
	@DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" scripts/install $(if $(findstring un,$@),--uninstall)

# The laboratory, which `indef demo --zns` runs, and the software-defined SSD.
lab: build-deps
	$(CARGO) build --locked --release --package indef-lab --package flashd

install-lab uninstall-lab:
	@DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" scripts/install --lab $(if $(findstring un,$@),--uninstall)

install-flashd uninstall-flashd:
	@DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" scripts/install --flashd $(if $(findstring un,$@),--uninstall)

dist: build-deps
	$(CARGO) xtask dist

# Packages (deb and rpm) with programs that need nothing of the system.
packages: build-deps
	$(CARGO) xtask packages

build-deps:
	@scripts/system-packages build

demo-deps:
	@scripts/system-packages demo

deps:
	@scripts/system-packages test

clean:
	$(CARGO) clean
