"""uv: torch and its companions from torch's index, then what they need from the user's own."""

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


def uv(resolution: Resolution, wish: Wish) -> tuple[Step, ...]:
    """The two steps of uv."""
    build = chosen_build(resolution)
    exact = pins(build, wish.packages)
    target = ("--python", wish.python) if wish.python else ()
    install = ("uv", "pip", "install", *target)
    again = tuple(f"--reinstall-package={name}" for name in to_reinstall(build, wish))
    return (
        Step(
            title=f"{', '.join(exact)} from torch's own index",
            argv=(*install, "--no-deps", *torch_index(build.backend, wish), *again, *exact),
        ),
        Step(
            title="everything else from your default index",
            argv=(*install, *default_index(wish), *exact, *others(wish.packages)),
        ),
    )


def torch_index(backend: str, wish: Wish) -> tuple[str, ...]:
    """torch's own index, and no other.

    As default index alone it would come after those of the user's configuration, and uv stops at
    the first index that has a project; `--index-url` yields to UV_DEFAULT_INDEX.
    """
    if wish.wheelhouse:
        return default_index(wish)
    url = index_url(backend, wish.index_root)
    return ("--index", url, "--default-index", url)
