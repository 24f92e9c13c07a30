# SPDX-License-Identifier: GPL-2.0-or-later
"""What larderd tells by HTTP: the text of `larder metrics`, to whoever asks as he should; what others get, and cannot do to it."""

import contextlib
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
from harness import USAGE
from status_lines import line
from test_command_bus import SECONDS, Bus, until

pytest_plugins = ["larder_fixtures"]
GET = b"GET /metrics HTTP/1.1\r\nHost: larder\r\n\r\n"
MANY = 32  # more connections than it keeps


@pytest.fixture
def rig(larder, larderd):
    """larderd without a bus; `rig.path` is where it is to listen."""
    made = Bus(larder, larderd)
    made.path = made.directory / "metrics.sock"
    made.status.write_text(line("cache", "larder-cache-fast") + line("volume", "data"))
    yield made
    made.close()


@pytest.fixture
def listening(rig):
    rig.start_larderd("--metrics-listen", rig.path)
    return rig


def connect(where):
    s = socket.socket(socket.AF_UNIX if isinstance(where, Path) else socket.AF_INET6 if ":" in where[0] else socket.AF_INET)
    s.settimeout(SECONDS)
    s.connect(str(where) if isinstance(where, Path) else where)
    return s


def rest(s):
    """All until the other side has closed."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := s.recv(1 << 20):
            got += piece
    return got


def rest_when_left(s):
    """What there is once the other side has hung up: who takes it before gets more."""
    left = select.poll()
    left.register(s, select.POLLRDHUP)
    assert left.poll(1000 * SECONDS)
    return rest(s)


def ask(where, request=GET):
    with connect(where) as s:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            s.sendall(request)
        return rest(s)


def status(answer):
    """Of a whole answer: the status."""
    head, _, body = answer.partition(b"\r\n\r\n")
    fields = dict(row.lower().split(b": ", 1) for row in head.split(b"\r\n")[1:])
    assert int(fields[b"content-length"]) == len(body) and fields[b"connection"] == b"close"
    assert head.startswith(b"HTTP/1.1 ")
    return int(head.split()[1])


def text(answer):
    assert status(answer) == 200, answer[:200]
    assert b"Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n" in answer
    return answer.partition(b"\r\n\r\n")[2].decode()


def until_it_listens(rig, where):
    """The path of a socket is there before anybody listens."""
    while f"metrics: listens on {where}\n" not in (rig.directory / "log").read_text():
        assert rig.daemon.poll() is None
        time.sleep(0.01)


def pause():
    """As long as what the kernel has said is good for."""
    time.sleep(1.2)


def of_command(rig):
    return rig.larder("metrics", env=rig.environment()).stdout


def test_same_text_as_the_command(listening):
    said = text(ask(listening.path))
    assert said == of_command(listening) and "larder_volume_read_hits_total" in said and said.endswith("# EOF\n")
    # as it is then
    pause()
    listening.status.write_text(line("volume", "data", read_hits=77))
    assert 'larder_volume_read_hits_total{volume="data",cache=""} 77\n' in text(ask(listening.path))
    assert listening.path.stat().st_mode & 0o777 == 0o600, "for root alone"
    pause()
    assert text(ask(listening.path, b"GET /metrics?format=x HTTP/1.0\n\n")) == of_command(listening)


@pytest.mark.parametrize(
    "request_, code",
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /metrics/ HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 405),
        (b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 2000 + b"\r\n", 400),
        (b"GET /" + b"m" * 100000, 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" + b"\0" * 100000, 200),
    ],
)
def test_requests(listening, request_, code):
    answer = ask(listening.path, request_)
    assert status(answer) == code
    assert (b"Allow: GET\r\n" in answer) == (code == 405)
    assert status(ask(listening.path)) == 200


def test_request_in_pieces(listening):
    with connect(listening.path) as s:
        for byte in GET:
            s.sendall(bytes([byte]))
        assert status(rest(s)) == 200


def test_who_closes_early(listening):
    for sent in (b"", b"GET /met", GET, b"\0"):
        for _ in range(4):
            with connect(listening.path) as s:
                s.sendall(sent)
    with connect(listening.path) as s:  # only its half
        s.sendall(GET)
        s.shutdown(socket.SHUT_WR)
        assert status(rest(s)) == 200


def test_who_is_slow(listening):
    """Those who send nothing, or never an end, keep nobody out, and are sent away."""
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connect(listening.path)) for _ in range(MANY)]
        for s in idle[::2]:
            with contextlib.suppress(BrokenPipeError):
                s.sendall(GET[:-2])
        assert status(ask(listening.path)) == 200
        for s in idle:
            assert rest(s) == b""
    assert listening.daemon.poll() is None


def test_who_does_not_read(rig):
    """Of an answer that is larger than what the kernel keeps for a reader who does not come."""
    rig.status.write_text("".join(line("volume", f"data{i}") for i in range(300)))
    rig.start_larderd("--metrics-listen", rig.path)
    wanted = of_command(rig)
    assert len(wanted) > 1 << 20
    with contextlib.ExitStack() as stack:
        lazy = [stack.enter_context(connect(rig.path)) for _ in range(MANY)]
        for s in lazy:
            with contextlib.suppress(BrokenPipeError):
                s.sendall(GET)
        while not (answer := ask(rig.path)):
            pass  # until the first of them is sent away
        assert text(answer) == wanted
        cut = [rest_when_left(s) for s in lazy]
        assert all(len(got) < len(wanted) for got in cut) and any(got.startswith(b"HTTP/1.1 200") for got in cut)
    assert text(ask(rig.path)) == wanted


def test_many_at_once(listening):
    """Who asks while the kernel is asked gets what that says."""
    with contextlib.ExitStack() as stack:
        asked = [stack.enter_context(connect(listening.path)) for _ in range(8)]
        for s in asked:
            s.sendall(GET)
        assert {text(rest(s)) for s in asked} == {of_command(listening)}


def test_kernel_does_not_answer(listening):
    listening.status.unlink()
    began = time.monotonic()
    assert status(ask(listening.path)) == 503
    listening.status.write_text("")
    until(lambda: status(ask(listening.path)) == 200)
    assert time.monotonic() - began >= 1, "not asked again at once"
    assert text(ask(listening.path)) == "# EOF\n"


def test_as_often_as_one_likes(listening):
    """The kernel is asked once in a second, whoever asks how often."""
    began = time.monotonic()
    said = set()
    for n in range(40):
        listening.status.write_text(line("volume", "data", read_hits=n))
        said.add(text(ask(listening.path)))
    assert len(said) <= time.monotonic() - began + 2
    pause()
    assert 'larder_volume_read_hits_total{volume="data",cache=""} 39\n' in text(ask(listening.path))


def test_no_more_descriptors(listening):
    """A child that cannot be waited for is not left to run, and nobody waits for it."""
    larderd = listening.daemon.pid
    children = Path(f"/proc/{larderd}/task/{larderd}/children")

    def open_files():
        """By number; one may be closed meanwhile."""
        found = {}
        for fd in Path(f"/proc/{larderd}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found[int(fd.name)] = os.readlink(fd)
        return found

    before = set(open_files().values())
    with connect(listening.path) as s:
        s.sendall(GET[:-2])
        until(lambda: any(f not in before and f.startswith("socket:") for f in open_files().values()))
        listening.status.unlink()
        os.mkfifo(listening.status)  # who opens it hangs
        taken = open_files()
        lowest = next(fd for fd in range(len(taken) + 1) if fd not in taken)
        limits = resource.prlimit(larderd, resource.RLIMIT_NOFILE, (lowest, resource.prlimit(larderd, resource.RLIMIT_NOFILE)[1]))
        s.sendall(b"\r\n")
        assert status(rest(s)) == 503
        assert not children.read_text()
    resource.prlimit(larderd, resource.RLIMIT_NOFILE, limits)
    listening.status.unlink()
    listening.status.write_text("")
    assert text(ask(listening.path)) == "# EOF\n"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_tcp(rig, host):
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as s:
            s.bind((host, 0))
            port = s.getsockname()[1]
    except OSError:
        pytest.skip(f"no {host} here")
    rig.start_larderd("--metrics-listen", f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    assert text(ask((host, port))) == of_command(rig)
    assert status(ask((host, port), b"GET /x" + b"y" * 200000)) == 400


def test_nowhere(rig):
    rig.start_larderd()
    assert not [p for p in rig.directory.iterdir() if p.is_socket() and p.name != "notify"]


def test_conf(rig):
    """larder.conf says where; the option overrides it; SIGHUP reads it anew."""
    conf, other = rig.directory / "larder.conf", rig.directory / "other.sock"
    conf.write_text(f"metrics-listen {rig.path}\n")
    rig.start_larderd(LARDER_CONF=str(conf))
    assert status(ask(rig.path)) == 200

    def hup():
        rig.daemon.send_signal(signal.SIGHUP)

    conf.write_text(f"metrics-listen {other}\n")
    hup()
    until_it_listens(rig, other)
    assert status(ask(other)) == 200 and not rig.path.exists()
    conf.write_text("")
    hup()
    while other.exists():
        assert rig.daemon.poll() is None
    conf.write_text(f"metrics-listen {other}\n")
    rig.end(rig.daemon)
    rig.start_larderd("--metrics-listen", rig.path, LARDER_CONF=str(conf))
    assert status(ask(rig.path)) == 200 and not other.exists()
    rig.end(rig.daemon)
    assert not rig.path.exists()


def test_conf_that_is_wrong(rig):
    """It is said, with the number of the line, and nothing else is the matter."""
    conf = rig.directory / "larder.conf"
    conf.write_text("metrics-listen localhost:9750\nmetrics-listen\nmetrics-listen /a /b\n")
    rig.start_larderd(LARDER_CONF=str(conf))
    rig.end(rig.daemon)
    said = (rig.directory / "log").read_text()
    for number in (1, 2, 3):
        assert f"larder.conf:{number}: metrics-listen: is not one an absolute path, V.W.X.Y:PORT" in said, said


def test_socket_of_systemd(rig):
    given = rig.directory / "given.sock"
    program = rig.directory / "activated"
    program.write_text(f"""#!{sys.executable}
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind({str(given)!r})
s.listen()
os.dup2(s.fileno(), 3)
os.set_inheritable(3, True)
os.environ |= {{"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}}
os.execv({str(rig.program)!r}, [{str(rig.program)!r}, *sys.argv[1:]])
""")
    program.chmod(0o755)
    rig.program = program
    rig.start_larderd("--metrics-listen", rig.path)
    assert text(ask(given)) == text(ask(rig.path)) == of_command(rig)
    rig.end(rig.daemon)
    assert given.exists() and not rig.path.exists(), "that one is systemd's"


def test_where_something_is(rig):
    """A socket that a killed daemon has left goes; one at which another listens, and a file, stay, and it is tried again."""
    rig.start_larderd("--metrics-listen", rig.path)
    rig.end(rig.daemon, signal.SIGKILL)
    assert rig.path.is_socket()
    rig.start_larderd("--metrics-listen", rig.path)
    assert status(ask(rig.path)) == 200
    rig.end(rig.daemon)
    rig.path.write_text("of somebody else")
    rig.start_larderd("--metrics-listen", rig.path)
    said = (rig.directory / "log").read_text()
    assert f"metrics: {rig.path}: cannot listen there: Address already in use" in said
    assert rig.path.read_text() == "of somebody else"
    rig.path.unlink()
    until_it_listens(rig, rig.path)
    assert status(ask(rig.path)) == 200


WRONG = ["", "metrics", "localhost:80", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:080", "1.2.3:80", "256.0.0.1:80"]
WRONG += ["::1:80", "[::1]", "[::1]:x", "[::1%lo]:80", "/", "/run/", "/a b", "/" + "x" * 200]


@pytest.mark.parametrize("word", WRONG)
def test_wrong_address(rig, word):
    run = subprocess.run([rig.program, "--metrics-listen", word], env=os.environ, capture_output=True, text=True, timeout=SECONDS)
    assert run.returncode == USAGE and "--metrics-listen" in run.stderr and "V.W.X.Y:PORT" in run.stderr
