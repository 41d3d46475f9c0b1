"""What the wheels of companions really need of torch: the symbols that their libraries leave to
torch, against those that the libraries of each torch export; the CUDA that they link; and what
their METADATA declares.

    python scripts/read_companions.py --write pairs.json torchcodec==0.17.0 torchao==0.16.0
    uv pip install --no-deps --target t2.15 torch==2.15.0
    python scripts/read_companions.py --torch-in t2.15 xformers==0.0.35

The companions' wheels come from the default index of uv, by parts; torch is read where it is
installed: in this interpreter, and in the folders that are named. Needs `pyelftools`.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import re
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import requests
from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from gpusetup.install.fetching.ranged import RangedFile, metadata_in
from gpusetup.install.settings.environment import uv_program
from gpusetup.install.settings.uv_config import parse_toml

PYTHON, PLATFORM = "3.12", "x86_64-manylinux_2_35"
SECONDS = 60.0
PARTIAL = 206
LARGEST = 1 << 30
"""Bytes; a library that is longer is passed over."""
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


def main() -> int:
    options = _parser().parse_args()
    companions = [found for word in options.companions if (found := wheel_of(word))]
    needs = [read_companion(wheel) for wheel in companions]
    torches = dict(map(exports_in, (*own_torch(), *options.torch_in)))
    rows = [row for one in needs for row in _pairs(one, torches)]
    document = {
        "wheels": len(needs) + len(torches),
        "pairs": len(rows),
        "contradictions": [row for row in rows if row["contradicts"]],
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
    parser.add_argument("--torch-in", action="append", type=Path, default=[], metavar="FOLDER")
    parser.add_argument("--write", type=Path, metavar="FILE")
    return parser


def _summary(document: dict[str, Any]) -> str:
    wrong = len(document["contradictions"])
    return f"{document['wheels']} wheels, {document['pairs']} pairs, {wrong} contradictions"


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


def opened(wheel: Wheel) -> RangedFile:
    """The wheel on its server; OSError where it gives no parts."""
    session = requests.Session()

    def part(span: str) -> tuple[bytes, int] | None:
        answer = session.get(wheel.url, headers={"Range": f"bytes={span}"}, timeout=SECONDS)
        total = answer.headers.get("Content-Range", "").rpartition("/")[2]
        return (answer.content, int(total)) if answer.status_code == PARTIAL else None

    file = RangedFile.opened(part)
    if file is None:
        raise OSError(f"{wheel.url}: the server gives no parts")
    return file


# --- the libraries ------------------------------------------------------------------------------


def libraries(wheel: Wheel, wanted: str) -> Iterator[tuple[str, Library]]:
    """The libraries of a wheel whose path matches, as far as their tables can be read."""
    with zipfile.ZipFile(opened(wheel)) as archive:
        for entry in archive.infolist():
            if re.search(wanted, entry.filename) and (found := _tables(archive, entry)):
                yield entry.filename, found


def _tables(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Library | None:
    if entry.file_size > LARGEST:
        return None
    try:
        return parsed(archive.read(entry))
    except (zlib.error, OSError, zipfile.BadZipFile) as problem:
        print(f"{entry.filename}: {problem}", file=sys.stderr)
        return None


def parsed(data: bytes) -> Library | None:
    """What the dynamic table of a library says; None where it has none."""
    if data[:4] != b"\x7fELF":
        return None
    try:
        segments = ELFFile(io.BytesIO(data)).iter_segments()
        dynamic: Any = next(one for one in segments if isinstance(one, DynamicSegment))
        links = tuple(t.needed for t in dynamic.iter_tags() if t.entry.d_tag == "DT_NEEDED")
        symbols = list(dynamic.iter_symbols())
    except (ELFError, StopIteration, ValueError, KeyError) as problem:
        print(f"a library cannot be read: {problem}", file=sys.stderr)
        return None
    takes = frozenset(s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF" and _is_strong(s))
    gives = frozenset(s.name for s in symbols if s["st_shndx"] != "SHN_UNDEF" and s.name)
    return Library(takes, gives, links)


def _is_strong(symbol: Any) -> bool:
    """Whether the library does not load without it; a weak name may be missing."""
    return bool(symbol.name) and symbol["st_info"]["bind"] != "STB_WEAK"


# --- what is compared ---------------------------------------------------------------------------


def own_torch() -> tuple[Path, ...]:
    """The folder that holds this interpreter's torch, if any."""
    found = importlib.util.find_spec("torch")
    return (Path(found.origin).parent.parent,) if found and found.origin else ()


def exports_in(folder: Path) -> tuple[str, frozenset[str]]:
    """The version of the torch in a folder, and every name that its libraries give.

    A build without CUDA is asked about nothing of CUDA.
    """
    info = next(folder.glob("torch-*.dist-info"))
    version = info.name.removesuffix(".dist-info").removeprefix("torch-")
    paths = [p for p in (folder / "torch" / "lib").glob("lib*.so*") if re.match(TORCH, p.name)]
    found = [library for p in paths if (library := parsed(p.read_bytes()))]
    names: frozenset[str] = frozenset().union(*(library.gives for library in found))
    print(f"torch {version}: {len(found)} libraries, {len(names)} names", file=sys.stderr)
    return version, names


class Needs(NamedTuple):
    """What a companion's wheel takes of torch."""

    wheel: Wheel
    symbols: frozenset[str]
    cuda: tuple[str, ...]
    declares: str | None


def read_companion(wheel: Wheel) -> Needs:
    takes: set[str] = set()
    gives: set[str] = set()
    cuda: set[str] = set()
    for _, library in libraries(wheel, r"\.so(\.\d+)*$"):
        takes |= {name for name in library.takes if OF_TORCH.match(name)}
        gives |= library.gives
        cuda |= {found[1] for one in library.links if (found := CUDA.match(one))}
    print(f"{wheel.name} {wheel.version}: {len(takes)} names of torch", file=sys.stderr)
    declared = declared_torch(metadata_in(opened(wheel)))
    return Needs(wheel, frozenset(takes - gives), tuple(sorted(cuda)), declared)


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
        if not given:
            continue
        asked = needs.symbols if has_cuda(given) else frozenset(filter(is_plain, needs.symbols))
        missing = sorted(asked - given)
        public = version.partition("+")[0]
        allowed = needs.declares is None or SpecifierSet(needs.declares).contains(public)
        yield {
            "name": needs.wheel.name,
            "version": needs.wheel.version,
            "torch": version,
            "loads": not missing,
            "missing": len(missing),
            "example": missing[0] if missing else None,
            "symbols": len(needs.symbols),
            "cuda": list(needs.cuda),
            "declares": needs.declares,
            "contradicts": bool(missing) and allowed and needs.declares is not None,
        }


if __name__ == "__main__":
    sys.exit(main())
