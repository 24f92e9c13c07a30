# SPDX-License-Identifier: GPL-2.0-or-later
"""One boot of the bench VM: kernel, model, peer and set go in, a list of reports comes out.

One CPU under -icount shift=0,sleep=off: a nanosecond of the guest is one instruction, and idle time costs none of the host's:
what is measured does not depend on the host.  With scale=4 and all figures divided by it, that is a CPU of 4 instructions per ns.
The set "scaling" has four CPUs, and no such clock.
"""

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "vm" / "guest"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "vm"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "rig"))

import cases
import initrd
import traces
import writeboost
from host import build, kernels, process
from jobs import LOGS
from peers import PEERS
from setups import SETUPS

TOP = Path(__file__).resolve().parents[2]
SCALE = 4
MEMORY = "4G"
DISKS = {
    "null": {"ssd": {"model": "null", "wce": 1}, "hdd": {"model": "null", "wce": 1}},
    "sata": {"ssd": {"model": "sata"}, "hdd": {"model": "hdd"}},
    "nvme": {"ssd": {"model": "nvme"}, "hdd": {"model": "hdd"}},
    "nvmeplp": {"ssd": {"model": "nvmeplp"}, "hdd": {"model": "hdd"}},
    "slow": {"ssd": {"model": "slow"}, "hdd": {"model": "hdd"}},
    "worn": {
        "ssd": {"model": "slow", "cmd_ns": 25_000_000, "flush_ns": 60_000_000, "media_mbs": 10},
        "hdd": {"model": "hdd"},
    },
}
ARGUMENTS = (
    "console=ttyS0 loglevel=5 rdinit=/init panic=-1 mitigations=off nowatchdog norandmaps nokaslr audit=0 "
    "random.trust_cpu=off random.trust_bootloader=off PYTHONHASHSEED=0"
)


class BootError(Exception):
    """The VM did not come to its end."""


@dataclasses.dataclass
class Built:
    """For one kernel.  modules: by peer, in the order of loading.  more: for sets that use a file system.  postgresql: an archive
    that goes behind the initrd."""

    kernel: str
    initrd: Path
    modules: dict[str, list[Path]]
    more: list[Path]
    postgresql: Path


def writer() -> Path:
    """The directory of the program that makes images of caches."""
    directory = build.cache_directory() / "build" / "images"
    with build.locked(directory):
        build.run("tests/images", "make", "-s", "-C", str(TOP / "tests" / "images"), f"BUILD={directory}", f"{directory}/writer")
    return directory


def build_all(kernel: str, peers: list[str], directory: Path, postgresql: bool = False) -> Built:
    """Peers whose module cannot be had are left out of modules.  MissingError: the system lacks something that all need."""
    kinds = PEERS | SETUPS
    larder = any("larder" in kinds[p].modules for p in peers)
    own = {m.stem: m for m in build.modules(kernel, larder=larder)}
    if "writeboost" in peers:
        module = writeboost.module(kernel)
        if module:
            own[module.stem] = module
    below = build.programs(larder)
    if larder:
        below.append(writer())
    modules: dict[str, list[Path]] = {}
    programs = {p: initrd.find_program(p, below) for p in initrd.PROGRAMS}
    for peer in peers:
        try:
            found = initrd.module_files(kernel, ["dm-mod", "simdisk", *kinds[peer].modules], own)
            programs |= {p: initrd.find_program(p, below) for p in kinds[peer].programs}
        except initrd.MissingError as e:
            print(f"bench: {peer} is left out: {e}", flush=True)
            continue
        modules[peer] = found
    directory.mkdir(parents=True, exist_ok=True)
    base = directory / f"initrd-{kernel}"
    more = initrd.module_files(kernel, ["ext4"], {})
    initrd.write(base, programs, list(dict.fromkeys(m for found in (more, *modules.values()) for m in found)))
    databases = directory / "initrd-postgresql"
    if postgresql:
        initrd.write_postgresql(databases)
    return Built(kernel, base, modules, more, databases)


def prepare(built: Built, directory: Path, model: str, peer: str, set_: cases.Set, only: str, symbols: str = "") -> None:
    """Writes directory/initrd.  symbols: of "modules" or "all" the guest shall report."""
    session = {"model": model, "peer": peer, "set": set_.name, "only": only, "scale": SCALE, "symbols": symbols}
    modules = built.modules[peer] + (built.more if set_.filesystem else [])
    session |= DISKS[model] | {"modules": list(dict.fromkeys(initrd.module_name(m) for m in modules))}
    files = {"/etc/bench.json": json.dumps(session).encode()}
    files |= {str(path): data for path, data in traces.logs(LOGS, peer, set_, only)}
    bases = [built.initrd, *([built.postgresql] if set_.postgresql else [])]
    initrd.extend(bases, directory / "initrd", files)


def command(kernel: str, directory: Path, cpus: int = 1) -> list[str]:
    c = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-machine", "q35", "-smp", str(cpus), "-m", MEMORY]
    c += ["-cpu", "max,-erms,-fsrm,-rdrand,-rdseed", "-accel", "tcg", "-rtc", "base=2026-01-01,clock=vm"]
    c += ["-icount", "shift=0,sleep=off"] if cpus == 1 else []
    c += ["-display", "none", "-no-reboot", "-serial", f"file:{directory}/console", "-serial", f"file:{directory}/reports"]
    return [*c, "-kernel", str(kernels.image(kernel)), "-initrd", str(directory / "initrd"), "-append", ARGUMENTS]


def run(built: Built, directory: Path, model: str, peer: str, set_: cases.Set, only: str) -> list[dict]:
    """The reports, in order.  BootError, with what there is on the console, if the last one is missing."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    prepare(built, directory, model, peer, set_, only)
    with open(directory / "qemu", "wb") as out:
        machine = process.start(command(built.kernel, directory, set_.cpus), stdout=out, stderr=out)
        try:
            machine.wait(set_.minutes * 60)
        except subprocess.TimeoutExpired:
            pass
        finally:
            process.kill(machine)
    (directory / "initrd").unlink()
    reports = [json.loads(line) for line in (directory / "reports").read_text(errors="replace").splitlines() if line.endswith("}")]
    if not reports or "done" not in reports[-1]:
        why = reports[-1].get("failed", "") if reports else ""
        console = "\n".join((directory / "console").read_text(errors="replace").splitlines()[-15:])
        raise BootError(f"{model} {peer} {set_.name}: no end; {directory}\n{why}\n{console}"[-3000:])
    return reports
