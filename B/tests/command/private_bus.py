# SPDX-License-Identifier: GPL-2.0-or-later
"""A bus of its own for tests of org.larder1 (fixtures: bus_fixtures.py).

A private dbus-daemon with the project's policy file; members are images, what runs comes from a file (LARDER_STATUS), and larderd,
built with ASan and UBSan, only observes.  Methods run a command in its place, which notes its words, and its stdin.
"""

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import threading
import time

from harness import TOP
from status_lines import line

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

    def say(self, text):
        """What runs from now on; larderd may read it meanwhile, by itself while there is a job, and gets the one or the other."""
        new = self.directory / "status.new"
        new.write_text(text)
        new.rename(self.status)

    def start_bus(self):
        words = ["dbus-daemon", f"--config-file={self.directory / 'bus.conf'}", "--nofork", "--print-address=1"]
        bus = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.stack.callback(self.end, bus)
        assert bus.stdout.readline().startswith(self.address)
        os.chmod(self.socket, 0o777)
        self.dbus = bus
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
        with self.notified() as said:
            self.daemon = subprocess.Popen(
                [self.program, "--observe", *words],
                env=self.environment(NOTIFY_SOCKET=str(self.directory / "notify"), **environment),
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
            )
            while "READY=1" not in next(said):
                pass

    @contextlib.contextmanager
    def notified(self):
        """What larderd tells systemd from now on: lines of a message each."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            path = self.directory / "notify"
            path.unlink(missing_ok=True)
            s.bind(str(path))
            s.settimeout(SECONDS)
            yield (s.recv(4096).decode().split("\n") for _ in itertools.count())

    def words(self, *words, user=None):
        words = ["busctl", f"--address={self.address}", f"--timeout={SECONDS}", "--json=short", "--", *map(str, words)]
        return ["setpriv", f"--reuid={user}", "--clear-groups", *words] if user else words

    def busctl(self, *words, code=0, user=None):
        words = self.words(*words, user=user)
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
        return self.at(path_of(kind, number), kind)

    def at(self, path, kind):
        objects = self.objects()[path]
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

    def wait_shown(self, kind, number, **values):
        """Looks anew, until it is shown so: by whichever pass, as one may still be under way that a method has asked for."""
        self.refresh()
        giving_up = time.monotonic() + SECONDS
        while True:
            seen = self.objects().get(path_of(kind, number), {}).get(f"{NAME}.{kind.capitalize()}")
            if seen and all(seen[k] == v for k, v in values.items()):
                return seen
            assert time.monotonic() < giving_up, seen
            time.sleep(0.05)

    def close(self):
        if self.daemon and self.daemon.poll() is None:
            self.daemon.terminate()
        code = self.daemon.wait(SECONDS) if self.daemon else 0
        said = (self.directory / "log").read_text() if self.daemon else ""
        self.stack.close()
        assert code == 0 and "Sanitizer" not in said and "runtime error" not in said, said


def runs(bus, members, **values):
    """What the kernel would say of both."""
    of_cache = {k.removeprefix("cache_"): v for k, v in values.items() if k.startswith("cache_")}
    of_volume = {k: v for k, v in values.items() if not k.startswith("cache_")}
    cache = line("cache", "larder-cache-fast", uuid=members["cache"], **of_cache)
    bus.say(cache + line("volume", "data", uuid=members["volume"], cache=members["cache"], **of_volume))


COMMAND = """#!/bin/sh
echo "$@" >> "$0.log"
cat >> "$0.in"
[ ! -p "$0.wait" ] || read -r go_on < "$0.wait"
[ "$DBUS_CODE_FILE" ] && [ -e "$DBUS_CODE_FILE" ] || exit 0
read -r code < "$DBUS_CODE_FILE"
echo "some words before"
echo "larder: data: in use: mounted on /srv; release it first" >&2
exit "$code"
"""


def options(*words, **given):
    """Arguments for busctl: strings, and a dictionary of options."""
    entries = []
    for name, value in given.items():
        kind = "b" if isinstance(value, bool) else "s"
        entries += [name.replace("_", "-"), kind, str(value).lower() if kind == "b" else value]
    return ["s" * len(words) + "a{sv}", *words, len(given), *entries]
