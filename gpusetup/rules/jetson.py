"""A Jetson: a torch that is not for its JetPack, and libraries that its torch does not declare."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.jetpack import (
    FIRST_OF_THOR,
    UNIFIED,
    JetPack,
    board_of,
    jetpack_of,
    runs_ordinary_wheels,
    undeclared,
)
from gpusetup.kernels import release
from gpusetup.model import Capability, Event, Finding, Fix, Python, parsed
from gpusetup.rules import ways
from gpusetup.rules.case import (
    Case,
    cuda_needed,
    error,
    events,
    gpus,
    is_report,
    package,
    serving,
    told,
)
from gpusetup.rules.torch_build import version_evidence
from gpusetup.shell import Line, filled, lines
from gpusetup.value import replace


def jetson_wrong_wheel(case: Case) -> Iterator[Finding]:
    """A Jetson with a torch that was not built for its JetPack."""
    board, torch = board_of(case.snapshot), case.snapshot.torch
    blind = torch.backend == "cpu" or torch.cuda_available is False
    wrong = blind and (torch.installed or is_report(case)) and torch.installed is not False
    lacks = tuple(e for e in events(case, "cuda-lib-missing") if not _is_undeclared(e))
    said = (*events(case, "jetson-wrong-wheel"), *lacks)
    if not board or not (wrong or said or _is_for_others(case)):
        return
    if _lacks_undeclared(case) and not lacks:
        return  # torch is the right one: it fails for a library that it does not declare
    yield error(
        "jetson-wrong-wheel",
        f"torch {torch.version or ''} is not made for this Jetson ({board_name(board)})".replace(
            "  ", " "
        ),
        detail=_what_serves(jetpack_of(board)),
        evidence=(*told(said), *version_evidence(case)),
        fix=jetson_fix(case),
    )


def _capabilities(case: Case) -> tuple[Capability, ...]:
    return tuple(gpu.compute_capability for gpu in gpus(case) if gpu.compute_capability)


def _is_for_others(case: Case) -> bool:
    """A CUDA build whose kernels are not the board's, or whose CUDA its JetPack does not serve."""
    torch, jetpack = case.snapshot.torch, jetpack_of(board_of(case.snapshot))
    needed, known = cuda_needed(torch), [g for g in gpus(case) if g.compute_capability]
    if not needed or torch.cuda_available:
        return False
    serves = case.snapshot.driver.cuda or (jetpack.cuda if jetpack else None)
    if serves and release(needed)[0] > release(serves)[0]:
        return True
    return bool(torch.kernels and known and all(serving(case, gpu) is None for gpu in known))


def _what_serves(jetpack: JetPack | None) -> str:
    if jetpack is not None and jetpack.wheels is None:
        return (
            f"{jetpack.name} serves CUDA {jetpack.cuda}: torch's aarch64 wheels run on Thor from "
            f"CUDA {FIRST_OF_THOR.cuda} on, on Orin from {UNIFIED.cuda} on."
        )
    return (
        f"Until {FIRST_OF_THOR.name} a Jetson's CUDA is not that of the server wheels (Orin: until "
        f"{UNIFIED.name}, CUDA {UNIFIED.cuda}): it needs NVIDIA's wheels for its JetPack."
    )


def board_name(name: str) -> str:
    """
    >>> board_name("32.4.3"), board_name("R36.4.0"), board_name("JetPack 6")
    ('L4T 32.4.3', 'L4T R36.4.0', 'JetPack 6')
    """
    digits = name.removeprefix("R").removeprefix("r")
    return f"L4T {name}" if digits[:1].isdigit() else name


def _other_than(case: Case, python: str) -> str:
    """What the wheel is for, where this Python is another."""
    own = case.snapshot.python.version
    if not own or parsed(own).release[:2] == parsed(python).release:
        return ""
    return f" (NVIDIA's wheels here are for Python {python}, not {own})"


def jetson_fix(case: Case) -> Fix:
    """torch's own wheel where it serves the board, else NVIDIA's for this JetPack."""
    jetpack = jetpack_of(board_of(case.snapshot))
    if jetpack is None:
        return Fix(
            text="Install the torch wheel that NVIDIA publishes for this board's JetPack: the "
            "first line of the command's answer names its release",
            commands=lines("cat /etc/nv_tegra_release"),
        )
    if runs_ordinary_wheels(jetpack, _capabilities(case)):
        return _ordinary(case, jetpack)
    if jetpack.wheels is None:
        return Fix(
            text=f"{jetpack.name} is for Thor; on Orin torch's wheels run from {UNIFIED.name} on: "
            "flash it with SDK Manager",
            needs_root=True,
            needs_reboot=True,
        )
    return _vendors(case, jetpack, jetpack.wheels)


