"""A resolution as a file for a tool: requirements, uv, pixi, conda, a Dockerfile, a command.

Each is text that the tool in question reads as it stands. Where torch comes from its own index,
nothing else does: a mix of indexes lets a newer CPU build win.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping

from gpusetup.catalog.builds import INDEX_ROOT
from gpusetup.catalog.file import load_catalog
from gpusetup.errors import Unsatisfiable
from gpusetup.installers import INSTALLERS
from gpusetup.installers.conda import CHANNELS, conda_build, specs
from gpusetup.installers.options import FAMILY, InstallerOptions, chosen_build, pins
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Resolution, TorchBuild
from gpusetup.model.shell import shell_line
from gpusetup.render.program import as_typed
from gpusetup.resolver.situation import python_tag

Writer = Callable[..., str]
"""`(resolution, snapshot, installer, family)`: `family` is what of torch's family is written."""
Names = tuple[str, ...]

PIXI_PLATFORMS = {
    ("linux", "x86_64"): "linux-64",
    ("linux", "aarch64"): "linux-aarch64",
    ("windows", "x86_64"): "win-64",
    ("macos", "aarch64"): "osx-arm64",
    ("macos", "x86_64"): "osx-64",
}


def command(resolution: Resolution, snapshot: Snapshot, installer: str) -> str:
    """The steps as lines for the machine's shell."""
    root = resolution.index_root or INDEX_ROOT
    options = InstallerOptions(python=snapshot.python.executable, index_root=root)
    steps = INSTALLERS[installer](resolution, options)
    typed = (as_typed(shell_line(step.argv, snapshot.os.family)) for step in steps)
    return "".join(f"{line}\n" for line in typed)


def requirements(resolution: Resolution, snapshot: Snapshot, _: str, family: Names = FAMILY) -> str:
    """A requirements file for `pip install -r`, `uv pip install -r` and `uv pip compile`.

    One index for the whole file: torch's own carries what torch needs as well.
    """
    build = chosen_build(resolution)
    lines = [
        head(resolution, snapshot),
        "# Only torch's own index: a second one would let a newer CPU build win.",
        f"--index-url {resolution.index_url}",
        *pins(build, family),
    ]
    return "\n".join(lines) + "\n"


def uv_project(resolution: Resolution, snapshot: Snapshot, _: str, family: Names = FAMILY) -> str:
    """A `pyproject.toml` for uv: torch's index is explicit, so nothing else comes from it."""
    build = chosen_build(resolution)
    python = _python(snapshot, build)
    index = f"pytorch-{build.backend}"
    exact = pins(build, family)
    sources = [f'{_name(pin)} = {{ index = "{index}" }}' for pin in exact]
    return "\n".join(
        (
            head(resolution, snapshot),
            *([f"# The environment: uv venv --python {python}"] if python.endswith("t") else []),
            "[project]",
            'name = "torch-project"',
            'version = "0.1.0"',
            f'requires-python = "=={python.rstrip("t")}.*"',
            "dependencies = [",
            *(f'    "{pin}",' for pin in exact),
            "]",
            "",
            "[tool.uv]",
            f'environments = ["{_marker(build)}"]',
            "",
            "[tool.uv.sources]",
            *sources,
            "",
            "[[tool.uv.index]]",
            f'name = "{index}"',
            f'url = "{resolution.index_url}"',
            "explicit = true",
            "",
        )
    )


def pixi_project(resolution: Resolution, snapshot: Snapshot, _: str, family: Names = FAMILY) -> str:
    """A `pixi.toml`: Python from conda-forge, torch's wheels from torch's own index.

    The CUDA that the machine must have stands with its platform, as pixi has it since 0.71 (its
    `[system-requirements]` is deprecated); an older pixi says so by `requires-pixi`.
    """
    build = chosen_build(resolution)
    python = _ordinary(_python(snapshot, build), "this file names Python by its version alone")
    rows = []
    for pin in pins(build, family):
        name, _, version = pin.partition("==")
        rows.append(f'{name} = {{ version = "=={version}", index = "{resolution.index_url}" }}')
    return "\n".join(
        (
            head(resolution, snapshot),
            "[workspace]",
            'name = "torch-project"',
            'channels = ["conda-forge"]',
            f'requires-pixi = ">={load_catalog().milestone("pixi")}"',
            f"platforms = [{_pixi_platform(build, snapshot)}]",
            "",
            "[dependencies]",
            f'python = "{python}.*"',
            "",
            "[pypi-dependencies]",
            *rows,
            "",
        )
    )


