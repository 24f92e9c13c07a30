# SPDX-License-Identifier: GPL-2.0-or-later
"""larder collect: what is in the bundle, and above all what is not.

Programs that it asks are replaced by ones that tell secrets; what they plant must be nowhere in the file, in whatever form it was
told.  On a real encrypted stack: guest/test_stacks.py.
"""

import contextlib
import json
import os
import random
import re
import signal
import stat
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
from harness import CACHE, FAILED, SB, USAGE, VOLUME, digest, field, one_line, preloaded, read
from rescue_images import CRASHED, Images

pytest_plugins = ["larder_fixtures"]

SECRET = "".join(random.Random(1).choices("0123456789abcdef", k=128))
KEYS = [SECRET[:32], SECRET[32:96], SECRET[:128]]  # AES-128, AES-256, two of 256 bits
PASSPHRASE = "correct horse battery staple"
TABLES = [
    f"crypt1: 0 2048 crypt aes-cbc-essiv:sha256 {KEYS[0]} 0 8:1 0 1 allow_discards",
    f"crypt2: 0 2048 crypt aes-xts-plain64 {KEYS[1]} 0 8:1 0",
    f"crypt2: 2048 2048 crypt aes-xts-plain64 {KEYS[2]} 0 8:1 0",
    "crypt3: 0 2048 crypt aes-xts-plain64 :64:logon:cryptsetup:telltale-of-a-key-ring 0 8:1 0",
    f"tagged: 0 2048 integrity 8:2 0 32 J 6 internal_hash:hmac(sha256):{KEYS[0]} journal_crypt:ctr(aes):{KEYS[1]}",
    f"unknown: 0 2048 default-key aes-xts-plain64 {KEYS[0]} 0 8:3 0",
    "odd:name: 0 2048 linear 8:4 0",
    "data: 0 4096 larder 8:16 253:0 2 mode writeback",
    "empty:",
]


KERNEL_LOG = [
    "[    1.0] larder: loading out-of-tree module taints kernel.",
    "[    1.1] device-mapper: larder: data: hello",
    "[    1.2] device-mapper: table: 253:1: larder: Invalid option",
    "[    1.3] larderd[17]: segfault at 0 ip 0 sp 0 error 4 in larderd",
    "[    1.4]  larder_map+0x1f/0x90 [larder]",
    f"[    1.5] larder: key {KEYS[1]}",
]
OTHER_LINES = [
    f"[    0.0] Command line: BOOT_IMAGE=/vmlinuz larder.auto=no netroot=iscsi:user:{PASSPHRASE}@host",
    f"[    0.1] Kernel command line: BOOT_IMAGE=/vmlinuz larder.auto=no netroot=iscsi:user:{PASSPHRASE}@host",
    f"[    0.2] Unknown kernel command line parameters \"larder.auto=no password={PASSPHRASE}\", will be passed to user space.",
    f"[    0.3] dracut-cmdline[99]: Using kernel command line parameters: larder: larder[1] device-mapper: larder {PASSPHRASE}",
    f"[    0.4] dracut: larder.auto=no password={PASSPHRASE}",
    f"[    0.5] mount: passphrase={PASSPHRASE}",
]


@pytest.fixture
def told(larder, monkeypatch):
    """Programs by name, and what each prints; and a cache and a volume."""
    place = larder.directory / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(larder.directory))

    def tell(name, text, code=0):
        (place / f"{name}.out").write_text(text)
        (place / name).write_text(f"#!/bin/sh\necho called: $0 \"$@\" >>{place}/calls\ncat {place}/{name}.out\nexit {code}\n")
        (place / name).chmod(0o755)

    tell("dmsetup", "\n".join(TABLES) + "\n")
    tell("dmesg", "".join(f"{line}\n" for line in KERNEL_LOG + OTHER_LINES))
    tell("journalctl", f"host larderd[1]: started\nhost larderd[1]: {KEYS[2]}\n")
    tell("udevadm", "ID_FS_UUID=6e8bc430-9c3a-11d9-9669-0800200c9a66\n")
    tell("mdadm", "mdadm - v4\n", 1)
    larder.cache("fast")
    larder.volume("data")
    return larder, tell, place


def bundle(larder, *words, env=None):
    path = larder.directory / "bundle.tar"
    larder("collect", "-o", path, *words, env=env)
    with tarfile.open(path) as tar:
        members = tar.getmembers()
        assert all(m.isfile() or m.isdir() for m in members) and len({m.name.split("/")[0] for m in members}) == 1
        return path, {m.name.split("/", 1)[1]: tar.extractfile(m).read().decode() for m in members if m.isfile()}


