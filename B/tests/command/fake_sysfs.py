# SPDX-License-Identifier: GPL-2.0-or-later
"""A /sys of the test's (LARDER_ROOT): disks, what lies on them, and what they have answered."""

import os
import threading


class Sysfs:
    def __init__(self, root):
        self.root = root
        (root / "sys/block").mkdir(parents=True)
        self.environment = {"LARDER_ROOT": str(root)}

    def device(self, name, *below, requests=True, answered=1000, in_flight=0, **files):
        """files: DIRECTORY__NAME=text.  below: names of devices that are there."""
        directory = self.root / "sys/devices" / name
        (directory / "slaves").mkdir(parents=True)
        for lower in below:
            (directory / "slaves" / lower).symlink_to(self.root / "sys/devices" / lower)
        if requests:
            (directory / "mq").mkdir()
        (self.root / "sys/block" / name).symlink_to(directory)
        for key, text in files.items():
            self.put(name, key.replace("__", "/"), text)
        self.stat(name, answered, in_flight)
        return directory

    def image(self, name, *below):
        """What stands for a dm device that is none: LARDER_STATUS names it."""
        directory = self.root / "sys/dev/image" / name
        (directory / "slaves").mkdir(parents=True)
        for lower in below:
            (directory / "slaves" / lower).symlink_to(self.root / "sys/devices" / lower)

    def put(self, name, file, text):
        """As a whole: whoever reads it gets the one or the other."""
        path = self.root / "sys/devices" / name / file
        path.parent.mkdir(exist_ok=True)
        new = path.with_name(path.name + ".new")
        new.write_text(f"{text}\n")
        new.rename(path)

    def stat(self, name, answered, in_flight):
        """So many reads."""
        self.put(name, "stat", f"{answered} 0 0 0 0 0 0 0 {in_flight} 0 0 0 0 0 0 0 0")


class Fed:
    """A `stat` that says, look by look, what the iterator has; looks: how many have come for it."""

    def __init__(self, sysfs, name, stats):
        self.path, self.stats, self.looks = sysfs.root / "sys/devices" / name / "stat", iter(stats), 0
        self.path.unlink()
        os.mkfifo(self.path)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.feed)

    def feed(self):
        for answered, in_flight in self.stats:
            with open(self.path, "w") as pipe:
                if self.ended.is_set():
                    return
                self.looks += 1
                pipe.write(f"{answered} 0 0 0 0 0 0 0 {in_flight} 0 0 0 0 0 0 0 0\n")
            # the next one is another file: nothing of it is read with this
            new = self.path.with_name("stat.new")
            os.mkfifo(new)
            new.rename(self.path)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        with open(self.path):
            self.thread.join()
