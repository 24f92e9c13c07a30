# SPDX-License-Identifier: GPL-2.0-or-later
"""File systems under load while a stack is recorded; what was durable at a power cut is judged by marks "sum ...": lib/crash.py."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

from . import command, database
from .crash import mark
from .storm import Storm
from .storm import judge as judge_files

MOUNTED = Path("/mnt")
SUMS = Path("/tmp/explore.sums")  # what the marks "sum ..." before a power cut say


class Judge:
    """Says what is wrong, by the lines of SUMS, whenever something is written to a fifo; answers by another one.  A Python started
    for each takes seconds under TCG."""

    def __init__(self, name: str, wrong: Callable[[list[str]], str]):
        self.wrong = wrong
        self.ask, self.answer = Path(f"/tmp/{name}.ask"), Path(f"/tmp/{name}.answer")
        for fifo in (self.ask, self.answer):
            fifo.unlink(missing_ok=True)
            os.mkfifo(fifo)
        threading.Thread(target=self._work, daemon=True).start()

    @property
    def command(self) -> str:
        return f'echo >{self.ask}; read line <{self.answer}; [ "$line" = right ] || {{ echo "$line"; false; }}'

    def _work(self) -> None:
        while True:
            self.ask.read_text()
            try:
                wrong = self.wrong(SUMS.read_text().splitlines())
            except Exception as e:  # whoever asks is told
                wrong = f"{type(e).__name__}: {e}"
            self.answer.write_text(f"{wrong or 'right'}\n")


class Mounted:
    """A file system on which threads do one turn after the other until stop(); what a turn has made durable is marked."""

    THREADS = 1
    ENOUGH = 40  # turns

    def __init__(self, device: object, make: tuple, check: str):
        self.check = (
            f"mount {device} {MOUNTED} && {{ {self.judge().command}; r=$?; umount {MOUNTED}; [ $r = 0 ]; }} && "
            f"{{ {check} {device} >/tmp/fsck 2>&1 || {{ cat /tmp/fsck; false; }}; }}"
        )
        command.run(*make, device)
        command.run("mount", device, MOUNTED)
        self.count, self.going = 0, True
        self.wrong: Exception | None = None
        self.threads = [threading.Thread(target=self._work, args=(i,)) for i in range(self.THREADS)]

    @classmethod
    def judge(cls) -> Judge:
        """Of the file system while it is mounted."""
        raise NotImplementedError

    def _work(self, thread: int) -> None:
        try:
            self.begin()
            while self.going:
                self.count += 1
                self.turn(thread)
            self.end()
        except Exception as e:
            self.wrong = e  # stop() raises it

    def begin(self) -> None:
        pass

    def turn(self, thread: int) -> None:
        raise NotImplementedError

    def end(self) -> None:
        pass

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.going = False
        for thread in self.threads:
            thread.join()
        command.run("umount", MOUNTED)
        if self.wrong:
            raise self.wrong


class Files(Mounted):
    """Four threads that change files, and fsync each change."""

    THREADS = 4
    ENOUGH = 120

    def __init__(self, device: object, make: tuple, check: str, seed: int):
        self.storms = [Storm(seed, f"{i}") for i in range(self.THREADS)]
        super().__init__(device, make, check)

    @classmethod
    def judge(cls) -> Judge:
        return Judge("files", lambda lines: judge_files(MOUNTED, lines))

    def turn(self, thread: int) -> None:
        change = self.storms[thread].next()
        mark(f"sum {change.begin}")
        change.make(MOUNTED)
        mark(f"sum {change.done}")


class Database(Mounted):
    """SQLite, a transaction a turn."""

    PATH = str(MOUNTED / "db")

    def __init__(self, device: object, make: tuple, check: str, journal: str):
        self.journal = journal
        super().__init__(device, make, check)

    @classmethod
    def judge(cls) -> Judge:
        return Judge("database", lambda lines: database.judge(cls.PATH, int(lines[-1])) if lines else "")

    def begin(self) -> None:
        self.db = database.create(self.PATH, self.journal)

    def turn(self, thread: int) -> None:
        database.transact(self.db, self.count)
        mark(f"sum {self.count}")

    def end(self) -> None:
        self.db.close()
