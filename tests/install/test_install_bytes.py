"""The file that was checked is the file that is installed, whatever caches and mirrors hold."""

from __future__ import annotations

import random
import re
import subprocess
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from index_server import build_wheel
from installing import (
    TAG,
    TORCH,
    WANTED,
    Install,
    World,
    needs_linux,
    site_of,
    state_of,
)

pytestmark = needs_linux

NOISE = {"torch/lib/libtorch.so": random.Random(5).randbytes(200_000)}


def test_other_files_of_the_same_version_are_not_taken(world: World, install: Install) -> None:
    """uv has installed one from another mirror before: its cache holds it."""
    wheel = world.add_torch("cpu", files=NOISE)
    files = {"torch/__init__.py": "other = True\n"}
    other = build_wheel(world.folder / "mirror", "torch", f"{TORCH}+cpu", tag=TAG, files=files)
    world.fill(world.venv("elsewhere"), other)
    said = install("--python", str(venv := world.venv()), *WANTED)
    assert said.exit == 0, said.err
    check_installed(venv, wheel)


def test_a_damaged_file_of_uvs_cache_is_fetched_again(world: World, install: Install) -> None:
    """As by who edits a file of an environment that shares it."""
    wheel = world.add_torch("cpu", files=NOISE)
    assert install("--venv", "first", *WANTED).exit == 0
    edited = site_of(Path("first")) / "torch/version.py"
    edited.write_text("edited = True\n")
    said = install("--venv", "second", *WANTED)
    assert said.exit == 0, said.err
    check_installed(Path("second"), wheel)


def check_installed(venv: Path, wheel: Path) -> None:
    """Byte for byte what the wheel holds."""
    site = site_of(venv)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.endswith("/RECORD"):
                assert (site / name).read_bytes() == archive.read(name), name
    assert not list(site.glob("*/direct_url.json")), (
        "`pip freeze` would name a path of this machine"
    )
    assert [p.name for p in (venv / ".gpusetup").iterdir() if p.name == "staging"] == []


# --- what was unpacked is compared ----------------------------------------------------------------


def spoiled_stage(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], object]) -> None:
    """The installer ends well, but what it left is not what the wheel holds."""
    from gpusetup.install.switching import unpack
    from gpusetup.install.switching.unpack import checked_places
    from gpusetup.install.target import Layout
    from gpusetup.uv.question import Wheel

    def spoiled(root: Path, wheels: Sequence[Wheel], layout: Layout) -> dict[str, str]:
        spoil(next(root.glob("lib/python*/site-packages")))
        return checked_places(root, wheels, layout)

    monkeypatch.setattr(unpack, "checked_places", spoiled)


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "another byte": (
        lambda site: (site / "torch/version.py").write_text("x"),
        "torch/version.py",
    ),
    "a file too many": (
        lambda site: (site / "sitecustomize.py").write_text("evil"),
        "no wheel lists: .*sitecustomize.py",
    ),
    "a link in place of a file": (
        lambda site: (
            (site / "torch/version.py").unlink(),
            (site / "torch/version.py").symlink_to("/etc/hostname"),
        ),
        "what is no file",
    ),
}


@pytest.mark.parametrize(("spoil", "cause"), SPOILED.values(), ids=SPOILED.keys())
@pytest.mark.one_in(3)
def test_what_differs_from_its_wheel_never_reaches_the_environment(
    world: World,
    install: Install,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path], object],
    cause: str,
) -> None:
    world.add_torch("cpu", files=NOISE)
    world.fill(venv := world.venv(), world.wheel("torch", "2.0.0"))
    before = state_of(venv)
    spoiled_stage(monkeypatch, spoil)
    said = install("--python", str(venv), *WANTED)
    assert said.exit == 4, said.err
    assert re.search(cause, said.err), said.err
    assert "hint: nothing was changed" in said.err
    assert state_of(venv) == before
    assert not (venv / ".gpusetup").exists()


# --- every scheme of a wheel ----------------------------------------------------------------------

FLAT = f"torch-{TORCH}+cpu.data"
DATA = {
    f"{FLAT}/scripts/convert": "#!python\nprint('converted')\n",
    f"{FLAT}/scripts/plain.sh": "#!/bin/sh\necho plain\n",
    f"{FLAT}/data/share/man/man1/torch.1": "manual\n",
    f"{FLAT}/data/etc/torch.conf": "x = 1\n",
    f"{FLAT}/headers/torch.h": "int x;\n",
    f"{FLAT}/headers/deep/more.h": "int y;\n",
    f"{FLAT}/purelib/torch/pure.py": "pure = 1\n",
    f"{FLAT}/platlib/torch/plat.py": "plat = 1\n",
    "torch/_vendor/tomli-2.0.1.dist-info/RECORD": "tomli/__init__.py,,\n",
}


def test_every_scheme_goes_where_the_installer_alone_would_put_it(
    world: World, install: Install
) -> None:
    wheel = world.add_torch("cpu", files=DATA)
    venv = world.venv()
    world.fill(venv, world.wheel("torch", "2.0.0"))
    before = state_of(venv)
    assert install("--python", str(venv), *WANTED).exit == 0
    mine = state_of(venv)
    assert install("--python", str(venv), "--undo", "--yes").exit == 0
    assert state_of(venv) == before
    assert not (venv / "include").exists() or "include" in before
    others = [
        *(world.folder / "wheels").glob("filelock-3.20*"),
        *(world.folder / "wheels").glob("typing*"),
    ]
    world.fill(venv, wheel, *others)
    assert without_notes(state_of(venv)) == without_notes(mine)
    words = (str(venv / "bin/python"), str(venv / "bin/convert"))
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    assert ran.stdout == "converted\n"
    for record in site_of(venv).glob("*.dist-info/RECORD"):
        rows = [line.split(",")[0] for line in record.read_text().splitlines()]
        lost = [row for row in rows if "direct_url" not in row]
        assert [row for row in lost if not (site_of(venv) / row).exists()] == []


def without_notes(state: dict[str, str]) -> dict[str, str]:
    """Apart from what only an installation from a path leaves, and from the lists that name it."""
    left_out = ("direct_url.json", "/RECORD", "uv_cache.json", "uv_build.json")
    return {name: value for name, value in state.items() if not name.endswith(left_out)}
