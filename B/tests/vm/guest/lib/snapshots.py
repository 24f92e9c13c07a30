# SPDX-License-Identifier: GPL-2.0-or-later
"""A volume below dm-snapshot: what uses it has the origin in its place, of which a snapshot is taken for a moment."""

from . import command, dm_ioctl
from .dm import DmDevice
from .files import FSCK, Files, mount_point
from .larder import Target, Volume
from .simdisk import Simdisk

CHUNK = 16  # sectors
WAITS = 300  # seconds


class Origin(Target):
    @classmethod
    def over(cls, volume: Volume) -> "Origin":
        """Of its size."""
        return cls.create(f"o-{volume.name}", f"0 {volume.sectors} snapshot-origin {volume}")

    def grown(self, volume: Volume) -> None:
        self.load(f"0 {volume.sectors} snapshot-origin {volume}")
        self.suspend()
        self.resume()

    def snapshot(self, volume: Volume, store: Simdisk, files: Files) -> int:
        """Taken while files are written; it is mounted, which replays the journal, has what was fsynced until then, and fsck finds
        nothing on it.  The number of files."""
        snapshot, point = DmDevice(f"s-{volume.name}"), mount_point(f"s-{volume.name}")
        try:
            try:
                self.suspend()  # freezes the file system
                Target.create(snapshot.name, f"0 {volume.sectors} snapshot {volume} {store} N {CHUNK}")
                safe = dict(files.safe)
            finally:
                self.resume()
            options = ("-o", "nouuid") if files.kind == "xfs" else ()
            command.run("mount", *options, snapshot, point)
            for path, data in safe.items():
                assert (point / path.relative_to(files.point)).read_bytes() == data, f"{path} of the snapshot"
            command.run("umount", point)
            command.run(*FSCK[files.kind], snapshot)
            return len(safe)
        finally:
            command.run("umount", "-l", point, check=False)
            if snapshot.exists():
                dm_ioctl.remove(snapshot.name, WAITS)  # one unmounted lazily goes when it will
