# SPDX-License-Identifier: GPL-2.0-or-later
# `make help` lists the targets.  What takes more than a line or two is a script, named in its recipe.
#
#   KVER=     kernel to build for: a release or its beginning (6.1, 6.12); default: the running one
#   KERNEL=   kernels that VM tests run on: 6.1, 6.12, all (default); SUITE= which suites (default: all of `make check`)
#   SHARD=    of `make check-system`, `make faults`, `make damage`: I/N, the I-th of N parts (default: all)
#   FOR=      what `make deps` prepares for: build, vm, recipes, bench, lint, fuzz, valgrind, debug, arm64, dkms, deb, libblkid, install (default: build vm lint)
#   ONLY=, PEERS=, MODELS=, SETS=    parts of `make bench`: a regular expression for cases; lists (WRITE=1: to docs/benchmarks.md too)
#   TRACES=   for `make sim`: a directory with more block traces
#   SSD=, HDD=                       devices that `make bench-real` overwrites
#   DESTDIR=, PREFIX=    where `make install` puts things

KVER ?= $(shell uname -r)
PREFIX ?= /usr
UDEV ?= /usr/lib/udev
KERNEL ?= all
export PREFIX DESTDIR

help:	## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

deps:	## install what building and testing need (Debian 12; apt as root or by sudo)
	@tests/ci/dependencies $(FOR)

all: module tools	## the module for KVER and the command
build: all	## the same

module:	## the module for one kernel (KVER=6.1); prints where it is
	@kernel/build $(KVER)

modules-all:	## the module, and the test modules, for each kernel that tests run on
	@set -e; for k in $$(kernel/build --kernels); do kernel/build $$k; kernel/build --sim $$k; done

tools:	## the command larder
	@$(MAKE) --no-print-directory -C tools

install: tools	## install the command and its manual page below DESTDIR and PREFIX
	@$(MAKE) --no-print-directory -C tools install

uninstall:	## remove them
	@$(MAKE) --no-print-directory -C tools uninstall

daemon:	## the daemon larderd and the udev probe (needs libsystemd-dev)
	@$(MAKE) --no-print-directory -C daemon

install-daemon: daemon	## install them, with udev rules, unit, parts for initramfs-tools, manual page
	@$(MAKE) --no-print-directory -C daemon install

uninstall-daemon:	## remove them
	@$(MAKE) --no-print-directory -C daemon uninstall

dkms-install:	## hand the module to DKMS, which builds it for every kernel installed
	@kernel/dkms install

dkms-uninstall:	## take it back
	@udev/keep-root $(UDEV)/larder-root
	@kernel/dkms uninstall

dkms-try:	## try that in a clean Debian 12 in a chroot (root)
	@tests/dkms/try

deb:	## packages for Debian 12 and later, larder, larderd and larder-dkms; prints where they are
	@tests/ci/dependencies deb
	@debian/packages

deb-try:	## build them in a clean Debian 12 in a chroot, install, upgrade, remove them in another (root)
	@tests/deb/try

kernels:	## build for every kernel from 6.1 to the newest of Debian's archives, without a warning, and run suites on each (SERIES= SUITE=)
	@SUITE="$(SUITE)" tests/kernels/run $(SERIES)

lint:	## style, static checks, licences
	@tests/lint/run

unit:	## unit and property tests of format, index, policy under ASan and UBSan; images of disks, made, damaged, read
	@$(MAKE) --no-print-directory -C tests/unit check
	@$(MAKE) --no-print-directory -C tests/images check

valgrind:	## the tests of the command and the daemon on images, under valgrind; hours (ONLY= as pytest's -k)
	@tests/ci/dependencies build vm valgrind
	@tests/command/valgrind $(if $(ONLY),-k '$(ONLY)')

fuzz:	## fuzz every parser of bytes that come from a disk, a user or the kernel, for MINUTES=1 in all (WRITE=1: what had no finding is noted in tests/proofs.jsonl, and not tried again)
	@tests/ci/dependencies build fuzz
	@tests/fuzz/run --minutes $(or $(MINUTES),1)$(if $(WRITE), --write)

model:	## explore the ordering rules in full, 3.5 million states; then drop each in turn, and print what breaks
	@/usr/bin/python3 tests/model/explore.py
	@/usr/bin/python3 tests/model/explore.py --table --brief

model-smoke:	## the same with smaller bounds, in a minute
	@/usr/bin/python3 tests/model/smoke.py

vm:	## tests in virtual machines, on both kernels
	@tests/ci/vm --kernel $(KERNEL) $(if $(SUITE),--suite $(SUITE))

vm-more:	## the suites for which a check has no time
	@tests/ci/dependencies build vm recipes deb
	@tests/ci/vm --more --kernel $(KERNEL)

check:	## everything: dependencies, build, lint, unit, model, vm; ends in one line
	@tests/ci/check

