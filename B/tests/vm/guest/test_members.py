# SPDX-License-Identifier: GPL-2.0-or-later
"""What becomes of members that are late, alone, copied, strangers, or not wanted: test_assemble.py goes on.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lib import command, dm, members
from lib.larder import wait_for
from lib.members import ENVIRONMENT, FILES, SECONDS, Larderd, Member, Rig, larder, running, settle, status

sys.path.insert(0, str(Path(__file__).parents[2] / "command"))
import signatures

@pytest.fixture(scope="module", autouse=True)
def udevd() -> Iterator[None]:
    with members.udevd():
        yield


@pytest.fixture
def rig(make_oracle) -> Iterator[Rig]:
    with members.rig_of(make_oracle) as r:
        yield r


@pytest.fixture
def larderd(rig) -> Iterator[Larderd]:
    with members.larderd_of(rig) as daemon:
        yield daemon


# ---------------------------------------------------------------- whole


def test_plugged_before_it_starts(rig, larderd):
    for m in rig.members:
        m.plug()
    settle()
    larderd.start()
    rig.verify()


def test_properties_and_links(rig, larderd):
    for m in rig.members:
        m.plug()
    settle()
    first, second, disk = (m.properties() for m in rig.members)
    for p in (first, second, disk):
        assert (p["ID_FS_TYPE"], p["ID_FS_USAGE"], p["UDISKS_IGNORE"]) == ("larder_member", "raid", "1")
        assert "larderd.service" in p["SYSTEMD_WANTS"] and "systemd" in p["TAGS"]
        assert Path(f"/dev/disk/by-id/larder-{p['LARDER_KIND']}-{p['LARDER_UUID']}").exists()
    assert first["ID_FS_UUID"] == second["ID_FS_UUID"] == disk["LARDER_CACHE_UUID"]
    assert first["ID_FS_UUID_SUB"] != second["ID_FS_UUID_SUB"]
    assert (first["ID_FS_LABEL"], disk["ID_FS_LABEL"], disk["LARDER_KIND"]) == ("fast", "data", "volume")

    since = disk["LARDER_APPEARED"]
    command.run("udevadm", "trigger", "--settle", rig.hdd.node)
    assert rig.hdd.properties()["LARDER_APPEARED"] == since, "when it appeared is kept"
    larderd.start()
    rig.verify()
    settle()
    assert os.path.realpath("/dev/larder/data") == os.path.realpath("/dev/mapper/data")
    assert not Path("/dev/larder/larder-cache-fast").exists()
    command.run("dmsetup", "suspend", "data")
    command.run("udevadm", "trigger", "--settle", os.path.realpath("/dev/mapper/data"))
    assert Path("/dev/larder/data").exists(), "an event of one that is suspended"
    command.run("dmsetup", "resume", "data")
    settle()
    assert Path("/dev/larder/data").exists()
    cache = Member("x", 0)
    cache.node = "/dev/mapper/larder-cache-fast"
    p = cache.properties()
    assert (p["DM_UDEV_DISABLE_OTHER_RULES_FLAG"], p["SYSTEMD_READY"], p["UDISKS_IGNORE"]) == ("1", "0", "1")
    assert "ID_FS_TYPE" not in p and not Path(f"/dev/disk/by-id/dm-name-{p['DM_NAME']}").exists()


@pytest.mark.parametrize("name", ["md 1.0", "drbd"])
def test_signature_at_the_tail(rig, larderd, name):
    """What a user of the volume has made: libblkid takes the disk for that, and it is a member.  Before the data it is not."""
    type_, write = signatures.TAIL_ALONE[name]
    write(rig.hdd.file)
    assert f"TYPE={type_}" in command.output("blkid", "-p", "-o", "export", rig.hdd.file).splitlines()
    signatures.lvm(rig.hdd.file)
    for m in rig.members:
        m.plug()
    settle()
    larderd.start()
    assert running("larder-cache-fast") and not running("data")
    r = larder("assemble", "--all", check=False)
    assert r.returncode == 5 and "carries a signature LVM2_member" in r.stderr, r.stderr
    signatures.write(Path(rig.hdd.node), 512, bytes(512))
    command.run("udevadm", "trigger", "--settle", rig.hdd.node)
    p = rig.hdd.properties()
    assert (p["ID_FS_TYPE"], p["ID_FS_UUID"]) == ("larder_member", p["LARDER_UUID"])
    rig.verify()


UPSTREAM = 'KERNEL=="dm-*", ENV{.DM_SUSPENDED}="$env{DM_SUSPENDED}", ENV{DM_SUSPENDED}=""\n'
NO_PATH = 'ENV{DM_NAME}=="upon", ENV{DM_UDEV_DISABLE_OTHER_RULES_FLAG}="1"\n'


@pytest.mark.parametrize(
    ("rules", "suspended"), [("", True), (UPSTREAM, True), (NO_PATH, False)], ids=["Debian", "upstream", "multipath"]
)
def test_member_that_cannot_be_read_now(rig, rules, suspended):
    """On a device of somebody else's that is suspended, by dm's rules of either version, or has no path: it stays one."""
    known = re.compile(r"[ES]:.*(ID_FS_|LARDER_(?!SINCE)|UDISKS_IGNORE|by-id/larder-)")
    added = Path("/run/udev/rules.d/61-larder-test.rules")

    def event():
        command.run("udevadm", "control", "--reload")
        command.run("udevadm", "trigger", "--settle", os.path.realpath("/dev/mapper/upon"))
        number = os.stat("/dev/mapper/upon").st_rdev
        lines = Path(f"/run/udev/data/b{os.major(number)}:{os.minor(number)}").read_text().splitlines()
        return sorted(filter(known.match, lines))

    rig.hdd.plug()
    sectors = rig.hdd.file.stat().st_size // 512
    command.run("dmsetup", "create", "upon", "--table", f"0 {sectors} linear {rig.hdd.node} 0")
    try:
        settle()
        before = event()
        assert "E:ID_FS_TYPE=larder_member" in before and any(x.startswith("S:disk/by-id/larder-volume-") for x in before)
        added.write_text(rules)
        if suspended:
            command.run("dmsetup", "suspend", "upon")
        assert event() == before
        assert event() == before, "nor is it forgotten behind another event"
        added.unlink()
        if suspended:
            command.run("dmsetup", "resume", "upon")
        assert event() == before
    finally:
        added.unlink(missing_ok=True)
        command.run("dmsetup", "resume", "upon")
        command.run("dmsetup", "remove", "--retry", "upon")


def test_no_loop_of_events(rig, larderd):
    """Superblocks are written, larderd looks: no event comes of either."""
    for m in rig.members:
        m.plug()
    larderd.start()
    rig.verify()
    settle()
    watch = ["udevadm", "monitor", "--kernel", "-s", "block"]
    with open(FILES / "events", "wb") as f, subprocess.Popen(watch, stdout=f) as monitor:
        wait_for(lambda: b"KERNEL - " in (FILES / "events").read_bytes(), SECONDS, "udevadm monitor")
        before = status("larder-cache-fast")["checkpoints"]
        dm.DmDevice("larder-cache-fast").message("checkpoint")
        wait_for(lambda: status("larder-cache-fast")["checkpoints"] > before, SECONDS, "a checkpoint")
        larderd.kill()
        larderd.start()
        settle()
        # an event that is ours, behind which there can be none of those
        (Path("/sys/block") / Path(rig.hdd.node).name / "uevent").write_text("change")
        wait_for(lambda: b"/block/" in (FILES / "events").read_bytes(), SECONDS, "the event")
        monitor.terminate()
    events = [x for x in (FILES / "events").read_text().splitlines() if "/block/" in x]
    assert len(events) == 1, events


# ---------------------------------------------------------------- missing, late, stale


def test_wait_begins_with_larderd(rig, larderd):
    """An initramfs that has seen what is here may have no driver for the rest, and ask for a passphrase: its time is no wait."""
    rig.ssd[0].plug()
    rig.hdd.plug()
    settle()
    for kept in Path("/run/udev/data").iterdir():
        if "E:LARDER_APPEARED=" in kept.read_text():
            kept.write_text(re.sub("(LARDER_(APPEARED|SINCE))=.*", r"\1=1", kept.read_text()))
    assert rig.hdd.properties()["LARDER_APPEARED"] == "1", "from the first microsecond on"
    Path("/run/larder/began").unlink(missing_ok=True)
    larderd.wait = int(time.monotonic())
    larderd.start()
    assert larderd.said("cache fast: waits for 1 of its 2 SSDs") and not running("larder-cache-fast")
    rig.ssd[1].plug()
    rig.verify()
    assert not larderd.said("WITHOUT")


def test_late_ssd(rig, larderd):
    """While it waits nothing is lost: all of it is there in the end."""
    larderd.start()
    rig.ssd[0].plug()
    rig.hdd.plug()
    larderd.wait_said("waits for 1 of its 2 SSDs")
    larderd.kill()
    larderd.start()
    assert not running("data")
    rig.ssd[1].plug()
    rig.verify()


def test_late_ssd_beside_a_slow_look(rig, larderd, make_disk):
    """It comes while another member takes longer to read than is left of the wait, which has seen it then."""
    other = make_disk("other", model="null", mb=32)
    larder("cache", "create", "other", "--cache", other, "--yes")
    command.run("udevadm", "trigger", "--settle", other)
    larderd.wait = 20
    larderd.start()
    wait_for(lambda: running("larder-cache-other"), SECONDS, "the other cache")
    rig.ssd[0].plug()
    rig.hdd.plug()
    larderd.wait_said("waits for 1 of its 2 SSDs")
    other.fail(op="read", status="ok", delay_ms=1000, count=25)  # slow, and not so that it would be said to hang
    larderd.process.send_signal(signal.SIGHUP)
    wait_for(lambda: int(other.faults()[0]["hits"]), 15, "the look to begin")
    rig.ssd[1].plug()
    rig.verify()
    assert not larderd.said("WITHOUT")
    larder("cache", "stop", "other")


def test_late_disk(rig, larderd):
    """The cache runs by itself; without its volume it does not start degraded."""
    larderd.wait = 0
    larderd.start()
    rig.ssd[0].plug()
    larderd.wait_said("cache fast: 1 of its 2 SSDs are missing", "no volume of it is here")
    rig.ssd[1].plug()
    wait_for(lambda: running("larder-cache-fast"), SECONDS, "the cache")
    assert not running("data")
    rig.hdd.plug()
    rig.verify()


@pytest.mark.core
def test_without_its_cache(rig, larderd):
    """Dirty: never.  Clean: when the wait is over; then the cache is stale as soon as the volume is written, and refused."""
    larderd.wait = 0
    larderd.start()
    rig.hdd.plug()
    larderd.wait_said("volume data: its cache", "may hold newer data")
    assert not running("data")
    for s in rig.ssd:
        s.plug()
    rig.verify()
    larder("volume", "flush", "data", "--wait")
    larderd.stop()
    rig.off()

    larderd.start()
    rig.hdd.plug()
    wait_for(lambda: running("data"), SECONDS, "the volume")
    larderd.wait_said("data: started", "WITHOUT ITS CACHE")
    assert status("data")["state"] == "passthrough"
    rig.oracle.verify()
    rig.oracle.run(ops=100)
    larderd.stop()
    rig.off()

    larderd.start()
    for m in rig.members:
        m.plug()
    larderd.wait_said("incarnation", "larder volume start data --option stale=discard")
    assert running("larder-cache-fast") and not running("data")
    larder("volume", "start", "data", "--option", "stale=discard")
    rig.verify()


# ---------------------------------------------------------------- copies and strangers


@pytest.mark.core
@pytest.mark.parametrize("which", [0, 2])
def test_clone(rig, larderd, which):
    """The same member twice: neither is used, until one of them is gone."""
    clone = rig.members[which].copy("clone")
    larderd.wait = 0
    try:
        clone.plug()
        for m in rig.members:
            m.plug()
        settle()
        larderd.start()
        assert larderd.said("uuid", clone.node, rig.members[which].node, "neither is used"), larderd.log.read_text()
        assert not running("data")
        clone.unplug()
        rig.verify()
        clone.plug()
        larderd.wait_said("uuid", clone.node, "one of them runs")
    finally:
        clone.unplug()


def test_clone_of_one_that_is_away(rig, larderd):
    """A copy of an SSD from before, in its place: the set went on without it, and it is stale."""
    old = rig.ssd[1].copy("old")
    try:
        larderd.wait = 0
        rig.ssd[0].plug()
        rig.hdd.plug()
        settle()
        larderd.start()
        rig.verify(failed=1)
        larderd.stop()
        rig.off()
        old.plug()
        rig.ssd[0].plug()
        rig.hdd.plug()
        settle()
        larderd.start()
        assert larderd.said(old.node, "is stale")
        rig.verify(failed=1)
    finally:
        larderd.stop()
        rig.off()
        old.unplug()


def test_legs_of_an_array(make_oracle):
    """A volume on an md array whose metadata lie at its end, so that each leg looks like the volume's disk."""
    conf = Path("/etc/mdadm/mdadm.conf")  # of this VM alone
    conf.parent.mkdir(exist_ok=True)
    kept = conf.read_text() if conf.exists() else ""
    conf.write_text("AUTO -all\n")  # or udev's own rules would assemble it
    legs = [Member(f"leg{i}", 32).plug() for i in range(2)]
    daemon = Larderd(wait=0)
    md = "/dev/md127"
    assemble = ["mdadm", "--assemble", md, *[x.node for x in legs]]
    try:
        how = ["--level=1", "--metadata=1.0", "--raid-devices=2", "--assume-clean", "--run"]
        command.run("mdadm", "--create", md, *how, *[x.node for x in legs])
        larder("volume", "create", "data", "--backing", md, "--yes")
        larder("volume", "start", "data")
        oracle = make_oracle("/dev/mapper/data", size="16m")
        oracle.run(ops=100)
        larder("volume", "stop", "data")
        shutil.rmtree("/run/larder/stopped")
        command.run("mdadm", "--stop", md)
        for leg in legs:
            command.run("udevadm", "trigger", "--settle", leg.node)
            assert leg.properties()["ID_FS_TYPE"] == "linux_raid_member"
        daemon.start()
        r = larder("assemble", "--all", check=False)
        assert r.returncode == 5 and "neither is used" in r.stderr
        assert not running("data")
        command.run(*assemble)
        wait_for(lambda: running("data") and Path("/dev/mapper/data").exists(), SECONDS, "the volume on the array")
        oracle.verify()
        assert "md127" in command.output("dmsetup", "deps", "-o", "devname", "data")
    finally:
        daemon.stop()
        for c in (["larder", "volume", "stop", "data"], ["mdadm", "--stop", md]):
            subprocess.run(c, env=ENVIRONMENT, check=False)
        for leg in legs:
            leg.unplug()
        conf.write_text(kept)
        shutil.rmtree("/run/larder/stopped", ignore_errors=True)


