# SPDX-License-Identifier: GPL-2.0-or-later
"""Keys that a TPM2 (swtpm) or a tang server (the real one, on loopback) keeps.

Stacks are made with them, unlock by them, and by a passphrase when they are gone; cryptsetup and clevis open them without larder.
"""

import fcntl
import json
import subprocess
from pathlib import Path

import pytest
from lib import command, dm
from lib.larder import wait_for
from lib.parts import Part
from lib.stacks import (
    FAILED,
    MOUNTED,
    NOT_FOUND,
    UNSAFE,
    check,
    larder,
    nothing_left,
    prepare,
    refused,
    remove,
    rows,
    watched,
    words,
    write,
)

SECRET = "correct horse battery staple"
NODE = "/dev/mapper/data"
SECONDS = 600  # of a command: each program comes through 9p, and runs under TCG
PORT = 7500
SYSFS = Path("/sys/class/tpmrm")
URL = f"http://127.0.0.1:{PORT}"
NEEDED = ["tang", "clevis", "clevis-luks", "cracklib-runtime", "socat", "swtpm", "tpm2-tools"]
NEEDED += ["libtss2-esys-3.0.2-0", "libtss2-mu0", "libtss2-rc0"]


@pytest.fixture
def disks(make_disk, monkeypatch, kernel_log):
    monkeypatch.setenv("LARDER_TANG_WAIT", str(SECONDS))
    yield from prepare(make_disk, monkeypatch, kernel_log)


class Keeper:
    """A process that keeps keys; `token`: as larder is told of it."""

    def __init__(self, directory: Path):
        self.directory, self.process = directory, None

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = None


class Tang(Keeper):
    kind, token_type, token = "tang", "clevis", f"tang={URL}"

    def prepare(self) -> None:
        command.run("ip", "link", "set", "lo", "up")
        command.run("/usr/libexec/tangd-keygen", self.directory)
        # clevis makes keys by pwmake, which wants the dictionary: the VM has no /var/cache of the host
        words = Path("/var/cache/cracklib/cracklib_dict")
        if not words.with_suffix(".pwd").exists():
            words.parent.mkdir(parents=True, exist_ok=True)
            command.run("create-cracklib-dict", "-o", words, "/usr/share/dict/cracklib-small", seconds=SECONDS)

    def start(self, *, once: bool = False) -> None:
        """once: for one connection."""
        listen = f"TCP-LISTEN:{PORT},bind=127.0.0.1,reuseaddr{'' if once else ',fork'}"
        self.process = subprocess.Popen(["socat", listen, f"EXEC:/usr/libexec/tangd {self.directory}"], stderr=subprocess.DEVNULL)
        wait_for(lambda: command.output("ss", "-Htln", f"sport = :{PORT}"), 60, "tang")

    def thumbprint(self) -> str:
        """Of the key that signs, as its owner finds it."""
        for key in self.directory.glob("*.jwk"):
            if "verify" in key.read_text():
                return command.output("jose", "jwk", "thp", "-a", "S256", "-i", key).strip()
        raise AssertionError("no key that signs")

    def opens_alone(self) -> None:
        command.run("clevis", "luks", "unlock", "-d", NODE, "-n", "alone", seconds=SECONDS)

    def secret(self) -> str:
        return command.output("clevis", "luks", "pass", "-d", NODE, "-s", "1", seconds=SECONDS)


class Tpm(Keeper):
    """That of the VM, by swtpm (host/machine.py).  Gone: its nodes are away, and sysfs has none.

    Without its driver it would be, but that gives it another number when it comes back, where libtss2 does not look for it.
    """

    kind, token_type, token = "tpm2", "systemd-tpm2", "tpm2"
    hidden = False

    def prepare(self) -> None:
        found = [p.name for p in SYSFS.glob("*")]
        assert found == ["tpmrm0"], f"the suite is to be the first of those that share a VM: {found}"

    def hide(self, hidden: bool) -> None:
        for node in (Path("/dev/tpm0"), Path("/dev/tpmrm0")):
            away = node.with_name(f"away-{node.name}")
            if hidden:
                node.rename(away)
            else:
                away.rename(node)
        command.run(*(["mount", "-t", "tmpfs", "none", SYSFS] if hidden else ["umount", SYSFS]))
        self.hidden = hidden

    def start(self) -> None:
        if self.hidden:
            self.hide(False)

    def stop(self) -> None:
        if not self.hidden:
            self.hide(True)

    def change(self) -> None:
        """As another firmware, or another key of Secure Boot, does."""
        command.run("tpm2_pcrextend", "7:sha256=" + "5a" * 32, seconds=SECONDS)

    def opens_alone(self) -> None:
        command.run("cryptsetup", "open", "--token-only", NODE, "alone", seconds=SECONDS)


