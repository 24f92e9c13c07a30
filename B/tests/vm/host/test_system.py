# SPDX-License-Identifier: GPL-2.0-or-later
"""A whole system, by systemd: stacks that `larder create` made are mounted after a reboot, without a hand.

Each boot of these machines runs WORK with the word `phase=` of its command line.
What a filesystem must hold is what was written and synced at the boot before.
"""

import os
import random
import re

import pytest
from host import system

REBOOTS = int(os.environ.get("LARDER_REBOOTS", "3"))
OTHER_MACHINE = "0123456789abcdef0123456789abcdef"
PASSPHRASE = "telltale of a passphrase"

WORK = (
    system.SHELL
    + r"""
eval "$(grep -o 'larder_test_[a-z]*=[a-z0-9]*' /proc/cmdline)" # durable, way, seconds: of the phase load
secret='"""
    + PASSPHRASE
    + r"""'

# words and environment of all processes, which must not have the passphrase in them
watch() {
	while [ ! -e /run/enough ]; do
		grep -l -a -F -f <(printf %s "$secret") /proc/[0-9]*/cmdline /proc/[0-9]*/environ >> /run/seen 2> /dev/null
		sleep 0.1
	done
}

# stack NAME: a replicated, encrypted one that opens by a key file
stack() {
	head -c 64 /dev/urandom > /etc/larder.key
	chmod 600 /etc/larder.key
	mkdir -p "/srv/$1"
	larder create "$1" --backing $disks-hdd0 --backing $disks-hdd1 --raid 1 --cache $disks-ssd0 --cache $disks-ssd1 \
		--encrypt luks2:keyfile=/etc/larder.key --iter-time 10 --mkfs ext4 --mount "/srv/$1" --yes || say "cannot create $1"
	fill "/srv/$1"
}
# called METHOD ARGUMENT...: of the stack "bus"
called() {
	path=$(busctl --list tree org.larder1 | grep '^/org/larder1/stack/')
	busctl --timeout=600 call org.larder1 "$path" org.larder1.Stack "$@"
}
calls() { systemctl list-units --no-legend --state=active,activating 'larder-call-*' | wc -l; }
# comes FILE: until it is there
comes() { for ((i = 0; i < 600; i++)); do [ -e "$1" ] && break; sleep 0.5; done; }

# content N: what file N has in it
content() { yes "of file $1" | head -c $((100 + $1 * 7919 % 300000)); }
# load N: writes files, each into the place of the one 64 before it, and says of each when it is durable
load() {
	for ((n = $1 + 1; ; n++)); do
		content $n > /srv/data/$((n % 64)) && sync /srv/data/$((n % 64)) && echo "SYSTEM: durable $n" > /dev/ttyS0
	done
}

[ "$1" = load ] && load "$2"

udevadm settle
case $phase in
create)
	mkdir -p /srv/data /srv/one-by-one /srv/other
	head -c 64 /dev/urandom > /etc/larder.key
	chmod 600 /etc/larder.key
	larder create data --backing $disks-hdd0 --backing $disks-hdd1 --backing $disks-hdd2 --raid 5 \
		--cache $disks-ssd0 --cache $disks-ssd1 --encrypt luks2:keyfile=/etc/larder.key --iter-time 10 --mkfs ext4 \
		--mount /srv/data --yes || say "cannot create data"
	for name in one-by-one other; do
		printf %s "$secret" | larder create $name --backing $disks-$name --cache data --encrypt luks2 --iter-time 10 --mkfs ext4 \
			--mount /srv/$name --yes || say "cannot create $name"
	done
	for d in data one-by-one other; do fill /srv/$d; done
	for array in /dev/md[0-9]*; do mdadm --wait "$array"; done # its last disk is made from the others
	systemctl is-active srv-data.mount 'srv-one\x2dby\x2done.mount' srv-other.mount | xargs echo "SYSTEM: $phase: mount units"
	;;
whole|degraded)
	arrives /srv/data
	check /srv/data
	asked 2
	say "$(questions | wc -l) questions: $(questions | xargs sed -n 's/^Message=//p' | sort | xargs)"
	say "they end at $(questions | xargs sed -n 's/^NotAfter=//p' | sort -u)"
	mountpoint -q /srv/other && say "other is open without a passphrase"
	watch &
	answer "$(questions | head -n 1)" "$secret"
	arrives /srv/one-by-one /srv/other
	check /srv/one-by-one
	check /srv/other
	# an agent asks for what was mistyped, and has what was typed before
	larder stop one-by-one
	printf mistyped | larder start one-by-one 2> /dev/null && say "one-by-one has started"
	arrives /srv/one-by-one
	check /srv/one-by-one
	say "$(questions | wc -l) questions left"
	touch /run/enough
	wait
	sort -u /run/seen | xargs -r echo "SYSTEM: SEEN in"
	journalctl -q | grep -q -F -f <(printf %s "$secret") && say "SEEN in the journal"
	systemctl list-jobs --no-legend | grep -e larder -e srv -e crypt | xargs -r echo "SYSTEM: jobs"
	larder status data; say "status $?"
	fill /srv/data
	;;
load)
	[ $larder_test_durable = 0 ] && stack data
	arrives /srv/data
	# the next one was on its way when the machine went: its place holds either, or a part
	for ((n = larder_test_durable; n > 0 && n > larder_test_durable - 63; n--)); do
		cmp <(content $n) /srv/data/$((n % 64)) || say "file $n is WRONG"
	done
	mountpoint -q /srv/data || say "is not mounted"
	say "status $(larder status data > /dev/null; echo $?)"
	systemd-run --quiet /root/work load $larder_test_durable
	sleep $larder_test_seconds
	[ $larder_test_way = off ] || { echo $larder_test_way > /proc/sysrq-trigger; sleep 60; }
	;;
told)
	stack data
	mkdir -p /etc/larder
	echo "program /root/told" > /etc/larder/larder.conf
	printf '#!/bin/sh\n[ "$1" != left ] || echo "$3" >> /run/told\n' > /root/told
	chmod 755 /root/told
	;;
left)
	for ((i = 0; i < 600; i++)); do grep -q 'stack data' /run/told && break; sleep 0.5; done 2> /dev/null
	say "$(grep 'stack data' /run/told)"
	mountpoint -q /srv/data && say "it is mounted"
	;;
alone)
	stack data
	systemctl enable --quiet larder-assemble@data.service
	;;
unit|lastresort|rule)
	arrives /srv/data
	mountpoint -q /srv/data || journalctl -q -b -o cat -u 'larder-*' -u 'mdadm-*' | tail -n 30 > /dev/ttyS0
	check /srv/data
	say "larderd is $(systemctl is-active larderd.service)"
	say "its unit is $(systemctl is-active 'larder-assemble@*.service' | xargs)"
	larder status data; say "status $?"
	fill /srv/data
	;;&
lastresort)
	systemctl disable --quiet larder-assemble@data.service
	{
		printf '%s, ' 'SUBSYSTEM=="block"' 'ENV{LARDER_KIND}=="volume"'
		printf '%s, ' 'PROGRAM="/bin/systemd-escape --template=larder-assemble@.service $env{LARDER_UUID}"'
		echo 'TAG+="systemd", ENV{SYSTEMD_WANTS}+="%c"'
	} > /etc/udev/rules.d/64-larder.rules
	;;
must)
	mkdir -p /srv/must
	larder create must --backing $disks-hdd0 --backing $disks-hdd1 --raid 1 --cache $disks-ssd0 --cache $disks-ssd1 --mkfs ext4 \
		--mount /srv/must --essential --yes || say "cannot create must"
	fill /srv/must
	;;
essential)
	# this begins behind local-fs.target
	check /srv/must
	since() { systemctl show -P ActiveEnterTimestampMonotonic "$1"; }
	[ "$(since srv-must.mount)" -le "$(since local-fs.target)" ] || say "the boot has not waited"
	say "$(systemctl is-active emergency.target local-fs.target | xargs)"
	larder status must; say "status $?"
	;;
bus)
	mkdir -p '/srv/$HOME'
	busctl --timeout=600 call org.larder1 /org/larder1 org.larder1.Manager Create 'sasasa{sv}' bus \
		2 $disks-hdd0 $disks-hdd1 1 $disks-ssd0 3 raid s 1 mkfs s ext4 mount s '/srv/$HOME' || exit
	fill '/srv/$HOME'
	# mdadm in the middle of a command, for as long as somebody likes
	cat > /usr/local/sbin/mdadm <<- 'END'
		#!/bin/bash
		case $* in *--replace*) touch /run/waits; while [ -e /run/hold ]; do sleep 0.1; done;; esac
		exec /sbin/mdadm "$@"
	END
	chmod 755 /usr/local/sbin/mdadm
	touch /run/hold
	called Replace 'ssa{sv}' $disks-hdd0 $disks-hdd2 0 2> /run/said &
	comes /run/waits
	say "$(calls) runs"
	busctl call org.larder1 "$(busctl --list tree org.larder1 | grep '/job/replace')" org.larder1.Job Cancel
	wait
	say "$(calls) runs: $(cat /run/said)"
	rm /run/waits
	called Replace 'ssa{sv}' $disks-hdd0 $disks-hdd2 0 2> /run/said &
	comes /run/waits
	systemctl --no-block restart larderd.service # which waits for its turn
	wait
	say "$(calls) runs: $(cat /run/said)"
	rm /run/hold
	for ((i = 0; i < 600; i++)); do [ "$(calls)" = 0 ] && break; sleep 0.5; done
	check '/srv/$HOME'
	for ((i = 0; i < 600; i++)); do larder status bus && break; sleep 0.5; done # md lets the old disk go a moment after the copy
	larder status bus; say "status $?"
	say "on $(lsblk -no SERIAL -s "$(findmnt -no SOURCE '/srv/$HOME')" | grep hdd | sort -u | xargs)"
	;;
esac
"""
    + system.SHELL_END
)


