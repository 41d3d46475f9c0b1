"""The advice holds: pasted into a simulated machine, a fix ends its cause and leaves no other."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from closing.compose import machine
from closing.faults import cpu_build
from closing.rounds import IN_WORDS, OUTSIDE, Outcome, alternatives_hold, closing, moved_again
from closing.rows import HOSTS
from closing.shells import Refused
from closing.simulator import paste
from closing.variants import variants
from closing.world import World, world_of
from each_row import each
from machines_named import FOLDERS, snapshot_of

from gpusetup.catalog.file import load_catalog

LEAST_VARIANTS = 300


@each("folder", FOLDERS)
def test_the_fix_of_every_recorded_machine_closes(folder: Path) -> None:
    assert complaints(world_of(snapshot_of(folder))) == []


PARTS = 24


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.one_in(PARTS)
def test_the_fixes_of_all_composed_variants_close(part: int) -> None:
    ends: list[str] = []
    composed = dict(variants())
    chosen = dict(islice(composed.items(), part, None, PARTS))
    open_ones = {n: said for n, world in chosen.items() if (said := complaints(world, ends))}
    print(f"{len(chosen)} composed variants, {len(open_ones)} of them do not close")
    assert len(composed) >= LEAST_VARIANTS
    assert open_ones == {}
    in_words = [end for end in ends if end in IN_WORDS]
    assert len(in_words) <= len(chosen) // 20, "advice that nobody can paste is the exception"


def complaints(world: World, ends: list[str] | None = None) -> list[str]:
    """What speaks against the advice for one machine: its way, its other ways, where it ends."""
    outcome = closing(world)
    if ends is not None:
        ends.append(outcome.ends)
    said = [outcome.failure] if outcome.failure else []
    again = moved_again(outcome.world) if outcome.ends == "ok" and outcome.world else []
    return [*said, *where_it_ends(outcome), *alternatives_hold(world), *again]


def where_it_ends(outcome: Outcome) -> list[str]:
    if outcome.failure or outcome.ends in ("ok", *OUTSIDE, *IN_WORDS):
        return []
    return [f"ends in words: {outcome.ends}"]


# --- the simulator itself -----------------------------------------------------------------------


@pytest.fixture
def cpu_machine() -> World:
    row = load_catalog().row_of("2.5.1", "cu124", "linux", "x86_64")
    return cpu_build(machine(HOSTS[0], "NVIDIA GeForce RTX 3090", row))


PYTHON = "/home/user/project/.venv/bin/python"
CU124 = "--index-url https://download.pytorch.org/whl/cu124"


def versions(world: World) -> dict[str, str]:
    return {p.name: p.version for p in world.snapshot.packages or ()}


def test_a_release_without_its_label_is_satisfied_by_the_cpu_build(cpu_machine: World) -> None:
    after = paste(cpu_machine, [f"{PYTHON} -m pip install torch==2.5.1 {CU124}"])
    assert versions(after)["torch"] == "2.5.1+cpu"


def test_an_exact_label_replaces_the_cpu_build_and_leaves_its_companions(
    cpu_machine: World,
) -> None:
    after = paste(cpu_machine, [f"{PYTHON} -m pip install --no-deps torch==2.5.1+cu124 {CU124}"])
    assert versions(after)["torch"] == "2.5.1+cu124"
    assert versions(after)["torchvision"] == "0.20.1+cpu"
    assert after.snapshot.torch.cuda == "12.4"


def test_a_companion_brings_the_torch_that_it_requires(cpu_machine: World) -> None:
    after = paste(cpu_machine, [f"{PYTHON} -m pip install torchvision==0.21.0"])
    assert versions(after)["torch"].startswith("2.6.0")


@pytest.mark.parametrize(
    "line",
    [
        "frobnicate --all",
        f"{PYTHON} -m pip install torch>=2.6",
        f"{PYTHON} -m pip install torch==2.5.1+cu999 {CU124}",
        f"{PYTHON} -m pip install --frob torch",
        "/usr/bin/python3 -m pip install torch",
        "uv pip install -y torch",
        "sudo dnf install akmod-nvidia",
        "sudo apt install nvidia-driver-999",
    ],
)
def test_what_a_shell_or_a_program_would_refuse_is_refused(cpu_machine: World, line: str) -> None:
    with pytest.raises(Refused):
        paste(cpu_machine, [line])


def test_a_path_with_a_blank_needs_the_call_operator_in_powershell() -> None:
    windows = [host for host in HOSTS if " " in host.folder and host.windows_driver]
    world = machine(windows[0], "NVIDIA GeForce RTX 3090", None)
    assert " " in (world.snapshot.python.executable or "")
    with pytest.raises(Refused, match="PowerShell prints a string"):
        paste(world, [f'"{world.snapshot.python.executable}" -m pip list'])
    paste(world, [f"& '{world.snapshot.python.executable}' -m pip list"])
