"""uv and pip: torch and its companions from torch's index, the rest from the user's own."""

from __future__ import annotations

from gpusetup.catalog.builds import index_url
from gpusetup.installers.options import (
    InstallerOptions,
    chosen_build,
    others,
    pins,
    started,
    to_reinstall,
)
from gpusetup.model.resolution import Resolution, Step


def uv(resolution: Resolution, options: InstallerOptions) -> tuple[Step, ...]:
    """The two steps of uv."""
    build = chosen_build(resolution)
    target = ("--python", options.python) if options.python else ()
    url = index_url(build.backend, options.index_root)
    again = (f"--reinstall-package={name}" for name in to_reinstall(build, options))
    install = ("uv", "pip", "install", *target)
    return _steps(install, (*for_uv(url), *again), resolution, options)


def pip(resolution: Resolution, options: InstallerOptions) -> tuple[Step, ...]:
    """The two steps of pip, by the target's own `python -m pip`."""
    build = chosen_build(resolution)
    again = ("--force-reinstall",) if to_reinstall(build, options) else ()
    torch = (*again, *for_pip(index_url(build.backend, options.index_root)))
    return _steps((*started(options.python), "-m", "pip", "install"), torch, resolution, options)


def for_uv(index: str) -> tuple[str, ...]:
    """The words for torch's own index and no other. It stands before those of the user's
    configuration: uv stops at the first that has a project, and its `--index-url` yields to
    UV_DEFAULT_INDEX."""
    return ("--index", index, "--default-index", index)


def for_pip(index: str) -> tuple[str, ...]:
    return ("--index-url", index)


def _steps(
    install: tuple[str, ...],
    torch: tuple[str, ...],
    resolution: Resolution,
    options: InstallerOptions,
) -> tuple[Step, ...]:
    exact = pins(chosen_build(resolution), options.packages)
    family = Step(
        title=f"{', '.join(exact)} from torch's own index",
        argv=(*install, "--no-deps", *torch, *exact),
    )
    rest = Step(
        title="everything else from your default index",
        argv=(*install, *exact, *others(options.packages)),
    )
    return (family, rest) if exact else (rest,)