@pytest.fixture
def root(directory):
    disk = system.image(directory, WORK, modules=["raid1"])
    yield disk
    disk.unlink()


def test_reboot(boot, make_disk_file):
    """Made; whole; without a disk and an SSD.  The key file opens one stack; one answer the two that share a passphrase."""
    hdds = [make_disk_file(f"hdd{i}", 96) for i in range(3)]
    singles = [make_disk_file(name, 96) for name in ("one-by-one", "other")]
    ssds = [make_disk_file(f"ssd{i}", 48) for i in range(2)]
    said, console = boot("create", [*hdds, *singles, *ssds])
    assert said == ["mount units active active active"], console[-6000:]
    for phase, disks in (("whole", [*ssds, *hdds, *singles]), ("degraded", [*hdds[1:], *singles, ssds[1]])):
        said, console = boot(phase, disks)
        assert said == [
            "/srv/data holds what was written",
            "2 questions: Passphrase of the stack one-by-one Passphrase of the stack other",
            "they end at 0",
            "/srv/one-by-one holds what was written",
            "/srv/other holds what was written",
            "/srv/one-by-one holds what was written",
            "0 questions left",
            "status 0" if phase == "whole" else "status 10",
        ], console[-6000:]


def test_without_larderd(boot, make_disk_file):
    """By larder-assemble@.service: of one stack, by name; behind 30 s without a disk and an SSD; of every volume, by a rule."""
    hdds = [make_disk_file(f"hdd{i}", 96) for i in range(2)]
    ssds = [make_disk_file(f"ssd{i}", 48) for i in range(2)]
    masked = "systemd.mask=larderd.service"
    said, console = boot("alone", [*hdds, *ssds], masked)
    assert said == [], console[-6000:]
    left = [hdds[1], ssds[1]]
    for phase, disks, status in (("unit", [*ssds, *hdds], 0), ("lastresort", left, 10), ("rule", left, 10)):
        said, console = boot(phase, disks, masked)
        assert said == [
            "/srv/data holds what was written",
            "larderd is inactive",
            "its unit is active",
            f"status {status}",
        ], console[-6000:]


