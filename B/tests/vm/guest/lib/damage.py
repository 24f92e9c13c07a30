# SPDX-License-Identifier: GPL-2.0-or-later
"""Damage of one field on a device, by tests/images/damage: its fields are those of kernel/larder_format.h."""

import importlib.machinery
import importlib.util
import socket
import struct
import sys
from pathlib import Path
from types import ModuleType

SCRIPT = Path(__file__).resolve().parents[3] / "images" / "damage"
SUPER = ("super", "super-copy")
TABLES = ("table-a", "table-b")


def _load() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("larder_damage", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("larder_damage", loader))
    sys.modules["larder_damage"] = module
    loader.exec_module(module)
    return module


_script = _load()
_form = _script.Format(_script.HEADER.read_text())


def crc32c(data: bytes) -> int:
    """The kernel's, without its last inversion: a table of volumes has 128 KiB, too much for Python."""
    with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET) as hashing:
        hashing.bind(("hash", "crc32c"))
        one, _ = hashing.accept()
        with one:
            assert one.send(data) == len(data)
            return int.from_bytes(one.recv(4), "little") ^ 0xFFFFFFFF


def fields(kind: str) -> list[tuple[str, int]]:
    """(path, bytes) of all numbers and of arrays of bytes in a structure of the header; the first two elements of other arrays."""

    def walk(kind: str, prefix: str) -> list[tuple[str, int]]:
        found = []
        for name, (_, size, number, what) in _form.structs[kind][1].items():
            if what not in _form.structs:
                found.append((prefix + name, size * (number or 1)))
                continue
            for i in range(min(number or 1, 2)):
                found += walk(what, f"{prefix}{name}{f'[{i}]' if number else ''}.")
        return found

    return walk(kind, "")


def damage(device: object, places: tuple[str, ...], *changes: str, keep_crc: bool = False) -> None:
    """changes: FIELD=VALUE as the script knows them, the same in all places.  The device must not be in use."""
    image = _script.Image(str(device), _form)
    found = [image.place(p) for p in places]  # before anything is changed
    done: dict[bytes, bytes] = {}
    for kind, offset in found:
        size = _form.number("LARDER_SB_SIZE") if "sb" in kind else _form.structs[kind][0]
        data = image.read(offset, size)
        old = bytes(data)
        if old not in done:
            done[old] = _change(kind, data, changes, keep_crc)
        image.file.seek(offset)
        image.file.write(done[old])
    image.file.close()


def _change(kind: str, data: bytearray, changes: tuple[str, ...], keep_crc: bool) -> bytes:
    crc = _form.find(kind, "crc" if kind in ("larder_sb_head", "larder_chunk", "larder_commit") else "head.crc")[0]
    for change in changes:
        path, _, value = change.partition("=")
        at, length, _ = _script.field(_form, kind, path, data)
        data[at : at + length] = _script.changed(data[at : at + length], value, length)
        keep_crc |= at == crc
    if not keep_crc:
        struct.pack_into("<I", data, crc, crc32c(data[:crc] + bytes(4) + data[crc + 4 :]))
    return bytes(data)
