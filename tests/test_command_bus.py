# SPDX-License-Identifier: GPL-2.0-or-later
"""org.larder1: what larderd shows on a bus, what it tells, and whom it obeys; by the rig in command/private_bus.py.

Jobs: test_command_jobs.py.
"""

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
from fake_sysfs import Sysfs
from harness import CACHE, MIB, TOP, USAGE, VOLUME, field, patch_both
from private_bus import NAME, ROOT, SECONDS, Bus, options, path_of, runs
from raw_bus import RawBus
from status_lines import line
from test_command_stack import Described, identified

pytest_plugins = ["larder_fixtures", "bus_fixtures"]


@pytest.fixture(scope="session")
def polkit(tmp_path_factory):
    program = tmp_path_factory.mktemp("polkit") / "polkit"
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, "-o", program, TOP / "tests" / "command" / "polkit.c", "-lsystemd"], check=True)
    return program


# ---------------------------------------------------------------- what is shown


def test_stopped(bus, members):
    bus.start_larderd()
    bus.owned()
    volume, cache = bus.get("volume", members["volume"]), bus.get("cache", members["cache"])
    assert (volume["Name"], volume["UUID"], volume["State"]) == ("data", str(members["volume"]), "stopped")
    assert not volume["Running"]
    assert volume["Size"] == 62 * MIB and volume["Cache"] == path_of("cache", members["cache"]) and volume["Stack"] == "/"
    assert (cache["Name"], cache["State"], cache["Running"]) == ("fast", "stopped", False)
    assert cache["Volumes"] == [path_of("volume", members["volume"])]
    devices = {}
    for path, interfaces in bus.objects().items():
        for d in (d for i, d in interfaces.items() if i == f"{NAME}.Device"):
            devices[d["Path"]] = (path, d)
    assert set(devices) == {str(members["ssd"]), str(members["hdd"])}
    path, ssd = devices[str(members["ssd"])]
    assert cache["Devices"] == [path] and (ssd["Kind"], ssd["Label"], ssd["Volume"]) == ("cache", "fast", "/")
    path, hdd = devices[str(members["hdd"])]
    assert volume["Device"] == path and (hdd["Kind"], hdd["Volume"]) == ("volume", path_of("volume", members["volume"]))


def test_spare(bus, larder, members):
    """A device beside its cache: no volume, and not one of the cache's devices."""
    spare = larder.image("spare", 0)
    shutil.copy(members["ssd"], spare)
    patch_both(spare, CACHE, kind=3, flags=0, uuid=uuid.UUID(int=7).bytes)
    bus.start_larderd()
    bus.owned()
    found = {i: d for interfaces in bus.objects().values() for i, d in interfaces.items() if d.get("Path") == str(spare)}
    device = found[f"{NAME}.Device"]
    assert (device["Kind"], device["Label"], device["Volume"]) == ("spare", "fast", "/")
    assert device["Cache"] == path_of("cache", members["cache"])
    volumes = [path for path in bus.objects() if "/volume/" in path]
    assert volumes == [path_of("volume", members["volume"])] and len(bus.get("cache", members["cache"])["Devices"]) == 1


def test_running(bus, members):
    of_cache = {"cache_devices": 2, "cache_devices_failed": 1, "cache_scrub": "running"}
    runs(bus, members, trouble="writeback", mode="writethrough", **of_cache)
    bus.start_larderd()
    bus.owned()
    volume, cache = bus.get("volume", members["volume"]), bus.get("cache", members["cache"])
    assert (volume["State"], volume["Running"]) == ("running", True)
    assert (volume["Mode"], volume["Node"]) == ("writethrough", "/dev/mapper/data")
    assert volume["Size"] == 1 * MIB and "writeback" in volume["Options"] and "state" not in volume["Options"]
    assert ["trouble: dirty data cannot be written" in p for p in volume["Problems"]] == [True]
    assert (cache["Name"], cache["State"], cache["Scrub"]) == ("fast", "running", "running")
    assert ["1 of 2 SSDs failed" in p for p in cache["Problems"]] == [True]


def test_why_something_does_not_start(bus, larder, members):
    """The reason of the planner, on the object that it is about."""
    b = larder.image("b", 64 * MIB)
    larder("cache", "create", "pair", "--cache", larder.image("a", 64 * MIB), "--cache", b, "--yes")
    pair = uuid.UUID(bytes=field(b, CACHE, "cache_uuid"))
    larder.devices.remove(b)
    other = larder.image("other", 64 * MIB)
    other.write_bytes(members["hdd"].read_bytes())
    bus.start_larderd()
    bus.owned()
    cache, volume = bus.get("cache", pair), bus.get("volume", members["volume"])
    assert cache["State"] == "waiting" and cache["Problems"] == ["cache pair: waits for 1 of its 2 SSDs"]
    assert volume["State"] == "refused" and "neither is used" in volume["Problems"][0]


