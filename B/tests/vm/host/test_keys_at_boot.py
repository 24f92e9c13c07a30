# SPDX-License-Identifier: GPL-2.0-or-later
"""A whole system whose stacks a TPM2 (swtpm), or a tang server (the real one, by systemd, on loopback), opens at a boot.

By larder-unlock@.service, in its sandbox.  Without either it asks, and says why.
"""

import pytest
from host import process, system, tpm

PASSPHRASE = "telltale of a passphrase"
# larder-unlock@.service has these of the system, and of nobody else
PACKAGES = ",tang,clevis,clevis-luks,libtss2-esys-3.0.2-0,libtss2-mu0,libtss2-rc0,libtss2-tcti-device0"

# its socket is not there with this word on the command line, as of a server that a boot cannot reach
AWAY = "[Unit]\nConditionKernelCommandLine=!larder_test_away\n"

WORK = (
    system.SHELL
    + r"""
secret='"""
    + PASSPHRASE
    + r"""'

# stack NAME CACHE KEEPER: of a disk of that name
stack() {
	mkdir -p "/srv/$1"
	printf %s "$secret" | larder create "$1" --backing "$disks-$1" --cache "$2" --encrypt "luks2:$3" --iter-time 10 --mkfs ext4 \
		--mount "/srv/$1" --yes || say "cannot create $1"
	fill "/srv/$1"
}

udevadm settle
case $phase in
create)
	stack chip $disks-ssd tpm2
	stack server chip tang=http://127.0.0.1
	for s in chip server; do say "$s: $(larder passwd $s --list --noheadings -o kind | xargs)"; done
	;;
kept)
	arrives /srv/chip /srv/server
	say "$(questions | wc -l) questions"
	;;&
lost)
	asked 2
	say "$(questions | xargs sed -n 's/^Message=//p' | sort | xargs -d '\n')"
	answer "$(questions | head -n 1)" "$secret"
	arrives /srv/chip /srv/server
	;;&
late)
	asked 1
	say "$(questions | xargs sed -n 's/^Message=//p')"
	rm -r /etc/systemd/system/tangd.socket.d
	systemctl daemon-reload
	systemctl start tangd.socket
	arrives /srv/chip /srv/server
	say "$(questions | wc -l) questions"
	;;&
kept|lost|late)
	for s in chip server; do check /srv/$s; fill /srv/$s; done
	systemctl is-active 'larder-unlock@chip.service' 'larder-unlock@server.service' | xargs echo "SYSTEM: $phase: units"
	;;
esac
journalctl -q | grep -q -F -f <(printf %s "$secret") && say "SEEN in the journal"
[ -z "$(questions)" ] || journalctl -q -b -o cat -u 'larder-*' | tail -n 30 > /dev/ttyS0
"""
    + system.SHELL_END
)


@pytest.fixture
def root(directory):
    disk = system.image(directory, WORK, PACKAGES, files={"etc/systemd/system/tangd.socket.d/away.conf": AWAY})
    yield disk
    disk.unlink()


@pytest.fixture
def chip(directory):
    """Words of QEMU for a boot with it."""
    started = []

    def start() -> list[str]:
        started.append(tpm.start(directory / "tpm"))
        return tpm.options(directory / "tpm")

    yield start
    for one in started:
        process.kill(one)


def test_kept(boot, make_disk_file, chip):
    """Nobody is asked where both are there; where neither is one answer opens both; a server that comes late ends its question."""
    disks = [make_disk_file("ssd", 48), make_disk_file("chip", 96), make_disk_file("server", 96)]
    said, console = boot("create", disks, options=chip())
    assert said == ["chip: passphrase tpm2", "server: passphrase tang"], console[-6000:]
    content = ["/srv/chip holds what was written", "/srv/server holds what was written", "units active active"]
    said, console = boot("kept", disks, options=chip())
    assert said == ["0 questions", *content], console[-6000:]
    said, console = boot("lost", disks, "larder_test_away")
    no_server = "Passphrase of the stack server (its tang server does not answer)"
    assert said == [f"Passphrase of the stack chip (its TPM2 is not here) {no_server}", *content], console[-6000:]
    said, console = boot("late", disks, "larder_test_away", options=chip())
    assert said == [no_server, "0 questions", *content], console[-6000:]