def test_lines_of_root(told):
    """Any user may write to the journal under any name."""
    larder, _, place = told
    bundle(larder)
    (call,) = [row for row in (place / "calls").read_text().splitlines() if "/journalctl " in row]
    matches = call.partition(" short-iso ")[2].split(" + ")
    assert len(matches) == 4 and all("_UID=0" in m.split() or m.startswith("_SYSTEMD_UNIT=") for m in matches), call


def test_what_is_in_it(told):
    larder, _, _ = told
    before = [digest(d) for d in larder.devices]
    path, files = bundle(larder)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert files["version.txt"].startswith("larder ") and files["os-release.txt"] == Path("/etc/os-release").read_text()
    assert {row["name"] for row in json.loads(files["caches.json"])["caches"]} == {"fast"}
    assert {row["name"] for row in json.loads(files["volumes.json"])["volumes"]} == {"data"}
    for i, (device, fields) in enumerate(zip(larder.devices, (CACHE, VOLUME), strict=True)):
        text = files[f"member-{i}.txt"]
        assert f"# {device}, " in text and "both are good" in text and "ID_FS_UUID=6e8b" in text
        assert str(field(device, fields, "copy_offset")) in text
    lines = files["kernel-log.txt"].splitlines()
    assert lines[:-1] == KERNEL_LOG[:-1] and "larder: key (" in lines[-1]
    assert "started" in files["journal.txt"]
    assert "ended with 1" in files["versions-mdadm.txt"] and "mdadm - v4" in files["versions-mdadm.txt"]
    assert {"doctor.txt", "list.txt", "lsblk.txt", "dm-status.txt", "dm-info.txt", "metrics.txt", "probe.txt"} <= set(files)
    assert [digest(d) for d in larder.devices] == before
    assert not list(larder.directory.glob("larder-collect.*")), "something is left behind"


def test_without_standard_output(told):
    """The pipe of a program has a number of its own."""
    larder, _, _ = told
    path = larder.directory / "bundle.tar"
    argv = ["sh", "-c", 'exec "$@" >&-', "sh", larder.program, "collect", "-o", str(path)]
    subprocess.run(argv, env=larder.environment(), timeout=120)
    with tarfile.open(path) as tar:
        (version,) = (member for member in tar.getmembers() if member.name.endswith("/version.txt"))
        assert tar.extractfile(version).read().startswith(b"larder ")


HANGS = """#!/bin/sh
trap '' TERM INT
echo told by a program that hangs
( trap '' TERM INT; setsid sleep 600 ) &
echo $$ >>{place}/hangs
sleep 600
"""


@pytest.fixture
def hangs(told):
    """A program that hears no signal but one, and leaves somebody behind who keeps its output open."""
    larder, _, place = told
    (place / "modinfo").write_text(HANGS.format(place=place))
    (place / "modinfo").chmod(0o755)
    yield larder, place
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if str(place) in Path(f"/proc/{pid}/environ").read_text(errors="replace") and int(pid) != os.getpid():
                if Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\0" + b"600\0":
                    os.kill(int(pid), signal.SIGKILL)


def test_program_that_hangs(hangs):
    larder, _ = hangs
    begun = time.monotonic()
    files = bundle(larder, env={"LARDER_COLLECT_SECONDS": "1"})[1]
    assert time.monotonic() - begun < 100
    assert "told by a program that hangs" in files["module.txt"] and "modinfo did not end" in files["module.txt"]
    assert "kernel.txt" in files and "member-1.txt" in files, "the rest"