def conda_environment(
    resolution: Resolution, snapshot: Snapshot, _: str, family: Names = FAMILY
) -> str:
    """An `environment.yml` for conda, mamba and micromamba."""
    build = conda_build(resolution)
    python = _ordinary(_python(snapshot, build), "conda's channels have no torch for it")
    wanted = (f"python={python}", *specs(build, family))
    lines = [
        f"# torch {build.torch} ({build.backend}) from {build.channel}; "
        f"catalog of {resolution.catalog_as_of}",
        "name: torch",
        "channels:",
        *(f"  - {name}" for name in (*CHANNELS[build.channel], "nodefaults")),
        "dependencies:",
        *(f"  - {spec}" for spec in wanted),
    ]
    return "\n".join(lines) + "\n"


def dockerfile(resolution: Resolution, snapshot: Snapshot, _: str, family: Names = FAMILY) -> str:
    """A Dockerfile on a plain Python image: the wheels bring CUDA, the host brings the driver."""
    build = _linux_build(chosen_build(resolution))
    python = _ordinary(_python(snapshot, build), "there is no official image of it")
    linux = Resolution(build=build, index_url=resolution.index_url)
    root = resolution.index_root or INDEX_ROOT
    options = InstallerOptions(python="python", index_root=root, packages=family)
    steps = INSTALLERS["pip"](linux, options)
    installs = " \\\n && ".join(
        shlex.join((*step.argv[:4], "--no-cache-dir", *step.argv[4:])) for step in steps
    )
    expects = (
        f"torch.version.cuda == '{build.cuda}'" if build.cuda else "torch.version.cuda is None"
    )
    lines = [
        head(resolution, snapshot),
        "# No CUDA image is needed. Run it with: docker run --gpus all ...",
        f"FROM python:{python}-slim-bookworm",
        f"RUN {installs}",
        f'RUN python -c "import torch; assert {expects}, torch.__version__"',
    ]
    if build.cuda:
        lines.append("ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility")
    return "\n".join(lines) + "\n"


FORMATS: Mapping[str, Writer] = {
    "command": command,
    "requirements": requirements,
    "uv": uv_project,
    "pixi": pixi_project,
    "conda": conda_environment,
    "dockerfile": dockerfile,
}
"""What `--format` takes -> the text; `text` is the screen in `resolution.py`."""


def named(text: str, name: str | None) -> str:
    """The file with this name for its environment or project."""
    usual = r'(?m)^(name: |name = ")torch[a-z-]*'
    return re.sub(usual, rf"\1{name}", text) if name else text


def head(resolution: Resolution, snapshot: Snapshot) -> str:
    build = chosen_build(resolution)
    gpus = ", ".join(served.gpu for served in resolution.served)
    needs = f", NVIDIA driver {build.driver_floor} or newer" if build.driver_floor else ""
    text = f"torch {build.torch} from {build.backend}{f' for {gpus}' if gpus else ''}{needs}"
    printable = "".join(c if c.isprintable() else "?" for c in text)
    return f"# {printable}; catalog of {resolution.catalog_as_of}"


def _python(snapshot: Snapshot, build: TorchBuild) -> str:
    usual = load_catalog().milestone("usual python")
    return python_tag(snapshot) or (usual if usual in build.pythons else build.pythons[-1])


def _ordinary(python: str, why_not: str) -> str:
    """The Python, unless it is a free-threaded one."""
    if python.endswith("t"):
        raise Unsatisfiable(
            f"No such file for the free-threaded Python {python}: {why_not}",
            hint=f"`--python {python[:-1]}`, or another `--format`",
        )
    return python


def _name(pin: str) -> str:
    return pin.partition("==")[0]


def _marker(build: TorchBuild) -> str:
    system = {"linux": "linux", "windows": "win32", "macos": "darwin"}[build.os]
    machine = {
        ("windows", "x86_64"): "AMD64",
        ("macos", "aarch64"): "arm64",
    }.get((build.os, build.machine), build.machine)
    return f"sys_platform == '{system}' and platform_machine == '{machine}'"


def _pixi_platform(build: TorchBuild, snapshot: Snapshot) -> str:
    name = f'"{PIXI_PLATFORMS[build.os, build.machine]}"'
    if not build.cuda:
        return name
    return f'{{ platform = {name}, cuda = "{_virtual_cuda(build, snapshot)}" }}'


def _virtual_cuda(build: TorchBuild, snapshot: Snapshot) -> str:
    """What the machine's `__cuda` must at least be: no more than this driver has."""
    from gpusetup.catalog.kernels import release

    own = snapshot.driver.cuda
    assert build.cuda is not None
    return own if own and release(own) < release(build.cuda) else build.cuda


def _linux_build(build: TorchBuild) -> TorchBuild:
    """The same torch on the same backend in a Linux container of the same architecture."""
    found = load_catalog().row_of(build.torch, build.backend, "linux", build.machine)
    if build.channel != "pytorch" or found is None:
        raise Unsatisfiable(
            f"torch {build.torch} {build.backend} has no Linux wheel for {build.machine}",
            hint="name another `--torch` or `--backend`",
        )
    return found
