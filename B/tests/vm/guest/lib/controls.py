# SPDX-License-Identifier: GPL-2.0-or-later
"""What happens to a volume and its cache beside the oracle's load: switches, each of which leaves everything running, or raises."""

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable

from .command import CommandError
from .larder import Cache, Volume
from .oracle import Oracle

MODES = ("writethrough", "writearound", "writeback")

SETTINGS = (
    ("volume", "fill", "off"),
    ("volume", "sequential_cutoff", 64),
    ("cache", "commit", "always"),
    ("volume", "writeback", "off"),
    ("cache", "discard", "on"),
    ("volume", "writeback_percent", 0),
    ("volume", "writeback", "on"),
    ("cache", "commit", "auto"),
    ("cache", "commit_interval", 1),
    ("volume", "fill", "on"),
    ("volume", "sequential_cutoff", 0),
    ("cache", "gather", 64),
    ("cache", "small_percent", 5),
    ("volume", "writeback_depth", 1),
    ("cache", "gather", 1),
    ("cache", "checkpoint_percent", 1),
    ("cache", "max_marks", 64),
    ("volume", "writeback_depth", 128),
    ("volume", "writeback_rate_max", 100),
    ("cache", "memory_limit", 1),
    ("cache", "gather", 4),
    ("volume", "writeback_rate_max", 0),
    ("volume", "sequential_cutoff", 4096),
    ("cache", "memory_limit", 0),
)


class Switches:
    """switch(number) on one volume and its cache."""

    def __init__(self, volume: Volume, cache: Cache):
        self.volume, self.cache = volume, cache
        self.detached = self.attached = self.refused = 0

    @staticmethod
    def _patient(what: Callable[[], object], *passing: int) -> None:
        """What is refused while the cache is suspended, as somebody else may just have done it, or by an error that passes."""
        end = time.monotonic() + 60
        while True:
            try:
                what()
                return
            except CommandError as e:
                if e.status not in (errno.EBUSY, *passing) or time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def heal(self) -> None:
        """After a failure: so that the load comes to its end."""
        for d in (self.cache, self.volume):
            with contextlib.suppress(CommandError):
                d.resume()

    def modes(self, number: int) -> None:
        self.volume.set(mode=MODES[number % 3])

    def settings(self, number: int) -> None:
        who, key, value = SETTINGS[number % len(SETTINGS)]
        getattr(self, who).message("set", key, value)

    def checkpoint(self, number: int) -> None:
        """In a small cache there may be no free segment for one, until reclaim has made some.  And behind a flush that an SSD has
        failed none counts, until what was not durable then has been looked at."""
        self._patient(lambda: self.cache.message("checkpoint"), errno.ENOSPC, errno.EIO)

    def evict(self, number: int) -> None:
        if number % 2:
            self._patient(lambda: self.volume.message("drop_clean"))
        else:
            # what is dirty of a volume that is suspended just now is not written back: there may be nothing else to reclaim
            self._patient(lambda: self.cache.message("reclaim", 1 + number % 8), errno.EAGAIN, errno.ESHUTDOWN)

    def scrub(self, number: int) -> None:
        """Begins one where none is running; every third time it gives up one that is."""
        running = self.cache.status()["scrub"] == "running"
        if running and number % 3:
            return
        try:
            self.cache.message("scrub_stop" if running else "scrub")
        except CommandError as e:  # it has ended meanwhile; or the cache is suspended
            if e.status not in (errno.EINVAL, errno.EBUSY):
                raise

    def writeback(self, number: int) -> None:
        self._patient(lambda: self.volume.message(("flush", "flush_stop", "flush")[number % 3]))
        self._patient(lambda: self.cache.message("commit"))

    def suspend(self, number: int) -> None:
        self.volume.suspend(noflush=bool(number % 2), nolockfs=bool(number % 2))
        self.volume.status()
        self._patient(self.volume.resume)

    def reload(self, number: int) -> None:
        self.volume.load(self.volume.table())
        self.volume.suspend(noflush=bool(number % 2))
        self._patient(self.volume.resume)

    def suspend_cache(self, number: int) -> None:
        self.cache.suspend(noflush=bool(number % 2))
        self.cache.status()
        self.cache.resume()

    def reload_cache(self, number: int) -> None:
        self.cache.reload(self.cache.table())

    def attach(self, number: int) -> None:
        """Or detach, which needs a moment without dirty data: beside a load there may be none.  Then the table is refused, and
        nothing has changed."""
        line = self.volume.table()
        _, sectors, _, backing, cache, *_ = line.split()
        if cache == "-":
            self.volume.reload(f"0 {sectors} larder {backing} {self.cache} 0")
            self.attached += 1
            return
        self.volume.set(mode="writethrough")
        self.volume.message("flush")
        for _ in range(200):
            try:
                self.volume.load(f"0 {sectors} larder {backing} - 0")
                break
            except CommandError:
                self.refused += 1
        else:
            self.volume.set(mode="writeback")
            return
        self.volume.suspend()
        try:
            self.volume.resume()
            self.detached += 1
        except CommandError:  # dirty after all
            self.refused += 1
            self.volume.load(line)
            self.volume.resume()

    def run(self, oracle: Oracle, *names: str, first: int = 0, **load: object) -> int:
        """The oracle's load, and beside it the switches of these names by turns, each given how often it had its turn before; one
        for each 'every' operations.  Returns the number of the next one."""
        switches = [getattr(self, name) for name in names]
        reader, writer = os.pipe()
        number, failure = first, None

        def work() -> None:
            nonlocal number, failure
            with open(reader) as due:
                for _ in due:
                    if failure:
                        continue
                    try:
                        switches[number % len(switches)](number // len(switches))
                        number += 1
                    except Exception as e:
                        failure = e
                        self.heal()

        thread = threading.Thread(target=work, daemon=True)
        running = oracle.start(control_fd=writer, **load)
        os.close(writer)
        thread.start()
        try:
            running.wait(3600)
        finally:
            if running.running():
                running.kill()
            thread.join()
        if failure:
            raise failure
        return number