def test_boot_that_waits(boot, make_disk_file):
    """For a mount that is essential: there before local-fs.target, also where a disk and an SSD are missing, behind their time."""
    hdds = [make_disk_file(f"hdd{i}", 96) for i in range(2)]
    ssds = [make_disk_file(f"ssd{i}", 48) for i in range(2)]
    said, console = boot("must", [*hdds, *ssds])
    assert said == [], console[-6000:]
    for disks, status in (([*ssds, *hdds], 0), ([hdds[1], ssds[1]], 10)):
        said, console = boot("essential", disks)
        assert said == ["/srv/must holds what was written", "inactive active", f"status {status}"], console[-6000:]


def test_who_is_told(boot, make_disk_file):
    """A machine that was another one when the stack was made: it is left, and the program of larder.conf is told of that."""
    disks = [*(make_disk_file(f"hdd{i}", 96) for i in range(2)), *(make_disk_file(f"ssd{i}", 48) for i in range(2))]
    said, console = boot("told", disks)
    assert said == [], console[-6000:]
    said, console = boot("left", disks, f"systemd.machine_id={OTHER_MACHINE}")
    assert len(said) == 1 and re.match(r"refused: .*larder start --import data", said[0]), console[-6000:]


def test_verbs_over_the_bus(boot, make_disk_file):
    """What a method runs is a unit of its own: it takes words as they are, can be cut off, and outlives larderd."""
    disks = [*(make_disk_file(f"hdd{i}", 96) for i in range(3)), make_disk_file("ssd0", 48)]
    said, console = boot("bus", disks)
    assert said == [
        "1 runs",
        "0 runs: Call failed: cancelled: the same call again goes on with it",
        "1 runs: Call failed: Message recipient disconnected from message bus without replying",
        "/srv/$HOME holds what was written",
        "status 0",
        "on hdd1 hdd2",
    ], console[-6000:]


@pytest.mark.skipif(REBOOTS == 0, reason="LARDER_REBOOTS=0")
def test_reboots_under_load(boot, make_disk_file, seed):
    """LARDER_REBOOTS of them (100 take an hour): shut down, reset or switched off while files are written, the disks in any order.

    The oracle is the console: what was said to be durable there is read at the next boot."""
    drawn = random.Random(seed)
    disks = [*(make_disk_file(f"hdd{i}", 96) for i in range(2)), *(make_disk_file(f"ssd{i}", 48) for i in range(2))]
    durable, ways = 0, []
    for number in range(REBOOTS + 1):
        ways.append(drawn.choice(("off", "o", "b")))
        words = f"larder_test_durable={durable} larder_test_way={ways[-1]} larder_test_seconds={drawn.randint(1, 8)}"
        said, console = boot("load", drawn.sample(disks, len(disks)), words, orderly=ways[-1] == "off")
        numbers = [int(s.split()[1]) for s in said if s.startswith("durable ")]
        others = [s for s in said if not s.startswith("durable ")]
        assert others in (["status 0"], ["status 10"]), f"seed {seed}, boot {number}, behind {ways}: {console[-6000:]}"
        durable = max(numbers, default=durable)
    print(f"{REBOOTS} reboots, {durable} files, seed {seed}")
    assert durable > 0
