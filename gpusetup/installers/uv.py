"""uv: torch and its companions from torch's index, then what they need from the user's own."""

from __future__ import annotations

from gpusetup.catalog.builds import index_url
from gpusetup.installers.options import (
    InstallerOptions,
    chosen_build,
    default_index,
    others,
    pins,
    to_reinstall,
)
from gpusetup.model.finding import Step
from gpusetup.model.resolution import Resolution


def uv(resolution: Resolution, options: InstallerOptions) -> tuple[Step, ...]:
    """The two steps of uv."""
    build = chosen_build(resolution)
    exact = pins(build, options.packages)
    target = ("--python", options.python) if options.python else ()
    install = ("uv", "pip", "install", *target)
    again = tuple(f"--reinstall-package={name}" for name in to_reinstall(build, options))
    return (
        Step(
            title=f"{', '.join(exact)} from torch's own index",
            argv=(*install, "--no-deps", *torch_index(build.backend, options), *again, *exact),
        ),
        Step(
            title="everything else from your default index",
            argv=(*install, *default_index(options), *exact, *others(options.packages)),
        ),
    )


def torch_index(backend: str, options: InstallerOptions) -> tuple[str, ...]:
    """torch's own index, and no other.

    As default index alone it would come after those of the user's configuration, and uv stops at
    the first index that has a project; `--index-url` yields to UV_DEFAULT_INDEX.
    """
    if options.wheelhouse:
        return default_index(options)
    url = index_url(backend, options.index_root)
    return ("--index", url, "--default-index", url)
