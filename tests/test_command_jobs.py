# SPDX-License-Identifier: GPL-2.0-or-later
"""Jobs of org.larder1, and the examples of docs/dbus.md, which follow one.  The rig: command/private_bus.py.

The arrays below stacks, of which there are none here: tests/unit/test_jobs.c, and the suite `jobs` in a VM.
"""

import contextlib
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
from harness import TOP
from private_bus import NAME, ROOT, SECONDS, options, path_of, runs
from status_lines import line
from test_command_stack import Described, identified

pytest_plugins = ["larder_fixtures", "bus_fixtures"]


def job_path(kind, number, serial=None):
    return path_of("job", f"{kind}_{number}") + (f"_{serial}" if serial else "")


def cancel(bus, path, method="Cancel", code=0):
    return bus.call(path, f"{NAME}.Job", method, code=code)


@pytest.mark.parametrize(
    ("values", "kind", "of", "numbers", "words"),
    [
        (
            {"cache_scrub": "running", "cache_scrub_segments": 250},
            "scrub", "cache", (250, 750, 1000, "segments"), "cache scrub --stop {}",
        ),
        (
            {"cache_joining": 1, "cache_ssds": "active/joining", "cache_join_sectors": 8},
            "join", "cache", (4096, 0, 0, "bytes"), None,
        ),
        (
            {"cache_ssds": "active/failed/draining", "cache_drain_segments": 7},
            "drain", "cache", (0, 7, 0, "segments"), "cache remove --stop {} 2",
        ),
        (
            {"cache_resync": "running", "cache_resync_sectors": 8, "cache_single_sectors": 16},
            "copy", "cache", (4096, 8192, 0, "bytes"), None,
        ),
        ({"flushing": 1, "dirty_sectors": 8}, "flush", "volume", (0, 4096, 0, "bytes"), "volume flush --stop {}"),
        ({"state": "leaving", "flushing": 1, "dirty_sectors": 8}, "leave", "volume", (0, 4096, 0, "bytes"), None),
    ],
)  # fmt: skip
def test_job_of_devices(bus, members, command, values, kind, of, numbers, words):
    """What the kernel does, told by its status; what ends it is the command."""
    log, _ = command
    path = job_path(kind, members[of])
    with bus.monitor(f"type='signal',sender='{NAME}',interface='{NAME}.Manager'") as signals:
        runs(bus, members, **values)
        bus.refresh()
        assert next(signals) == ("JobAdded", ROOT, f"{NAME}.Manager", [path, kind, path_of(of, members[of])])
        job = bus.at(path, "job")
        assert (job["Kind"], job["Object"], job["Source"], job["State"]) == (kind, path_of(of, members[of]), "devices", "running")
        assert (job["Done"], job["Left"], job["Total"], job["Unit"]) == numbers
        assert (job["CanCancel"], job["CanPause"], job["Stack"], job["Error"]) == (words is not None, False, "/", "")
        run = cancel(bus, path, code=0 if words else 1)
        if words:
            assert log.read_text() == words.format(members[of]) + "\n"
        else:
            assert "has no Cancel" in run.stderr and not log.exists()
        for method in ("Pause", "Resume"):
            assert f"has no {method}" in cancel(bus, path, method, code=1).stderr
        runs(bus, members, cache_scrub="stopped")
        bus.refresh()
        result = "stopped" if kind == "scrub" else "ended"
        assert next(signals)[3] == [path, kind, path_of(of, members[of]), result, ""]
    assert path not in bus.objects()


def test_progress(bus, members):
    """It is looked at again and again, without an event, while the job goes on; another larderd finds the same job."""
    path = job_path("scrub", members["cache"])
    runs(bus, members, cache_scrub="running", cache_scrub_segments=1)
    bus.start_larderd()
    bus.owned()
    assert bus.at(path, "job")["Done"] == 1
    with bus.monitor(f"type='signal',sender='{NAME}',path='{path}'") as signals:
        for done in (2, 3):
            runs(bus, members, cache_scrub="running", cache_scrub_segments=done)
            member, _, _, data = next(signals)
            assert member == "PropertiesChanged" and {k: v["data"] for k, v in data[1].items()} == {
                "Done": done,
                "Left": 1000 - done,
            }
    bus.end(bus.daemon)
    bus.start_larderd()
    bus.owned()
    assert bus.at(path, "job")["Done"] == 3


