# SPDX-License-Identifier: GPL-2.0-or-later
"""What the CPU of a machine that answers no more is doing: registers and stack by QEMU's monitor, with the guest's symbols."""

import bisect
import re
import time
from pathlib import Path

from .monitor import ask

STACK_WORDS = 400


class Symbols:
    """Of /proc/kallsyms, as the session left it."""

    def __init__(self, text: str):
        found = []
        for line in text.splitlines():
            address, kind, *name = line.split()
            if kind in "tT" and int(address, 16):
                found.append((int(address, 16), " ".join(name)))
        found.sort()
        self.addresses = [a for a, _ in found]
        self.names = [n for _, n in found]

    def name(self, address: int) -> str | None:
        i = bisect.bisect_right(self.addresses, address) - 1
        if i < 0 or address - self.addresses[i] > 1 << 16:
            return None
        return f"{self.names[i]}+{address - self.addresses[i]:#x}"


def examine(results: Path, seconds: float = 1.0) -> str:
    """Three looks at the first CPU: where it is, and what on its stack looks like a return address."""
    monitor, symbols = results / "monitor", results / "kallsyms"
    if not monitor.exists() or not symbols.exists():
        return "no monitor or no symbols"
    table = Symbols(symbols.read_text())
    lines = []
    for _ in range(3):
        try:
            text = ask(monitor, "info registers", f"x /{STACK_WORDS}gx $sp")
        except OSError as e:
            lines.append(f"QEMU's monitor: {e}")
            break
        rip = re.search(r"RIP=([0-9a-f]{16})", text)
        flags = re.search(r"RFL=([0-9a-f]{8})", text)
        if not rip or not flags:
            lines.append("no registers in the answer of QEMU's monitor")
            break
        interrupts = "on" if int(flags[1], 16) & 0x200 else "off"
        lines.append(f"at {table.name(int(rip[1], 16)) or rip[1]}, interrupts {interrupts}; on the stack:")
        stack = "".join(re.findall(r"^[0-9a-f]{16}: (.*)$", text, re.M))
        words = [int(w, 16) for w in re.findall(r"0x([0-9a-f]{16})", stack)]
        lines += [f"  {name}" for name in map(table.name, words) if name]
        time.sleep(seconds)
    return "\n".join(lines)
