# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs in a VM for host/test_images.py: starts caches from images, one job after the other, and writes what it saw.

start_images.py JOBS RESULTS     both JSON; a job: see job()
"""

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from lib import command, dm
from lib.block import SECTOR, BlockDevice, virtio_disk
from lib.kernel_log import KernelLog

STEP = 2048  # sectors


def slice_of(name: str, where: list) -> dm.DmDevice:
    """[serial of a virtio disk, first sector, sectors]"""
    serial, first, sectors = where
    return dm.DmDevice.create(name, f"0 {sectors} linear {virtio_disk(serial)} {first}")


def difference(a: BlockDevice, b: BlockDevice) -> str:
    if a.sectors != b.sectors:
        return f"{a.sectors} and {b.sectors} sectors"
    for sector in range(0, a.sectors, STEP):
        count = min(STEP, a.sectors - sector)
        x, y = a.read(sector, count), b.read(sector, count)
        if x != y:
            return f"byte {sector * SECTOR + next(i for i in range(len(x)) if x[i] != y[i])}"
    return ""


def look(job: dict, seen: dict, cache: dm.DmDevice, volume: dm.DmDevice) -> None:
    seen["volume"] = volume.status()
    wrong = []
    for sector, text in job.get("sample", []):
        data = volume.read(sector, 8)
        if data[: len(text)] != text.encode():
            wrong.append([sector, text, data[: len(text)].hex()])
    seen["wrong"] = wrong
    if "view" in job:
        view = slice_of("view", job["view"])
        seen["difference"] = difference(volume, view)
        view.remove()
    if job.get("write"):
        for sector in job["write"]:
            volume.write(sector, f"written {sector}".encode().ljust(4096, b"."))
        volume.flush()
        cache.message("checkpoint")
    seen["last"] = {"volume": volume.status(), "cache": cache.status()}


def job(job: dict) -> dict:
    """name, ssd and hdd (slices), sectors of the volume, sample, view, write.  Returns started, the statuses, what larder said."""
    log = KernelLog()
    seen = {"name": job["name"], "started": False}
    ssd, hdd = slice_of("ssd", job["ssd"]), slice_of("hdd", job["hdd"])
    try:
        # what is clean is looked for on the SSD: it is not to be read from the backing for a host that is busy
        options = "4 congestion_read 0 congestion_write 0"
        cache = dm.DmDevice.create("c", f"0 {ssd.sectors} larder-cache 1 {ssd} {options}")
        seen["cache"] = cache.status()
        options = "4 writeback off sequential_cutoff 0"
        volume = dm.DmDevice.create("v", f"0 {job['sectors']} larder {hdd} {cache} {options}")
        seen["started"] = True
        look(job, seen, cache, volume)
    except command.CommandError as e:
        seen["error"] = str(e)
    seen["left"] = [n for n in dm.remove_all() if n]
    seen["log"] = [x for x in log.lines() if re.match("device-mapper: (larder|table)", x)]
    seen["bad"] = log.bad()
    log.close()
    return seen


def main() -> None:
    jobs = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps([job(j) for j in jobs], indent=1))


if __name__ == "__main__":
    main()