@contextlib.contextmanager
def called(bus, path, interface, *words):
    """A call that goes on; ends with it."""
    call = ["busctl", f"--address={bus.address}", f"--timeout={SECONDS}", "call", NAME, path, interface, *map(str, words)]
    with subprocess.Popen(call, stderr=subprocess.PIPE, text=True) as process:
        yield process


@identified
@pytest.mark.parametrize("end", ["done", "failed", "cancelled"])
def test_job_of_a_command(bus, larder, command_of, end):
    """While it runs there is a job, with what the devices do for it; the answer says the same as the last of its signals."""
    stack = Described(larder)
    stack.volume(stack.plain)
    log = command_of()
    waits = log.with_suffix(".wait")
    os.mkfifo(waits)
    of = path_of("stack", stack.uuid)
    path = job_path("replace", stack.uuid, 1)
    volume = uuid.uuid5(stack.uuid, "volume")
    with bus.monitor(f"type='signal',sender='{NAME}'") as signals:
        with called(bus, of, f"{NAME}.Stack", "Replace", *options("0", "/dev/x")) as call:
            assert next(s[3] for s in signals if s[0] == "JobAdded") == [path, "replace", of]
            job = bus.at(path, "job")
            assert (job["Object"], job["Stack"], job["Source"], job["State"]) == (of, of, "command", "running")
            assert job["CanCancel"] and not job["CanPause"] and job["Unit"] == ""
            bus.say(line("volume", "data", uuid=volume, flushing=1, dirty_sectors=8))
            bus.refresh()
            assert next(s[3] for s in signals if s[0] == "JobAdded") == [
                job_path("flush", volume),
                "flush",
                path_of("volume", volume),
            ]
            job = bus.at(path, "job")
            assert (job["Left"], job["Unit"]) == (4096, "bytes")
            assert "has no Pause" in cancel(bus, path, "Pause", code=1).stderr
            if end == "cancelled":
                cancel(bus, path)
            else:
                (bus.directory / "code").write_text("5\n" if end == "failed" else "0\n")
                waits.write_text("go on\n")
            said = call.communicate(timeout=SECONDS)[1]
        text = {
            "done": "",
            "failed": "data: in use: mounted on /srv; release it first",
            "cancelled": "cancelled: the same call again goes on with it",
        }[end]
        assert text in said and (call.returncode == 0) == (end == "done")
        seen = []
        while not seen or seen[-1][0] != "JobRemoved":
            seen.append(next(s for s in signals if s[0] == "JobRemoved" or s[1] == path))
        assert seen[-1][3] == [path, "replace", of, end, text]
        last = seen[-2][3][1] if seen[-2][0] == "PropertiesChanged" else seen[-3][3][1]
        assert last["State"]["data"] == end
    assert path not in bus.objects()


# ---------------------------------------------------------------- the examples of docs/dbus.md

PYTHON = "/usr/bin/python3"  # that of Debian's python3-dbus


def examples():
    return re.findall(r"```python\n(.*?)```", (TOP / "docs" / "dbus.md").read_text(), re.S)


@identified
def test_example(bus, larder, command_of):
    """Follows the scrub of a stack to its end."""
    stack = Described(larder)
    stack.volume(stack.plain)
    log = command_of()
    cache = stack.plain["cache"]
    running = line("volume", "data", uuid=uuid.uuid5(stack.uuid, "volume"), cache=cache, trouble="flush")
    bus.say(running)
    bus.wait_shown("stack", stack.uuid, State="running")
    script = bus.directory / "example.py"
    script.write_text(examples()[0])
    words = [PYTHON, "-u", script, "data"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=bus.environment()) as process:
        assert process.stdout.readline() == "data\n"
        assert process.stdout.readline() == "  running\n"
        assert "flush" in process.stdout.readline()

        def scrub(state, done):
            bus.say(running + line("cache", "larder-cache-data", uuid=cache, scrub=state, scrub_segments=done))

        scrub("running", 1)
        bus.wait_shown("job", f"scrub_{cache}", Done=1)
        scrub("running", 500)
        bus.refresh()
        # it asks the job behind its signal: that must not be over by then
        assert process.stdout.readline() == "scrub: 500 of 1000 segments\n"
        scrub("done", 1000)
        bus.refresh()
        out = process.communicate(timeout=SECONDS)[0]
    assert out == "scrub done \n" and process.returncode == 0
    assert log.read_text() == f"scrub -- {stack.uuid}\n"


