#!/usr/bin/env python3
"""What the wheels of companions really need of torch: the symbols that their libraries leave to
torch, against those that the libraries of each torch export; the CUDA that they link; and what
their METADATA declares.

    python scripts/read_companions.py torchcodec==0.17.0 torchao==0.16.0
    python scripts/read_companions.py --torch 2.14.1 2.15.0 --keep read/ -- xformers==0.0.35

One line of JSON for each pair. uv fetches the wheels for Linux on x86-64; without `--torch` the
torch of this interpreter is read. `--keep` is a folder for them. Needs `pyelftools`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gpusetup.catalog.companion_table import companion_table, takes_torch  # noqa: E402

FOR = ("--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_35")
OF_TORCH = re.compile(
    r"^(_Z\w*?(?:3c10|2at|5torch|6caffe2)\w*|aoti_torch_\w+|torch_\w+|THP\w+|_ZTI\w*3c10\w*)$"
)
"""Names that only torch's own libraries define."""
CUDA = re.compile(r"^(?:libcudart|libcublas|libcublasLt|libnvrtc)\.so\.(\d+)")


class Symbols(NamedTuple):
    takes: set[str]
    gives: set[str]
    cuda: set[str]


def unpacked(requirement: str, folder: Path) -> Path:
    """What uv installs of one wheel."""
    place = folder / requirement
    if not place.exists():
        words = ("uv", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", *FOR)
        subprocess.run((*words, "--target", place, requirement), check=True)
    return place


def symbols(folder: Path) -> Symbols:
    """Of all libraries below a folder."""
    found = Symbols(set(), set(), set())
    for path in (one for one in folder.rglob("*.so*") if one.is_file()):
        with path.open("rb") as file:
            try:
                parts = ELFFile(file).iter_segments()
                dynamic: Any = next(one for one in parts if isinstance(one, DynamicSegment))
            except (ELFError, StopIteration) as problem:
                print(f"{path.name} cannot be read: {problem}", file=sys.stderr)
                continue
            links = [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")]
            found.cuda.update(said[1] for link in links if (said := CUDA.match(link)))
            for one in dynamic.iter_symbols():
                if one["st_shndx"] != "SHN_UNDEF":
                    found.gives.add(one.name)
                elif one["st_info"]["bind"] != "STB_WEAK":
                    found.takes.add(one.name)
    return found


def compared(requirement: str, torches: dict[str, set[str]], folder: Path) -> None:
    """Print a line for each torch."""
    place = unpacked(requirement, folder)
    needs, (about,) = symbols(place), importlib.metadata.distributions(path=[str(place)])
    name, version = about.metadata["Name"], about.version
    asked = {one for one in needs.takes - needs.gives if OF_TORCH.match(one)}
    project = companion_table().project(name)
    for torch, given in torches.items():
        has_cuda = any(one.startswith("_ZN3c104cuda") for one in given)
        missing = {one for one in asked - given if has_cuda or "cuda" not in one.lower()}
        declares = [one for one in about.requires or () if re.match(r"torch\b(?!.*extra)", one)]
        row = {
            "name": name, "version": version, "torch": torch, "loads": not missing,
            "missing": len(missing), "example": min(missing, default=None),
            "cuda": sorted(needs.cuda), "declares": declares,
            "table": takes_torch(project, version, torch) if project else None,
        }  # fmt: skip
        print(json.dumps(row), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("companions", nargs="+", metavar="NAME==VERSION")
    parser.add_argument("--torch", nargs="+", default=[], metavar="VERSION")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = options.keep or Path(made)
        torches = {one: unpacked(f"torch=={one}", folder) / "torch" for one in options.torch}
        if not torches:
            own = importlib.metadata.distribution("torch")
            torches = {own.version: Path(str(own.locate_file("torch")))}
        given = {version: symbols(place / "lib").gives for version, place in torches.items()}
        for requirement in options.companions:
            compared(requirement, given, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
