"""Finds the owner of a file: the package that the file's path belongs to, and the kind of place
where the file is."""

from __future__ import annotations

import re
from typing import Literal

from gpusetup.model.frozen import Frozen
from gpusetup.model.patterns import lazy

Place = Literal[
    "environment", "user", "store", "vendor", "third-party", "cache", "system", "checkout"
]


class Owner(Frozen):
    """The package that a file belongs to, and the place where it is."""

    package: str
    """The package's import name, or in a store the distribution's name; "" if the path names none.
    """
    place: Place
    root: str = ""
    """The folder of the environment, of the store's entry or of the checkout; "" for other places.
    """


STORE = lazy(r"^(?P<root>/(?:nix|gnu)/store/[a-z0-9]{20,40}-(?P<entry>[^/]+))/")
"""The stores of Nix and Guix have one folder for each package, with a hash before its name."""
PYTHON_IN_ENTRY = re.compile(r"^python\d(?:\.\d+)?-|-\d[\w.]*$")
PACKAGES = lazy(
    r"^(?P<root>.*?)[/\\]+(?:lib(?:64)?[/\\]+python\d(?:\.\d+)?t?[/\\]+)?(?:Lib[/\\]+)?(?:site|dist)-packages[/\\]+(?P<package>[A-Za-z0-9_.+-]+)",
    re.I,
)
THIRD_PARTY = lazy(
    r"[/\\](?:third[-_]party|3rdparty|vendor|submodules|_deps)[/\\](?P<package>[\w.-]+)[/\\]", re.I
)
CACHE = lazy(
    r"[/\\](?:torch_extensions|\.triton|triton_cache|torchinductor\w*)"
    r"[/\\](?:[\w.-]+[/\\])*?(?P<package>[\w-]+)[/\\][^/\\]+$",
    re.I,
)
VENDOR = lazy(
    r"^(?P<root>/(?:opt/(?:nvidia|rocm[\w.-]*|intel|hpcx|tensorrt)|usr/local/cuda[\w.-]*)"
    r"|[A-Z]:\\Program Files\\NVIDIA[^\\]*)[/\\]",
    re.I,
)
SYSTEM = lazy(r"^(?:/(?:usr|lib|lib64|bin|etc|run|snap)/|[A-Z]:\\Windows\\)", re.I)
USERS_OWN = lazy(r"/\.local/lib/python|[/\\]Roaming[/\\]Python[/\\]", re.I)


def owner_of(path: str) -> Owner:
    r"""The owner of the file at this path.

    >>> owner_of("/opt/conda/envs/ft/lib/python3.10/site-packages/bitsandbytes/libx.so").root
    '/opt/conda/envs/ft'
    >>> owner = owner_of("/scratch/lab/bnb/bitsandbytes/libbitsandbytes_cpu.so")
    >>> owner.package, owner.place, owner.root
    ('bitsandbytes', 'checkout', '/scratch/lab/bnb')
    >>> owner_of(r"D:\app\venv\Lib\site-packages\torch\lib\c10.dll").package
    'torch'
    >>> owner_of("/nix/store/" + "a" * 32 + "-python3.12-llama-cpp-python-0.3.9/lib/x.so").package
    'llama-cpp-python'
    """
    if in_store := STORE.search(path):
        # The path inside a store's entry may name another package, so the entry's own name is used
        # as the distribution.
        distribution = PYTHON_IN_ENTRY.sub("", PYTHON_IN_ENTRY.sub("", in_store["entry"]))
        return Owner(package=distribution, place="store", root=in_store["root"])
    if inside := THIRD_PARTY.search(path):
        return Owner(package=inside["package"], place="third-party", root=path[: inside.start()])
    if cached := CACHE.search(path):
        return Owner(package=cached["package"], place="cache")
    if installed := PACKAGES.search(path):
        place: Place = "user" if USERS_OWN.search(path) else "environment"
        package = re.split(r"\.(?:cpython|abi3|so|pyd|dll|cp\d)|-\d", installed["package"])[0]
        return Owner(package=package, place=place, root=installed["root"])
    if of_vendor := VENDOR.search(path):
        return Owner(package="", place="vendor", root=of_vendor["root"])
    if SYSTEM.search(path):
        return Owner(package="", place="system")
    # The file belongs neither to an installed package nor to the system, so it is in a project's
    # sources. The last folder counts as the package.
    folder = re.split(r"[/\\]+[^/\\]+$", path)[0]
    package = re.split(r"[/\\]", folder)[-1]
    return Owner(package=package, place="checkout", root=folder[: -len(package)].rstrip("/\\"))
