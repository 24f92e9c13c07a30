# SPDX-License-Identifier: GPL-2.0-or-later
"""Random damage of the disks of a stack, drawn from a seed: bits, places that were never written or are some other place's, ends
that are missing, and fields that somebody has set by hand, with the checksum made right.  In memory; put() has it written."""

import dataclasses
import random
import struct
from collections.abc import Callable

from .block import SECTOR
from .damage import _form as FORM
from .damage import _script as SCRIPT
from .damage import crc32c, fields
from .damage_bases import Base, Rig

PAGE = 4096
SUPER_SIZE = 4096
AT = {"crc": 16, "copy_offset": 88, "segments": 224, "segments_offset": 240, "epoch": 256, "checkpoint": 288}  # in a superblock
MAGIC = {b"LCMT": "larder_commit", b"LSUM": "larder_summary", b"LCHK": "larder_chunk"}
SUPERS = ("larder_cache_sb", "larder_volume_sb")
ITEM = struct.Struct("<BBHIQ")
ITEM_UNIT = {1: 8, 2: 8, 3: 8, 4: 32, 5: 16, 6: 1}  # bytes of each that an item counts
# what a reader may count, index or multiply with
HOSTILE = {
    "larder_cache_sb": "nr_devices device_number segment_size first_segment nr_segments role segments_offset epoch "
    "durable_sequence head.device_sectors head.copy_offset checkpoint[0].bytes "
    "checkpoint[0].first_segment checkpoint[0].first_mirror checkpoint[0].first_third "
    "checkpoint[0].replay_sequence checkpoint[0].epoch checkpoint[1].bytes checkpoint[1].first_segment "
    "epochs[0].segment epochs[0].first_sequence epochs[0].epoch set_generation table_generation "
    "head.generation head.incompat",
    "larder_volume_sb": "mode data_offset tail_reserve sectors incarnation set_generation head.device_sectors head.copy_offset "
    "head.flags head.generation",
    "larder_table": "head.nr_devices head.nr_volumes head.generation head.set_generation devices[0].state devices[0].role "
    "devices[0].first_segment devices[0].nr_segments devices[0].segments_offset devices[1].state devices[1].first_segment "
    "devices[1].nr_segments volumes[0].state volumes[0].sectors volumes[0].incarnation volumes[1].state volumes[1].sectors",
    "larder_commit": "nr_entries first end slot segment stream flags sequence prev_sequence durable_sequence entry[0].sector "
    "entry[0].cache entry[0].length entry[0].volume entry[0].kind entry[1].sector entry[1].cache entry[1].length entry[1].kind "
    "sum[0]",
    "larder_summary": "nr_entries nr_sums first_sequence last_sequence segment epoch stream flags entry[0].sector entry[0].cache "
    "entry[0].length entry[0].volume entry[0].kind entry[1].cache entry[1].length",
    "larder_chunk": "used number next_segment next_mirror next_third sequence",
}


def size_of(kind: str) -> int:
    return SUPER_SIZE if kind in SUPERS else FORM.structs[kind][0]


def get(data: bytes, kind: str, path: str) -> int:
    at, size, _ = SCRIPT.field(FORM, kind, path, data)
    return int.from_bytes(data[at : at + size], "little")