@pytest.fixture(params=[Tang, Tpm], ids=["tang", "tpm2"])
def keeper(request, tmp_path):
    missing = [p for p in NEEDED if command.run("dpkg", "-s", p, check=False).returncode]
    assert not missing, f"tests/ci/dependencies vm installs them: {missing}"
    directory = tmp_path / "keeper"
    directory.mkdir()
    keeper = request.param(directory)
    keeper.prepare()
    keeper.start()
    yield keeper
    keeper.stop()
    if isinstance(keeper, Tpm):
        keeper.start()


def slots():
    found = larder("passwd", "data", "--list", "-o", "slot,kind,token", "--reportformat", "json", seconds=SECONDS).stdout
    return [(int(s["slot"]), s["kind"], s["token"]) for s in json.loads(found)["slots"]]


def made(disks, token):
    return [*words(disks), "--encrypt", f"luks2:{token}", "--iter-time", "10"]


def passphrase(*more, **options):
    return larder(*more, stdin=SECRET + "\n", seconds=SECONDS, **options)


@pytest.mark.limit(2400)
def test_key(disks, keeper):
    """Made, started and unlocked by it, unasked; by cryptsetup or clevis alone; by a passphrase without it; removed, added."""
    both = [(0, "passphrase", ""), (1, keeper.kind, keeper.token_type)]
    if keeper.kind == "tang":
        run = passphrase(*made(disks, keeper.token), code=UNSAFE)
        assert keeper.thumbprint() in run.stderr and "--yes" in run.stderr
    with watched(SECRET, verb="create"):
        said = passphrase(*made(disks, keeper.token), "--yes").stdout
    assert "and where that fails by a passphrase" in said and "data: ready" in said
    assert keeper.kind != "tang" or keeper.thumbprint() in said
    write(0)
    assert slots() == both

    # no stdin, no terminal
    larder("stop", "data", seconds=SECONDS)
    with watched(SECRET, verb="start") as secrets:
        larder("start", "data", seconds=SECONDS)
        if keeper.kind == "tang":
            secrets.append(keeper.secret())
    check([0])
    larder("lock", "data")
    larder("unlock", "data", seconds=SECONDS)
    check([0])
    larder("lock", "data")
    keeper.opens_alone()
    command.run("cryptsetup", "close", "alone")

    keeper.stop()
    run = larder("unlock", "data", code=FAILED, seconds=SECONDS)
    assert f"the token {keeper.token_type} does not open it" in run.stderr and "is empty" in run.stderr
    refused(FAILED, ["unlock", "data", "--keyfile", "/etc/hostname"], "no key of it fits")
    passphrase("unlock", "data")
    check([0])
    refused(NOT_FOUND, ["passwd", "data", "--add", "--new-token", keeper.token], keeper.kind)
    assert slots() == both

    # it goes with its token, and comes again; never the last one
    passphrase("passwd", "data", "--remove", "1")
    assert slots() == both[:1] and keeper.token_type not in command.output("cryptsetup", "luksDump", NODE)
    keeper.start()
    larder("lock", "data")
    run = larder("unlock", "data", code=FAILED, seconds=SECONDS)
    assert "token" not in run.stderr and "is empty" in run.stderr
    passphrase("unlock", "data")
    larder("stop", "data")
    if keeper.kind == "tang":
        run = larder("passwd", "data", "--add", "--new-token", keeper.token, code=UNSAFE, seconds=SECONDS, stdin=SECRET + "\n")
        assert keeper.thumbprint() in run.stderr and "--yes" in run.stderr
    with watched(SECRET):
        run = passphrase("passwd", "data", "--add", "--new-token", keeper.token, "--yes")
    assert "slot 1: added" in run.stdout and not dm.names()
    assert slots() == both
    larder("start", "data", seconds=SECONDS)
    check([0])
    uuid = rows()["stack"]["uuid"]
    backup = Path(f"/var/lib/larder/{uuid}.luks-header")
    assert keeper.token_type in command.output("cryptsetup", "luksDump", backup)
    if keeper.kind == "tpm2":
        keeper.change()
        larder("lock", "data")
        refused(FAILED, ["unlock", "data"], "the token systemd-tpm2 does not open it", "is empty")
        passphrase("unlock", "data")
        check([0])
    run = passphrase("passwd", "data", "--remove", "0", code=UNSAFE)
    assert "its own key" in run.stderr
    remove()
    nothing_left(disks)


