#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The demo itself, in the VM, as root: started by tests/vm/demo, told by way of the environment what it needs to know.

Order: disks, cache and volume, files, cold and hot, random writes, drain, power cut, start, check, table.
Exit: 0 nothing was lost and the cache was warm, 1 otherwise.
"""

import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import stage
from figures import Reads, Table, Writes, reads_between
from lib.dm import DmDevice

RESULTS = Path(os.environ["LARDER_RESULTS"])
SEED = int(os.environ["LARDER_SEED"])
EMULATED = bool(os.environ.get("LARDER_DEMO_EMULATED"))
LYING_SSD = bool(os.environ.get("LARDER_DEMO_LYING_SSD"))
CONTROL = "/sys/kernel/debug/simdisk/ctl"
WORK = Path("/run/demo")  # in RAM
RESIDENT = (WORK / "busybox", "sh")  # a shell, with all it runs, in RAM: for times that nothing but the volume shall count in
LETTERS = Path(__file__).resolve().parent / "letters.py"
FIO_SECONDS = 8
FIO_WRITES = 16000  # at most: what is in the cache shall stay there
LETTERS_BEFORE_CUT = 250
WARM_PERCENT = 50  # of the reads after the power cut, that the SSD must serve
LOADS = {
    "durable": ("one at a time, each on stable storage before the next", "--sync=dsync"),
    "parallel": ("16 at once", "--ioengine=libaio --iodepth=16"),
}


class Demo:
    def __init__(self) -> None:
        self.cache = DmDevice("larder-cache-fast")
        self.volume = DmDevice("data")
        self.spare = DmDevice("spare")
        self.files: list[str] = []  # of the tree, in the order in which they are read
        self.raw: dict[str, Writes] = {}  # by load
        self.cached: dict[str, Writes] = {}
        self.reads: dict[str, Reads] = {}
        self.drained: tuple[int, int, float]  # writes received, writes to the disk, seconds
        self.start_ms = 0
        self.letters = 0  # accepted before the power cut
        self.lost = 0
        self.wrong: list[str] = []

    # ------------------------------------------------------------ chapters

    def disks(self) -> None:
        stage.heading("The disks of this machine")
        stage.say(
            "Two hard disks (7200 rpm) and an NVMe SSD, simulated in RAM. They take the time that such disks take, and like them "
            "they have a write cache: what was not flushed may be gone when their power is cut."
        )
        if EMULATED:
            stage.say(
                "All times are this machine's own: its CPU is emulated, and its clock counts a nanosecond for each instruction, "
                "whatever that takes. So the disks are as fast as real ones, and the CPU is one of a gigahertz."
            )
        for name, model, mb in (("hdd0", "hdd", 4096), ("hdd1", "hdd", 4096), ("ssd0", "nvme", 512)):
            stage.command(f"echo add name={name} model={model} mb={mb} crash=1 > {CONTROL}")
        if LYING_SSD:
            stage.command(f"echo set name=ssd0 ignore_flush=1 ignore_fua=1 > {CONTROL}")
        stage.command("lsblk -o NAME,SIZE,TYPE /dev/hdd0 /dev/hdd1 /dev/ssd0")

    def create(self) -> None:
        stage.heading("Create a cache on the SSD, and a volume on a hard disk")
        stage.command("larder cache create fast --cache /dev/ssd0")
        stage.command("larder volume create data --backing /dev/hdd0 --cache fast")
        stage.command("larder volume start data")
        stage.command("lsblk -o NAME,SIZE,TYPE /dev/hdd0 /dev/ssd0")

    def copy(self) -> None:
        stage.heading("Make a file system, and copy a real tree to it: Linux's own headers")
        self.unpack()
        stage.command("mkfs.ext4 -q -E lazy_itable_init=0 /dev/mapper/data && mount /dev/mapper/data /mnt")
        seconds = stage.command(f"cp -r {WORK}/tree /mnt/ && sync", shell=RESIDENT).seconds
        mb = sum((WORK / "tree" / f).stat().st_size for f in self.files) / 1e6
        stage.result(f"{len(self.files):,} files, {mb:.0f} MB, in {seconds:.1f} s")

    def read(self) -> None:
        stage.heading("Read it cold and hot")
        stage.say(
            "Everything goes to the hard disk, is dropped from the SSD and from RAM, and is then read for the first time, file by "
            "file in random order, the way a compiler follows includes. Then once more, with nothing in RAM."
        )
        stage.command("larder volume flush data --wait")
        stage.command("dmsetup message data 0 drop_clean")
        self.read_tree("cold")
        self.read_tree("hot")

    def writes(self) -> None:
        stage.heading("Random writes: to the second hard disk as it is, and then as a volume of the same cache")
        self.raw = self.fio("/dev/hdd1")
        stage.command("larder volume create spare --backing /dev/hdd1 --cache fast")
        stage.command("larder volume start spare")
        self.cached = self.fio("/dev/mapper/spare")

    def drain(self) -> None:
        stage.heading("What is dirty is on the SSD only: watch it go to the hard disk, sorted and merged")
        stage.command("larder volume status spare")
        flush = stage.command("larder volume flush spare --wait")
        stage.command("larder volume status spare -o name,state,dirty_sectors,writeback_writes,writeback_sectors")
        after = self.spare.status()
        self.drained = (after["write_cached"], after["writeback_writes"], flush.seconds - flush.silent)
        if after["dirty_sectors"]:
            self.wrong.append(f"{after['dirty_sectors']} sectors are still dirty after the flush")
        stage.command("larder volume stop spare")

    def power_cut(self) -> None:
        stage.heading("Cut the power in the middle of fsynced writes")
        stage.say(
            "A mail server in small writes letters of up to 64 KiB; it fsyncs each, and only then puts its name and checksum on a "
            "list in RAM. When the power goes, each 4 KiB that no flush has secured survives or not, by the toss of a coin."
        )
        accepted = WORK / "accepted"
        accepted.touch()
        line = f"{LETTERS} write /mnt/letters {accepted}"
        print(f"   $ {line} &", flush=True)
        with open(WORK / "letters.out", "w+") as out:
            writer = subprocess.Popen(line.split(), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
            end = time.monotonic() + 120
            while accepted.read_bytes().count(b"\n") < LETTERS_BEFORE_CUT and writer.poll() is None and time.monotonic() < end:
                time.sleep(0.1)
            stage.command("larder volume status data -o name,state,mode,dirty_sectors")
            stage.command(f"echo powercut all mode=random seed={SEED} after=20 ops=write > {CONTROL}")
            try:
                writer.wait(60)
            except subprocess.TimeoutExpired:
                writer.kill()
                self.wrong.append("the power was cut, and the writer hangs")
            out.seek(0)
            stage.show(out.read())
        self.letters = accepted.read_bytes().count(b"\n")
        stage.say("What the kernel had in memory is given up, too:")
        stage.command("umount -l /mnt")
        stage.command("larder volume stop data && larder cache stop fast && rmmod larder")

    def start(self) -> None:
        stage.heading("Power is back: start again")
        stage.command(f"echo powerup all > {CONTROL}")
        stage.command(f"insmod {RESULTS}/larder.ko")
        stage.command("larder cache start fast")
        stage.command("larder volume start data")
        stage.command("larder cache status fast")
        self.start_ms = self.cache.status()["start_ms"]

    def check(self) -> None:
        stage.heading("Is everything there?")
        stage.say("ext4 replays its journal when it is mounted; then fsck looks at every structure of it.")
        stage.command("mount /dev/mapper/data /mnt && umount /mnt")
        if stage.command("e2fsck -fn /dev/mapper/data", check=False).status:
            self.wrong.append("the file system is damaged")
        stage.command("mount /dev/mapper/data /mnt")
        outcome = stage.command(f"{LETTERS} check /mnt/letters {WORK}/accepted", check=False)
        found = re.search(r"(\d+) are lost", outcome.text)
        self.lost = int(found[1]) if found else self.letters
        if outcome.status:
            self.wrong.append(f"{self.lost} of {self.letters} letters that had been accepted are lost")

    def warm(self) -> None:
        stage.heading("Is the cache still warm?")
        self.read_tree("warm")
        if self.reads["warm"].percent() < WARM_PERCENT:
            self.wrong.append(f"the SSD served only {self.reads['warm'].percent():.0f} % of the reads after the power cut")
        stage.command("umount /mnt && larder volume stop data && larder cache stop fast", quiet=True)

    def table(self) -> None:
        stage.heading("What was measured")
        t = Table("hard disk", "with larder")
        for name, (title, _) in LOADS.items():
            raw, cached = self.raw[name], self.cached[name]
            t.row(f"random 4 KiB writes a second, {title}", f"{raw.per_second:,.0f}", f"{cached.per_second:,.0f}")
            t.row("    99 % of them took at most", f"{raw.slow_ms:.1f} ms", f"{cached.slow_ms:.1f} ms")
        received, written, seconds = self.drained
        t.row("    writes that came | writes to the hard disk, in the end", f"{received:,}", f"{written:,}")
        t.row("    the last of these, by larder volume flush, took", "", f"{seconds:.1f} s")
        cold, hot, warm = (self.reads[x] for x in ("cold", "hot", "warm"))
        t.row(f"{len(self.files):,} files in random order: the first time | again", f"{cold.seconds:.1f} s", f"{hot.seconds:.1f} s")
        t.row("    of the read requests, the SSD served", f"{cold.percent():.0f} %", f"{hot.percent():.0f} %")
        t.row("after a power cut", "", f"{warm.seconds:.1f} s")
        t.row("    of the read requests, the SSD served", "", f"{warm.percent():.0f} %")
        t.row("start of the cache after the power cut", "", f"{self.start_ms:,} ms")
        t.row("files fsynced before the power cut | lost", f"{self.letters:,}", f"{self.lost:,}")
        stage.show(t.text())

    # ------------------------------------------------------------ what they are made of

    def unpack(self) -> None:
        """The tree into RAM; its files in random order, the same in all runs; their checksums."""
        tree = WORK / "tree"
        stage.command(f"mkdir {tree} && tar -C {tree} -xf {RESULTS}/tree.tar", quiet=True)
        self.files = sorted(str(p.relative_to(tree)) for p in tree.rglob("*") if p.is_file() and not p.is_symlink())
        random.Random(1).shuffle(self.files)
        (WORK / "order").write_text("".join(f"{f}\n" for f in self.files))
        stage.command(f"cd {tree} && cat {WORK}/order | xargs md5sum > {WORK}/source", quiet=True, shell=RESIDENT)

    def read_tree(self, name: str) -> None:
        stage.command("echo 3 > /proc/sys/vm/drop_caches")
        before = self.volume.status()
        line = f"cd /mnt/tree && cat {WORK}/order | xargs md5sum > {WORK}/{name}"
        reading = stage.command(line, check=False, shell=RESIDENT)
        stage.command("larder volume status data -o name,cached_sectors,dirty_sectors,read_hits,read_misses,read_mixed,read_bypass")
        self.reads[name] = reads_between(before, self.volume.status(), reading.seconds)
        stage.result(self.reads[name].text())
        different = set((WORK / "source").read_text().splitlines()) - set((WORK / name).read_text().splitlines())
        if different:
            self.wrong.append(f"{len(different)} of {len(self.files)} files of the tree are not what was copied ({name})")

    def fio(self, device: str) -> dict[str, Writes]:
        report = WORK / "fio"
        found = {}
        for name, (title, options) in LOADS.items():
            stage.say(f"{title[0].upper()}{title[1:]}:")
            stage.command(
                f"fio --name={name} --filename={device} --rw=randwrite --bs=4k --direct=1 {options} --size=1g "
                f"--runtime={FIO_SECONDS} --number_ios={FIO_WRITES} --eta=never --output-format=json --output={report}"
            )
            found[name] = Writes.read(report)
            stage.result(found[name].text())
        return found


def main() -> int:
    WORK.mkdir()
    shutil.copy(shutil.which("busybox"), RESIDENT[0])
    d = Demo()
    chapters = (d.disks, d.create, d.copy, d.read, d.writes, d.drain, d.power_cut, d.start, d.check, d.warm, d.table)
    try:
        for chapter in chapters:
            chapter()
    except stage.CommandFailedError as e:
        d.wrong.append(str(e))
    print(flush=True)
    for text in d.wrong:
        print(f"WRONG: {text}", flush=True)
    return 1 if d.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