@pytest.mark.parametrize("how", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_interrupted(hangs, how):
    larder, place = hangs
    path = larder.directory / "bundle.tar"
    argv = [larder.program, "collect", "-o", path]
    # of who ignores it, as nohup does, the command would, too
    heard = {"preexec_fn": lambda: signal.signal(how, signal.SIG_DFL)}
    with subprocess.Popen(argv, env=larder.environment(), stdout=subprocess.DEVNULL, **heard) as process:
        while not (place / "hangs").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(how)
        assert process.wait(timeout=60) == -how
    assert not path.exists() and not list(larder.directory.glob("larder-collect.*"))


def test_device_that_hangs(told):
    """Whoever reads it hangs; each is given up, the scan among them."""
    larder, _, _ = told
    env = {"LARDER_COLLECT_SECONDS": "1", "HANG": str(larder.devices[1])}
    files = bundle(larder, env=env | preloaded("hang", larder.directory))[1]
    assert "a device does not answer" in files["members.txt"] and "kernel.txt" in files


def test_tables_without_their_keys(told):
    larder, _, _ = told
    lines = bundle(larder)[1]["dm-table.txt"].splitlines()
    assert lines == [
        "crypt1: 0 2048 crypt aes-cbc-essiv:sha256 (key left out) 0 8:1 0 1 allow_discards",
        "crypt2: 0 2048 crypt aes-xts-plain64 (key left out) 0 8:1 0",
        "crypt2: 2048 2048 crypt aes-xts-plain64 (key left out) 0 8:1 0",
        "crypt3: 0 2048 crypt aes-xts-plain64 (key left out) 0 8:1 0",
        "tagged: 0 2048 integrity (arguments left out)",
        "unknown: 0 2048 default-key (arguments left out)",
        *TABLES[6:],
    ]


def test_no_secrets(larder, tools, told, monkeypatch):
    """Planted wherever a program, a file or the environment could tell it; all of the tar file is searched."""
    _, _, place = told
    images = Images(larder, tools, CRASHED)
    key_file = larder.directory / "key"
    key_file.write_bytes(os.urandom(64))
    key_file.chmod(0o600)
    for name in ("LARDER_PASSPHRASE", "PASSWORD", "TELLTALE_OF_A_NAME"):
        monkeypatch.setenv(name, PASSPHRASE)
    data = bundle(larder)[0].read_bytes()
    for key in KEYS:
        for form in (key, key.upper(), bytes.fromhex(key)):
            assert (form if isinstance(form, bytes) else form.encode()) not in data, f"a key of {len(key)} digits"
    for secret in (PASSPHRASE, "TELLTALE_OF_A_NAME", "telltale-of-a-key-ring"):
        assert secret.encode() not in data
    assert key_file.read_bytes() not in data
    # whoever knows the secret of an epoch can forge records of the log: raw, and as text of either base
    assert field(images.ssd, CACHE, "epoch") > 0
    for i in range(16):
        secret = read(images.ssd, SB + 416 + 32 * i + 8, 8)
        if any(secret):
            number = int.from_bytes(secret, "little")
            for form in (secret, secret[::-1], str(number).encode(), b"%x" % number):
                assert form not in data, "the secret of an epoch"
    # nobody was asked to show keys, or about more than is needed
    calls = (place / "calls").read_text()
    assert "--showkeys" not in calls and "called: " in calls and "environ" not in calls


def test_the_search_finds(told):
    """The same search does find what is not left out: a secret that is none."""
    larder, tell, _ = told
    tell("journalctl", f"host larderd[1]: {PASSPHRASE}\nhost larderd[1]: {KEYS[0][:31]}\n")
    data = bundle(larder)[0].read_bytes()
    assert PASSPHRASE.encode() in data and KEYS[0][:31].encode() in data


def test_programs_that_fail(told, tmp_path):
    """Missing ones, ones that are killed, and one that prints without an end of line."""
    larder, tell, place = told
    tell("lsblk", "no newline", 77)
    tell("dmesg", "", 0)
    (place / "dmesg").write_text("#!/bin/sh\nkill -9 $$\n")
    (place / "dmsetup").chmod(0o644)
    files = bundle(larder)[1]
    assert files["lsblk.txt"].splitlines() == ["no newline", "# lsblk ended with 77"]
    assert "ended with" in files["kernel-log.txt"]
    assert files["version.txt"].startswith("larder ")


def test_refused(told):
    larder, tell, _ = told
    path = larder.directory / "there.tar"
    path.write_text("mine")
    one_line(larder("collect", "-o", path, code=FAILED), path, "-o names another")
    assert path.read_text() == "mine"
    one_line(larder("collect", "-o", larder.directory / "none" / "x.tar", code=FAILED), "none/x.tar", "cannot be written")
    one_line(larder("collect", "more", code=USAGE), "usage")
    one_line(larder("collect", "-o", "-", code=USAGE), "--output", "standard output")
    assert not Path("-").exists()
    one_line(larder("collect", env={"TMPDIR": str(larder.directory / "none")}, code=FAILED), "TMPDIR")
    tell("tar", "tar: disk full\n", 2)
    one_line(larder("collect", "-o", larder.directory / "x.tar", code=FAILED), "x.tar", "disk full")
    assert not (larder.directory / "x.tar").exists() and not list(larder.directory.glob("larder-collect.*"))


def test_name_by_default(told, monkeypatch):
    larder, _, _ = told
    monkeypatch.chdir(larder.directory)
    said = larder("collect").stdout
    (path,) = larder.directory.glob("larder-*.tar")
    assert re.fullmatch(r"larder-\d{8}T\d{6}Z\.tar", path.name) and path.name in said and "read it before" in said
