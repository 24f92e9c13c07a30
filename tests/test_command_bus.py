# SPDX-License-Identifier: GPL-2.0-or-later
"""org.larder1: what larderd shows on a bus, what it tells, and whom it obeys.

A private dbus-daemon with the project's policy file; members are images, what runs comes from a file (LARDER_STATUS), and larderd,
built with ASan and UBSan, only observes.  Methods run a command in its place, which notes its words.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import uuid
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
from harness import CACHE, MIB, TOP, VOLUME, field, patch_both
from status_lines import line
from test_command_stack import Described, identified

pytest_plugins = ["larder_fixtures"]

NAME, ROOT = "org.larder1", "/org/larder1"
POLKIT = "org.freedesktop.PolicyKit1"
SECONDS = 60  # until a test gives up on a machine that is busy
CONF = """<busconfig>
  <type>system</type>
  <listen>unix:path={bus}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <deny own="*"/>
    <deny send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
    <allow send_destination="org.freedesktop.DBus"/>
  </policy>
  <policy user="root">
    <allow own="{polkit}"/>
    <allow send_destination="{polkit}"/>
    <allow send_interface="org.freedesktop.DBus.Monitoring"/>
  </policy>
  <include>{policy}</include>
</busconfig>
"""


@pytest.fixture(scope="session")
def polkit(tmp_path_factory):
    program = tmp_path_factory.mktemp("polkit") / "polkit"
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, "-o", program, TOP / "tests" / "command" / "polkit.c", "-lsystemd"], check=True)
    return program


def path_of(kind, number):
    return f"{ROOT}/{kind}/{str(number).replace('-', '_')}"


class Bus:
    """The rig: a bus, larderd on it, and busctl."""

    def __init__(self, larder, larderd):
        self.larder, self.program, self.directory = larder, larderd, larder.directory
        self.socket, self.status = self.directory / "bus", self.directory / "status"
        self.status.write_text("")
        self.address = f"unix:path={self.socket}"
        self.stack = contextlib.ExitStack()
        self.daemon = None
        os.chmod(self.directory, 0o755)  # for who is not root
        (self.directory / "bus.conf").write_text(
            CONF.format(bus=self.socket, polkit=POLKIT, policy=TOP / "udev" / "org.larder1.conf")
        )

    def environment(self, **more):
        return self.larder.environment({"DBUS_SYSTEM_BUS_ADDRESS": self.address, "LARDER_STATUS": str(self.status)} | more)

    def start_bus(self):
        words = ["dbus-daemon", f"--config-file={self.directory / 'bus.conf'}", "--nofork", "--print-address=1"]
        bus = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.stack.callback(self.end, bus)
        assert bus.stdout.readline().startswith(self.address)
        os.chmod(self.socket, 0o777)
        return bus

    def end(self, process, sign=signal.SIGTERM):
        if process.poll() is None:
            process.send_signal(sign)
        process.wait(SECONDS)
        if process.stdout:
            process.stdout.close()

    def start_larderd(self, *words, **environment):
        """Returns behind its first pass."""
        self.log = open(self.directory / "log", "w+")  # noqa: SIM115
        self.stack.callback(self.log.close)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            notify = self.directory / "notify"
            notify.unlink(missing_ok=True)
            s.bind(str(notify))
            s.settimeout(SECONDS)
            self.daemon = subprocess.Popen(
                [self.program, "--observe", *words],
                env=self.environment(NOTIFY_SOCKET=str(notify), **environment),
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
            )
            while b"READY=1" not in s.recv(4096):
                pass

    def busctl(self, *words, code=0, user=None):
        words = ["busctl", f"--address={self.address}", f"--timeout={SECONDS}", "--json=short", *map(str, words)]
        if user:
            words = ["setpriv", f"--reuid={user}", "--clear-groups", *words]
        run = subprocess.run(words, capture_output=True, text=True, timeout=2 * SECONDS)
        assert code is None or run.returncode == code, f"{words}: {run.stdout}{run.stderr}"
        return run

    def call(self, path, interface, method, *words, code=0, user=None):
        return self.busctl("call", NAME, path, interface, method, *words, code=code, user=user)

    def owned(self):
        """Once larderd has its name."""
        with self.monitor("type='signal',member='NameOwnerChanged',arg0='org.larder1'") as signals:
            held = ["call", "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "NameHasOwner", "s", NAME]
            if not json.loads(self.busctl(*held).stdout)["data"][0]:
                next(signals)

    def objects(self):
        """path: {interface: {property: value}}, without those of D-Bus itself."""
        data = json.loads(self.call(ROOT, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects").stdout)["data"][0]
        objects = {}
        for path, interfaces in data.items():
            ours = {i: {n: v["data"] for n, v in ps.items()} for i, ps in interfaces.items() if i.startswith(NAME)}
            if ours:
                objects[path] = ours
        return objects

    def get(self, kind, number):
        objects = self.objects()[path_of(kind, number)]
        assert list(objects) == [f"{NAME}.{kind.capitalize()}"]
        return next(iter(objects.values()))

    @contextlib.contextmanager
    def monitor(self, match):
        """Signals, as they come: member, path, interface, arguments; it listens when this returns."""
        words = ["busctl", f"--address={self.address}", "--json=short", f"--match={match}", "monitor"]
        monitor = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        giving_up = threading.Timer(SECONDS, monitor.kill)
        giving_up.start()
        try:
            assert monitor.stderr.readline().startswith("Monitoring")
            yield (
                (m["member"], m["path"], m["interface"], m["payload"]["data"])
                for m in map(json.loads, monitor.stdout)
                if m["member"] not in ("NameAcquired", "NameLost")
            )
        finally:
            giving_up.cancel()
            monitor.stderr.close()
            self.end(monitor)

    def refresh(self):
        self.call(ROOT, f"{NAME}.Manager", "Refresh")

    def refresh_and_wait(self):
        """Until a pass has told of something."""
        with self.monitor(f"type='signal',sender='{NAME}'") as signals:
            self.refresh()
            next(signals)

    def close(self):
        if self.daemon and self.daemon.poll() is None:
            self.daemon.terminate()
        code = self.daemon.wait(SECONDS) if self.daemon else 0
        said = (self.directory / "log").read_text() if self.daemon else ""
        self.stack.close()
        assert code == 0 and "Sanitizer" not in said and "runtime error" not in said, said


@pytest.fixture
def bus(larder, larderd):
    rig = Bus(larder, larderd)
    rig.start_bus()
    yield rig
    rig.close()


@pytest.fixture
def members(larder):
    """An SSD, a disk: cache `fast`, volume `data`; by their UUIDs."""
    ssd = larder.cache("fast")
    hdd = larder.volume("data", 64 * MIB, "--cache", "fast")
    return {
        "ssd": ssd,
        "hdd": hdd,
        "cache": uuid.UUID(bytes=field(ssd, CACHE, "cache_uuid")),
        "volume": uuid.UUID(bytes=field(hdd, VOLUME, "uuid")),
    }


def runs(bus, members, **values):
    """What the kernel would say of both."""
    of_cache = {k.removeprefix("cache_"): v for k, v in values.items() if k.startswith("cache_")}
    of_volume = {k: v for k, v in values.items() if not k.startswith("cache_")}
    cache = line("cache", "larder-cache-fast", uuid=members["cache"], **of_cache)
    bus.status.write_text(cache + line("volume", "data", uuid=members["volume"], cache=members["cache"], **of_volume))


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


def test_strange_label(bus, members):
    """Bytes that the bus would not take are replaced, and nothing else is lost by them."""
    patch_both(members["hdd"], VOLUME, label="d\u00e4ta".encode().ljust(64, b"\0"))
    bus.start_larderd()
    bus.owned()
    assert bus.get("volume", members["volume"])["Name"] == "d\u00e4ta"
    bus.status.write_bytes(line("volume", "x", uuid=members["volume"], mode="@").encode().replace(b"@", b"\xff\xfe"))
    bus.refresh_and_wait()
    assert bus.get("volume", members["volume"])["Mode"] == "??"


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
        bus.status.write_text(bus.status.read_text() + line("volume", "more", uuid=number, cache="-"))
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


def test_introspection(bus, larder):
    """Each interface has what docs/dbus.md lists, with these types."""
    described = (TOP / "docs" / "dbus.md").read_text()
    stack = Described(larder)
    stack.volume(stack.plain)
    bus.start_larderd()
    bus.owned()
    paths = [ROOT, *bus.objects()]
    kinds = {"Manager": ROOT} | {p.split("/")[3].capitalize(): p for p in paths if p != ROOT}
    assert set(kinds) == {"Manager", "Stack", "Cache", "Volume", "Device"}
    for kind, path in kinds.items():
        text = json.loads(bus.call(path, "org.freedesktop.DBus.Introspectable", "Introspect").stdout)["data"][0]
        (interface,) = (i for i in ET.fromstring(text).iter("interface") if i.get("name") == f"{NAME}.{kind}")
        section = described.split(f"\n## {NAME}.{kind}\n", 1)[1].split("\n## ", 1)[0]
        for p in interface.iter("property"):
            assert f"| `{p.get('name')}` | `{p.get('type')}` |" in section, p.get("name")
        for m in interface.iter("method"):
            assert f"| `{m.get('name')}(" in section, m.get("name")
        assert section.count("\n| `") == len([*interface.iter("property"), *interface.iter("method")])
        # no method takes a secret, nor anything else
        assert {m.get("name") for m in interface.iter("method") if m.find("arg") is not None} <= {"SetOption"}


# ---------------------------------------------------------------- whom it obeys, and how

COMMAND = """#!/bin/sh
echo "$@" >> "$0.log"
[ "$DBUS_CODE_FILE" ] && [ -e "$DBUS_CODE_FILE" ] || exit 0
read -r code < "$DBUS_CODE_FILE"
echo "some words before"
echo "larder: data: in use: mounted on /srv; release it first" >&2
exit "$code"
"""


@pytest.fixture
def command_of(bus):
    """Puts a command that notes its words into the place of larder, and starts larderd; returns where it notes them."""

    def start():
        directory = bus.directory / "bin"
        directory.mkdir()
        (directory / "larder").write_text(COMMAND)
        (directory / "larder").chmod(0o755)
        bus.start_larderd(PATH=f"{directory}:{os.environ['PATH']}", DBUS_CODE_FILE=str(bus.directory / "code"))
        bus.owned()
        return directory / "larder.log"

    return start


@pytest.fixture
def command(bus, members, command_of):
    return command_of(), bus.directory / "code"


def test_methods_are_verbs(bus, members, command):
    log, code = command
    volume, cache = members["volume"], members["cache"]
    for kind, number, method, words in (
        ("volume", volume, ["Start"], f"volume start {volume}"),
        ("volume", volume, ["Stop"], f"volume stop {volume}"),
        ("volume", volume, ["Flush"], f"volume flush {volume}"),
        ("volume", volume, ["SetOption", "ss", "mode", "writethrough"], f"volume set {volume} mode=writethrough"),
        ("cache", cache, ["Start"], f"cache start {cache}"),
        ("cache", cache, ["Stop"], f"cache stop {cache}"),
        ("cache", cache, ["Scrub"], f"cache scrub {cache}"),
        ("cache", cache, ["StopScrub"], f"cache scrub --stop {cache}"),
        ("cache", cache, ["SetOption", "ss", "scrub_rate", "5; rm $HOME"], f"cache set {cache} scrub_rate=5; rm $HOME"),
    ):
        log.write_text("")
        bus.call(path_of(kind, number), f"{NAME}.{kind.capitalize()}", *method)
        assert log.read_text() == f"{words}\n"
    log.write_text("")
    run = bus.call(path_of("cache", cache), f"{NAME}.Cache", "SetOption", "ss", "mode --persist", "x", code=1)
    assert "no name of an option" in run.stderr and log.read_text() == ""
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


NOBODY = 65534


def test_polkit(bus, members, command, polkit):
    """Who is not root gets what polkit lets him have: without polkit nothing; reading is everybody's."""
    log, _ = command
    path = path_of("volume", members["volume"])
    read = ["get-property", NAME, path, f"{NAME}.Volume", "State"]
    assert json.loads(bus.busctl(*read, user=NOBODY).stdout)["data"] == "stopped"
    run = bus.call(path, f"{NAME}.Volume", "Stop", code=1, user=NOBODY)
    assert "denied" in run.stderr and not log.exists()
    words = [polkit, f"{NAME}.stop"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=bus.environment()) as process:
        assert process.stdout.readline() == "ready\n"
        bus.call(path, f"{NAME}.Volume", "Stop", user=NOBODY)
        assert process.stdout.readline() == f"{NAME}.stop {NOBODY} 1\n"
        assert log.read_text() == f"volume stop {members['volume']}\n"
        for method, action in (("Start", "start"), ("Flush", "maintain")):
            run = bus.call(path, f"{NAME}.Volume", method, code=1, user=NOBODY)
            assert "denied" in run.stderr
            assert process.stdout.readline() == f"{NAME}.{action} {NOBODY} 1\n"
        run = bus.call(ROOT, f"{NAME}.Manager", "Refresh", code=1, user=NOBODY)
        assert process.stdout.readline() == f"{NAME}.refresh {NOBODY} 1\n"
        # root is not asked about
        bus.call(path, f"{NAME}.Volume", "Start")
        process.terminate()
        assert process.stdout.read() == ""
    assert log.read_text().splitlines()[1:] == [f"volume start {members['volume']}"]


