# SPDX-License-Identifier: GPL-2.0-or-later
"""That whoever looks after the machine is told."""

from . import dm
from .larder import wait_for


class Told:
    """with Told(...): what is done has an event on these devices and these lines in the log."""

    def __init__(self, kernel_log, devices: list[dm.DmDevice], *lines: str):
        self.kernel_log, self.devices, self.lines = kernel_log, devices, lines

    def __enter__(self) -> None:
        self.kernel_log.mark()
        self.before = [d.events() for d in self.devices]

    def __exit__(self, kind: object, *_: object) -> None:
        if kind:
            return
        for d, before in zip(self.devices, self.before, strict=True):
            wait_for(lambda d=d, before=before: d.events() > before, 60, f"an event of {d}")
        for line in self.lines:
            wait_for(lambda line=line: self.kernel_log.matching(f"larder: .*{line}"), 60, f"a line '{line}' in the kernel log")
