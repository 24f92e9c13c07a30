# SPDX-License-Identifier: GPL-2.0-or-later
"""The content oracle (tests/vm/oracle): random load on a device, and a judge of what it holds, also after a power cut."""

import itertools
import subprocess
import tempfile
from pathlib import Path

from . import simdisk
from .command import key_values

_numbers = itertools.count()


class OracleError(AssertionError):
    """It found something wrong, or could not run.  report: its key=value line."""

    def __init__(self, verb: str, status: int, report: dict, err: str):
        self.status, self.report, self.err = status, report, err
        super().__init__(f"oracle {verb}: status {status}: {report}\n{err}")


class Load:
    """A run in the background."""

    def __init__(self, argv: list[str], keep: tuple[int, ...] = ()):
        """keep: file descriptors that it inherits."""
        self.verb = argv[1]
        self.report: dict = {}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, errors="replace", pass_fds=keep
        )

    def running(self) -> bool:
        return self.process.poll() is None

    def wait(self, seconds: float = 600) -> dict:
        """The report; OracleError unless all was right."""
        out, err = self.process.communicate(timeout=seconds)
        self.report = key_values(out)
        if self.process.returncode:
            raise OracleError(self.verb, self.process.returncode, self.report, err)
        return self.report

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class Oracle:
    """One region of one device, and what it may hold.  If it comes back under another path, tell run() and verify(): device=."""

    def __init__(
        self,
        device: object,
        *,
        seed: int = 1,
        size: str | int = "64m",
        offset: str | int = 0,
        unknown: bool = False,
        directory: str | Path | None = None,
        state: str | Path | None = None,
    ):
        self.device = device
        self.seed = seed
        self.runs = 0
        self.last: Load | None = None
        self.region = ["--size", str(size), "--offset", str(offset)] + (["--unknown"] if unknown else [])
        self.directory = Path(directory or tempfile.gettempdir())
        self.state = Path(state) if state else self.directory / f"oracle-{next(_numbers)}.state"
        if not state:
            self.state.unlink(missing_ok=True)

    def _argv(self, verb: str, device: object | None, options: dict) -> list[str]:
        argv = ["oracle", verb, "--dev", str(device or self.device), "--state", str(self.state)]
        for key, value in options.items():
            name = "--" + key.replace("_", "-")
            if value is True:
                argv.append(name)
            elif value is not None and value is not False:
                argv += [name, str(value)]
        return argv

    def start(self, *, device: object | None = None, **options: object) -> Load:
        """Options by name: ops, seconds, qd, mix, sizes, align, control, every, until_error, errors_ok...: oracle --help."""
        options.setdefault("seed", self.seed + 1000003 * self.runs)
        self.runs += 1
        # the state has the seed of its stamps; --seed only makes each run another one
        argv = self._argv("run", device, options) + (self.region if not self.state.exists() else [])
        self.last = Load(argv, (options["control_fd"],) if "control_fd" in options else ())
        return self.last

    def run(self, *, limit: float = 600, **options: object) -> dict:
        load = self.start(**options)
        try:
            return load.wait(limit)
        finally:
            if load.running():
                load.kill()

    def run_until_cut(self, disk: simdisk.Simdisk, **options: object) -> dict:
        """A power cut ends it, and nothing else: an error while there is power is one that the tested device made."""
        report = self.run(ops=0, seconds=300, until_error=True, **options)
        if disk.state()["power"] == "on":
            raise AssertionError(f"the load ended with the power on: {report}")
        simdisk.wait_power_off(disk)
        return report

    def verify(self, *, after: str | None = None, device: object | None = None, limit: float = 600, **options: object) -> dict:
        """after: None (nothing happened), "clean" (an orderly stop), "crash" (a power cut), "loss" (flushed data may be lost)."""
        argv = self._argv("verify", device, {"after": after} | options)
        load = Load(argv)
        try:
            return load.wait(limit)
        finally:
            if load.running():
                load.kill()
