"""What the wheels of companions really need of torch: the symbols that their libraries leave to
torch, against those that the libraries of each torch export; the CUDA that they link; and what
their METADATA declares.

    python scripts/read_companions.py --write pairs.json torchcodec==0.17.0 torchao==0.16.0
    python scripts/read_companions.py --torch 2.14.1 2.15.0 --keep read/ xformers==0.0.35

The wheels come from the default index of uv, library by library, and nothing of them stays on the
disk; without `--torch` the torch of this interpreter is read. `--keep` is a folder for what was
read: a run that was cut off goes on from there. Needs `pyelftools`, and Linux wheels of x86-64.

A pair contradicts where the libraries do not load and METADATA or our table takes it, where the
table does not take what METADATA declares, and where it has another CUDA than the libraries link.
`stricter`: they load, METADATA says nothing, and our table does not take it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import requests
from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from gpusetup.catalog.companion_table import companion_table, cuda_majors, takes_torch
from gpusetup.install.fetching.ranged import RangedFile, metadata_in
from gpusetup.install.settings.environment import uv_program
from gpusetup.install.settings.uv_config import parse_toml

PYTHON, PLATFORM = "3.12", "x86_64-manylinux_2_35"
SECONDS = 60.0
PARTIAL = 206
HEAD = 30
"""Bytes before the name and the extra field of a member of a zip (APPNOTE 4.3.7)."""
SYMBOL = struct.Struct("<IBBHQQ")
"""Name, kind, visibility, section, value, size of a symbol (ELF-64, little-endian)."""
UNDEFINED, WEAK = 0, 2
CHUNK = 1 << 20
OF_TORCH = re.compile(
    r"^(_Z\w*?(?:3c10|2at|5torch|6caffe2)\w*|aoti_torch_\w+|torch_\w+|THP\w+|_ZTI\w*3c10\w*)$"
)
"""Names that only torch's own libraries define."""
TORCH = r"lib(torch|c10)(_cpu|_python|_cuda|_nvshmem)?\.so"
CUDA = re.compile(r"^(?:libcudart|libcublas|libcublasLt|libnvrtc)\.so\.(\d+)")


class Library(NamedTuple):
    """What one library takes, gives and links."""

    takes: frozenset[str]
    gives: frozenset[str]
    links: tuple[str, ...]


class Wheel(NamedTuple):
    name: str
    version: str
    url: str


class Needs(NamedTuple):
    """What a companion's wheel takes of torch."""

    name: str
    version: str
    symbols: frozenset[str]
    cuda: tuple[str, ...]
    declares: str | None


def main() -> int:
    options = _parser().parse_args()
    keep = options.keep
    torches = dict(_torches(options.torch, keep))
    needs = [one for word in options.companions if (one := _needs(word, keep))]
    rows = [row for one in needs for row in _pairs(one, torches)]
    document = {
        "wheels": len(needs) + len(torches),
        "pairs": len(rows),
        "contradictions": [row for row in rows if row["contradicts"]],
        "stricter": [row for row in rows if row["stricter"]],
        "rows": rows,
    }
    text = json.dumps(document, indent=1)
    if options.write:
        options.write.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
    print(_summary(document), file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("companions", nargs="+", metavar="NAME==VERSION")
    parser.add_argument("--torch", nargs="+", default=[], metavar="VERSION")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--write", type=Path, metavar="FILE")
    return parser


def _summary(document: dict[str, Any]) -> str:
    wrong, stricter = len(document["contradictions"]), len(document["stricter"])
    counts = f"{document['wheels']} wheels, {document['pairs']} pairs, {wrong} contradictions"
    return f"{counts}, {stricter} where the table is stricter"


def _needs(requirement: str, keep: Path | None) -> Needs | None:
    read = _kept(keep, requirement, lambda: _read_companion(requirement))
    if read is None:
        return None
    symbols, cuda = frozenset(read["symbols"]), tuple(read["cuda"])
    return Needs(read["name"], read["version"], symbols, cuda, read["declares"])


def _torches(versions: Iterable[str], keep: Path | None) -> Iterator[tuple[str, frozenset[str]]]:
    """Each torch and every name that its libraries give."""
    for version in versions:
        read = _kept(keep, f"torch=={version}", partial(_read_torch, version))
        if read is not None:
            yield version, frozenset(read["gives"])
    if not versions:
        yield from map(exports_in, own_torch())


def _kept(
    folder: Path | None, what: str, read: Callable[[], dict[str, Any] | None]
) -> dict[str, Any] | None:
    """What was read of a wheel in an earlier run, else what is read now."""
    place = folder / f"{what}.json" if folder else None
    if place is not None and place.is_file():
        kept: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
        return kept
    found = read()
    if place is not None and found is not None:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(found), encoding="utf-8")
    return found


