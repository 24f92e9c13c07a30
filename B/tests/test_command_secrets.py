# SPDX-License-Identifier: GPL-2.0-or-later
"""A passphrase while a command has it: in no core dump, list of processes, environment, message of D-Bus, or log.

With disks: suite `stacks` `test_passphrase_stays_hidden`, `test_no_core_has_the_passphrase`; keys of a TPM or a server: `keys`.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
from private_bus import NAME, SECONDS, path_of
from secretive import begin, everybody, give
from status_lines import line
from test_command_jobs import PYTHON
from test_command_stack import Described, identified

pytest_plugins = ["larder_fixtures", "bus_fixtures"]

SECRET = f"correct horse battery {uuid.uuid4().hex}"  # nobody else's: other tests run beside these, and show theirs


def stack_of(larder, **more):
    stack = Described(larder)
    stack.volume(stack.plain | {"crypt": str(uuid.uuid5(stack.uuid, "crypt"))} | more)
    return stack


def ended(process, how):
    process.send_signal(how)
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == -how, err
    return out + err


VERBS = {
    "create": ["create", "--resume", "data", "--header-backup", "none"],
    "unlock": ["unlock", "data", "--keyfile", "/dev/stdin"],
}


@pytest.mark.skipif(os.geteuid() != 0, reason="looks into the memory of others")
@pytest.mark.skipif("LARDER_VALGRIND" in os.environ, reason="valgrind writes a core of its own")
@pytest.mark.parametrize("how", [signal.SIGABRT, signal.SIGSEGV], ids=["abort", "fault"])
@pytest.mark.parametrize("verb", VERBS)
def test_no_core(larder, plain_program, tmp_path, verb, how):
    """It is killed as it has the passphrase, where another one leaves it in a core."""
    secret = SECRET.encode()
    other = begin([sys.executable, "-c", "import sys; x = sys.stdin.buffer.raw.read(99); sys.stdin.read()"], tmp_path / "other")
    give(other, secret)
    ended(other, how)
    (core,) = list((tmp_path / "other").glob("*")) or [None]
    if not core or secret not in core.read_bytes():
        pytest.skip("no cores in files here: see /proc/sys/kernel/core_pattern, and ulimit -H -c")
    stack = stack_of(larder, **({"state": "creating", "step": 3} if verb == "create" else {}))
    volume = line("volume", "data", uuid=uuid.uuid5(stack.uuid, "volume"), cache=stack.plain["cache"])
    (tmp_path / "status").write_text("" if verb == "create" else volume)
    environment = larder.environment({"LARDER_STATUS": str(tmp_path / "status")})
    process = begin([plain_program, *VERBS[verb]], tmp_path / "here", env=environment)
    give(process, secret)
    assert any(verb.encode() in x for x in everybody()) and not any(secret in x for x in everybody())
    assert secret not in ended(process, how)
    assert not list((tmp_path / "here").glob("*"))


# ---------------------------------------------------------------------- D-Bus

KEYS = """
import os, sys
import dbus

def descriptor(*words):
    reading, writing = os.pipe()
    os.write(writing, "".join(words).encode())
    os.close(writing)
    return dbus.types.UnixFd(reading)

bus = dbus.SystemBus()
secrets = sys.stdin.read().splitlines()
stack = dbus.Interface(bus.get_object("org.larder1", sys.argv[1]), "org.larder1.Stack")
manager = dbus.Interface(bus.get_object("org.larder1", "/org/larder1"), "org.larder1.Manager")
calls = [
    lambda: stack.UnlockWithKey(descriptor(secrets[0])),
    lambda: stack.ChangeKey(descriptor(secrets[1], "\\n", secrets[2], "\\n"), dbus.Dictionary({}, signature="sv")),
    lambda: stack.AddKey(descriptor(secrets[3], "\\n"), {"new-keyfile": "/k"}),
    lambda: stack.RemoveKey("1", descriptor(secrets[4], "\\n"), dbus.Dictionary({}, signature="sv")),
    lambda: stack.Resize({"key": descriptor(secrets[5])}),
    lambda: stack.ResumeCreation({"passphrase": descriptor(secrets[6], "\\n")}),
    lambda: manager.Create("films", ["/dev/a"], ["/dev/s"], {"encrypt": "luks2", "passphrase": descriptor(secrets[7], "\\n")}),
]
for call in calls:
    try:
        call()
    except dbus.DBusException as e:
        print(e)