MEMORY = Path("/run/cryptsetup/LN_memory-hard-access")  # libcryptsetup's lock, systemd-cryptsetup's too


def waits_for_memory(pid) -> bool:
    """By the kernel's list of locks."""
    return any("->" in x and x.split()[5] == str(pid) for x in Path("/proc/locks").read_text().splitlines())


@pytest.mark.limit(900)
def test_unlocks_take_memory_in_turn(disks, tmp_path):
    """Whoever derives a key that takes much memory waits while somebody else has the lock, and opens nothing before."""
    *ssds, disk, _ = disks
    part, new = Part.make("p", disk, 80, offset=1), tmp_path / "new"
    new.write_text("another key")
    given = ["create", "data", "--backing", part, "--cache", ssds[0], "--mkfs", "ext4", "--mount", MOUNTED]
    passphrase(*given, "--encrypt", "luks2:passphrase", "--iter-time", "10")
    # less than 32 MiB is nobody's memory
    cost = ["--pbkdf", "argon2id", "--pbkdf-memory", 40960, "--pbkdf-force-iterations", 4, "--pbkdf-parallel", 1]
    command.run("cryptsetup", "luksConvertKey", *cost, NODE, stdin=SECRET, seconds=SECONDS)
    part.resize(95)
    for before, verb in (
        ("lock", ["unlock", "data"]),
        ("stop", ["start", "data"]),
        (None, ["passwd", "data", "--add", "--new-keyfile", str(new)]),
        (None, ["passwd", "data", "--remove", "1"]),
        (None, ["resize", "data"]),
    ):
        if before:
            larder(before, "data", seconds=SECONDS)
        opened = dm.names()
        with open(MEMORY, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            process = subprocess.Popen(["larder", *verb], text=True, **pipes)
            process.stdin.write(SECRET + "\n")
            process.stdin.close()
            process.stdin = None
            wait_for(lambda p=process: p.poll() is not None or waits_for_memory(p.pid), SECONDS, f"{verb} to wait")
            assert process.poll() is None, f"{verb} took no turn: {process.stdout.read()}{process.stderr.read()}"
            assert "data-crypt" in opened or "data-crypt" not in dm.names()
        out, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, out + err
    assert "data-crypt" in dm.names()
    remove()


@pytest.fixture
def tang(tmp_path):
    directory = tmp_path / "keeper"
    directory.mkdir()
    tang = Tang(directory)
    tang.prepare()
    yield tang
    tang.stop()


@pytest.mark.limit(1800)
def test_making_goes_on_behind_its_server(disks, tang):
    """It answers the question for its keys, and then nothing more: what is half made goes on by --resume."""
    token = f"{tang.token},thp={tang.thumbprint()}"
    tang.start(once=True)
    run = passphrase(*made(disks, token), "--yes", code=FAILED)
    assert "clevis luks bind cannot add the key" in run.stderr and "--resume data" in run.stderr
    tang.stop()
    # before anything is asked for, or done
    refused(NOT_FOUND, ["create", "--resume", "data"], URL)
    tang.start()
    assert "data: ready" in passphrase("create", "--resume", "data").stdout
    write(0)
    assert slots() == [(0, "passphrase", ""), (1, "tang", "clevis")]
    larder("stop", "data")
    larder("start", "data", seconds=SECONDS)
    check([0])
    remove()
    nothing_left(disks)


@pytest.mark.limit(1800)
def test_keeper_comes_while_agents_ask(disks, keeper):
    """As at a boot before the network, or the TPM2's driver, is there: the question goes away by itself."""
    passphrase(*made(disks, keeper.token), "--yes")
    write(0)
    larder("stop", "data")
    keeper.stop()
    refused(FAILED, ["start", "data"], "does not open it", "is empty")
    agent = subprocess.Popen(["larder", "unlock", "--agent", "data"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    questions = Path("/run/systemd/ask-password")
    wait_for(lambda: list(questions.glob("ask.*")), SECONDS, "the question")
    (question,) = questions.glob("ask.*")
    why = "its tang server does not answer" if keeper.kind == "tang" else "its TPM2 is not here"
    assert why in question.read_text() and agent.poll() is None
    keeper.start()
    said = agent.communicate(timeout=SECONDS)[1]
    assert agent.returncode == 0 and said.count(f"the token {keeper.token_type} does not open it") == 1
    assert not list(questions.glob("ask.*"))
    check([0])
    remove()
    nothing_left(disks)