def wheel_of(requirement: str) -> Wheel | None:
    """The wheel that uv would take from the default index; None where there is none."""
    argv = (
        *(uv_program(), "pip", "compile", "--no-deps", "--no-build", "--format", "pylock.toml"),
        *("--python-version", PYTHON, "--python-platform", PLATFORM, "--quiet", "-"),
    )
    said = subprocess.run(argv, input=requirement, capture_output=True, text=True, check=False)
    if said.returncode:
        print(f"{requirement}: {said.stderr.strip()[:300]}", file=sys.stderr)
        return None
    package = parse_toml(said.stdout)["packages"][0]
    fits = [row["url"] for row in package["wheels"] if re.search(r"linux\w*x86_64", row["url"])]
    own = [u for u in fits if re.search(r"-(cp312-cp312|cp3\d+-abi3|py\d+-none)-", u)] or fits
    return Wheel(package["name"], package["version"], own[0]) if own else None


class Server:
    """A wheel where it lies, read by parts; OSError where the server gives none."""

    def __init__(self, url: str) -> None:
        self._url, self._session = url, requests.Session()

    def ask(self, span: str, *, stream: bool = False) -> requests.Response:
        headers = {"Range": f"bytes={span}", "Accept-Encoding": "identity"}
        answer = self._session.get(self._url, headers=headers, timeout=SECONDS, stream=stream)
        if answer.status_code != PARTIAL:
            raise OSError(f"{self._url}: the server gives no parts ({answer.status_code})")
        return answer

    def file(self) -> RangedFile:
        """For its table of contents and its METADATA."""

        def part(span: str) -> tuple[bytes, int]:
            answer = self.ask(span)
            return answer.content, int(answer.headers["Content-Range"].rpartition("/")[2])

        found = RangedFile.opened(part)
        assert found is not None, "a server without parts raises"
        return found

    def unpack(self, entry: zipfile.ZipInfo, into: IO[bytes]) -> None:
        """One member, by one request; ValueError where it is not what the contents say."""
        start = entry.header_offset
        name, extra = struct.unpack("<HH", self.ask(f"{start}-{start + HEAD - 1}").content[26:30])
        start += HEAD + name + extra
        packed = entry.compress_type == zipfile.ZIP_DEFLATED
        unpacked = zlib.decompressobj(-zlib.MAX_WBITS) if packed else None
        checksum = 0
        with self.ask(f"{start}-{start + entry.compress_size - 1}", stream=True) as answer:
            for chunk in answer.iter_content(CHUNK):
                found = unpacked.decompress(chunk) if unpacked else chunk
                checksum = zlib.crc32(found, checksum)
                into.write(found)
        if checksum != entry.CRC:
            raise ValueError(f"{entry.filename}: came damaged")
        into.flush()


# --- the libraries ------------------------------------------------------------------------------


def libraries(server: Server, wanted: str) -> Iterator[Library]:
    """The libraries of a wheel whose path matches."""
    with zipfile.ZipFile(server.file()) as archive:
        entries = [one for one in archive.infolist() if re.search(wanted, one.filename)]
    for entry in filter(lambda one: one.compress_size, entries):
        with tempfile.TemporaryFile() as file:
            server.unpack(entry, file)
            if found := parsed(file):
                yield found


def parsed(file: IO[bytes]) -> Library | None:
    """What the dynamic table of a library says; None where it is none."""
    file.seek(0)
    if file.read(4) != b"\x7fELF":
        return None
    try:
        segments = ELFFile(file).iter_segments()
        dynamic: Any = next(one for one in segments if isinstance(one, DynamicSegment))
        links = tuple(t.needed for t in dynamic.iter_tags() if t.entry.d_tag == "DT_NEEDED")
        symbols = list(_symbols(file, dynamic))
    except (ELFError, StopIteration, ValueError, KeyError, struct.error) as problem:
        print(f"a library cannot be read: {problem}", file=sys.stderr)
        return None
    takes = frozenset(n for n, weak, section in symbols if section == UNDEFINED and not weak)
    gives = frozenset(name for name, _, section in symbols if section != UNDEFINED)
    return Library(takes, gives, links)


def _symbols(file: IO[bytes], dynamic: Any) -> Iterator[tuple[str, bool, int]]:
    """Name, whether it may be missing, and section of each symbol with a name: pyelftools tells
    where they are, and takes a tenth of a millisecond to read one."""
    count = dynamic.num_symbols()
    _, at = dynamic.get_table_offset("DT_SYMTAB")
    _, names_at = dynamic.get_table_offset("DT_STRTAB")
    size = next(t.entry.d_val for t in dynamic.iter_tags() if t.entry.d_tag == "DT_STRSZ")
    names, rows = _part(file, names_at, size), _part(file, at, count * SYMBOL.size)
    for name, kind, _, section, _, _ in SYMBOL.iter_unpack(rows):
        end = names.index(b"\0", name)
        if end > name:
            yield names[name:end].decode("utf-8", "replace"), kind >> 4 == WEAK, section


