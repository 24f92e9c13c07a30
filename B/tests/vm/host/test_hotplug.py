# SPDX-License-Identifier: GPL-2.0-or-later
"""Five disks of a stack appear one by one, in every order, in a running Debian with systemd, mdadm's and larder's own udev rules.

Nothing is judged by the clock: what is missing is waited for for an hour.  What is printed: how long it took from the last disk to
/dev/larder/NAME and to the mounted filesystem, how long udev was busy with any one event, and larder-probe with a member.
LARDER_ORDERS: how many orders of the 120, drawn (all).
"""

import itertools
import os
import random
import re
import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from host import driven, system
from lib import kernel_log

HALVES = 2
BY_ID = "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_"
WAIT = "3600"
PATIENCE = {
    "etc/larder/larder.conf": f"wait {WAIT}\n",
    # mdadm's: 30 s
    "etc/systemd/system/mdadm-last-resort@.timer.d/patience.conf": f"[Timer]\nOnActiveSec=\nOnActiveSec={WAIT}\n",
}
CREATE = (
    f"larder create data {' '.join(f'--backing {BY_ID}hdd{i}' for i in range(3))} --raid 5"
    f" {' '.join(f'--cache {BY_ID}ssd{i}' for i in range(2))}"
    " --encrypt luks2:keyfile=/etc/larder.key --iter-time 10 --mkfs ext4 --mount /srv/data --yes"
)
BEGIN = "systemctl start larderd; systemctl start --no-block srv-data.mount"  # as a boot does, which waits for it
ARRIVES = "until mountpoint -q /srv/data; do sleep 0.2; done"
# that somebody wished so is forgotten, as behind a boot
AWAY = "systemctl stop srv-data.mount larderd && larder stop data && rm -r /run/larder/stopped"
# of udevd, by `udevadm monitor`: from the kernel's event to the end of what the rules did; seconds, and the event
LONGEST = """awk -F '[][]' '
	$1 == "KERNEL" { begun[$3] = $2 }
	$1 ~ /^UDEV/ && $3 in begun { took = $2 - begun[$3]; delete begun[$3]; if (took > most) { most = took; what = $3 } }
	END { printf "%.3f s,%s", most, what }' /run/events""".replace("\n", " ")
MONOTONIC = "-p ActiveEnterTimestampMonotonic --value"


@pytest.fixture
def machine(directory, initramfs, request) -> Iterator[driven.Driven]:
    root = system.image(directory, driven.WORK, files=PATIENCE, modules=driven.MODULES)
    words = "systemd.mask=serial-getty@ttyS0.service systemd.mask=systemd-ask-password-console.path"
    with driven.driven(request.node.name, initramfs, root, words) as m:
        yield m
        console = m.off()
    root.unlink(missing_ok=True)
    bad = kernel_log.bad_lines(console.splitlines())
    assert not bad, "kernel log:\n" + "\n".join(bad)


@pytest.fixture
def disks(make_disk_file) -> list[Path]:
    return [make_disk_file(f"hdd{i}", 96) for i in range(3)] + [make_disk_file(f"ssd{i}", 48) for i in range(2)]


def attached(machine: driven.Driven, disk: Path) -> None:
    machine.run(f"until [ -b {BY_ID}{disk.stem} ]; do sleep 0.1; done")


def appeared(machine: driven.Driven) -> float:
    """When the last disk did, in seconds of its clock."""
    line = machine.run("dmesg | grep 'Attached SCSI disk' | tail -n 1")
    return float(re.match(r"\[ *([0-9.]+)\] ", line)[1])


def since_boot(machine: driven.Driven, unit: str) -> float:
    return int(machine.run(f"systemctl show {unit} {MONOTONIC}")) / 1e6


def create(machine: driven.Driven, disks: list[Path]) -> None:
    for d in disks:
        machine.plug(d)
        attached(machine, d)
    machine.run("mkdir -p /srv/data; head -c 64 /dev/urandom > /etc/larder.key; chmod 600 /etc/larder.key")
    machine.run(CREATE)
    machine.run("for array in /dev/md[0-9]*; do mdadm --wait $array; done", status=None)  # its last disk is made from the others
    write(machine)


