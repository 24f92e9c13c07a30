# SPDX-License-Identifier: GPL-2.0-or-later
"""A database whose content is a function of how many transactions it has had: so a part of one, or a lost one, is seen."""

import contextlib
import hashlib
import sqlite3

ROWS, CHANGES = 60, 5  # of the table; of a transaction


def value(number: int, key: int) -> str:
    """What transaction number writes to this row: of any length up to some pages."""
    text = hashlib.sha256(f"{number} {key}".encode()).hexdigest()
    return text * (1 + (number * 7 + key) % 40)


def keys(number: int) -> list[int]:
    return [(number * 11 + i * 17) % ROWS for i in range(CHANGES)]


def connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def create(path: str, journal: str) -> sqlite3.Connection:
    """journal: wal, delete (a rollback journal: with FULL the removal of the newest one, which commits, need not be durable)."""
    db = connect(path)
    assert db.execute(f"PRAGMA journal_mode={journal}").fetchone() == (journal,)
    db.execute(f"PRAGMA synchronous={'FULL' if journal == 'wal' else 'EXTRA'}")
    db.execute("PRAGMA wal_autocheckpoint=20")
    db.execute("CREATE TABLE log (key INTEGER PRIMARY KEY, number INTEGER, text TEXT)")
    db.execute("INSERT INTO log VALUES (-1, 0, '')")
    return db


def transact(db: sqlite3.Connection, number: int) -> None:
    db.execute("BEGIN IMMEDIATE")
    db.executemany("INSERT OR REPLACE INTO log VALUES (?, ?, ?)", [(k, number, value(number, k)) for k in keys(number)])
    db.execute("UPDATE log SET number=? WHERE key=-1", (number,))
    db.execute("COMMIT")


def expected(numbers: int) -> dict[int, tuple[int, str]]:
    newest = {k: n for n in range(1, numbers + 1) for k in keys(n)}
    return {k: (n, value(n, k)) for k, n in newest.items()}


def judge(path: str, committed: int) -> str:
    """What is wrong; "": nothing."""
    try:
        with contextlib.closing(connect(path)) as db:
            if (said := db.execute("PRAGMA integrity_check").fetchall()) != [("ok",)]:
                return f"integrity_check: {said[:3]}"
            rows = {k: (n, text) for k, n, text in db.execute("SELECT * FROM log")}
    except sqlite3.Error as e:
        return f"{type(e).__name__}: {e}"
    found = rows.pop(-1)[0]
    if found < committed:
        return f"transaction {committed} was committed, {found} is the newest"
    wrong = sorted(k for k in {*rows, *expected(found)} if rows.get(k) != expected(found).get(k))
    return f"after transaction {found}: rows {wrong} are not as it leaves them" if wrong else ""