@identified
def test_key_by_descriptor(bus, larder, command_of):
    """The command gets it as its stdin; no message, nor list of processes, has it."""
    stack = Described(larder)
    stack.volume(stack.plain)
    log = command_of()
    text = re.sub(r"/org/larder1/stack/\w+", path_of("stack", stack.uuid), examples()[1])
    with bus.monitor("type='method_call'"):
        subprocess.run([PYTHON, "-c", text], env=bus.environment(), check=True, timeout=SECONDS)
    assert log.read_text() == f"unlock --keyfile=/dev/stdin -- {stack.uuid}\n"
    assert log.with_suffix(".in").read_text() == "correct horse battery staple"


KEYS = """
import os, sys
import dbus

def descriptor(text):
    reading, writing = os.pipe()
    os.write(writing, text)
    os.close(writing)
    return dbus.types.UnixFd(reading)

bus = dbus.SystemBus()
stack = dbus.Interface(bus.get_object("org.larder1", sys.argv[1]), "org.larder1.Stack")
manager = dbus.Interface(bus.get_object("org.larder1", "/org/larder1"), "org.larder1.Manager")
none = dbus.Dictionary({}, signature="sv")
stack.ChangeKey(descriptor(b"one\\ntwo\\n"), none)
stack.AddKey(descriptor(b"three\\n"), {"new-keyfile": "/k", "slot": "2", "header-backup": "none"})
stack.AddKey(descriptor(b"four\\n"), {"new-token": "tpm2"})
stack.RemoveKey("1", descriptor(b"five\\n"), {"discard-data": "U", "header-backup": "/h"})
stack.ResumeCreation({"passphrase": descriptor(b"six\\n")})
manager.Create("films", ["/dev/a"], ["/dev/s"], {"encrypt": "luks2", "passphrase": descriptor(b"seven\\n")})
"""


@identified
def test_keys_by_descriptor(bus, larder, command_of):
    """Of all that takes one."""
    stack = Described(larder)
    stack.volume(stack.plain)
    log = command_of()
    script = bus.directory / "keys.py"
    script.write_text(KEYS)
    with bus.monitor("type='method_call'"):
        subprocess.run([PYTHON, script, path_of("stack", stack.uuid)], env=bus.environment(), check=True, timeout=SECONDS)
    assert log.read_text().splitlines() == [
        f"passwd --change --keyfile=- -- {stack.uuid}",
        f"passwd --add --keyfile=- --new-keyfile=/k --slot=2 --header-backup=none -- {stack.uuid}",
        f"passwd --add --keyfile=- --new-token=tpm2 -- {stack.uuid}",
        f"passwd --remove=1 --keyfile=- --discard-data=U --header-backup=/h -- {stack.uuid}",
        f"create --resume -- {stack.uuid}",
        "create --yes --backing=/dev/a --cache=/dev/s --encrypt=luks2 -- films",
    ]
    assert log.with_suffix(".in").read_text() == "one\ntwo\nthree\nfour\nfive\nsix\nseven\n"


UNREADABLE = """
import os, sys
import dbus

bus = dbus.SystemBus()
stack = dbus.Interface(bus.get_object("org.larder1", sys.argv[1]), "org.larder1.Stack")
none = dbus.Dictionary({}, signature="sv")
for flags in (os.O_PATH, os.O_WRONLY):
    given = dbus.types.UnixFd(os.open(sys.argv[2], flags))
    for call in (stack.UnlockWithKey, given), (stack.ChangeKey, given, none), (stack.Resize, {"key": given}):
        try:
            call[0](*call[1:])
            print("done")
        except dbus.DBusException as e:
            print(e)
"""


@identified
def test_descriptors_that_cannot_be_read(bus, larder, command_of):
    """Refused: the command would open it anew, as root, who may do what the caller may not; a watchdog, say, begins by that."""
    stack = Described(larder)
    stack.volume(stack.plain)
    log = command_of()
    script, secret = bus.directory / "keys.py", bus.directory / "secret"
    script.write_text(UNREADABLE)
    secret.write_text("one\n")
    words = [PYTHON, script, path_of("stack", stack.uuid), secret]
    run = subprocess.run(words, env=bus.environment(), check=True, timeout=SECONDS, stdout=subprocess.PIPE, text=True)
    assert not log.exists() and run.stdout.splitlines() == 2 * [
        f"{NAME}.Error.Usage: {method}: a key is not open for reading; give a pipe or a memfd"
        for method in ("UnlockWithKey", "ChangeKey", "Resize")
    ]