def write(machine: driven.Driven) -> None:
    machine.run("cd /srv/data && head -c 300000 /dev/urandom > content && sha256sum content > sum && sync -f .")


def compare(machine: driven.Driven) -> None:
    machine.run("cd /srv/data && echo 3 > /proc/sys/vm/drop_caches && sha256sum --quiet -c sum")


def read(machine: driven.Driven) -> None:
    compare(machine)
    machine.run("larder status data")


def go(machine: driven.Driven, disks: list[Path]) -> None:
    machine.run(AWAY)
    for d in disks:
        machine.pull(d)
    machine.run("while compgen -G '/sys/block/sd*'; do sleep 0.1; done > /dev/null; udevadm settle")


@pytest.mark.parametrize("half", range(HALVES))
def test_every_order(machine, disks, seed, half):
    r = random.Random(seed)
    orders = list(itertools.permutations(disks))
    r.shuffle(orders)
    orders = orders[: int(os.environ.get("LARDER_ORDERS", len(orders)))][half::HALVES]
    create(machine, disks)
    probes = machine.run(f"TIMEFORMAT=%R; for i in {{1..20}}; do time /lib/udev/larder-probe {BY_ID}ssd0 > /dev/null; done")
    machine.run("udevadm monitor --kernel --udev --subsystem-match=block > /run/events 2>&1 &")
    named, mounted = [], []
    for order in orders:
        go(machine, disks)
        machine.run(BEGIN)
        for d in order:
            machine.plug(d)
            time.sleep(r.choice((0, 0, r.uniform(0, 1.5))))
        machine.run(ARRIVES)
        last = appeared(machine)
        named.append(since_boot(machine, "dev-larder-data.device") - last)
        mounted.append(since_boot(machine, "srv-data.mount") - last)
        print(f"{' '.join(d.stem for d in order)}: /dev/larder/data {named[-1]:.2f} s behind the last, mounted {mounted[-1]:.2f} s")
        read(machine)
        write(machine)
    for what, times in (("/dev/larder/data", named), ("mounted", mounted)):
        print(f"{what}: {statistics.median(times):.2f} s in the middle, {max(times):.2f} s at most, behind the last of the disks")
    print(f"longest event of udev: {machine.run(LONGEST)}")
    print(f"larder-probe: {statistics.median(map(float, probes.split())) * 1000:.0f} ms")


# ---------------------------------------------------------------------- members that are not as they were

SHORT = 15
WHOLE = (
    "timeout 300 sh -c 'until larder status data > /run/status 2>&1; do sleep 0.5; done'"
    " || { larder status data; dmsetup status; larder doctor; larder list; false; }"
)


def impatient(machine: driven.Driven) -> None:
    timer = "/etc/systemd/system/mdadm-last-resort@.timer.d/patience.conf"
    machine.run(f"sed -i 's/^wait .*/wait {SHORT}/' /etc/larder/larder.conf")
    machine.run(f"sed -i 's/^OnActiveSec={WAIT}/OnActiveSec={SHORT}/' {timer}; systemctl daemon-reload")


def begin(machine: driven.Driven, *disks: Path) -> None:
    """As at a boot, in this order."""
    machine.run(BEGIN)
    for d in disks:
        machine.plug(d)
        attached(machine, d)


def content(machine: driven.Driven) -> None:
    """What was written last, on a stack that lacks something."""
    machine.run(ARRIVES)
    compare(machine)


def said(machine: driven.Driven, *words: str) -> str:
    """The line of larderd's that has them all, once there is one."""
    grep = "".join(f" | grep -F -- '{w}'" for w in words)
    return machine.run(f"until journalctl -b -u larderd -o cat{grep} > /run/said; do sleep 0.5; done; tail -n 1 /run/said")