def test_device_that_hangs(bus, larder, members):
    """In the journal, and as a problem of what it is below; a pass, and what the daemon finds besides, leave it there."""
    sysfs, conf = Sysfs(bus.directory / "root"), bus.directory / "larder.conf"
    sysfs.device("sdz", answered=10, in_flight=2)
    sysfs.device("nvme0n1", in_flight=0)
    sysfs.device("dm-1", "nvme0n1", requests=False, dm__name="larder-cache-fast", dm__uuid=f"LARDER-{members['cache']}-cache")
    sysfs.device("dm-0", "sdz", "dm-1", requests=False, dm__name="data", dm__uuid=f"LARDER-{members['volume']}")
    conf.write_text("stall 1\n")
    runs(bus, members, trouble="writeback")
    bus.start_larderd(LARDER_CONF=str(conf), **sysfs.environment)
    bus.owned()

    def wait_problems(kind, starts):
        deadline = time.monotonic() + SECONDS
        while [p.split(" ")[:2] for p in bus.get(kind, members[kind])["Problems"]] != [s.split(" ") for s in starts]:
            assert time.monotonic() < deadline, bus.get(kind, members[kind])["Problems"]
            time.sleep(0.05)
        return bus.get(kind, members[kind])["Problems"]

    said = wait_problems("volume", ["trouble: dirty", "stall: /dev/sdz"])[1]
    assert said.startswith("stall: /dev/sdz has answered nothing for 1 s, with 2 requests in flight: ")
    log = bus.directory / "log"
    assert f"larderd: volume data: {said.removeprefix('stall: ')}\n" in log.read_text()
    # more requests, and a pass: it is the same, and told once
    sysfs.stat("sdz", 10, 7)
    bus.call(ROOT, f"{NAME}.Manager", "Refresh")
    bus.say(bus.status.read_text().replace("trouble=writeback", "trouble=-"))
    bus.call(ROOT, f"{NAME}.Manager", "Refresh")
    assert wait_problems("volume", ["stall: /dev/sdz"]) == [said]
    # an SSD is its cache's, and not each volume's again
    sysfs.stat("nvme0n1", 1000, 1)
    wait_problems("cache", ["stall: /dev/nvme0n1"])
    assert wait_problems("volume", ["stall: /dev/sdz"]) == [said]
    sysfs.stat("sdz", 11, 7)
    sysfs.stat("sdz", 11, 0)
    wait_problems("volume", [])
    assert "larderd: volume data: sdz answers again\n" in log.read_text()
    conf.write_text("stall 0\n")
    bus.daemon.send_signal(signal.SIGHUP)
    wait_problems("cache", [])
    assert log.read_text().count("has answered nothing") == 2


def test_strange_label(bus, members):
    """Bytes that the bus would not take are replaced, and nothing else is lost by them."""
    patch_both(members["hdd"], VOLUME, label="d\u00e4ta".encode().ljust(64, b"\0"))
    bus.start_larderd()
    bus.owned()
    assert bus.get("volume", members["volume"])["Name"] == "d\u00e4ta"
    bus.status.write_bytes(line("volume", "x", uuid=members["volume"], mode="@").encode().replace(b"@", b"\xff\xfe"))
    bus.wait_shown("volume", members["volume"], Mode="??")


# ---------------------------------------------------------------- what is told


def changed(signals, kind, number):
    """The next PropertiesChanged of that object."""
    for member, path, _, data in signals:
        if member == "PropertiesChanged" and path == path_of(kind, number):
            assert data[0] == f"{NAME}.{kind.capitalize()}"
            return {k: v["data"] for k, v in data[1].items()}
    return None


def test_signals(bus, larder, members):
    bus.start_larderd()
    bus.owned()
    with bus.monitor(f"type='signal',sender='{NAME}'") as signals:
        runs(bus, members)
        bus.refresh()
        seen = changed(signals, "cache", members["cache"])
        assert seen["Running"] is True and seen["State"] == "running" and "Name" not in seen and "UUID" not in seen
        seen = changed(signals, "volume", members["volume"])
        assert seen["Node"] == "/dev/mapper/data"
        # one property, and nothing of what stayed
        runs(bus, members, trouble="flush")
        bus.refresh()
        assert list(changed(signals, "volume", members["volume"])) == ["Problems"]
    with bus.monitor(f"type='signal',sender='{NAME}',interface='org.freedesktop.DBus.ObjectManager'") as signals:
        more = larder.volume("more", 64 * MIB)
        number = uuid.UUID(bytes=field(more, VOLUME, "uuid"))
        # the daemon looks at what it was told of at its start: this one comes by the status
        bus.say(bus.status.read_text() + line("volume", "more", uuid=number, cache="-"))
        bus.refresh()
        member, _, _, data = next(signals)
        assert (member, data[0]) == ("InterfacesAdded", path_of("volume", number))
        assert data[1][f"{NAME}.Volume"]["Name"]["data"] == "more"
        runs(bus, members)
        bus.refresh()
        member, _, _, data = next(signals)
        assert member == "InterfacesRemoved" and data[0] == path_of("volume", number) and f"{NAME}.Volume" in data[1]
    assert path_of("volume", number) not in bus.objects()


def test_bus_comes_late_and_comes_back(larder, larderd, members):
    """Without a bus the daemon works, and joins the one that comes, and the next one."""
    rig = Bus(larder, larderd)
    rig.start_larderd()
    try:
        for _ in range(2):
            process = rig.start_bus()
            rig.owned()
            assert rig.get("volume", members["volume"])["Name"] == "data"
            rig.end(process)
            rig.socket.unlink(missing_ok=True)
        assert rig.daemon.poll() is None
    finally:
        rig.close()


def ask_bus(bus, method, *words):
    """The bus itself."""
    name = "org.freedesktop.DBus"
    return json.loads(bus.busctl("call", name, "/org/freedesktop/DBus", name, method, *words).stdout)["data"][0]


def until(done):
    giving_up = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < giving_up
        time.sleep(0.05)