check-system:	## the suites of whole stacks and systems, of vm-more too (SHARD=I/9: less than 40 minutes each; KERNEL= SANITIZE=1: command and daemon with ASan and UBSan)
	@tests/ci/dependencies build vm recipes deb
	@tests/ci/vm --system --shard $(or $(SHARD),1/1) --kernel $(KERNEL) $(if $(SANITIZE),--sanitize)

crash:	## power cuts at every kind of position, in the states each may leave: more than 20,000 (STATES= of each workload, ONLY= workloads, SEED=, WRITE=1: tests/proofs.jsonl too)
	@tests/ci/dependencies build vm
	@tests/crash/run --kernel $(or $(filter-out all,$(KERNEL)),6.12) $(if $(STATES),--states $(STATES)) $(if $(SEED),--seed $(SEED)) $(if $(WRITE),--write) $(ONLY)

faults:	## random workloads with one random fault of a device each, 10,000 on each kernel (RUNS= SEED= SHARD=I/N KERNEL=)
	@tests/ci/dependencies build vm
	@tests/faults/run --kernel $(KERNEL) $(if $(SEED),--seed $(SEED)) $(if $(RUNS),--runs $(RUNS)) $(if $(SHARD),--shard $(SHARD))

damage:	## damaged images of caches and volumes, 2,000, each started and read (RUNS= SEED= SHARD=I/N KERNEL=)
	@tests/ci/dependencies build vm
	@tests/damage/run --kernel $(or $(filter-out all,$(KERNEL)),6.12) $(if $(SEED),--seed $(SEED)) $(if $(RUNS),--runs $(RUNS)) $(if $(SHARD),--shard $(SHARD))

soak:	## everything at once, for MINUTES=1 of a VM's time: loads, switches, faults, growth, SSDs that come and go, power cuts (SEED= WORLDS= ROUNDS= KERNEL=)
	@tests/ci/dependencies build vm
	@tests/soak/run --kernel $(or $(filter-out all,$(KERNEL)),6.12) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(if $(WORLDS),--worlds $(WORLDS)) $(if $(ROUNDS),--rounds $(ROUNDS))

mutants:	## plant bugs, one at a time, and see that a test catches each, and passes without (NAME=, WRITE=1)
	@tests/mutants/run --control --kernel $(or $(filter-out all,$(KERNEL)),6.12) $(if $(WRITE),--write) $(NAME)

stress:	## a million random operations and 30 kills of the VM, on each kernel
	@tests/ci/vm --kernel $(KERNEL) --suite stress,kill_larder --env LARDER_KILLS=30 --timeout 86400

debug-kernel:	## build a kernel with KASAN, lockdep, UBSAN, kmemleak: an hour
	@tests/ci/dependencies build vm debug
	@tests/debug/kernel

check-debug: debug-kernel	## the VM suites in it (SUITE=, WRITE=1)
	@tests/debug/check $(if $(WRITE),--write) $(SUITE)

bench:	## larder and its peers on simulated disks, against the targets; hours (ONLY= PEERS= MODELS= SETS= for parts)
	@tests/ci/dependencies build vm bench
	@tests/bench/run $(if $(filter-out all,$(KERNEL)),--kernel $(KERNEL)) --only '$(ONLY)' --peers '$(PEERS)' --models '$(MODELS)' --sets '$(SETS)' $(if $(WRITE),--write)

bench-real:	## the same on real devices, which are OVERWRITTEN: SSD=/dev/... HDD=/dev/... (root)
	@tests/bench/real --ssd '$(SSD)' --hdd '$(HDD)' --only '$(ONLY)' --peers '$(PEERS)' --sets '$(SETS)'

sim:	## hit ratio and write amplification of larder's policy, and of others, on block traces (TRACES=DIR: more of them; WRITE=1: docs/benchmarks.md too)
	@tests/sim/policy/run $(if $(TRACES),--traces '$(TRACES)') $(if $(WRITE),--write)

demo:	## see it work: a VM, a slow disk made fast, a power cut
	@tests/ci/dependencies build vm
	@tests/vm/demo

libblkid:	## util-linux's blkid with contrib/libblkid-larder.patch, built from Debian's source, against images of larder
	@tests/ci/dependencies build libblkid
	@contrib/libblkid-check

images:	## the writer of disk images for tests
	@$(MAKE) --no-print-directory -C tests/images

clean:	## remove what was built (not: the Python environment, downloads)
	@kernel/build --clean
	@for d in lib tools daemon tests/unit tests/images tests/vm/oracle tests/crash tests/sim/policy; do \
		[ ! -e $$d/Makefile ] || $(MAKE) --no-print-directory -C $$d clean || exit; done

.PHONY: help deps all build module modules-all tools install uninstall daemon install-daemon uninstall-daemon dkms-install dkms-uninstall dkms-try deb deb-try kernels lint unit fuzz model \
	model-smoke vm vm-more check check-system crash faults damage soak mutants stress bench bench-real sim demo libblkid images clean
