# SPDX-License-Identifier: GPL-2.0-or-later
"""The same SSD and disk on one bus after the other, in machines that are killed under load; each next one finds what was flushed.

Nothing but the command looks for them, by probing, as their names are others.  Behind a bridge that shows blocks of 4096 bytes what
is cached in smaller pieces would be refused (test_above_below.py), so it is written back before that.
"""

import dataclasses
from pathlib import Path

from host import machine
from host.kills import Kills

SECONDS = 900
BLOCKS = "logical_block_size=4096,physical_block_size=4096"
BEGIN = """larder cache start c
larder volume start v
dmsetup status larder-cache-c"""


@dataclasses.dataclass(frozen=True)
class Bus:
    """{n}: number of the disk."""

    modules: str
    device: str  # with what it needs of its own in front
    name: str  # what the kernel calls it; [ab]
    path: str  # what is part of its path in sysfs
    controller: str = ""
    blocks: int = 512


VIRTIO = Bus("virtio_blk", "virtio-blk-pci,drive=larder{n},serial=larder{n}", "vd?", "/virtio")
AHCI = Bus("ahci sd_mod", "ide-hd,bus=ahci.{n},drive=larder{n},serial=larder{n}", "sd?", "/ata", "ich9-ahci,id=ahci")
NVME = Bus("nvme", "nvme,drive=larder{n},serial=larder{n}", "nvme?n1", "/nvme")
XHCI, USB_MODULES = "qemu-xhci,id=xhci", "xhci_pci usb_storage sd_mod"
USB = Bus(USB_MODULES, "usb-storage,bus=xhci.0,drive=larder{n},serial=larder{n}", "sd?", "/usb", XHCI)
SCSI = Bus("virtio_scsi sd_mod", "scsi-hd,bus=scsi.0,drive=larder{n},serial=larder{n}", "sd?", "/virtio", "virtio-scsi-pci,id=scsi")


def large(bus: Bus, device: str = "") -> Bus:
    return dataclasses.replace(bus, device=f"{device or bus.device},{BLOCKS}", blocks=4096)


BRIDGE = large(USB, "usb-bot,bus=xhci.0,id=bot{n} scsi-hd,bus=bot{n}.0,drive=larder{n},serial=larder{n}")
NVME_4K, VIRTIO_4K = large(NVME), large(VIRTIO)


class Machine(machine.Machine):
    """buses: of each of its disks."""

    def __init__(self, *arguments: object, buses: list[Bus], **options: object):
        super().__init__(*arguments, **options)
        self.buses = buses

    def _disk_options(self) -> list[str]:
        devices = list(dict.fromkeys(b.controller for b in self.buses if b.controller))
        options = []
        for n, (disk, bus) in enumerate(zip(self.disks, self.buses, strict=True)):
            options += ["-drive", f"if=none,id=larder{n},file={disk},format=raw,cache=writeback,discard=unmap"]
            devices += bus.device.format(n=n).split()
        return [*options, *(word for d in devices for word in ("-device", d))]


def appear(buses: list[Bus]) -> str:
    """The disks are there, on these buses and with these blocks: nothing else would be shown."""
    lines = [f"modprobe -a {' '.join(b.modules for b in buses)}"]
    for bus in dict.fromkeys(buses):
        lines.append(f"""found() {{ for d in /sys/block/{bus.name}; do
	readlink -f $d | grep -q {bus.path} && grep -q -x {bus.blocks} $d/queue/logical_block_size && [ $(cat $d/size) != 0 ] && echo $d
done; }}
until [ $(found | wc -l) = {buses.count(bus)} ]; do sleep 0.2; done
found""")
    return "\n".join(lines)


class Tour:
    def __init__(self, boots, disks: list[Path], share: Path, seed: int):
        self.boots, self.disks = boots, disks
        self.kills = Kills(share, seed, BEGIN, "larder-cache-c")

    def words(self, buses: list[Bus], script: str) -> list[str]:
        return ["bash", "-ec", f"{appear(buses)}\n{script}"]

    def kill(self, *buses: Bus, start: str = "", align: int = 512) -> None:
        """Started, or by this, and judged; killed under load.  One bus: of both."""
        buses = list(buses) * (2 // len(buses))
        script = f"{start or self.kills.start()}\n{self.kills.load(align)}"
        self.kills.kill(self.boots.start(self.words(buses, script), Machine, disks=self.disks, buses=buses), SECONDS)

    def run(self, *buses: Bus, script: str) -> str:
        buses = list(buses) * (2 // len(buses))
        return self.boots.run(self.words(buses, script), SECONDS, kind=Machine, disks=self.disks, buses=buses).output()

    def end(self) -> None:
        print(self.run(VIRTIO, script=f"{self.kills.start()}\n{self.kills.end()}\n{self.kills.damage()}"))


def test_disks_move(boots, make_disk_file, share, seed):
    """Blocks of 512 bytes on each bus, then of 4096, for which it is detached once and attached again, then of 512 again."""
    tour = Tour(boots, [make_disk_file("ssd", 48), make_disk_file("hdd", 128)], share, seed)
    for bus in (VIRTIO, AHCI, NVME, USB):
        tour.kill(bus)
    written_back = f"{tour.kills.start()}\nlarder volume detach v --flush\nlarder volume attach v --cache c"
    tour.kill(SCSI, start=written_back, align=4096)
    for bus in (BRIDGE, NVME_4K, VIRTIO_4K):
        tour.kill(bus)
    tour.end()
