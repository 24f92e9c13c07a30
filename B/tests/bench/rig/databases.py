# SPDX-License-Identifier: GPL-2.0-or-later
"""A database on ext4 on the peer, and the load of TPC-B on it: each transaction changes a row of three tables, one of them large,
reads one, and adds to a fourth; it is durable when it ends.  SQLite, by Python's module, with its log ("wal") or the journal that
it deletes ("delete"); PostgreSQL by pgbench, which is where the load's form is from.
"""

import contextlib
import os
import pwd
import random
import re
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import cases
from mounted import make, mounted, timed
from peers import wait_for

ACCOUNTS, TELLERS, BRANCHES = 100_000, 10, 1  # of a scale of 1, as pgbench has them
MIB = 960  # of the file system: less than an SSD has
USER = "postgres"
PROGRAMS = Path("/usr/lib/postgresql/15/bin")
# Of a server that shall do the same thing twice: nothing in the background at times of its own, and a cache that holds a part.
SETTINGS = {
    "shared_buffers": "16MB",
    "max_wal_size": "384MB",
    "checkpoint_timeout": "1d",
    "autovacuum": "off",
    "jit": "off",
    "listen_addresses": "",
    "unix_socket_directories": "/tmp",
    "timezone": "GMT",
    "log_timezone": "GMT",
}


class Sqlite:
    """One client.  The journal's mode is the part of the engine's name behind the hyphen."""

    def __init__(self, top: Path, step: cases.Database):
        self.path, self.step = top / "bench.db", step

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.execute(f"pragma journal_mode={self.step.engine.partition('-')[2]}")
        connection.execute("pragma synchronous=full")
        with contextlib.closing(connection):
            yield connection

    def fill(self) -> None:
        number = self.step.scale
        with self._connect() as c:
            c.execute("begin")
            for table, rows, filler in (("accounts", ACCOUNTS, 84), ("tellers", TELLERS, 84), ("branches", BRANCHES, 88)):
                c.execute(f"create table {table} (id integer primary key, balance integer, filler text)")
                c.executemany(f"insert into {table} values (?, 0, ?)", ((i, " " * filler) for i in range(rows * number)))
            c.execute("create table history (teller integer, branch integer, account integer, delta integer, filler text)")
            c.execute("commit")

    def _transaction(self, c: sqlite3.Connection, draw: random.Random) -> None:
        number = self.step.scale
        account, teller, branch = (draw.randrange(rows * number) for rows in (ACCOUNTS, TELLERS, BRANCHES))
        delta = draw.randint(-5000, 5000)
        c.execute("begin immediate")
        c.execute("update accounts set balance = balance + ? where id = ?", (delta, account))
        c.execute("select balance from accounts where id = ?", (account,)).fetchone()
        c.execute("update tellers set balance = balance + ? where id = ?", (delta, teller))
        c.execute("update branches set balance = balance + ? where id = ?", (delta, branch))
        c.execute("insert into history values (?, ?, ?, ?, ?)", (teller, branch, account, delta, " " * 22))
        c.execute("commit")

    def load(self) -> int:
        """ns"""
        draw = random.Random(self.step.seed)
        with self._connect() as c:
            return timed(lambda: [self._transaction(c, draw) for _ in range(self.step.transactions)])


class Postgres:
    def __init__(self, top: Path, step: cases.Database):
        self.data, self.step = top / "postgresql", step

    def _run(self, program: str, *words: object) -> str:
        r = subprocess.run(
            [PROGRAMS / program, *map(str, words)],
            user=USER,
            group=USER,
            cwd="/tmp",
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if r.returncode:
            raise RuntimeError(f"{program}: ends with {r.returncode}: {(r.stdout + r.stderr)[-1500:]}")
        return r.stdout

    @contextlib.contextmanager
    def _server(self) -> Iterator[None]:
        words = [w for name, value in SETTINGS.items() for w in ("-c", f"{name}={value}")]
        with open("/tmp/postgresql.log", "wb") as log:
            server = subprocess.Popen(
                [PROGRAMS / "postgres", "-D", self.data, *words],
                user=USER,
                group=USER,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            wait_for(lambda: server.poll() is not None or self._ready(), 4000, "PostgreSQL to start")
            if server.poll() is not None:
                raise RuntimeError(f"PostgreSQL: {Path('/tmp/postgresql.log').read_text()[-1500:]}")
            yield
        finally:
            server.terminate()  # waits for nobody's session, and there is none
            server.wait()

    @staticmethod
    def _ready() -> bool:
        return not subprocess.run([PROGRAMS / "pg_isready", "-q", "-h", "/tmp"], stdin=subprocess.DEVNULL).returncode

    def fill(self) -> None:
        self.data.mkdir()
        owner = pwd.getpwnam(USER)
        os.chown(self.data, owner.pw_uid, owner.pw_gid)
        self._run("initdb", "-D", self.data, "--locale=C", "--encoding=UTF8", "--auth=trust", "--no-instructions")
        with self._server():
            self._run("pgbench", "-h", "/tmp", "-i", "-q", "-s", self.step.scale, "postgres")

    def load(self) -> int:
        """ns"""
        clients = self.step.clients
        each = self.step.transactions // clients
        with self._server():
            self._run("pgbench", "-h", "/tmp", "-n", "-t", 20, "--random-seed=7", "postgres")  # the catalogue is read
            words = ["-h", "/tmp", "-n", "-M", "prepared", "-c", clients, "-t", each, f"--random-seed={self.step.seed}", "postgres"]
            said = self._run("pgbench", *words)
        rate = re.search(r"^tps = ([0-9.]+) \(without", said, re.MULTILINE)
        if not rate or f"processed: {clients * each}/{clients * each}" not in said:
            raise RuntimeError(f"pgbench: {said[-1500:]}")
        return round(clients * each / float(rate[1]) * 1e9)


def _read_all(top: Path) -> None:
    """Into the page cache."""
    for path in sorted(p for p in top.rglob("*") if p.is_file()):
        with open(path, "rb", buffering=0) as f:
            while f.read(1 << 20):
                pass


def run(step: cases.Database, device: str) -> dict:
    """Makes the database, or: ns that so many transactions took."""
    if step.setup:
        make(device, MIB)
    with mounted(device) as top:
        engine = (Postgres if step.engine == "postgresql" else Sqlite)(top, step)
        if step.setup:
            return {"ns": timed(engine.fill)}
        if not step.cold:
            _read_all(top)
        return {"ns": engine.load(), "transactions": step.transactions}