"""
METHODS = ["UnlockWithKey", "ChangeKey", "AddKey", "RemoveKey", "Resize", "ResumeCreation", "Create"]
SECRETS = [f"secret-{i}-{SECRET}" for i in range(8)]


@contextlib.contextmanager
def recorded(bus, file):
    """All messages meanwhile, as they are; it records when this returns."""
    with open(file, "wb") as pcap:
        words = ["dbus-monitor", "--address", bus.address, "--pcap"]
        recorder = subprocess.Popen(words, stdout=pcap, stderr=subprocess.DEVNULL)
        numbers = itertools.count()
        try:

            def until_recorded():
                """A message of our own is."""
                giving_up = time.monotonic() + SECONDS
                while True:
                    word = f"heard.n{next(numbers)}"
                    bus.busctl("call", "org.freedesktop.DBus", "/", "org.freedesktop.DBus", "NameHasOwner", "s", word)
                    time.sleep(0.02)
                    if word.encode() in file.read_bytes():
                        return
                    assert recorder.poll() is None and time.monotonic() < giving_up, "nothing is recorded"

            until_recorded()
            yield
            until_recorded()
        finally:
            bus.end(recorder)


def call_all(bus, stack, meanwhile=lambda: None):
    script = bus.directory / "keys.py"
    script.write_text(KEYS)
    words = [PYTHON, script, path_of("stack", stack.uuid)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, env=bus.environment(), **pipes) as process:
        process.stdin.write("\n".join(SECRETS))
        process.stdin.close()
        meanwhile()
        said = process.stdout.read()
        assert process.wait(SECONDS) == 0
    return said


@identified
def test_no_message_has_it(bus, larder, command_of):
    """Of all methods that take a key: the command has it, and no message, no process, and no log has."""
    stack = Described(larder)
    stack.volume(stack.plain)
    log = command_of()
    waits = log.with_suffix(".wait")
    os.mkfifo(waits)
    seen = set()

    def look():
        """At each command, as it has its key, and waits."""
        for _ in METHODS:
            with open(waits, "w") as go_on:  # once it has read all
                seen.update(everybody())
                waits.unlink()
                os.mkfifo(waits)  # for the next one
                go_on.write("\n")

    recording = bus.directory / "recording"
    with recorded(bus, recording):
        said = call_all(bus, stack, look)
    assert not said
    messages = recording.read_bytes()
    given = log.with_suffix(".in").read_text()
    bus.log.flush()
    told = (bus.directory / "log").read_bytes() + log.read_bytes()
    assert all(m.encode() in messages for m in METHODS)
    assert any(b"UnlockWithKey" in x or b"unlock" in x for x in seen)
    for secret in SECRETS:
        assert secret in given
        for place, content in (("message", messages), ("log", told), ("process", b"".join(seen))):
            assert secret.encode() not in content, f"{secret} is in a {place}"


@identified
def test_no_error_has_it(bus, larder, program):
    """The real command refuses them: what it says goes to the caller, and to the log."""
    stack = stack_of(larder)
    directory = bus.directory / "bin"
    directory.mkdir()
    (directory / "larder").symlink_to(program)
    bus.say(line("volume", "data", uuid=uuid.uuid5(stack.uuid, "volume"), cache=stack.plain["cache"]))
    bus.start_larderd(PATH=f"{directory}:{os.environ['PATH']}")
    bus.owned()
    recording = bus.directory / "recording"
    with recorded(bus, recording):
        said = call_all(bus, stack)
    assert len(said.splitlines()) == len(METHODS) and said.count(f"{NAME}.Error") == len(METHODS)
    messages = recording.read_bytes()
    told = (bus.directory / "log").read_bytes()
    for text in said.splitlines():
        assert text.split(": ", 1)[1].encode() in messages
    for secret in SECRETS:
        assert secret.encode() not in messages + told and secret not in said


@identified
def test_the_search_finds(bus, larder, command_of):
    """What is given as a word is a secret no more: it is in the message, and in the words of the command."""
    stack = Described(larder)
    stack.volume(stack.plain)
    log = command_of()
    recording = bus.directory / "recording"
    with recorded(bus, recording):
        bus.call(path_of("stack", stack.uuid), f"{NAME}.Stack", "Rename", "s", SECRET)
    assert SECRET.encode() in recording.read_bytes() and SECRET in log.read_text()
    with subprocess.Popen(["sleep", "60"], env={SECRET: "1", "PATH": os.environ["PATH"]}) as sleeper:
        while not any(SECRET.encode() in x for x in everybody()):
            assert sleeper.poll() is None
        sleeper.kill()
