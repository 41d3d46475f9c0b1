"""pip: the same two steps as uv, by the target's own `python -m pip`."""

from __future__ import annotations

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


def pip(resolution: Resolution, options: InstallerOptions) -> tuple[Step, ...]:
    """The two steps of pip."""
    build = chosen_build(resolution)
    exact = pins(build, options.packages)
    install = (*started(options.python), "-m", "pip", "install")
    again = ("--force-reinstall",) if to_reinstall(build, options) else ()
    return (
        Step(
            title=f"{', '.join(exact)} from torch's own index",
            argv=(*install, "--no-deps", *again, *torch_index(build.backend, options), *exact),
        ),
        Step(
            title="everything else from your default index",
            argv=(*install, *default_index(options), *exact, *others(options.packages)),
        ),
    )


def torch_index(backend: str, options: InstallerOptions) -> tuple[str, ...]:
    """torch's own index in place of the user's; an extra one of theirs lacks the exact label."""
    if options.wheelhouse:
        return default_index(options)
    return ("--index-url", index_url(backend, options.index_root))