def taken_back(machine: driven.Driven, disk: Path) -> None:
    """A disk by larderd; an SSD by the command that it names, as what it has is stale."""
    if disk.stem.startswith("ssd"):
        node = machine.run(f"readlink -f {BY_ID}{disk.stem}")
        command = re.search(r"larder cache add \S+ \S+", said(machine, node, "larder cache add"))[0].rstrip(",;.")
        print(machine.run(f"timeout 300 {command} --yes"))
    machine.run(WHOLE)


def test_each_missing_then_late(machine, disks):
    """The stack starts without it, is used, and has it again when it comes a minute later."""
    create(machine, disks)
    impatient(machine)
    for away in reversed(disks):
        go(machine, disks)
        begin(machine, *(d for d in disks if d != away))
        content(machine)
        machine.run("larder status data", status=10)
        write(machine)
        machine.run("sleep 60")
        machine.plug(away)
        attached(machine, away)
        taken_back(machine, away)
        read(machine)
        write(machine)


def stale(machine, odd, others, _):
    begin(machine, odd, *others)
    content(machine)
    taken_back(machine, odd)


def cloned(machine, odd, others, make_disk_file):
    """md takes the first of two disks; of two SSDs none is right, so nothing starts."""
    clone = make_disk_file(f"{odd.stem}copy", 0)
    shutil.copyfile(odd, clone)
    begin(machine, clone, odd, *others)
    if odd.stem.startswith("ssd"):
        said(machine, *(machine.run(f"readlink -f {BY_ID}{d.stem}") for d in (clone, odd)))
        machine.run("mountpoint -q /srv/data", status=32)
        machine.pull(clone)
        content(machine)
    else:
        content(machine)
        machine.run("larder status data")
        machine.pull(clone)
        write(machine)
        taken_back(machine, odd)


def damaged(machine, odd, others, _):
    """Its head has gone, with all that says whose it was."""
    with open(odd, "r+b") as f:
        f.write(bytes(1 << 20))
    begin(machine, odd, *others)
    content(machine)
    machine.run("larder status data", status=10)
    verb = "cache add larder-cache-data" if odd.stem.startswith("ssd") else "replace data disk1"
    # its other superblock, at the end, is taken for somebody's
    print(machine.run(f"timeout 300 larder {verb} {BY_ID}{odd.stem} --wipe --yes"))
    machine.run(WHOLE)


def swapped(machine, odd, others, make_disk_file):
    """Another stack's, or cache's, is in its place."""
    stranger = make_disk_file(f"strange{odd.stem}", 96)
    machine.plug(stranger)
    attached(machine, stranger)
    if odd.stem.startswith("ssd"):
        machine.run(f"larder cache create strange{odd.stem} --cache {BY_ID}{stranger.stem} --yes")
    else:
        machine.run(f"larder volume create strange{odd.stem} --backing {BY_ID}{stranger.stem} --yes")
    machine.pull(stranger)
    machine.run(f"while [ -e {BY_ID}{stranger.stem} ]; do sleep 0.1; done")
    before = stranger.read_bytes()
    begin(machine, stranger, *others)
    content(machine)
    machine.run("larder status data", status=10)
    machine.plug(odd)
    attached(machine, odd)
    taken_back(machine, odd)
    machine.run(f"larder probe {BY_ID}{stranger.stem} | grep strange{odd.stem}")
    machine.pull(stranger)
    # a cache starts, with nothing in it
    assert odd.stem.startswith("ssd") or stranger.read_bytes() == before, "another's was written to"


@pytest.mark.parametrize("kind", [stale, cloned, damaged, swapped], ids=lambda f: f.__name__)
def test_not_as_they_were(machine, disks, make_disk_file, kind):
    """A disk, and an SSD, that was away while the stack was used, is there twice, has no head, or is another's, at a boot."""
    create(machine, disks)
    impatient(machine)
    for odd in (disks[1], disks[4]):
        if kind == stale:
            machine.pull(odd)
            write(machine)
        others = [d for d in disks if d != odd]
        go(machine, others if kind == stale else disks)
        kind(machine, odd, others, make_disk_file)
        read(machine)
        write(machine)