# ---------------------------------------------------------------- killed


def test_what_a_killed_start_leaves(rig, larderd):
    """A dm device without a table, of a command that died between two ioctls: removed, and the cache starts."""
    for m in rig.members:
        m.plug()
    settle()
    uuid = rig.ssd[0].properties()["ID_FS_UUID"]
    command.run("dmsetup", "create", "larder-cache-fast", "--notable", "--uuid", f"LARDER-{uuid}-cache")
    dm.DmDevice("larder-cache-fast").load(f"0 2048 linear {rig.ssd[0].node} 0")
    larderd.start()
    rig.verify()
    assert larderd.said("larder-cache-fast: removed", "without a table")


# ---------------------------------------------------------------- what people want


def test_what_was_stopped_stays_so(rig, larderd):
    for m in rig.members:
        m.plug()
    larderd.start()
    rig.verify()
    larder("volume", "stop", "data")
    larderd.kill()
    larderd.start()
    command.run("udevadm", "trigger", "--settle", rig.hdd.node)
    larderd.kill()
    larderd.start()
    assert running("larder-cache-fast") and not running("data")
    assert larder("assemble", "--all").returncode == 0 and not running("data")
    larder("assemble", "data")
    rig.verify()
    larderd.stop()
    larderd.start()
    dm.DmDevice("data").remove()  # by plain dmsetup: seen by who is there
    wait_for(lambda: any(Path("/run/larder/stopped").iterdir()), SECONDS, "larderd to see it")
    larderd.stop()
    larderd.start()
    assert not running("data")
    larder("volume", "start", "data")
    rig.verify()


