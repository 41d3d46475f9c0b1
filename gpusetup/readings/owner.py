"""Finds the owner of a file: the package that the file's path belongs to, and the kind of place
where the file is."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from gpusetup.model.patterns import lazy


class Owner(NamedTuple):
    """The package that a file belongs to, and the place where it is."""

    package: str
    """The package's import name; "" if the path names none."""
    place: Literal["environment", "system", "checkout"]
    root: str = ""
    """The folder of the environment or of the checkout; "" for the system's."""


PACKAGES = lazy(
    r"^(?P<root>.*?)[/\\]+(?:lib(?:64)?[/\\]+python\d(?:\.\d+)?t?[/\\]+)?(?:Lib[/\\]+)?(?:site|dist)-packages[/\\]+(?P<package>[A-Za-z0-9_.+-]+)",
    re.I,
)
BUILT = lazy(
    # What a package compiles at its first use, and another project's sources inside it.
    r"[/\\](?:torch_extensions|\.triton|triton_cache|torchinductor\w*)"
    r"[/\\](?:[\w.-]+[/\\])*?(?P<cached>[\w-]+)[/\\][^/\\]+$"
    r"|[/\\](?:third[-_]party|3rdparty|vendor|submodules|_deps)[/\\](?P<inside>[\w.-]+)[/\\]",
    re.I,
)
SYSTEM = lazy(
    # NVIDIA's, AMD's and Intel's own folders too.
    r"^(?:/(?:usr|nix|gnu|lib|lib64|bin|etc|run|snap|opt/(?:nvidia|rocm[\w.-]*|intel|hpcx|tensorrt))/"
    r"|[A-Z]:\\(?:Windows|Program Files\\NVIDIA[^\\]*)\\)",
    re.I,
)


def owner_of(path: str) -> Owner:
    r"""The owner of the file at this path.

    >>> owner_of("/opt/conda/envs/ft/lib/python3.10/site-packages/bitsandbytes/libx.so").root
    '/opt/conda/envs/ft'
    >>> owner_of("/scratch/lab/bnb/bitsandbytes/libbitsandbytes_cpu.so")
    Owner(package='bitsandbytes', place='checkout', root='/scratch/lab/bnb')
    >>> owner_of(r"D:\app\venv\Lib\site-packages\torch\lib\c10.dll").package
    'torch'
    """
    if built := BUILT.search(path):
        return Owner(built["cached"] or built["inside"], "environment")
    if installed := PACKAGES.search(path):
        package = re.split(r"\.(?:cpython|abi3|so|pyd|dll|cp\d)|-\d", installed["package"])[0]
        return Owner(package, "environment", installed["root"])
    if SYSTEM.search(path):
        return Owner("", "system")
    # The file belongs neither to an installed package nor to the system, so it is in a project's
    # sources. The last folder counts as the package.
    folder = re.split(r"[/\\]+[^/\\]+$", path)[0]
    package = re.split(r"[/\\]", folder)[-1]
    return Owner(package, "checkout", folder[: -len(package)].rstrip("/\\"))
