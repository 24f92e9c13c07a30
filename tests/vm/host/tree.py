# SPDX-License-Identifier: GPL-2.0-or-later
"""What a result depends on: a long run that was cut off goes on where it was, and begins anew when something has changed."""

import hashlib
import subprocess
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]


def fingerprint(*folders: str) -> str:
    """Of the files of these folders that git knows, as they are now."""
    names = subprocess.run(["git", "-C", TOP, "ls-files", "-z", *folders], check=True, capture_output=True).stdout
    h = hashlib.sha256()
    for name in filter(None, names.decode().split("\0")):
        if (TOP / name).is_file():
            h.update(name.encode() + (TOP / name).read_bytes())
    return h.hexdigest()[:16]