def _vendors(case: Case, jetpack: JetPack, folder: str) -> Fix:
    """NVIDIA's wheel for a JetPack: what it links comes first, what cannot stay beside it goes."""
    if other := _other_than(case, jetpack.python):
        return _by_its_own_python(case, jetpack, folder, other)
    only_there = (ways.anew(case), "--no-deps", "--no-index", "--find-links", folder)
    linked = _commands(case, jetpack.links, jetpack.cuda) if jetpack.links else ()
    first = f", after {jetpack.links}, which it links and does not declare" if linked else ""
    left = tuple(name for name in ("torchvision", "torchaudio") if package(case, name))
    why = (
        f". {' and '.join(left)} cannot follow: that folder has none, and those of another torch "
        "do not load beside it; build them from source where a program needs them"
    )
    return Fix(
        text=f"Install NVIDIA's wheel for {jetpack.name}{first}, then what it depends on"
        f"{why if left else ''}",
        commands=(
            *((ways.pip(case, "uninstall", "-y", *left),) if left else ()),
            *linked,
            ways.pip(case, "install", *only_there, "torch"),
            ways.pip(case, "install", "torch"),
        ),
    )


def _by_its_own_python(case: Case, jetpack: JetPack, folder: str, other: str) -> Fix:
    """A new environment of the system's python3, for which NVIDIA makes its wheels."""
    new = f".venv-{jetpack.python}"
    python = Python(executable=f"{new}/bin/python", prefix=new, has_pip=True,
                    version=f"{jetpack.python}.0")  # fmt: skip
    there = replace(case, snapshot=replace(case.snapshot, python=python, packages=()))
    way = _vendors(replace(there, installer="pip"), jetpack, folder)
    make = ways.command(case, "/usr/bin/python3", "-m", "venv", new)
    text = f"Make an environment of the system's python3{other}. {way.text}"
    return replace(way, text=text, commands=(make, *way.commands))


def _ordinary(case: Case, jetpack: JetPack) -> Fix:
    """torch's aarch64 wheel of the CUDA that the release serves, from its own index."""
    if ways.chosen(case) is not None:
        return ways.install_torch(case, f"{jetpack.name} runs torch's own aarch64 wheels. ")
    backend = "cu" + jetpack.cuda.replace(".", "")
    there = (ways.anew(case), *ways.torch_index(case, backend))
    return Fix(
        text=f"{jetpack.name} runs torch's own aarch64 wheels: install the one for CUDA "
        f"{jetpack.cuda}",
        commands=(ways.pip(case, "install", *there, "torch"),),
    )


# --- libraries that are not declared ------------------------------------------------------------


def _is_undeclared(event: Event) -> bool:
    return undeclared(event.values.get("library", "")) is not None


def _lacks_undeclared(case: Case) -> bool:
    return any(map(_is_undeclared, events(case, "cuda-lib-missing")))


def undeclared_fix(case: Case, library: str) -> Fix | None:
    """The package of a library that a Jetson's torch links and does not declare, and its folder
    for the loader; None elsewhere."""
    board, row = board_of(case.snapshot), undeclared(library)
    if row is None or not (board or row.library == "libnvpl_"):
        return None
    needed = cuda_needed(case.snapshot.torch) or (jetpack_of(board) or UNIFIED).cuda
    return Fix(
        text=f"torch's wheel for Jetson links {library.partition('.so')[0]} and does not declare "
        "it: install it, and let the loader find it (put the second line into what starts your "
        "program too)",
        commands=_commands(case, library, needed),
    )


def _commands(case: Case, library: str, cuda: str) -> tuple[Line, ...]:
    """What installs a library that is not declared, and leads the loader to it."""
    row, major = undeclared(library), cuda.partition(".")[0]
    if row is None:
        return ()
    install = ways.pip(case, "install", "--no-deps", *row.by_pip(major))
    return install, _found_in(case, row.below(major))


FIND = 'export LD_LIBRARY_PATH="$({python} -c {code})${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"'


def _found_in(case: Case, below: str) -> Line:
    """The loader looks in a folder of site-packages: where that is read, else asked for."""
    known = case.snapshot.python.site_packages
    if known:
        return ways.first_on(case, "LD_LIBRARY_PATH", f"{known}/{below}")
    code = f"import sysconfig; print(sysconfig.get_path('purelib') + '/{below}')"
    return filled(FIND, python=ways.python(case), code=code)


RULES = (jetson_wrong_wheel,)
