"""uv and pip: torch and its companions from torch's index, the rest from the user's own."""

from __future__ import annotations

from typing import Literal

from gpusetup.catalog.builds import index_url
from gpusetup.installers.options import (
    InstallerOptions,
    chosen_build,
    default_index,
    others,
    pins,
    started,
    to_reinstall,
)
from gpusetup.model.finding import Step
from gpusetup.model.resolution import Resolution


def uv(resolution: Resolution, options: InstallerOptions) -> tuple[Step, ...]:
    """The two steps of uv."""
    build = chosen_build(resolution)
    target = ("--python", options.python) if options.python else ()
    index = torch_index("uv", build.backend, options)
    again = (f"--reinstall-package={name}" for name in to_reinstall(build, options))
    return _steps(("uv", "pip", "install", *target), (*index, *again), resolution, options)


def pip(resolution: Resolution, options: InstallerOptions) -> tuple[Step, ...]:
    """The two steps of pip, by the target's own `python -m pip`."""
    build = chosen_build(resolution)
    index = torch_index("pip", build.backend, options)
    again = ("--force-reinstall",) if to_reinstall(build, options) else ()
    install = (*started(options.python), "-m", "pip", "install")
    return _steps(install, (*again, *index), resolution, options)


def torch_index(
    installer: Literal["uv", "pip"], backend: str, options: InstallerOptions
) -> tuple[str, ...]:
    """torch's own index, and no other.

    For uv before those of the user's configuration: it stops at the first index that has a project,
    and its `--index-url` yields to UV_DEFAULT_INDEX.
    """
    url = index_url(backend, options.index_root)
    by_uv = ("--index", url, "--default-index", url)
    return default_index(options) or (by_uv if installer == "uv" else ("--index-url", url))


def _steps(
    install: tuple[str, ...],
    torch: tuple[str, ...],
    resolution: Resolution,
    options: InstallerOptions,
) -> tuple[Step, ...]:
    exact = pins(chosen_build(resolution), options.packages)
    return (
        Step(
            title=f"{', '.join(exact)} from torch's own index",
            argv=(*install, "--no-deps", *torch, *exact),
        ),
        Step(
            title="everything else from your default index",
            argv=(*install, *default_index(options), *exact, *others(options.packages)),
        ),
    )
