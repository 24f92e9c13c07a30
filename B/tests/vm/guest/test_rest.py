# SPDX-License-Identifier: GPL-2.0-or-later
"""What `make soak` demands at the end of each round (tests/vm/guest/lib/soak.py): a world without a fault meets it, and each of it
can fail."""

import pytest
from lib import memory, simdisk, soak
from lib.command import CommandError
from lib.files import Files, mount_point
from lib.larder import DATA_SECTOR, Cache, segment_layout, wait_for
from lib.oracle import OracleError

pytestmark = pytest.mark.limit(600)


@pytest.fixture
def world(make_disk, make_oracle, kernel_log, seed):
    """Written to, and everything in it is dirty that may be."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O|lost async page write")
    with memory.counting():
        world = soak.World(make_disk, make_oracle, seed, soak.Figures(), print)
        for name, raw in world.raws.items():
            world.volumes[name].set(mode="writeback")
            raw.oracles[0].run(ops=200)
        yield world


def test_world_at_rest(world):
    """Nothing is found."""
    world.rest()
    world.end()


def test_one_that_had_left_when_the_power_went(world):
    """It is in the table behind that, as it says itself that it is a member; it joins again."""
    ssd = world.ssds[0]
    ssd.fail(op="read,write,flush,discard,zeroes", status="ioerr")
    world.raws["v"].oracles[0].run(ops=50)
    wait_for(lambda: world.cache.status()["devices_failed"], 60, "it to leave")
    ssd.heal()
    simdisk.power_cut(mode="keep")
    world.after_cut()
    assert world.states().count("failed") == 1 and not world.is_member(ssd)
    world.rest()
    assert set(world.states()) == {"active"} and world.is_member(ssd)
    world.end()


def test_what_the_module_holds(world, make_disk):
    """A cache that nobody stops stands for what is never freed."""
    ssd = make_disk("other", mb=32, wce=1, fua=1)
    Cache.format("other", ssd, "--segment-size", "128k")
    other = Cache.start(ssd, name="other")
    with pytest.raises(AssertionError, match="the module holds"):
        world.rest()
    other.remove()
    assert not memory.held()


def test_wrong_content(world):
    """The backing is not what it was."""
    world.volumes["w"].drain()
    world.hdds["w"].corrupt(DATA_SECTOR + 8192, 8192)
    with pytest.raises(OracleError, match="mismatches"):
        world.rest()


def test_wrong_filesystem(world):
    """Behind its first superblock."""
    world.volumes["e"].drain()
    world.hdds["e"].corrupt(DATA_SECTOR + 8, 1024)
    with pytest.raises(CommandError, match="e2fsck"):
        world.rest()


def test_decayed_ssd(world):
    """The scrub at the end has something to mend."""
    ssd = world.ssds[0]
    first, size, number = segment_layout(ssd)
    for i in range(number):
        ssd.corrupt(first + i * size + 64, 64, seed=i)
    with pytest.raises(AssertionError, match="scrub_errors"):
        world.rest()


def test_snapshot(world):
    """It has what was fsynced until then; what it has not is noticed."""
    for name, kind in world.kinds.items():
        files = Files(world.origins[name], 0, kind=kind, point=mount_point(name))
        wait_for(lambda f=files: len(f.safe) > 10, 60, "some files")
        assert world.origins[name].snapshot(world.volumes[name], world.store, files) > 10
        files.safe[files.directory / "never"] = b""
        with pytest.raises(FileNotFoundError):
            world.origins[name].snapshot(world.volumes[name], world.store, files)
        files.stop()
    world.stop()


def test_dirty_data_is_stuck(world, monkeypatch):
    """On a backing that takes nothing, whatever is healed; all is well when it does again."""
    part, disk, volume = world.backings["v"], world.hdds["v"], world.volumes["v"]
    end = part.sectors - DATA_SECTOR
    volume.set(writeback="off")
    world.raws["v"].oracles[0].run(ops=100)
    assert volume.dirty()
    lines = [f"0 {DATA_SECTOR} linear {disk} 0", f"{DATA_SECTOR} {end - DATA_SECTOR} error"]
    part.reload([*lines, f"{end} {DATA_SECTOR} linear {disk} {end}"], noflush=True)
    with monkeypatch.context() as m:
        m.setattr(soak, "PATIENCE", 10)
        with pytest.raises(AssertionError, match=r"waited 10 s for (v to be drained|a flush of v)|^v: .*dirty_sectors"):
            world.rest()
    part.resize((end + DATA_SECTOR) // 2048)
    world.rest()
    world.end()