def _part(file: IO[bytes], at: int, size: int) -> bytes:
    file.seek(at)
    return file.read(size)


# --- what is compared ---------------------------------------------------------------------------


def own_torch() -> tuple[Path, ...]:
    """The folder that holds this interpreter's torch, if any."""
    found = importlib.util.find_spec("torch")
    return (Path(found.origin).parent.parent,) if found and found.origin else ()


def exports_in(folder: Path) -> tuple[str, frozenset[str]]:
    """The version of the torch in a folder, and every name that its libraries give."""
    info = next(folder.glob("torch-*.dist-info"))
    version = info.name.removesuffix(".dist-info").removeprefix("torch-")
    names: set[str] = set()
    for path in (folder / "torch" / "lib").glob("lib*.so*"):
        with path.open("rb") as file:
            found = parsed(file) if re.match(TORCH, path.name) else None
        names |= found.gives if found else set()
    return version, frozenset(names)


def _read_torch(version: str) -> dict[str, Any] | None:
    wheel = wheel_of(f"torch=={version}")
    if wheel is None:
        return None
    found = [*libraries(Server(wheel.url), rf"^torch/lib/{TORCH}")]
    names = frozenset().union(*(library.gives for library in found))
    print(f"torch {version}: {len(found)} libraries, {len(names)} names", file=sys.stderr)
    return {"gives": sorted(names)}


def _read_companion(requirement: str) -> dict[str, Any] | None:
    wheel = wheel_of(requirement)
    if wheel is None:
        return None
    server = Server(wheel.url)
    found = [*libraries(server, r"\.so(\.\d+)*$")]
    takes = {name for one in found for name in one.takes if OF_TORCH.match(name)}
    gives = frozenset().union(*(one.gives for one in found))
    cuda = {said[1] for one in found for link in one.links if (said := CUDA.match(link))}
    print(f"{wheel.name} {wheel.version}: {len(found)} libraries", file=sys.stderr)
    return {
        "name": wheel.name,
        "version": wheel.version,
        "symbols": sorted(takes - gives),
        "cuda": sorted(cuda),
        "declares": declared_torch(metadata_in(server.file())),
    }


def declared_torch(metadata: str) -> str | None:
    """
    >>> declared_torch("Name: a\\nRequires-Dist: torch (>=2.14.0)\\n\\n")
    '>=2.14.0'
    """
    for line in metadata.partition("\n\n")[0].splitlines():
        if line.startswith("Requires-Dist:"):
            asked = Requirement(line.partition(":")[2].strip())
            if asked.name == "torch" and (not asked.marker or "extra" not in str(asked.marker)):
                return str(asked.specifier)
    return None


def has_cuda(names: frozenset[str]) -> bool:
    """Whether the libraries of a CUDA build are among those that were read."""
    return any(name.startswith("_ZN3c104cuda") for name in names)


def is_plain(name: str) -> bool:
    """Whether a CPU build of torch would have the name too."""
    return "cuda" not in name.lower()


def _pairs(needs: Needs, torches: dict[str, frozenset[str]]) -> Iterable[dict[str, Any]]:
    """One row for each torch whose names were read."""
    for version, given in torches.items():
        asked = needs.symbols if has_cuda(given) else frozenset(filter(is_plain, needs.symbols))
        missing = sorted(asked - given)
        taken = _is_taken(needs, version)
        allowed = needs.declares is None or _allows(needs.declares, version)
        trusted = allowed and needs.declares is not None
        yield {
            "name": needs.name,
            "version": needs.version,
            "torch": version,
            "loads": not missing,
            "missing": len(missing),
            "example": missing[0] if missing else None,
            "symbols": len(needs.symbols),
            "cuda": list(needs.cuda),
            "declares": needs.declares,
            "table": taken,
            "contradicts": (bool(missing) and (trusted or taken is True))
            or (trusted and taken is False)
            or _has_another_cuda(needs),
            "stricter": not missing and needs.declares is None and taken is False,
        }


def _allows(specifier: str, torch: str) -> bool:
    return SpecifierSet(specifier).contains(torch.partition("+")[0])


def _is_taken(needs: Needs, torch: str) -> bool | None:
    project = companion_table().project(needs.name)
    return takes_torch(project, needs.version, torch) if project else None


def _has_another_cuda(needs: Needs) -> bool:
    """Of the libraries of a wheel for several, one is there for each."""
    project = companion_table().project(needs.name)
    known = cuda_majors(project, needs.version) if project else ()
    return bool(known and needs.cuda) and not {*known} <= {*needs.cuda}


if __name__ == "__main__":
    sys.exit(main())
