"""The advice holds: with the torch that an answer prescribes, its cause is gone."""

from __future__ import annotations

from pathlib import Path

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.model.finding import Finding
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Resolution
from gpusetup.model.versions import cuda_of
from gpusetup.probe.saved import load_snapshot

MACHINES = Path(__file__).parent / "machines"
CATALOG = load_catalog()


def after(machine: Snapshot, root: Finding, found: Resolution) -> Snapshot | None:
    """The machine with the torch that the root's fix installs; None if it installs none."""
    lines, build = (root.fix.commands if root.fix else ()), found.build
    installs = any("gpusetup install" in line and "--backend" not in line for line in lines)
    if not installs or build is None or machine.os.jetson:
        return None
    torch = replace(
        machine.torch,
        version=f"{build.torch}+{build.backend}",
        cuda=cuda_of(build.backend),
        backend=build.backend,
        kernels=(*build.kernels, *build.ptx),
        installed=True,
    )
    others = tuple(one for one in machine.packages or () if not one.name.startswith("torch"))
    return replace(machine, torch=torch, packages=others)


def roots() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Machine -> its cause, and what is found once it has what is prescribed."""
    found = {}
    for path in sorted(MACHINES.glob("*/snapshot.json")):
        machine = load_snapshot(path)
        before = diagnose(machine, CATALOG)
        root = next((one for one in before.findings if one.root), None)
        if root and (changed := after(machine, root, before.resolution)):
            left = tuple(one.id for one in diagnose(changed, CATALOG).findings)
            found[path.parent.name] = root.id, left
    return found


def test_the_torch_that_is_prescribed_ends_its_cause() -> None:
    found = roots()
    assert {name: of for name, of in found.items() if of[0] in of[1]} == {}
    causes = {cause for cause, _ in found.values()}
    assert causes >= {"torch-cpu-build", "torch-missing", "driver-too-old"}
    assert causes >= {"arch-too-old-for-wheel", "arch-too-new-for-wheel"}
