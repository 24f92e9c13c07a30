# SPDX-License-Identifier: GPL-2.0-or-later
"""What `smartctl --json` (7.3, 7.4) says of disks, and a smartctl that says it."""

import json

GBIT = {"bits_per_unit": 100000000}
PENDING = "Current_Pending_Sector"


def attribute(number, name, value, raw):
    raw = {"value": raw, "string": str(raw)}
    return {"id": number, "name": name, "value": value, "worst": value, "thresh": 0, "when_failed": "", "raw": raw}


def ata(passed=True, celsius=35, limit=60, pending=0, called=PENDING, statistic=None, wearout=None, link=60, most=60):
    """A SATA disk; called: attribute 197; statistic, wearout: percent used by the statistics, percent left by attribute 233."""
    rows = [attribute(5, "Reallocated_Sector_Ct", 100, 3), attribute(197, called, 100, pending)]
    rows += [] if wearout is None else [attribute(233, "Media_Wearout_Indicator", wearout, 0)]
    pages = [{"number": 7, "name": "Solid State Device Statistics", "table": [
        {"offset": 8, "name": "Percentage Used Endurance Indicator", "size": 1, "value": statistic},
    ]}]  # fmt: skip
    return {
        "device": {"name": "/dev/sdz", "type": "sat", "protocol": "ATA"},
        "interface_speed": {"max": {"units_per_second": most} | GBIT, "current": {"units_per_second": link} | GBIT},
        "smart_status": {"passed": passed},
        "temperature": {"current": celsius, "power_cycle_min": 20, "op_limit_max": limit},
        "ata_smart_attributes": {"revision": 16, "table": rows},
    } | ({} if statistic is None else {"ata_device_statistics": {"pages": pages}})


def nvme(warning=0, celsius=40, spare=100, used=3):
    return {
        "device": {"name": "/dev/nvme9n1", "type": "nvme", "protocol": "NVMe"},
        "smart_status": {"passed": not warning, "nvme": {"value": warning}},
        "nvme_smart_health_information_log": {
            "critical_warning": warning, "temperature": celsius, "available_spare": spare, "available_spare_threshold": 10,
            "percentage_used": used, "media_errors": 12,
        },
        "temperature": {"current": celsius},
        "spare_available": {"current_percent": spare, "threshold_percent": 10},
        "endurance_used": {"current_percent": used},
    }  # fmt: skip


class Smartctl:
    """In a directory for PATH; what it was asked is in .asked()."""

    def __init__(self, directory):
        self.directory, self.notes = directory, directory / "asked"
        directory.mkdir(exist_ok=True)
        program = directory / "smartctl"
        program.write_text(
            f'#!/bin/sh\necho "$@" >>{self.notes}\nfor disk in "$@"; do case $disk in /dev/*) break;; esac; done\n'
            f"[ ! -e {directory}/${{disk##*/}}.hangs ] || exec sleep 600\n"
            # this one's end ends nothing of what it has begun
            f"stays={directory}/${{disk##*/}}.stays\n"
            'if [ -e "$stays" ]; then while [ -e "$stays" ]; do sleep 0.1; done & wait; fi\n'
            f"case $1 in --json) ;; *) cat {directory}/erc; exit;; esac\n"
            f"answer={directory}/${{disk##*/}}.json\n"
            '[ -e "$answer" ] || { echo "{}"; exit 2; }\ncat "$answer"\nexit 8\n'
        )
        program.chmod(0o755)
        self.patience("")

    def says(self, disk, text):
        """Of this disk from now on; text: JSON, or any text."""
        new = self.directory / "new"
        new.write_text(text if isinstance(text, str) else json.dumps(text, indent=2))
        new.rename(self.directory / f"{disk}.json")

    def hangs(self, disk, so=True, how="hangs"):
        """It answers never, from now on."""
        path = self.directory / f"{disk}.{how}"
        if so:
            path.touch()
        else:
            path.unlink()

    def stays(self, disk, so=True):
        """Nor does it end when it is killed, as far as anybody can see who has its output."""
        self.hangs(disk, so, "stays")

    def patience(self, read):
        (self.directory / "erc").write_text(f"\nSCT Error Recovery Control:\n           Read: {read}\n          Write: {read}\n")

    def no_patience(self):
        """Its disks cannot be given a limit."""
        (self.directory / "erc").write_text("\nSCT Error Recovery Control command not supported\n\n")

    def asked(self):
        return self.notes.read_text().splitlines() if self.notes.exists() else []
