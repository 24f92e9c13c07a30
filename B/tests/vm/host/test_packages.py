# SPDX-License-Identifier: GPL-2.0-or-later
"""A whole system whose larder comes by its packages: upgraded and removed by dpkg while a stack is mounted, and written to.

tests/deb/try has what needs no system that runs: how they are built, what is in them, DKMS.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from host import build, system

WORK = (
    system.SHELL
    + r"""
packages=/mnt/packages
# by_dpkg WORD...: what it says, but for what it always says
by_dpkg() { dpkg "$@" > /run/dpkg 2>&1 || { say "dpkg $1 fails"; cat /run/dpkg > /dev/ttyS0; }; }
installed() { say "$(dpkg-query -W -f '${db:Status-Abbrev}${Version} ' larder larderd 2> /dev/null | sed 's/~git[0-9.a-f]*//g')"; }
daemon() {
	for ((i = 0; i < 600; i++)); do systemctl -q is-active larderd.service && break; sleep 0.5; done
	systemctl show -P MainPID larderd.service
}
load() {
	while [ ! -e /run/enough ]; do
		cp /srv/data/content /srv/data/copy && cmp /srv/data/content /srv/data/copy || say "load fails"
		sync
	done
}

udevadm settle
mkdir -p $packages
mount -o ro $disks-packages $packages
case $phase in
install)
	by_dpkg --install $packages/first/*.deb
	installed
	mkdir -p /srv/data
	larder create data --backing $disks-hdd0 --backing $disks-hdd1 --raid 1 --cache $disks-ssd0 --cache $disks-ssd1 --mkfs ext4 \
		--mount /srv/data --yes || say "cannot create data"
	fill /srv/data
	before=$(daemon)
	load &
	by_dpkg --install $packages/later/*.deb
	after=$(daemon)
	touch /run/enough
	wait
	installed
	[ "$before" != "$after" ] && say "larderd is the new one" || say "larderd is that of before: $before"
	check /srv/data
	;;
remove)
	arrives /srv/data
	check /srv/data
	daemon > /dev/null
	load &
	by_dpkg --purge larderd
	touch /run/enough
	wait
	installed
	say "larderd is $(systemctl is-active larderd.service)"
	find / -xdev -name '*larder*.service' -o -xdev -name '*larder*.rules' | xargs -r echo "SYSTEM: $phase: left behind"
	check /srv/data
	;;
back)
	mountpoint -q /srv/data && say "mounted by nobody"
	by_dpkg --install $packages/first/larderd_*.deb $packages/first/larder_*.deb
	installed
	larder start data > /run/said 2>&1 || say "$(cat /run/said)"
	check /srv/data
	;;
esac
"""
    + system.SHELL_END
)

VERSION = re.match(r"larder \((.*?)\)", (build.TOP / "debian/changelog").read_text())[1]


@pytest.fixture(scope="module")
def root(directory):
    disk = system.image(directory, WORK, modules=["raid1"])
    yield disk
    disk.unlink()


def make_later(package: Path, directory: Path) -> None:
    """The same, with a later version."""
    tree = directory / "tree"
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
    control = tree / "DEBIAN/control"
    version = re.search(r"^Version: (.*)$", control.read_text(), re.MULTILINE)[1]
    control.write_text(control.read_text().replace(version, f"{version}+later"))
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, directory], check=True, capture_output=True)
    shutil.rmtree(tree)


@pytest.fixture
def packages(tmp_path, make_disk_file):
    """A disk with those of this source tree, and later ones; the module is the system's own."""
    for name in ("first", "later"):
        (tmp_path / "disk" / name).mkdir(parents=True)
    first, later = tmp_path / "disk/first", tmp_path / "disk/later"
    subprocess.run([build.TOP / "debian/packages", first], check=True, capture_output=True)
    for other in (*first.glob("larder-dkms_*.deb"), *first.glob("debug/*.deb")):
        other.unlink()
    for package in first.glob("*.deb"):
        make_later(package, later)
    disk = make_disk_file("packages", 64)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-d", tmp_path / "disk", disk], check=True)
    return disk


def test_upgraded_and_removed_in_use(boot, packages, make_disk_file):
    """What is mounted stays so, and is written to meanwhile; the new larderd takes over; without it nothing comes up at a boot."""
    disks = [make_disk_file(f"hdd{i}", 96) for i in range(2)] + [make_disk_file(f"ssd{i}", 48) for i in range(2)] + [packages]
    first, later = f"ii {VERSION}", f"ii {VERSION}+later"
    right = "/srv/data holds what was written"
    expected = {
        "install": [f"{first} {first}", f"{later} {later}", "larderd is the new one", right],
        "remove": [right, f"{later} un", "larderd is inactive", right],
        "back": [f"{first} {first}", right],
    }
    for phase, lines in expected.items():
        said, console = boot(phase, disks)
        assert [" ".join(line.split()) for line in said] == lines, console[-6000:]