def test_start_that_fails_leaves_it_stopped(rig, larderd):
    """Or larderd would, or would not, start it as its SSDs come, as it has seen the stop or not."""
    for m in rig.members:
        m.plug()
    larderd.start()
    rig.verify()
    larderd.stop()
    larder("volume", "stop", "data")
    larder("cache", "stop", "fast")
    for m in rig.ssd:
        m.unplug()
    settle()
    marks = sorted(Path("/run/larder/stopped").iterdir())
    assert len(marks) == 2
    for words in (["volume", "start", "data"], ["cache", "start", "fast"]):
        assert larder(*words, check=False).returncode
    assert sorted(Path("/run/larder/stopped").iterdir()) == marks
    for m in rig.ssd:
        m.plug()
    settle()
    larderd.start()
    assert not running("larder-cache-fast") and not running("data")
    larder("volume", "start", "data")
    assert not any(Path("/run/larder/stopped").iterdir())
    rig.verify()


def test_refused_by_the_kernel(rig, larderd):
    """A start that fails is said once, is no reason to try again, and the next event of a member is."""

    def lines() -> int:
        return sum("larder" in line for line in command.run("dmesg").stdout.splitlines())

    before = lines()
    for m in rig.members:
        m.plug()
    settle()
    kept = [m.file.read_bytes() for m in rig.ssd]
    for m in rig.ssd:
        with open(m.file, "r+b") as f:  # all segments, checkpoints among them; superblocks and tables stay
            f.seek(1 << 20)
            f.write(bytes((23 << 20) - 4096))
    larderd.start()
    larderd.wait_said("cache larder-cache-fast: not started")
    assert not running("larder-cache-fast")
    first = lines() - before
    time.sleep(15)  # what a try makes would long have asked for the next ones; where the host is slow one more may be due
    assert first > 0 and lines() - before <= 2 * first
    for m, content in zip(rig.ssd, kept, strict=True):
        with open(m.file, "r+b") as f:
            f.write(content)
    command.run("udevadm", "trigger", "--settle", rig.hdd.node)
    rig.verify()