def test_name_that_another_one_has(bus, members):
    """It is waited for, and larderd's as soon as the other one has ended."""
    bus.start_larderd()
    bus.owned()
    other = bus.daemon
    try:
        bus.start_larderd()
        until(lambda: len(ask_bus(bus, "ListQueuedOwners", "s", NAME)) == 2)
        assert ask_bus(bus, "GetConnectionUnixProcessID", "s", NAME) == other.pid
    finally:
        bus.end(other)
    bus.owned()
    assert ask_bus(bus, "GetConnectionUnixProcessID", "s", NAME) == bus.daemon.pid
    assert bus.get("volume", members["volume"])["Name"] == "data"


def test_name_that_the_bus_denies(larder, larderd, members):
    """Its policy may be loaded behind larderd's start."""
    rig = Bus(larder, larderd)
    conf = rig.directory / "bus.conf"
    allowed = conf.read_text()
    conf.write_text(re.sub("<include>.*</include>", "", allowed))
    try:
        process = rig.start_bus()
        rig.start_larderd()
        until(lambda: f"no {NAME} on the bus" in (rig.directory / "log").read_text())
        conf.write_text(allowed)
        process.send_signal(signal.SIGHUP)
        rig.owned()
        assert rig.get("volume", members["volume"])["Name"] == "data"
    finally:
        rig.close()


@pytest.mark.parametrize("work", ["pass", "jobs", "metrics"])
def test_children_do_not_hold_the_name(bus, members, work):
    """Of a larderd that was killed while a child of it hung."""
    runs(bus, members, **({"flushing": 1, "dirty_sectors": 8} if work == "jobs" else {}))
    metrics = bus.directory / "metrics.sock"
    bus.start_larderd("--metrics-listen", metrics)
    bus.owned()
    bus.status.unlink()
    os.mkfifo(bus.status)  # who opens it hangs
    if work == "pass":
        bus.refresh()
    client = socket.socket(socket.AF_UNIX)
    if work == "metrics":
        client.connect(str(metrics))
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: larder\r\n\r\n")
    children = Path(f"/proc/{bus.daemon.pid}/task/{bus.daemon.pid}/children")
    until(children.read_text)
    hanging, larderd = int(children.read_text()), bus.daemon
    bus.daemon = None
    try:
        bus.end(larderd, signal.SIGKILL)
        until(lambda: not ask_bus(bus, "NameHasOwner", "s", NAME))
        os.kill(hanging, 0)
    finally:
        client.close()
        os.kill(hanging, signal.SIGKILL)


def test_watchdog(bus, members):
    """A pass that hangs holds up neither what systemd's watchdog waits for, nor the end."""
    bus.start_larderd(WATCHDOG_USEC="100000")
    bus.owned()
    bus.status.unlink()
    os.mkfifo(bus.status)  # who opens it hangs
    bus.refresh()
    children = Path(f"/proc/{bus.daemon.pid}/task/{bus.daemon.pid}/children")
    until(children.read_text)
    hanging = int(children.read_text())
    try:
        with bus.notified() as said:
            for _ in range(5):
                assert next(said) == ["WATCHDOG=1"]
            bus.daemon.terminate()
            while "STOPPING=1" not in next(said):
                pass
        assert bus.daemon.wait(SECONDS) == 0
        os.kill(hanging, 0)  # systemd ends it, with what else there is of the unit
    finally:
        os.kill(hanging, signal.SIGKILL)