def put(data: bytearray, kind: str, path: str, value: int) -> None:
    at, size, _ = SCRIPT.field(FORM, kind, path, data)
    data[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")


def seal(data: bytearray, kind: str) -> None:
    at = AT["crc"] if kind in SUPERS else 4
    data[at : at + 4] = bytes(4)
    struct.pack_into("<I", data, at, crc32c(bytes(data)))


def link(block: bytes, sequence: str, crc: str) -> tuple[int, int]:
    return get(block, "larder_commit", sequence), get(block, "larder_commit", crc)


@dataclasses.dataclass
class Structure:
    """Of the header, wherever a copy of it is: disk and byte."""

    kind: str
    places: list[tuple[int, int]]
    live: bool = True  # a start may look at it


class Atlas:
    """What is where on the disks of a base."""

    def __init__(self, base: Base):
        self.images = base.images
        self.ssds = range(len(base.images) - 1)
        self.structures: list[Structure] = []
        self.segments: list[tuple[int, int, int]] = []  # of each SSD: first byte, size, how many
        self.behind: dict[tuple[int, int], Structure] = {}  # commit blocks, by sequence and crc of the one before
        for d, image in enumerate(base.images):
            (copy,) = struct.unpack_from("<Q", image, SUPER_SIZE + AT["copy_offset"])
            places = [(d, SUPER_SIZE)] + ([(d, copy)] if copy else [])
            self.structures.append(Structure(SUPERS[d == len(self.ssds)], places))
        for d in self.ssds:
            size, _, number = struct.unpack_from("<III", self.images[d], SUPER_SIZE + AT["segments"])
            (first,) = struct.unpack_from("<Q", self.images[d], SUPER_SIZE + AT["segments_offset"])
            self.segments.append((first, size, number))
            tables = [(d, FORM.number(f"LARDER_TABLE_OFFSET_{x}")) for x in "AB"]
            self.structures.append(Structure("larder_table", tables))
        self._scan()

    def _scan(self) -> None:
        """Commit blocks and chunks of one content are copies of one another."""
        supers = [self.images[d][SUPER_SIZE : 2 * SUPER_SIZE] for d in self.ssds]
        newest = max(supers, key=lambda s: get(s, SUPERS[0], "head.generation"))
        (epoch,) = struct.unpack_from("<I", newest, AT["epoch"])
        named = [struct.unpack_from("<QQQ", newest, AT["checkpoint"] + 64 * i) for i in range(2)]
        replay = min(p[2] for p in named if p[0])
        found: dict[bytes, Structure] = {}
        for d in self.ssds:
            first, size, number = self.segments[d]
            for at in range(first, first + size * number, PAGE):
                kind = MAGIC.get(self.images[d][at : at + 4])
                if not kind:
                    continue
                data = self.images[d][at : at + size_of(kind)]
                if data not in found:
                    sequence = 0 if kind == "larder_summary" else get(data, kind, "sequence")
                    if kind == "larder_chunk":
                        live = sequence in [p[0] for p in named]
                    else:
                        live = get(data, kind, "epoch") == epoch and (sequence >= replay or kind == "larder_summary")
                    found[data] = Structure(kind, [], live)
                    self.structures.append(found[data])
                    if kind == "larder_commit" and live:
                        self.behind[link(data, "prev_sequence", "prev_crc")] = found[data]
                found[data].places.append((d, at))


class Damage:
    """Of one seed.  crafted: a checksum was made right, so that anything may be believed."""

    def __init__(self, atlas: Atlas, seed: int, kind: str):
        self.atlas, self.kind = atlas, kind
        self.random = r = random.Random(f"damage {seed}")
        self.pages: dict[tuple[int, int], bytearray] = {}
        self.left: dict[int, int] = {}  # bytes of a disk that is shorter now
        self.words: list[str] = []
        self.crafted = False
        # of a set: often one SSD alone, so that the others have it all
        alone = len(atlas.ssds) > 1 and r.random() < (0.6 if kind in RAW else 0.2)
        self.only = r.choice(atlas.ssds) if alone else None
        for _ in range(16):  # zeroes over zeroes are none
            if not self.disks():
                EDITS[kind](self)

    # ------------------------------------------------------------------ content

    def clear(self) -> None:
        """Nothing is damaged."""
        self.pages, self.left, self.words, self.crafted = {}, {}, [], False

    def read(self, disk: int, at: int, size: int) -> bytearray:
        data = bytearray(self.atlas.images[disk][at : at + size])
        for page in range(at // PAGE, (at + size - 1) // PAGE + 1):
            if changed := self.pages.get((disk, page)):
                first, last = max(at, page * PAGE), min(at + size, (page + 1) * PAGE)
                data[first - at : last - at] = changed[first - page * PAGE : last - page * PAGE]
        return data

    def write(self, disk: int, at: int, data: bytes) -> None:
        """Words that say so are the caller's."""
        for page in range(at // PAGE, (at + len(data) - 1) // PAGE + 1):
            first, last = max(at, page * PAGE), min(at + len(data), (page + 1) * PAGE)
            whole = self.pages.setdefault((disk, page), bytearray(self.atlas.images[disk][page * PAGE : (page + 1) * PAGE]))
            whole[first - page * PAGE : last - page * PAGE] = data[first - at : last - at]

    def disks(self) -> set[int]:
        """Those that are not what they were."""
        changed = {d for (d, page), data in self.pages.items() if data != self.atlas.images[d][page * PAGE : (page + 1) * PAGE]}
        return changed | set(self.left)

    def put(self, rig: Rig) -> None:
        runs: list[tuple[int, int, bytearray]] = []
        for (disk, page), data in sorted(self.pages.items()):
            if runs and runs[-1][0] == disk and runs[-1][1] + len(runs[-1][2]) == page * PAGE:
                runs[-1][2].extend(data)
            else:
                runs.append((disk, page * PAGE, bytearray(data)))
        for disk, at, data in runs:
            rig.disks[disk].write(at // SECTOR, bytes(data))

    def image(self, disk: int) -> bytes:
        """All of it, for somebody who looks into a failure."""
        return bytes(self.read(disk, 0, len(self.atlas.images[disk])))[: self.left.get(disk)]

    # ------------------------------------------------------------------ what is drawn

    def say(self, *words: object) -> None:
        self.words.append(",".join(str(w).replace(" ", "") for w in words))

    def ssd(self) -> int:
        return self.random.choice(self.atlas.ssds) if self.only is None else self.only

    def structure(self, *kinds: str) -> Structure:
        """One that a start looks at, mostly; with all copies that may be damaged, or one of them."""
        there = [s for s in self.atlas.structures if s.kind in kinds]
        if self.only is not None:
            of_one = [Structure(s.kind, [x for x in s.places if x[0] == self.only], s.live) for s in there]
            there = [s for s in of_one if s.places] or there  # it may have none, of chunks say
        live = [s for s in there if s.live]
        s = self.random.choice(live if live and self.random.random() < 0.85 else there)
        one = self.random.random() < 0.3
        return Structure(s.kind, [self.random.choice(s.places)] if one else s.places, s.live)

    def kinds(self) -> list[str]:
        return [k for k in HOSTILE if self.only is None or k != SUPERS[1]]

    def segment(self, other: int | None = None) -> tuple[int, int, int]:
        """Disk, byte, size; not the one at byte other."""
        d = self.ssd()
        first, size, number = self.atlas.segments[d]
        places = range(first, first + number * size, size)
        used = [at for at in places if at != other and self.atlas.images[d][at : at + SECTOR].count(0) != SECTOR]
        return d, self.random.choice(used), size

    def hostile(self, old: int, size: int) -> int:
        r, bits = self.random, 8 * size
        power = 1 << r.randrange(bits)
        far = [0, 1, power, 2 * power - 1, (1 << bits) - 1, (1 << bits) - 2, r.getrandbits(bits)]
        near = [old + 1, old - 1, old * 2, old ^ (1 << r.randrange(bits)), old + r.randrange(-64, 64)]
        return r.choice(far + near)

    # ------------------------------------------------------------------ without any checksum made right

    def flip(self) -> None:
        r = self.random
        what = r.choice(("head", "log", "summary", "checkpoint", "data", "data", "any"))
        bits = r.choice((1, 1, 2, 3, 8, 64))
        kinds = {
            "head": tuple(k for k in self.kinds() if k in (*SUPERS, "larder_table")),
            "log": ("larder_commit",),
            "summary": ("larder_summary",),
            "checkpoint": ("larder_chunk",),
        }
        if what in kinds:
            s = self.structure(*kinds[what])
            places, size = s.places, size_of(s.kind)
        else:
            d, at, size = self.segment()
            places = [(d, at)]
            if what == "data":
                places, size = [(d, at + r.randrange(size // PAGE) * PAGE)], PAGE
        self.say("flip", what, bits, *places)
        for bit in [r.randrange(8 * size) for _ in range(bits)]:
            for d, at in places:
                byte = self.read(d, at + bit // 8, 1)
                self.write(d, at + bit // 8, bytes([byte[0] ^ 1 << bit % 8]))

    def blank(self) -> None:
        """Slots that were never written, or hold anything."""
        d, at, size = self.segment()
        first = self.random.randrange(size // PAGE) * PAGE
        length = min(self.random.choice((1, 1, 2, 5, 32)) * PAGE, size - first)
        fill = self.random.choice(("zeroes", "ones", "random"))
        self.say("blank", fill, d, at + first, length)
        data = {"zeroes": bytes(length), "ones": b"\xff" * length, "random": self.random.randbytes(length)}[fill]
        self.write(d, at + first, data)

    def tail(self) -> None:
        """The end was never written."""
        d = self.ssd()
        first, size, number = self.atlas.segments[d]
        at = first + self.random.randrange(size * number) // PAGE * PAGE
        self.say("tail", d, at)
        self.write(d, at, bytes(len(self.atlas.images[d]) - at))

    def cut(self) -> None:
        """A disk that is shorter than it was: by a sector, by much, or nothing but its head."""
        d = self.random.choice((self.ssd(), self.ssd(), len(self.atlas.ssds) if self.only is None else self.only))
        end = len(self.atlas.images[d])
        less = self.random.choice((PAGE, PAGE * self.random.randrange(1, 64), self.random.randrange(end - PAGE), end - 4 * PAGE))
        self.left[d] = (end - less) // PAGE * PAGE or PAGE
        self.say("cut", d, self.left[d])

    def over(self) -> None:
        d, at, size = self.segment()
        e, to, _ = self.segment(at)
        self.say("over", d, at, e, to)
        self.write(e, to, self.read(d, at, size))

    def swap(self) -> None:
        d, at, size = self.segment()
        e, to, _ = self.segment(at)
        self.say("swap", d, at, e, to)
        one, other = self.read(d, at, size), self.read(e, to, size)
        self.write(e, to, one)
        self.write(d, at, other)

    def repeat(self) -> None:
        """A structure where another one of its kind was."""
        kinds = ["larder_commit", "larder_summary", "larder_chunk", "larder_table", "larder_cache_sb"]
        kind = self.random.choice(kinds + kinds[:1])
        s = self.structure(kind)
        everywhere = [p for x in self.atlas.structures if x.kind == kind for p in x.places]
        d, at = self.random.choice([p for p in everywhere if p not in s.places] or everywhere)
        data = self.read(d, at, size_of(kind))
        self.say("repeat", kind, d, at, *s.places)
        for e, to in s.places:
            self.write(e, to, data)

    def several(self) -> None:
        for _ in range(self.random.randrange(2, 5)):
            self.random.choice((Damage.flip, Damage.flip, Damage.blank, Damage.over, Damage.swap, Damage.repeat))(self)

    # ------------------------------------------------------------------ with it

    def craft(self, s: Structure, change: Callable[[bytearray], str]) -> None:
        """In all places that hold the same."""
        self.crafted = True
        done: dict[bytes, bytes] = {}
        said, drawn = "", self.random.getstate()
        for d, at in s.places:
            data = self.read(d, at, size_of(s.kind))
            old = bytes(data)
            if old not in done:
                self.random.setstate(drawn)  # places that differ get the same change
                said = change(data)
                seal(data, s.kind)
                done[old] = bytes(data)
            self.write(d, at, done[old])
        self.say(self.kind, s.kind, said, *s.places)

    def set_field(self, data: bytearray, kind: str, paths: list[str]) -> str:
        path = self.random.choice(paths)
        at, size, _ = SCRIPT.field(FORM, kind, path, data)
        if at + size > len(data):
            return "nothing"
        if size > 8:
            data[at : at + size] = self.random.randbytes(size)
            return path
        value = self.hostile(int.from_bytes(data[at : at + size], "little"), size) % (1 << 8 * size)
        put(data, kind, path, value)
        return f"{path}={value:#x}"

    def counts(self) -> None:
        s = self.structure(self.random.choice(self.kinds()))
        self.craft(s, lambda data: self.set_field(data, s.kind, HOSTILE[s.kind].split()))

    def fields(self) -> None:
        s = self.structure(self.random.choice(self.kinds()))
        self.craft(s, lambda data: self.set_field(data, s.kind, [path for path, _ in fields(s.kind)]))

    def bits(self) -> None:
        s = self.structure(self.random.choice(self.kinds()))
        bits = [self.random.randrange(8 * size_of(s.kind)) for _ in range(self.random.choice((1, 4, 64)))]

        def change(data: bytearray) -> str:
            for bit in bits:
                data[bit // 8] ^= 1 << bit % 8
            return str(len(bits))

        self.craft(s, change)

    def items(self) -> None:
        """Of a checkpoint: what an item says, or what it holds."""

        def change(data: bytearray) -> str:
            r, head, end = self.random, FORM.find("larder_chunk", "payload")[0], get(data, "larder_chunk", "used")
            found, at = [], 0
            while at + ITEM.size <= end:
                kind, _, _, count, _ = ITEM.unpack_from(data, head + at)
                found.append((head + at, kind, count))
                at += ITEM.size + ITEM_UNIT.get(kind, 1) * count
            at, kind, count = r.choice(found)
            words = list(ITEM.unpack_from(data, at))
            if not count or kind == 6 or r.random() < 0.5:
                which = r.choice((0, 2, 3, 3, 4))
                size = (1, 1, 2, 4, 8)[which]
                words[which] = self.hostile(words[which], size) % (1 << 8 * size)
                ITEM.pack_into(data, at, *words)
                return f"item,{kind},{words[which]:#x}"
            for _ in range(r.choice((1, 1, 4))):
                place = at + ITEM.size + 8 * r.randrange(count * ITEM_UNIT[kind] // 8)
                old = int.from_bytes(data[place : place + 8], "little")
                other = at + ITEM.size + 8 * r.randrange(count * ITEM_UNIT[kind] // 8)
                new = r.choice((self.hostile(old, 8) % (1 << 64), int.from_bytes(data[other : other + 8], "little"), old ^ 1 << 28))
                data[place : place + 8] = new.to_bytes(8, "little")
            return f"content,{kind}"

        self.craft(self.structure("larder_chunk"), change)

    def chain(self) -> None:
        """A commit block of the log, and the blocks behind it know its new crc: all of it is replayed."""
        s = self.structure("larder_commit")
        before = self.read(*s.places[0], PAGE)
        self.craft(s, lambda data: self.set_field(data, s.kind, HOSTILE[s.kind].split()))
        after, length = self.read(*s.places[0], PAGE), 0
        while following := self.atlas.behind.get(link(before, "sequence", "crc")):
            before = self.read(*following.places[0], PAGE)
            data = bytearray(before)
            put(data, following.kind, "prev_sequence", get(after, following.kind, "sequence"))
            put(data, following.kind, "prev_crc", get(after, following.kind, "crc"))
            seal(data, following.kind)
            for d, at in following.places:
                self.write(d, at, data)
            after, length = data, length + 1
        self.say("chained", length)


RAW = {
    "flip": Damage.flip,
    "blank": Damage.blank,
    "tail": Damage.tail,
    "cut": Damage.cut,
    "over": Damage.over,
    "swap": Damage.swap,
    "repeat": Damage.repeat,
    "several": Damage.several,
}
CRAFTED = {
    "counts": Damage.counts,
    "fields": Damage.fields,
    "bits": Damage.bits,
    "items": Damage.items,
    "chain": Damage.chain,
}
EDITS = RAW | CRAFTED
