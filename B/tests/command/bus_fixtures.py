# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of tests of org.larder1, over private_bus.py; a plugin."""

import os
import uuid

import pytest
from harness import CACHE, MIB, VOLUME, field
from private_bus import COMMAND, Bus


@pytest.fixture
def bus(larder, larderd):
    rig = Bus(larder, larderd)
    rig.start_bus()
    yield rig
    rig.close()


@pytest.fixture
def members(larder):
    """An SSD, a disk: cache `fast`, volume `data`; by their UUIDs."""
    ssd = larder.cache("fast")
    hdd = larder.volume("data", 64 * MIB, "--cache", "fast")
    return {
        "ssd": ssd,
        "hdd": hdd,
        "cache": uuid.UUID(bytes=field(ssd, CACHE, "cache_uuid")),
        "volume": uuid.UUID(bytes=field(hdd, VOLUME, "uuid")),
    }


@pytest.fixture
def command_of(bus):
    """Puts a command that notes its words into the place of larder, and starts larderd; returns where it notes them."""

    def start():
        directory = bus.directory / "bin"
        directory.mkdir()
        (directory / "larder").write_text(COMMAND)
        (directory / "larder").chmod(0o755)
        bus.start_larderd(PATH=f"{directory}:{os.environ['PATH']}", DBUS_CODE_FILE=str(bus.directory / "code"))
        bus.owned()
        return directory / "larder.log"

    return start


@pytest.fixture
def command(bus, members, command_of):
    return command_of(), bus.directory / "code"
