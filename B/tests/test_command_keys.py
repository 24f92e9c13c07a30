# SPDX-License-Identifier: GPL-2.0-or-later
"""Keys that a TPM2 or a tang server is to keep, before anything is written, with a real tang server; what is refused.

With disks: suite `keys`."""

import contextlib
import http.server
import json
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
from harness import FAILED, MIB, NOT_FOUND, UNSAFE, USAGE, digest, one_line
from test_command_stack import Described

pytest_plugins = ["larder_fixtures"]

HIDDEN = ["unshare", "-rm", "sh", "-c", 'mount --bind /dev/null "$0" && exec "$@"']
NO_NAMESPACE = subprocess.run(["unshare", "-rm", "true"], check=False).returncode
namespaces = pytest.mark.skipif(NO_NAMESPACE, reason="no mount namespace here")
without_tpm = pytest.mark.skipif(any(Path("/sys/class").glob("tpmrm/*")), reason="this machine has a TPM2")


@pytest.fixture
def images(larder):
    return [larder.image(name, size * MIB) for name, size in {"ssd0": 64, "ssd1": 64, "hdd": 512}.items()]


def words(images, how):
    ssd0, ssd1, hdd = images
    return ["create", "data", "--cache", ssd0, "--cache", ssd1, "--backing", hdd, "--encrypt", how]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def tang(tmp_path):
    """Its URL, and the thumbprint of the key that signs, as its owner finds it."""
    port = free_port()
    subprocess.run(["/usr/libexec/tangd-keygen", tmp_path], check=True)
    (signs,) = [p for p in tmp_path.glob("*.jwk") if "verify" in json.loads(p.read_text())["key_ops"]]
    shown = subprocess.run(["jose", "jwk", "thp", "-a", "S256", "-i", signs], check=True, capture_output=True, text=True)
    listen = [f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork", f"EXEC:/usr/libexec/tangd {tmp_path}"]
    server = subprocess.Popen(["socat", *listen], stderr=subprocess.DEVNULL)
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            break
        assert server.poll() is None, "tang does not start"
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}", shown.stdout.strip()
    server.kill()
    server.wait()


@contextlib.contextmanager
def answering(text, first=lambda: None):
    """URL of a server that says this, whatever it is asked, once it has done something else."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            first()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    "how",
    ["tpm2,", "tpm2,pcrs=24", "tpm2,pcrs=7+", "tpm2=x", "tpm2,thp=x"]
    + ["tang", "tang=", "tang=host", "tang=ftp://host", "tang=http://", "tang=http://h,thp=", "tang=http://h,thp=a/b"]
    + ['tang=http://h"', "tang=http://h x", "tang=http://h,pcrs=7", "tang=http://-h", "tang=http://" + "h" * 256],
)
def test_refused_words(larder, images, how):
    before = [digest(i) for i in images]
    one_line(larder(*words(images, f"luks2:{how}"), "--yes", code=USAGE), "--encrypt", how[:4])
    assert [digest(i) for i in images] == before


def test_plan_shows_the_server(larder, images, tang):
    """By which key it signs, asked for or not; nothing is written."""
    url, thumbprint = tang
    before = [digest(i) for i in images]
    for more in ("", f",thp={thumbprint}"):
        said = larder(*words(images, f"luks2:tang={url}{more}"), "--dry-run").stdout
        assert url in said and thumbprint in said and "and where that fails by a passphrase" in said
    one_line(larder(*words(images, f"luks2:tang={url},thp={thumbprint[::-1]}"), "--yes", code=NOT_FOUND), url, thumbprint[::-1])
    # nobody can be asked whether it is to be trusted
    one_line(larder(*words(images, f"luks2:tang={url}"), code=UNSAFE), url, f"thp={thumbprint}", "--yes")
    assert [digest(i) for i in images] == before


def test_server_that_does_not_answer(larder, images):
    before = [digest(i) for i in images]
    url = f"http://127.0.0.1:{free_port()}"
    one_line(larder(*words(images, f"luks2:tang={url}"), "--yes", code=NOT_FOUND), url, "connect")
    for text in (b"", b"hello", b"{}", b'{"payload":"e30"}', b'{"payload":"eyJrZXlzIjpbXX0"}', b"\0" * 4096):
        with answering(text) as url:
            one_line(larder(*words(images, f"luks2:tang={url}"), "--yes", code=NOT_FOUND), url, "no advertisement")
    assert [digest(i) for i in images] == before


@pytest.mark.parametrize("verb", ["create", "passwd"])
def test_a_server_holds_up_nobody(larder, images, verb):
    """One that takes its time: others have their turn (where there is a lock), and it answers no sooner than they have had it."""
    described = Described(larder)
    described.volume(described.plain | {"crypt": str(uuid.uuid5(described.uuid, "crypt"))})
    before = [digest(i) for i in [*images, described.hdd]]
    with answering(b"hello", lambda: larder("cache", "stop", "nowhere", code=None)) as url:
        how = f"tang={url}"
        created = ["create", "new", *words(images, f"luks2:{how}")[2:]]
        given = created if verb == "create" else ["passwd", "data", "--add", "--new-token", how]
        run = larder(*given, "--yes", env={"LARDER_TANG_WAIT": "60"}, code=NOT_FOUND)
    one_line(run, url, "no advertisement")
    assert [digest(i) for i in [*images, described.hdd]] == before


@without_tpm
def test_no_tpm(larder, images):
    one_line(larder(*words(images, "luks2:tpm2"), "--yes", code=NOT_FOUND), "no TPM2", "/sys/class/tpmrm")


@namespaces
@pytest.mark.parametrize(
    "how, tool, package",
    [
        ("tpm2", "/usr/bin/systemd-cryptenroll", "apt install systemd"),
        ("tang=http://h", "/usr/bin/clevis-encrypt-tang", "apt install clevis"),
        ("tang=http://h", "/usr/bin/clevis-luks-bind", "apt install clevis-luks"),
        ("tang=http://h", "/usr/bin/curl", "apt install curl"),
    ],
)
def test_missing_program(larder, images, how, tool, package):
    before = [digest(i) for i in images]
    argv = [*HIDDEN, tool, larder.program, *map(str, words(images, f"luks2:{how}")), "--yes"]
    run = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert run.returncode == FAILED, run.stderr
    one_line(run, Path(tool).name, "is missing", package)
    assert [digest(i) for i in images] == before
