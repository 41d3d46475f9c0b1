"""pip: the same two steps as uv, by the target's own `python -m pip`."""

from __future__ import annotations

from gpusetup.catalog import index_url
from gpusetup.install.wish import (
    Wish,
    chosen_build,
    default_index,
    others,
    pins,
    to_reinstall,
)
from gpusetup.model import Resolution, Step


def pip(resolution: Resolution, wish: Wish) -> tuple[Step, ...]:
    """The two steps of pip."""
    build = chosen_build(resolution)
    exact = pins(build, wish.packages)
    install = (wish.python or "python", "-m", "pip", "install")
    again = ("--force-reinstall",) if to_reinstall(build, wish) else ()
    return (
        Step(
            title=f"{', '.join(exact)} from torch's own index",
            argv=(*install, "--no-deps", *again, *torch_index(build.backend, wish), *exact),
        ),
        Step(
            title="everything else from your default index",
            argv=(*install, *default_index(wish), *exact, *others(wish.packages)),
        ),
    )


def torch_index(backend: str, wish: Wish) -> tuple[str, ...]:
    """torch's own index in place of the user's; an extra one of theirs lacks the exact label."""
    if wish.wheelhouse:
        return default_index(wish)
    return ("--index-url", index_url(backend, wish.index_root))