# ---------------------------------------------------------------- beside an event of udev


@pytest.mark.limit(900)
def test_udev_never_answers(udevd):
    """As where it kills who handles an event, for it lasts too long: a start comes to its end, says so, and leaves no semaphore."""
    disk = Member("below", 64).plug()
    settle()
    try:
        larder("volume", "create", "data", "--backing", disk, "--yes")
        settle()
        command.run("udevadm", "control", "--stop-exec-queue")
        try:
            words = ["larder", "volume", "start", "data"]
            said = subprocess.run(words, check=True, capture_output=True, text=True, env=ENVIRONMENT, timeout=600).stderr
        finally:
            command.run("udevadm", "control", "--start-exec-queue")
        assert said.count("not waited for any longer") == 1
        assert running("data") and "0x" not in command.output("dmsetup", "udevcookies")
        settle()
        larder("volume", "stop", "data")
    finally:
        dm.remove_all()
        disk.unplug()
        settle()


def test_made_while_udev_looks_at_it(udevd):
    """udev locks no dm or md device, and hears of no close while one of its events lasts: another event is asked for."""
    held, holds = Path("/run/larder/hold"), Path("/run/larder/holds")
    rule = Path("/run/udev/rules.d/98-larder-hold.rules")
    wait = f"touch {holds}; while test -e {held}; do sleep 0.1; done"
    rule.write_text(f'ACTION=="change", ENV{{DM_NAME}}=="slow", PROGRAM="/bin/sh -c \'{wait}\'"\n')
    command.run("udevadm", "control", "--reload")
    disk = Member("below", 64).plug()
    settle()
    try:
        held.touch()
        table = f"0 {64 << 11} linear {disk} 0"
        command.run("env", "-u", "DM_DISABLE_UDEV", "dmsetup", "create", "slow", "--noudevsync", "--table", table)
        wait_for(holds.exists, SECONDS, "the event behind its probe")
        node = next(f"/dev/{d.parts[3]}" for d in Path("/sys/block").glob("dm-*/dm/name") if d.read_text() == "slow\n")
        larder("volume", "create", "data", "--backing", node, "--yes")
        held.unlink()
        settle()
        number = os.stat(node).st_rdev
        database = Path(f"/run/udev/data/b{os.major(number)}:{os.minor(number)}")
        wait_for(lambda: "E:ID_FS_TYPE=larder_member\n" in database.read_text(), SECONDS, "udev to see what is on it")
    finally:
        held.unlink(missing_ok=True)
        settle()
        rule.unlink()
        command.run("udevadm", "control", "--reload")
        command.run("env", "-u", "DM_DISABLE_UDEV", "dmsetup", "remove", "--retry", "slow", check=False)
        disk.unplug()
        settle()
