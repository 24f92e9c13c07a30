# SPDX-License-Identifier: GPL-2.0-or-later
"""A whole system with services that larder asks or tells: the real polkit, a mail server (postfix); its own scrub by systemd."""

import re

import pytest
from host import system

# libpam-systemd and the like are not there: a user who calls is nobody's session
PACKAGES = ",polkitd,postfix"
OTHER_MACHINE = "0123456789abcdef0123456789abcdef"
RULE = """polkit.addRule(function(action, subject) {
	if (subject.user == "keeper" && (action.id == "org.larder1.stop" || action.id == "org.larder1.start"))
		return polkit.Result.YES;
});
"""

WORK = (
    system.SHELL
    + r"""
# by USER METHOD ARGUMENT...: of the stack
by() {
	user=$1
	shift
	runuser -u "$user" -- busctl --timeout=600 call org.larder1 "$path" org.larder1.Stack "$@" 2>&1
}
state() { mountpoint -q /srv/data && echo mounted || echo stopped; }

udevadm settle
case $phase in
create)
	useradd keeper
	useradd stranger
	mkdir -p /srv/data /etc/larder
	echo "mail root" > /etc/larder/larder.conf
	larder create data --backing $disks-hdd0 --backing $disks-hdd1 --raid 1 --cache $disks-ssd0 --cache $disks-ssd1 --mkfs ext4 \
		--mount /srv/data --yes || say "cannot create data"
	fill /srv/data
	path=$(busctl --list tree org.larder1 | grep '^/org/larder1/stack/')
	# everybody may read; a stranger is asked who he is, and there is nobody to ask him
	runuser -u stranger -- busctl get-property org.larder1 "$path" org.larder1.Stack Name | xargs echo "SYSTEM: $phase: name"
	by stranger Stop | xargs -d '\n' echo "SYSTEM: $phase: stranger"
	say "$(state)"
	by keeper Stop > /run/said || say "keeper: $(cat /run/said)"
	say "$(state)"
	by keeper Start > /run/said || say "keeper: $(cat /run/said)"
	arrives /srv/data
	say "$(state)"
	by keeper Scrub 'a{sv}' 0 | xargs -d '\n' echo "SYSTEM: $phase: keeper"
	for array in /dev/md[0-9]*; do mdadm --wait "$array"; done
	systemctl start larder-scrub.service
	say "scrub $(systemctl show -P Result larder-scrub.service) $(cat /sys/block/md*/md/last_sync_action)"
	say "cache $(larder cache status data -o scrub --noheadings | xargs)"
	check /srv/data
	;;
left)
	for ((i = 0; i < 600; i++)); do grep -s -q 'larder start --import data' /var/mail/root && break; sleep 0.5; done
	grep -s '^Subject: ' /var/mail/root | sort -u | xargs -d '\n' -n 1 echo "SYSTEM: $phase:"
	say "$(grep -s -c '^refused: .* the stack data was made on another machine; .*start --import data' /var/mail/root) of it"
	[ "$(stat -c %U /var/mail/root)" = root ] || say "it is $(stat -c %U /var/mail/root)'s"
	cat /var/mail/root > /dev/ttyS0
	;;
esac
[ -e /var/mail/root ] || journalctl -q -b -o cat -u 'larder*' -u 'postfix*' | tail -n 30 > /dev/ttyS0
"""
    + system.SHELL_END
)


@pytest.fixture
def root(directory):
    files = {"etc/polkit-1/rules.d/50-keeper.rules": RULE, "etc/aliases": "root: root\n"}
    disk = system.image(directory, WORK, PACKAGES, files=files, modules=["raid1"])
    yield disk
    disk.unlink()


def test_polkit_and_mail(boot, make_disk_file):
    """Whom polkit lets may do that and nothing else; what larderd leaves, as the machine is another one, root has in his mail."""
    disks = [make_disk_file(f"hdd{i}", 96) for i in range(2)] + [make_disk_file(f"ssd{i}", 48) for i in range(2)]
    said, console = boot("create", disks)
    refused = "Call failed: only root may, or whom polkit lets"
    expected = ["name s data", f"stranger {refused}", "mounted", "stopped", "mounted", f"keeper {refused}"]
    expected += ["scrub success check", "cache done", "/srv/data holds what was written"]
    assert len(said) == len(expected), console[-6000:]
    for line, pattern in zip(said, expected, strict=True):
        assert re.fullmatch(pattern, line, re.IGNORECASE), f"{line!r} is not {pattern!r}\n{console[-6000:]}"
    said, console = boot("left", disks, f"systemd.machine_id={OTHER_MACHINE}")
    *subjects, number = said
    assert number == "1 of it", console[-6000:]
    assert all(re.fullmatch(r"Subject: larder: left assembly [-0-9a-f]{36} on larder", s) for s in subjects), subjects