def test_journal_that_hangs(bus, members):
    """As its files are on a device that hangs, say: larderd, which tells of that device, does not wait for it."""
    sysfs, conf = Sysfs(bus.directory / "root"), bus.directory / "larder.conf"
    sysfs.device("sdz", answered=10, in_flight=2)
    sysfs.device("dm-0", "sdz", requests=False, dm__name="data", dm__uuid=f"LARDER-{members['volume']}")
    path = bus.directory / "root/run/systemd/journal/socket"
    path.parent.mkdir(parents=True)
    conf.write_text("stall 1\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(path))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as others, pytest.raises(BlockingIOError):
            others.connect(str(path))
            others.setblocking(False)
            while True:
                others.send(b"MESSAGE=of others\n")
        bus.start_larderd(WATCHDOG_USEC="100000", LARDER_CONF=str(conf), **sysfs.environment)
        bus.owned()
        until(lambda: any(p.startswith("stall: /dev/sdz") for p in bus.get("volume", members["volume"])["Problems"]))
        with bus.notified() as said:
            for _ in range(5):
                assert next(said) == ["WATCHDOG=1"]
        journal.settimeout(SECONDS)
        while (got := journal.recv(4096).decode()) == "MESSAGE=of others\n":
            pass
    assert got.startswith("MESSAGE=volume data: /dev/sdz has answered nothing for 1 s, with 2 requests in flight: ")
    fields = ["PRIORITY=3", "SYSLOG_IDENTIFIER=larderd", "MESSAGE_ID=5b0f4c7d8e1a4d62b93c07f6a1d2e8c4"]
    assert got.splitlines()[1:] == [*fields, f"LARDER_UUID={members['volume']}", "LARDER_DISK=sdz"]


def test_unit_starts_it_again(larderd):
    """However often, and with a pause; not where its options are none."""
    unit = (TOP / "udev" / "larderd.service").read_text().splitlines()
    assert {"Restart=always", "StartLimitIntervalSec=0", f"RestartPreventExitStatus={USAGE}"} < set(unit)
    for words in (["--wait", "x"], ["--unknown"], ["word"]):
        assert subprocess.run([larderd, *words], capture_output=True, timeout=SECONDS).returncode == USAGE


def test_no_more_descriptors(bus, members):
    """A pass that cannot be waited for is not left to run, and the next one comes as soon as it can be."""
    bus.start_larderd()
    bus.owned()
    larderd = bus.daemon.pid
    taken = {int(fd.name) for fd in Path(f"/proc/{larderd}/fd").iterdir()}
    lowest = next(fd for fd in range(len(taken) + 1) if fd not in taken)
    before = resource.prlimit(larderd, resource.RLIMIT_NOFILE, (lowest, resource.prlimit(larderd, resource.RLIMIT_NOFILE)[1]))
    bus.refresh()
    giving_up = time.monotonic() + SECONDS
    while "wait for a child" not in (bus.directory / "log").read_text():
        assert time.monotonic() < giving_up
        time.sleep(0.05)
    resource.prlimit(larderd, resource.RLIMIT_NOFILE, before)
    runs(bus, members)
    bus.wait_shown("volume", members["volume"], State="running")


def test_introspection(bus, larder):
    """Each interface has what docs/dbus.md lists, with these types."""
    described = (TOP / "docs" / "dbus.md").read_text()
    stack = Described(larder)
    stack.volume(stack.plain)
    bus.say(line("volume", "data", uuid=uuid.uuid5(stack.uuid, "volume"), flushing=1))
    bus.start_larderd()
    bus.owned()
    paths = [ROOT, *bus.objects()]
    kinds = {"Manager": ROOT} | {p.split("/")[3].capitalize(): p for p in paths if p != ROOT}
    assert set(kinds) == {"Manager", "Stack", "Cache", "Volume", "Device", "Job"}
    for kind, path in kinds.items():
        text = json.loads(bus.call(path, "org.freedesktop.DBus.Introspectable", "Introspect").stdout)["data"][0]
        (interface,) = (i for i in ET.fromstring(text).iter("interface") if i.get("name") == f"{NAME}.{kind}")
        section = described.split(f"\n## {NAME}.{kind}\n", 1)[1].split("\n## ", 1)[0]
        for p in interface.iter("property"):
            assert f"| `{p.get('name')}` | `{p.get('type')}` |" in section, p.get("name")
        for m in interface.iter("method"):
            arguments = ", ".join(f"{a.get('type')} {a.get('name')}" for a in m.iter("arg"))
            assert f"| `{m.get('name')}({arguments})` |" in section, m.get("name")
        for s in interface.iter("signal"):
            types = "".join(a.get("type") for a in s.iter("arg"))
            assert f"| `{s.get('name')}` | signal `{types}` |" in section, s.get("name")
        shown = [*interface.iter("property"), *interface.iter("method"), *interface.iter("signal")]
        assert sum(f"| `{s.get('name')}" in section for s in shown) == len(shown) == len(rows(section))


def rows(section):
    """First cells of the last table of a section."""
    table = section.split("| property or method | type | what |\n|---|---|---|\n", 1)[1].split("\n\n", 1)[0]
    return table.splitlines()


# ---------------------------------------------------------------- whom it obeys, and how


def methods_of(volume, cache):
    """Kind, UUID, method with its arguments, and the words of the command."""
    return [
        ("volume", volume, ["Start"], f"volume start {volume}"),
        ("volume", volume, ["Stop"], f"volume stop {volume}"),
        ("volume", volume, ["Flush"], f"volume flush {volume}"),
        ("volume", volume, ["SetOption", "ss", "mode", "writethrough"], f"volume set -- {volume} mode=writethrough"),
        ("cache", cache, ["Start"], f"cache start {cache}"),
        ("cache", cache, ["Stop"], f"cache stop {cache}"),
        ("cache", cache, ["Scrub"], f"cache scrub {cache}"),
        ("cache", cache, ["StopScrub"], f"cache scrub --stop {cache}"),
        ("volume", volume, ["StopFlush"], f"volume flush --stop {volume}"),
        ("volume", volume, ["Attach", "s", "fast"], f"volume attach --cache=fast -- {volume}"),
        ("volume", volume, ["Detach", *options()], f"volume detach -- {volume}"),
        ("volume", volume, ["Detach", *options(flush=True)], f"volume detach --flush -- {volume}"),
        ("volume", volume, ["Detach", *options(discard_dirty="X")], f"volume detach --discard-dirty=X -- {volume}"),
        ("volume", volume, ["Resize"], f"volume resize {volume}"),
        ("cache", cache, ["AddSSD", *options("/dev/x")], f"cache add --yes -- {cache} /dev/x"),
        ("cache", cache, ["AddSSD", *options("--spare", new_place=True)], f"cache add --yes --new-place -- {cache} --spare"),
        ("cache", cache, ["ReplaceSSD", *options("0", "/dev/x", spare=True)], f"cache replace --yes --spare -- {cache} 0 /dev/x"),
        ("cache", cache, ["RemoveSSD", "s", "1"], f"cache remove -- {cache} 1"),
        ("cache", cache, ["Resize"], f"cache resize {cache}"),
        ("cache", cache, ["SetLabel", "ss", "0", "none"], f"cache label -- {cache} 0 none"),
        ("cache", cache, ["SetOption", "ss", "scrub_rate", "5; rm $HOME"], f"cache set -- {cache} scrub_rate=5; rm $HOME"),
    ]


def methods_of_stack(number):
    return [
        (["Start"], f"start {number}"),
        (["Stop"], f"stop {number}"),
        (["Lock"], f"lock {number}"),
        (["Unlock"], f"unlock {number}"),
        (["Rename", "s", "films"], f"rename -- {number} films"),
        (["Rename", "s", "--help"], f"rename -- {number} --help"),
        (["Set", *options(mount="/srv", backing_label="none")], f"set --mount=/srv --backing-label=none -- {number}"),
        (["Set", *options(essential="yes", keyfile="/k")], f"set --essential=yes --keyfile=/k -- {number}"),
        (["Set", *options(mode="writethrough")], f"set --mode=writethrough -- {number}"),
        (["Set", *options(**{"class": "special"})], f"set --class=special -- {number}"),
        (["Resize", *options()], f"resize --yes -- {number}"),
        (["Resize", *options(size="1T")], f"resize --yes --size=1T -- {number}"),
        (["Resize", *options(array=True)], f"resize --yes --array -- {number}"),
        (["Resize", *options(array=False)], f"resize --yes -- {number}"),
        (["Scrub", *options()], f"scrub -- {number}"),
        (["Scrub", *options(repair=True)], f"scrub --repair -- {number}"),
        (["StopScrub"], f"scrub --stop {number}"),
        (["Replace", *options("disk1", "/dev/x")], f"replace --yes -- {number} disk1 /dev/x"),
        (
            ["Replace", *options("0", "/dev/x", role="read", label="ssd", wipe=True, discard_dirty="U")],
            f"replace --yes --role=read --cache-label=ssd --wipe --discard-dirty=U -- {number} 0 /dev/x",
        ),
        (["Replace", *options("0", "/x", discard_redundancy="U")], f"replace --yes --discard-redundancy=U -- {number} 0 /x"),
        (["ReplaceCache", "asa{sv}", 2, "/dev/x", "/dev/y", 0], f"replace --yes -- {number} cache /dev/x /dev/y"),
        (["AddSSD", *options("/dev/x", spare=True)], f"add --yes --cache=/dev/x --spare -- {number}"),
        (["AddDisk", *options("/dev/x")], f"add --yes --backing=/dev/x -- {number}"),
        (["AddDisk", *options("/dev/x", reshape=True)], f"add --yes --backing=/dev/x --reshape -- {number}"),
        (["Drop", *options("ssd0")], f"drop --yes -- {number} ssd0"),
        (["Drop", *options("ssd0", discard_redundancy="U")], f"drop --yes --discard-redundancy=U -- {number} ssd0"),
        (["Remove", "s", ""], f"remove -- {number}"),
        (["Remove", "s", "U"], f"remove --discard-data=U -- {number}"),
        (["CreateSnapshot", *options("monday", "/dev/x")], f"snapshot create --yes --store=/dev/x -- {number}@monday"),
        (["CreateSnapshot", *options("monday", "")], f"snapshot create --yes -- {number}@monday"),
        (["RemoveSnapshot", "s", "monday"], f"snapshot remove -- {number}@monday"),
        (["BackupHeader", "s", ""], f"passwd --backup -- {number}"),
        (["BackupHeader", "s", "/root/h"], f"passwd --backup --header-backup=/root/h -- {number}"),
        (["ResumeCreation", *options()], f"create --resume -- {number}"),
        (["ResumeCreation", *options(header_backup="none", wipe=True)], f"create --resume --header-backup=none --wipe -- {number}"),
        (["RefreshPins"], f"pin --refresh {number}"),
        (["Upgrade"], f"upgrade {number}"),
    ]


FLAGS = ("integrity", "separate", "essential", "wipe")
TEXTS = ("raid", "size", "mode", "class", "backing-label", "foreground", "promote", "background", "encrypt", "cipher")
TEXTS += ("header-backup", "mkfs", "mkfs-options", "mount", "discard-dirty")


def methods_of_manager():
    two = ["sasasa{sv}", "films", 2, "/dev/a", "--yes", 1, "/dev/s"]
    two_named = "--backing=/dev/a --backing=--yes --cache=/dev/s"
    given = [w for o in FLAGS for w in (o, "b", "true")] + [w for o in TEXTS for w in (o, "s", f"={o}")]
    given += ["spare", "as", 2, "/dev/x", "/dev/y", "cache-spare", "as", 0, "label", "as", 1, "ssd"]
    named = [f"--{o}" for o in FLAGS] + [f"--{o}=={o}" for o in TEXTS] + ["--spare=/dev/x", "--spare=/dev/y", "--cache-label=ssd"]
    return [
        (["Create", *two, 0], f"create --yes {two_named} -- films"),
        (["Create", "sasasa{sv}", "--help", 0, 0, 0], "create --yes -- --help"),
        (["Create", *two, len(FLAGS) + len(TEXTS) + 3, *given], f"create --yes {two_named} {' '.join(named)} -- films"),
        (["Create", *two, 1, "filesystem-label", "s", "x y"], f"create --yes {two_named} --label=x y -- films"),
        (["Pin", "as", 2, "/srv/a", "-x"], "pin -- /srv/a -x"),
        (["Unpin", "as", 1, "/srv/a"], "unpin -- /srv/a"),
    ]


def test_methods_are_verbs(bus, members, command):
    log, code = command
    volume, cache = members["volume"], members["cache"]
    for kind, number, method, words in methods_of(volume, cache):
        log.write_text("")
        bus.call(path_of(kind, number), f"{NAME}.{kind.capitalize()}", *method)
        assert log.read_text() == f"{words}\n"
    for number, name in ((1, "Failed"), (2, "Usage"), (3, "NotFound"), (4, "Busy"), (5, "Unsafe"), (77, "Failed")):
        code.write_text(f"{number}\n")
        with bus.monitor(f"type='error',sender='{NAME}'"):
            run = bus.call(path_of("volume", volume), f"{NAME}.Volume", "Stop", code=1)
        assert "data: in use: mounted on /srv; release it first" in run.stderr and "larder:" not in run.stderr
        assert error_name(bus, volume) == f"{NAME}.Error.{name}"


def error_name(bus, volume):
    """Of a call that fails: busctl shows its text alone, dbus-send the name."""
    path = path_of("volume", volume)
    words = ["dbus-send", f"--bus={bus.address}", "--print-reply", f"--dest={NAME}", path, f"{NAME}.Volume.Stop"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    return run.stderr.split()[1].rstrip(":")


def test_real_command(bus, members, program):
    directory = bus.directory / "bin"
    directory.mkdir()
    (directory / "larder").symlink_to(program)
    bus.start_larderd(PATH=f"{directory}:{os.environ['PATH']}")
    bus.owned()
    run = bus.call(path_of("volume", members["volume"]), f"{NAME}.Volume", "Start", code=1)
    assert "is a regular file; make a block device of it with losetup" in run.stderr


@identified
def test_words_are_known(larder):
    """Each option of a method is one of the command, which judges the rest: nothing here is fit for it, or a device."""
    stack = Described(larder)
    stack.volume(stack.plain)
    hdd = larder.volume("alone", 64 * MIB)
    volume = uuid.UUID(bytes=field(hdd, VOLUME, "uuid"))
    known = [(m[0], w) for m, w in methods_of_stack(stack.uuid)] + [(m[0], w) for _, _, m, w in methods_of(volume, uuid.uuid4())]
    known += [(m[0], w) for m, w in methods_of_manager() if " y" not in w]
    known += [("key", f"passwd --{w} --keyfile=- -- {stack.uuid}") for w in ("change", "add --new-token=tpm2 --slot=2", "remove=1")]
    for method, words in known:
        run = larder(*words.split(), code=None)
        assert "usage: " not in run.stderr and "unrecognized" not in run.stderr, f"{method}: {run.stderr}"


NOBODY, OTHER, ANOTHER = 65534, 1, 2


@contextlib.contextmanager
def answering(bus, polkit, *actions):
    """A polkit that has these done; what it was asked, line by line, is its output."""
    with subprocess.Popen([polkit, *actions], stdout=subprocess.PIPE, text=True, env=bus.environment()) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.terminate()


def test_polkit(bus, members, command, polkit):
    """Who is not root gets what polkit lets him have: without polkit nothing; reading is everybody's."""
    log, _ = command
    path = path_of("volume", members["volume"])
    read = ["get-property", NAME, path, f"{NAME}.Volume", "State"]
    assert json.loads(bus.busctl(*read, user=NOBODY).stdout)["data"] == "stopped"
    run = bus.call(path, f"{NAME}.Volume", "Stop", code=1, user=NOBODY)
    assert "denied" in run.stderr and not log.exists()
    with answering(bus, polkit, f"{NAME}.stop") as process:
        bus.call(path, f"{NAME}.Volume", "Stop", user=NOBODY)
        assert process.stdout.readline() == f"{NAME}.stop {NOBODY} 1\n"
        assert log.read_text() == f"volume stop {members['volume']}\n"
        for method, action in (("Start", "start"), ("Flush", "maintain")):
            run = bus.call(path, f"{NAME}.Volume", method, code=1, user=NOBODY)
            assert "denied" in run.stderr
            assert process.stdout.readline() == f"{NAME}.{action} {NOBODY} 1\n"
        run = bus.call(ROOT, f"{NAME}.Manager", "Refresh", code=1, user=NOBODY)
        assert process.stdout.readline() == f"{NAME}.refresh {NOBODY} 1\n"
        # what loses data is another action, also where it is only an option that asks for it
        for method, action in ((options(flush=True), "manage"), (options(discard_dirty="U"), "destroy")):
            run = bus.call(path, f"{NAME}.Volume", "Detach", *method, code=1, user=NOBODY)
            assert "denied" in run.stderr
            assert process.stdout.readline() == f"{NAME}.{action} {NOBODY} 1\n"
        made = ["sasasa{sv}", "films", 1, "/dev/a", 1, "/dev/s"]
        for more, action in (([], "manage"), (["mkfs-options", "s", "-M"], "destroy")):
            given = [1 + len(more) // 3, "mkfs", "s", "btrfs", *more]
            run = bus.call(ROOT, f"{NAME}.Manager", "Create", *made, *given, code=1, user=NOBODY)
            assert "denied" in run.stderr
            assert process.stdout.readline() == f"{NAME}.{action} {NOBODY} 1\n"
        # root is not asked about
        bus.call(path, f"{NAME}.Volume", "Start")
        process.terminate()
        assert process.stdout.read() == ""
    assert log.read_text().splitlines()[1:] == [f"volume start {members['volume']}"]


def test_polkit_does_not_answer(bus, members, command, polkit):
    """What waits for it is bounded for each user; larderd, and others, go on."""
    path = path_of("volume", members["volume"])
    words = ["call", NAME, path, f"{NAME}.Volume", "Stop"]
    with answering(bus, polkit, "never") as process:
        waiting = []
        for _ in range(8):
            waiting.append(subprocess.Popen(bus.words(*words, user=NOBODY), stderr=subprocess.DEVNULL))
            assert process.stdout.readline() == f"{NAME}.stop {NOBODY} 1\n"
        run = bus.call(path, f"{NAME}.Volume", "Stop", code=1, user=NOBODY)
        assert "too many calls" in run.stderr
        other = subprocess.Popen(bus.words(*words, user=OTHER), stderr=subprocess.DEVNULL)
        assert process.stdout.readline() == f"{NAME}.stop {OTHER} 1\n"
        bus.call(path, f"{NAME}.Volume", "Start")
        process.terminate()
        for one in (*waiting, other):
            assert one.wait(60)
    bus.call(path, f"{NAME}.Volume", "Stop", code=1, user=NOBODY)


def test_commands_of_one_user(bus, members, command, polkit):
    """Those that run, and do not end, are bounded for each user; others go on, and nobody keeps root waiting."""
    log, _ = command
    waits = log.with_suffix(".wait")
    os.mkfifo(waits)
    path = path_of("volume", members["volume"])
    words = ["call", NAME, path, f"{NAME}.Volume", "Stop"]
    with answering(bus, polkit, f"{NAME}.stop"):
        running = []

        def begin(user):
            running.append(subprocess.Popen(bus.words(*words, user=user), stderr=subprocess.DEVNULL))
            until(lambda: log.exists() and len(log.read_text().splitlines()) == len(running))

        for _ in range(8):
            begin(NOBODY)
        run = bus.call(path, f"{NAME}.Volume", "Stop", code=1, user=NOBODY)
        assert "8 commands of this user are running already; try again" in run.stderr
        for _ in range(8):
            begin(OTHER)
        run = bus.call(path, f"{NAME}.Volume", "Stop", code=1, user=ANOTHER)
        assert "16 commands are running already; try again" in run.stderr
        for _ in range(16):
            begin(None)
        run = bus.call(path, f"{NAME}.Volume", "Stop", code=1)
        assert "16 commands are running already; try again" in run.stderr
        with open(waits, "r+b", buffering=0) as go_on:
            go_on.write(b"\n" * len(running))
            for one in running:
                assert one.wait(SECONDS) == 0


def test_key_that_does_not_end(bus, members, command):
    """The command is told how long it waits for one: test_luks.c shows that it does."""
    log, _ = command
    log.with_suffix("").write_text('#!/bin/sh\necho "$LARDER_SECRET_WAIT" >> "$0.log"\n')
    bus.call(path_of("volume", members["volume"]), f"{NAME}.Volume", "Stop")
    assert log.read_text() == "60\n"


def open_files(larderd):
    """Those that others have given it, say; one may be closed meanwhile."""
    files = []
    for fd in Path(f"/proc/{larderd.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            files.append(os.readlink(fd))
    return files


def test_what_waits_for_polkit_is_small(bus, members, command, polkit):
    """Descriptors that the method does not take are not kept; too many bytes are refused before anybody is asked."""
    volume, cache = path_of("volume", members["volume"]), path_of("cache", members["cache"])
    given = bus.directory / "given"
    given.write_text("")
    with answering(bus, polkit, "never") as process:
        for user in (NOBODY, 0):
            run = bus.call(cache, f"{NAME}.Cache", "SetLabel", "ss", "0", "x" * (64 << 10), code=1, user=user)
            assert "SetLabel: its arguments are more than 64 KiB together" in run.stderr
        run = bus.call(ROOT, f"{NAME}.Manager", "Pin", "as", 3000, *["/srv/a/file/of/some/length"] * 3000, code=1, user=NOBODY)
        assert "Pin: its arguments are more than 64 KiB together" in run.stderr
        with RawBus(bus.socket, NOBODY) as raw, open(given) as file:
            for _ in range(8):
                raw.call(NAME, volume, f"{NAME}.Volume", "Stop", descriptors=[file.fileno()] * 16)
                assert process.stdout.readline() == f"{NAME}.stop {NOBODY} 0\n"
            raw.call(NAME, volume, f"{NAME}.Volume", "Attach", "x" * (30 << 20))
            bus.get("volume", members["volume"])
            assert str(given) not in open_files(bus.daemon)
            process.terminate()
            assert process.stdout.read() == ""


def test_bus_that_stands_still(bus, members):
    """Who calls it is asked for, and not waited for."""
    bus.start_larderd(WATCHDOG_USEC="100000")
    bus.owned()
    with RawBus(bus.socket) as raw:
        bus.daemon.send_signal(signal.SIGSTOP)
        raw.call(NAME, ROOT, f"{NAME}.Manager", "Refresh")
        for _ in range(3):  # the call is passed on by then
            assert ask_bus(bus, "NameHasOwner", "s", NAME)
        bus.dbus.send_signal(signal.SIGSTOP)
        try:
            with bus.notified() as said:
                bus.daemon.send_signal(signal.SIGCONT)
                began = time.monotonic()
                for _ in range(20):
                    assert next(said) == ["WATCHDOG=1"]
                assert time.monotonic() < began + 15
        finally:
            bus.dbus.send_signal(signal.SIGCONT)
        runs(bus, members)
        bus.wait_shown("volume", members["volume"], State="running")


def test_refresh_as_often_as_one_likes(bus, polkit):
    """Of who is not root those of ten seconds have one pass, which begins behind the last of them; root's have each their own."""
    bus.start_larderd()
    bus.owned()
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(answering(bus, polkit, f"{NAME}.refresh"))
        said = stack.enter_context(bus.notified())
        nobody, root = (stack.enter_context(RawBus(bus.socket, user)) for user in (NOBODY, 0))

        def a_pass():
            assert next(said)[0].startswith("STATUS=")
            return time.monotonic()

        def ask(raw, times=1):
            for _ in range(times):
                raw.call(NAME, ROOT, f"{NAME}.Manager", "Refresh")
            for _ in range(times if raw is nobody else 0):
                assert process.stdout.readline() == f"{NAME}.refresh {NOBODY} 0\n"

        began = time.monotonic()
        ask(nobody)
        a_pass()
        ask(nobody, 8)
        for _ in range(2):
            ask(root)
            early = a_pass()
        assert early < began + 9, "this machine is too slow to see anything here"
        assert a_pass() > began + 9.5  # and nothing came in between


def test_policies():
    """Each action that larderd asks for is one of the polkit file, and the other way round; nobody but root has the name."""
    actions = {a.get("id") for a in ET.parse(TOP / "udev" / "org.larder1.policy").iter("action")}
    source = (TOP / "daemon" / "methods.c").read_text()
    asked = set(re.findall(r"\{ (?:OBJECT_\w+|METHOD_OF_MANAGER), \"\w+\", \"(\w+)\"", source))
    asked |= set(re.findall(r"\{ \"[\w-]+\", \"\w\", [^,]+, \"(\w+)\" \}", source))
    assert actions == {f"{NAME}.{a}" for a in asked}
    for action in ET.parse(TOP / "udev" / "org.larder1.policy").iter("action"):
        default = {d.tag: d.text for d in action.find("defaults")}
        assert default["allow_any"] == default["allow_inactive"] == "auth_admin"
        exceptions = {f"{NAME}.refresh": "yes", f"{NAME}.destroy": "auth_admin"}
        assert default["allow_active"] == exceptions.get(action.get("id"), "auth_admin_keep")
    policies = ET.parse(TOP / "udev" / "org.larder1.conf").iter("policy")
    owners = [p.get("user") for p in policies if p.find("allow[@own]") is not None]
    assert owners == ["root"]


# ---------------------------------------------------------------- stacks


def parts(stack, **more):
    """Its description with these keys, and the UUIDs that go with them."""
    names = {"crypt": "crypt", "fs_uuid": "fs"}
    return stack.plain | {k: str(uuid.uuid5(stack.uuid, names[k])) if k in names else v for k, v in more.items()}


@identified
def test_stack(bus, larder, command_of):
    stack = Described(larder)
    stack.volume(parts(stack, crypt=1, fs="ext4", fs_uuid=1, mount="/srv"))
    log = command_of()
    seen = bus.get("stack", stack.uuid)
    volume = uuid.uuid5(stack.uuid, "volume")
    assert (seen["Name"], seen["State"], seen["Encrypted"], seen["MountPoint"]) == ("data", "stopped", True, "/srv")
    assert seen["Volume"] == path_of("volume", volume) and seen["Cache"] == path_of("cache", stack.plain["cache"])
    assert bus.get("volume", volume)["Stack"] == path_of("stack", stack.uuid)
    for method, words in methods_of_stack(stack.uuid):
        log.write_text("")
        bus.call(path_of("stack", stack.uuid), f"{NAME}.Stack", *method)
        assert log.read_text() == f"{words}\n"
    for method, words in methods_of_manager():
        log.write_text("")
        bus.call(ROOT, f"{NAME}.Manager", *method)
        assert log.read_text() == f"{words}\n"
    log.write_text("")
    for method, text in (
        (["Drop", *options("ssd0", force=True)], "Drop: force: no such option"),
        (["Drop", *options("ssd0", discard_redundancy=True)], "Drop: discard-redundancy: is to be a string"),
        (["Resize", *options(array="yes")], "Resize: array: is to be a boolean"),
        (["Resize", *options(key="/etc/key")], "Resize: key: is to be a file descriptor"),
    ):
        run = bus.call(path_of("stack", stack.uuid), f"{NAME}.Stack", *method, code=1)
        assert text in run.stderr
    assert log.read_text() == ""
    bus.say(line("volume", "data", uuid=volume, cache=stack.plain["cache"], trouble="flush"))
    seen = bus.wait_shown("stack", stack.uuid, State="locked")
    assert "flush" in seen["Problems"][0]
    bus.say("")
    stack.volume(parts(stack, host=str(uuid.uuid4())))
    seen = bus.wait_shown("stack", stack.uuid, State="foreign")
    assert not seen["Encrypted"] and "larder start --import data" in seen["Problems"][0]
    stack.volume(stack.plain | {"state": "removing"})
    bus.wait_shown("stack", stack.uuid, State="removing")


@identified
def test_stack_whose_disk_is_away(bus, larder):
    """What its SSDs do not tell is as the last look at its disk had it; a larderd that has not seen that does not know."""
    stack = Described(larder)
    stack.volume(parts(stack, crypt=1, fs="ext4", fs_uuid=1, mount="/srv", snapshots=["1 ready monday", "2 ready tuesday"]))
    stack.ssds({"ready": [f"{stack.uuid} data 3"], "changing": []})
    bus.start_larderd()
    bus.owned()
    bus.wait_shown("stack", stack.uuid, State="stopped", Encrypted=True, MountPoint="/srv", Snapshots=["monday", "tuesday"])
    disk = stack.hdd.read_bytes()
    stack.hdd.write_bytes(bytes(len(disk)))
    for _ in range(2):  # and from look to look
        seen = bus.wait_shown("stack", stack.uuid, State="incomplete")
        assert (seen["Name"], seen["Encrypted"], seen["MountPoint"]) == ("data", True, "/srv")
        assert seen["Snapshots"] == ["monday", "tuesday"]
        bus.call(ROOT, f"{NAME}.Manager", "Refresh")
    stack.hdd.write_bytes(disk)
    stack.volume(stack.plain)
    bus.wait_shown("stack", stack.uuid, State="stopped", Encrypted=False, MountPoint="", Snapshots=[])
