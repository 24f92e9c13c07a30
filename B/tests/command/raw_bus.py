# SPDX-License-Identifier: GPL-2.0-or-later
"""A client of D-Bus that does what no library lets it do: calls with descriptors that nothing in them names; no answer is read."""

import array
import itertools
import os
import socket
import struct

METHOD_CALL = 1
PATH, INTERFACE, MEMBER, DESTINATION, SIGNATURE, UNIX_FDS = 1, 2, 3, 6, 8, 9


def padded(data, to):
    return data + b"\0" * (-len(data) % to)


def text(value):
    return struct.pack("<I", len(value)) + value.encode() + b"\0"


def field(code, kind, value):
    encoded = {"u": lambda: struct.pack("<I", value), "g": lambda: bytes([len(value)]) + value.encode() + b"\0"}
    return bytes([code, 1]) + kind.encode() + b"\0" + encoded.get(kind, lambda: text(value))()


def message(serial, destination, path, interface, member, words, descriptors):
    """words: strings, its arguments."""
    body = b""
    for word in words:
        body = padded(body, 4) + text(word)
    fields = [field(PATH, "o", path), field(INTERFACE, "s", interface), field(MEMBER, "s", member)]
    fields.append(field(DESTINATION, "s", destination))
    if words:
        fields.append(field(SIGNATURE, "g", "s" * len(words)))
    if descriptors:
        fields.append(field(UNIX_FDS, "u", descriptors))
    header = b""
    for one in fields:
        header = padded(header, 8) + one
    return padded(struct.pack("<BBBBIII", ord("l"), METHOD_CALL, 0, 1, len(body), serial, len(header)) + header, 8) + body


class RawBus:
    """A connection, of that user."""

    def __init__(self, path, user=0):
        self.serial = itertools.count(1)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        os.seteuid(user)
        try:
            self.socket.connect(str(path))
        finally:
            os.seteuid(0)
        # one after the other: descriptors that come with what is no message yet are lost
        self.say(f"\0AUTH EXTERNAL {str(user).encode().hex()}", "OK ")
        self.say("NEGOTIATE_UNIX_FD", "AGREE_UNIX_FD")
        self.socket.sendall(b"BEGIN\r\n")
        bus = "org.freedesktop.DBus"
        self.call(bus, "/org/freedesktop/DBus", bus, "Hello")
        assert self.socket.recv(4096).startswith(b"l")

    def say(self, line, answer):
        self.socket.sendall(line.encode() + b"\r\n")
        said = b""
        while not said.endswith(b"\r\n"):
            said += self.socket.recv(4096)
        assert said.startswith(answer.encode()), said

    def call(self, destination, path, interface, member, *words, descriptors=()):
        """Sends it."""
        data = message(next(self.serial), destination, path, interface, member, words, len(descriptors))
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        sent = self.socket.sendmsg([data], ancillary)
        self.socket.sendall(data[sent:])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