def test_policies():
    """Each action that larderd asks for is one of the polkit file, and the other way round; nobody but root has the name."""
    actions = {a.get("id") for a in ET.parse(TOP / "udev" / "org.larder1.policy").iter("action")}
    source = (TOP / "daemon" / "bus_call.c").read_text()
    table = source.split("} methods[] = {", 1)[1].split("};", 1)[0]
    asked = {row.split('"')[3] for row in table.splitlines() if '"' in row} | {"refresh"}
    assert actions == {f"{NAME}.{a}" for a in asked}
    for action in ET.parse(TOP / "udev" / "org.larder1.policy").iter("action"):
        default = {d.tag: d.text for d in action.find("defaults")}
        assert default["allow_any"] == default["allow_inactive"] == "auth_admin"
        assert default["allow_active"] == "auth_admin_keep" or action.get("id") == f"{NAME}.refresh"
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
    for method in ("Start", "Stop", "Lock", "Unlock"):
        log.write_text("")
        bus.call(path_of("stack", stack.uuid), f"{NAME}.Stack", method)
        assert log.read_text() == f"{method.lower()} {stack.uuid}\n"
    bus.status.write_text(line("volume", "data", uuid=volume, cache=stack.plain["cache"], trouble="flush"))
    bus.refresh_and_wait()
    seen = bus.get("stack", stack.uuid)
    assert seen["State"] == "locked" and "flush" in seen["Problems"][0]
    bus.status.write_text("")
    stack.volume(parts(stack, host=str(uuid.uuid4())))
    bus.refresh_and_wait()
    seen = bus.get("stack", stack.uuid)
    assert (seen["State"], seen["Encrypted"]) == ("foreign", False) and "larder start --import data" in seen["Problems"][0]
    stack.volume(stack.plain | {"state": "removing"})
    bus.refresh_and_wait()
    assert bus.get("stack", stack.uuid)["State"] == "removing"
