"""Reads single words of dependency files: requirements, wheels by their names, and index URLs."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from gpusetup.accelerators.makers import LABEL
from gpusetup.model.frozen import Frozen, Text
from gpusetup.project.ask import NamedIndex, Requested

LONGEST = 2000
"""A longer line is no requirement of a person, and a marker of that length takes long to parse."""
WITH_TORCH = re.compile(
    r"(cuda-(toolkit|bindings|pathfinder|python)|nvidia-(?!ml-py|dali|modelopt|nvimgcodec|nat\b)"
    r"[a-z0-9-]+?(-cu1[0-9])?|triton|pytorch-triton(-rocm|-xpu)?)"
)
"""Packages that torch's own wheels for Linux require in exact versions. A file made by a compiler
lists them for the CUDA of its own machine."""


class Wheel(Frozen):
    """What the name of a wheel file shows."""

    name: str
    version: str
    torch: Text = None
    """The torch that it was built for, as a specifier such as `==2.9.*`."""
    backend: Text = None
    """Such as `cu128`, or `cu12` for any CUDA 12."""


def requested(text: str, place: str, variant: str | None = None) -> Requested | None:
    """The requirement in a text; None if it is none, or has an address."""
    if len(text) > LONGEST:
        return None
    try:
        requirement = Requirement(text)
    except (InvalidRequirement, RecursionError):
        return None
    if requirement.url:
        return None
    name = canonicalize_name(requirement.name)
    return Requested(name=name, text=" ".join(text.split()), place=place, variant=variant)


def comes_with_torch(name: str) -> bool:
    """Whether torch's own wheel requires this package in an exact version.

    >>> [comes_with_torch(name) for name in ("nvidia-cudnn-cu13", "cuda-toolkit", "nvidia-ml-py")]
    [True, True, False]
    """
    return WITH_TORCH.fullmatch(name) is not None


def wheel_named(word: str) -> Wheel | None:
    """What a wheel's path or URL shows; None if it does not end in the name of a wheel.

    Projects write the torch and the CUDA of an extension into its local label or its name.

    >>> wheel_named("https://x/flash_attn-2.8.3%2Bcu12torch2.9-cp311-cp311-linux_x86_64.whl")
    Wheel(name='flash-attn', version='2.8.3+cu12torch2.9', torch='==2.9.*', backend='cu12')
    >>> wheel_named("torch-2.5.1%2Bcu124-cp311-cp311-win_amd64.whl").backend
    'cu124'
    """
    path = urlsplit(word).path if "://" in word else word
    file = unquote(path).replace("\\", "/").rpartition("/")[2]
    try:
        name, version, _, _ = parse_wheel_filename(file)
    except (InvalidWheelFilename, ValueError):
        return None
    label = version.local or ""
    torch = re.search(r"(?:torch|pt)[._]?(\d)[._]?(\d{1,2})", label)
    backend = re.search(r"cu1\d{1,2}(?!\d)|^cpu$", label)
    series = f"=={torch[1]}.{torch[2]}.*" if torch else None
    if name == "torch":
        series = f"=={version.public}"
    return Wheel(
        name=name,
        version=str(version),
        torch=series,
        backend=backend[0] if backend else None,
    )


def named_index(url: str, place: str, name: str | None = None) -> NamedIndex:
    """An index with the backend that its URL names, if it is torch's own or a mirror of it.

    >>> named_index("https://download.pytorch.org/whl/cu128", "").backend
    'cu128'
    """
    found = re.search(rf"/whl/(?:nightly/|test/)?({LABEL})/?$", url[:LONGEST])
    backend = found[1].lower() if found else None
    return NamedIndex(url=url, place=place, name=name, backend=backend)
