# SPDX-License-Identifier: GPL-2.0-or-later
"""The initramfs of bench VMs: Python, a few programs with their libraries, modules, the rig.  Written as an uncompressed cpio."""

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import databases

TOP = Path(__file__).resolve().parents[2]
PYTHON = Path("/usr/bin/python3").resolve()
LIBRARY = Path("/usr/lib") / PYTHON.name
LEFT_OUT = {"test", "idlelib", "lib2to3", "ensurepip", "tkinter", "pydoc_data", "distutils", "unittest", "turtledemo", "xmlrpc"}
LEFT_OUT |= {
    "wsgiref",
    "asyncio",
    "email",
    "multiprocessing",
    "concurrent",
    "curses",
    "dbm",
    "http",
    "html",
    "xml",
    "venv",
}
PROGRAMS = ("fio", "dmsetup", "mount", "umount", "insmod", "mkfs.ext4")
SEARCH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"


class MissingError(Exception):
    """A program or module that this machine does not have."""


class Archive:
    """A cpio in the format "newc".  Numbers of inodes and times depend on nothing but the order."""

    def __init__(self, path: Path):
        self.file = open(path, "wb")  # noqa: SIM115 (closed by close())
        self.inode = 0
        self.made: set[str] = set()

    def _entry(self, name: str, mode: int, data: bytes) -> None:
        self.inode += 1
        encoded = name.encode() + b"\0"
        fields = (self.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
        self.file.write(b"070701" + b"".join(b"%08X" % f for f in fields) + encoded)
        self.file.write(bytes(-self.file.tell() % 4) + data)
        self.file.write(bytes(-self.file.tell() % 4))

    def directory(self, name: str) -> None:
        name = name.strip("/")
        if name and name not in self.made:
            self.directory(os.path.dirname(name))
            self.made.add(name)
            self._entry(name, stat.S_IFDIR | 0o755, b"")

    def add(self, name: str, data: bytes, mode: int = 0o644) -> None:
        name = name.strip("/")
        if name in self.made:
            return
        self.directory(os.path.dirname(name))
        self.made.add(name)
        self._entry(name, stat.S_IFREG | mode, data)

    def copy(self, source: Path, name: str | None = None) -> None:
        mode = 0o755 if os.access(source, os.X_OK) else 0o644
        self.add(name or str(source), source.read_bytes(), mode)

    def close(self) -> None:
        self.inode = -1
        self._entry("TRAILER!!!", 0, b"")
        self.file.close()


def _add_program(archive: Archive, program: Path, name: str) -> None:
    archive.copy(program, name)
    for library in _libraries([program]):
        archive.copy(library)


def _libraries(files: list[Path]) -> list[Path]:
    r = subprocess.run(["ldd", *files], capture_output=True, text=True)
    return [Path(p) for p in re.findall(r"(/\S+)(?= \(0x)", r.stdout) if Path(p).is_file()]


def _add_python(archive: Archive) -> None:
    _add_program(archive, PYTHON, str(PYTHON))
    archive.copy(PYTHON, "/usr/bin/python3")
    objects: list[Path] = []
    for directory, below, files in os.walk(LIBRARY):
        below[:] = sorted(d for d in below if d not in LEFT_OUT and not d.startswith("config-"))
        for f in sorted(files):
            path = Path(directory, f)
            if path.suffix in (".py", ".pyc", ".so") and path.is_file():
                archive.copy(path)
            if path.suffix == ".so":
                objects.append(path)
    for library in _libraries(objects):
        archive.copy(library)


def find_program(name: str, directories: list[Path]) -> Path:
    path = shutil.which(name, path=":".join([*map(str, directories), SEARCH]))
    if not path:
        raise MissingError(f"the program {name} is not installed")
    return Path(path).resolve()


def module_files(kernel: str, names: list[str], own: dict[str, Path]) -> list[Path]:
    """In the order of loading, what they depend on first.  own: modules built by us, by name."""
    found: list[Path] = []
    for name in names:
        wanted = [name]
        if name in own:
            depends = subprocess.run(
                ["modinfo", "-F", "depends", own[name]], check=True, capture_output=True, text=True, env=_path()
            )
            wanted = [d for d in depends.stdout.strip().split(",") if d]
        for w in wanted:
            r = subprocess.run(["modprobe", "-S", kernel, "--show-depends", w], capture_output=True, text=True, env=_path())
            if r.returncode:
                raise MissingError(f"the module {w} is not there for {kernel}")
            found += [Path(line.split()[1]) for line in r.stdout.splitlines() if line.startswith("insmod ")]
        if name in own:
            found.append(own[name])
    return list(dict.fromkeys(found))


def _path() -> dict[str, str]:
    return os.environ | {"PATH": SEARCH}


def _module_data(path: Path) -> bytes:
    if path.suffix == ".xz":
        return subprocess.run(["xz", "-dc", path], check=True, capture_output=True).stdout
    return path.read_bytes()


def module_name(path: Path) -> str:
    return path.name.removesuffix(".xz")


def write(target: Path, programs: dict[str, Path], modules: list[Path]) -> None:
    archive = Archive(target)
    _add_python(archive)
    for name, path in sorted(programs.items()):
        _add_program(archive, path, f"/bin/{name}")
    for module in modules:
        archive.add(f"/modules/{module_name(module)}", _module_data(module))
    for source in sorted((TOP / "tests" / "bench" / "rig").glob("*.py")):
        archive.copy(source, f"/bench/{source.name}")
    for source in sorted((TOP / "tests" / "vm" / "guest" / "lib").glob("*.py")):
        archive.copy(source, f"/bench/vm/lib/{source.name}")
    archive.add("/init", (TOP / "tests" / "bench" / "rig" / "guest.py").read_bytes(), 0o755)
    for name in ("proc", "sys", "dev", "tmp", "run"):
        archive.directory(name)
    archive.close()


POSTGRESQL = databases.PROGRAMS.parent
POSTGRESQL_PROGRAMS = ("initdb", "postgres", "pgbench", "pg_isready")
ACCOUNTS = {"passwd": "root:x:0:0::/:/bin/sh\npostgres:x:100:100::/tmp:/bin/sh\n", "group": "root:x:0:\npostgres:x:100:\n"}


def write_postgresql(target: Path) -> None:
    """What a server and pgbench need, and a user for it; without the compiler of its expressions."""
    if not (POSTGRESQL / "bin" / "postgres").exists():
        raise MissingError(f"the program {POSTGRESQL}/bin/postgres is not installed: tests/ci/dependencies bench")
    archive = Archive(target)
    _add_program(archive, Path("/bin/sh").resolve(), "/bin/sh")
    for name in POSTGRESQL_PROGRAMS:
        _add_program(archive, POSTGRESQL / "bin" / name, str(POSTGRESQL / "bin" / name))
    for path in sorted((POSTGRESQL / "lib").glob("*.so")):
        if "llvm" not in path.name:
            archive.copy(path)
    share = Path("/usr/share/postgresql/15")
    for path in sorted(p for p in share.rglob("*") if p.is_file() and "man" not in p.relative_to(share).parts):
        archive.copy(path)
    for name, text in ACCOUNTS.items():
        archive.add(f"/etc/{name}", text.encode())
    archive.close()


def extend(bases: list[Path], target: Path, files: dict[str, bytes]) -> None:
    """The kernel unpacks archives that follow each other."""
    archive = Archive(target)
    for name, data in files.items():
        archive.add(name, data)
    archive.close()
    last = target.read_bytes()
    with open(target, "wb") as f:
        for base in bases:
            with open(base, "rb") as whole:
                shutil.copyfileobj(whole, f)
            f.write(bytes(-f.tell() % 512))
        f.write(last)
