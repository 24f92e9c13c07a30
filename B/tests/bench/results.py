# SPDX-License-Identifier: GPL-2.0-or-later
"""What was measured, and what follows from it.  One file per kernel, model, peer and case, so that a part can be measured again."""

import dataclasses
import json
import subprocess
from pathlib import Path

import cases

TOP = Path(__file__).resolve().parents[2]


def commit() -> str:
    """The last one that changed the kernel's part; "+": with changes since."""
    git = ["git", "-c", f"safe.directory={TOP}", "-C", str(TOP)]
    head = subprocess.run([*git, "log", "-1", "--format=%h", "--", "kernel"], capture_output=True, text=True).stdout.strip()
    dirty = subprocess.run([*git, "status", "--porcelain", "--", "kernel"], capture_output=True, text=True).stdout.strip()
    return (head or "unknown") + ("+" if dirty else "")


@dataclasses.dataclass
class Row:
    """A case of one peer on one model.  Times are those of the device modelled: the guest's, divided by the scale."""

    model: str
    peer: str
    case: str
    raw: dict

    @property
    def scale(self) -> float:
        return self.raw.get("scale", 1)

    @property
    def failed(self) -> str:
        return self.raw.get("error", "")

    @property
    def measured(self) -> bool:
        return not self.failed and ("fio" not in self.raw or self.ios > 0)

    def _sides(self) -> list[dict]:
        return [self.raw["fio"][s] for s in ("read", "write") if s in self.raw.get("fio", {})]

    @property
    def ios(self) -> int:
        return sum(s["total_ios"] for s in self._sides())

    @property
    def run_ns(self) -> float:
        return max((s["runtime"] for s in self._sides()), default=0) * 1e6

    def iops(self) -> float | None:
        return self.ios / self.run_ns * 1e9 * self.scale if self.run_ns else None

    def mbs(self) -> float | None:
        return sum(s["io_bytes"] for s in self._sides()) / self.run_ns * 1e3 * self.scale if self.run_ns else None

    def seconds(self) -> float | None:
        return self.raw["ns"] / 1e9 / self.scale if "ns" in self.raw else None

    def transactions(self) -> float | None:
        """A second."""
        return self.raw["transactions"] / self.seconds() if "transactions" in self.raw else None

    def memory_mib(self) -> float | None:
        return self.raw["bytes"] / (1 << 20) if "bytes" in self.raw else None

    def instructions(self) -> float | None:
        """Per I/O, on the model null: a nanosecond of the guest is one."""
        return self.run_ns / self.ios if self.ios and self.model == "null" and self.raw.get("set") == "cpu" else None

    def latency_us(self, what: str) -> float | None:
        """what: mean, max, or a percentile ("50.000000").  Of write and fsync together, or the worse of reads and writes."""
        sides = self.raw.get("fio", {})
        found = {k: self._latency(s, what) for k, s in sides.items()}
        found = {k: v for k, v in found.items() if v is not None}
        if not found:
            return None
        ns = sum(found.values()) if "sync" in found else max(found.values())
        return ns / 1e3 / self.scale

    @staticmethod
    def _latency(side: dict, what: str) -> float | None:
        lat = side.get("lat_ns", {})
        return lat.get(what) if what in ("mean", "max") else lat.get("percentile", {}).get(what)

    def _user(self, side: str) -> int:
        return self.raw.get("fio", {}).get(side, {}).get("io_bytes", 0)

    def bytes_per_byte(self, device: str, counter: str) -> float | None:
        """wbytes: written to the device, media_bytes: programmed in its flash, rbytes: read from it, per byte of the user."""
        user = self._user("read" if counter == "rbytes" else "write")
        when = "now" if counter == "rbytes" else "settled"
        return self.raw[when][device][counter] / user if user and device in self.raw.get(when, {}) else None

    def per_1000(self, device: str, *counters: str) -> float | None:
        n = self.ios
        if not n or device not in self.raw.get("settled", {}):
            return None
        return 1000 * sum(self.raw["settled"][device][c] for c in counters) / n


class Store:
    def __init__(self, directory: Path):
        self.directory = directory

    def _path(self, kernel: str, model: str, peer: str, case: str) -> Path:
        return self.directory / kernel / model / peer / f"{case}.json"

    def keep(self, kernel: str, model: str, peer: str, set_: str, scale: int, tree: str, reports: list[dict]) -> list[Row]:
        rows = []
        for r in reports:
            if "case" not in r or r["setup"]:
                continue
            raw = r | {"scale": scale, "set": set_, "commit": tree}
            path = self._path(kernel, model, peer, r["case"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(raw))
            rows.append(Row(model, peer, r["case"], raw))
        return rows

    def load(self, kernel: str) -> dict[tuple[str, str, str], Row]:
        """By model, peer, case."""
        found = {}
        for path in sorted((self.directory / kernel).glob("*/*/*.json")):
            model, peer, case = path.parts[-3], path.parts[-2], path.stem
            found[model, peer, case] = Row(model, peer, case, json.loads(path.read_text()))
        models = {m for m, _, _ in found} - {"null"}
        for (_, peer, case), row in list(found.items()):
            for m in models if peer in cases.WITHOUT_SSD else ():  # the same behind each SSD
                found.setdefault((m, peer, case), dataclasses.replace(row, model=m))
        return found

    def kernels(self) -> list[str]:
        return sorted(p.name for p in self.directory.iterdir()) if self.directory.is_dir() else []
