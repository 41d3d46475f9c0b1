"""What reveals nothing about a person: the words that gpusetup itself uses, and the forms of
versions, builds and devices.

A shared record keeps only such words. Everything else may be a name, a customer or a token, and no
list of patterns finds all of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from gpusetup.model.frozen import Frozen, fields

FOLDERS = frozenset(
    "someone project projects src source code work repo repos git env envs venvs .venv .env "  # noqa: SIM905
    ".virtualenvs miniconda miniconda3 anaconda anaconda3 miniforge3 mambaforge .conda .mamba "
    ".pixi pkgs .cache cache .local .pyenv versions .config share lib64 libs sbin include etc "
    "scripts site-packages dist-packages tools tool http wheels huggingface hub cublas cufft "
    "curand compat stubs targets x86_64-linux x86_64-linux-gnu aarch64-linux-gnu compute csrc "
    "core models datasets checkpoints logs output tests examples docs build dist temp appdata "
    "roaming programs microsoft desktop documents downloads onedrive scratch mnt storage shared "
    "media volumes notebooks kernels current run boot private content kaggle rocm intel software "
    "apps easybuild modules gcc homebrew cellar resources whl simple pypi packages api issues "
    "nightly conda-forge main linux-64 win-64 noarch xpu .dockerenv .containerenv nvcc nvidia-smi".split()
)
"""Names of folders, in paths and URLs, that reveal nothing, in addition to `public_names`. A folder
with another name is hidden even if it consists of common words, because people name folders after
their projects."""

WORDS = frozenset(
    "on off true false yes no auto void null all never always disabled enabled compute utility "  # noqa: SIM905
    "compat brand tesla expandable segments max split garbage collection threshold roundup power "
    "divisions backend cudamallocasync malloc use num threads memory throw kepler hopper tegra "
    "info warn trace version init coll net graph call ring tree ib socket efa gnu sequential pci "
    "bus lazy eager gcc http https file ssh git ftp wsl dynamo lts bullseye bookworm trixie blue "
    "onyx server snapshot composed marker confstr percent celsius wddm tcc mcdm topology commit "
    "software unrestricted author heads auth pad manylinux scipy builder dvs rank device devices "
    "eth bond tokenizer tokens fast key keys value hw slowdown nvgpu workstation edition answered "
    "lo sha serial token mlx bnxt rdmap holds allocate available cannot capabilities check com "
    "community containers could directory download engine error example exceeded execution "
    "expected failed fallen find for functional github has image import issues libcuda libcudart "
    "libtcmalloc license line manager mig multiarray name not nvrm object omp open org out "
    "password pid pointer port ptx requirement retries satisfies soft such symbol that the tried "
    "undefined unix unlicensed visible xid completed progress started operating symbols functions "
    "instances remapping overheating closed".split()
)
"""Words of settings, systems and usual error messages, whatever the causes contain."""

COMMON_NAMES = frozenset(
    "root user users admin administrator ubuntu debian fedora centos rocky "  # noqa: SIM905
    "nvidia jetson jovyan torch pytorch python cuda conda docker container host hostname "
    "localhost localdomain linux windows macos darwin gpu cpu system runner workspace home test "
    "app dev local default public none self venv model data tmp var opt usr lib bin live "
    "report driver kernel module pip uv mamba pixi arch opensuse alpine".split()
)
"""Names of users and hosts that reveal nothing. Hiding them would make the record useless."""


@cache
def vocabulary() -> frozenset[str]:
    """All words, in lower case, that gpusetup's own knowledge uses: the records of causes with
    their examples, the names of GPUs and packages, the fields of a snapshot."""
    # The causes are imported here, because only the redaction of a record needs them.
    from gpusetup.causes.table import CAUSES, FACTS

    texts = [*_texts((CAUSES, FACTS)), *public_names()]
    words = {word.lower() for text in texts for word in re.findall("[A-Za-z]+", text)}
    return frozenset(words | WORDS | public_names())


@cache
def public_names() -> frozenset[str]:
    """The names of users, hosts, packages and GPUs that stay even if this machine or its user is
    called so: a host `h100` or `triton` reveals nothing."""
    from gpusetup.catalog.file import load_catalog
    from gpusetup.model.machine import Snapshot
    from gpusetup.readings.packages import CONDA_WATCHED, INSTALLERS, WATCHED

    words = {word for row in load_catalog().gpus for word in row.name.lower().split()}
    field_names = {field.name for field in fields(Snapshot)}
    return frozenset(COMMON_NAMES | field_names | WATCHED | CONDA_WATCHED | INSTALLERS | words)


def _texts(value: Any) -> Iterator[str]:
    """All texts in a value, its fields and its elements."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Frozen):
        for field in fields(type(value)):
            yield from _texts(getattr(value, field.name))
    elif isinstance(value, Iterable):
        for inner in value:
            yield from _texts(inner)


# A UUID with few letters looks like a version with its commit, so it is excluded first.
_VERSION = r"(?![0-9a-f]{8}-[0-9a-f]{4}-)v?\d{1,8}(?:[._]\d{1,8})*(?:(?:a|b|rc|t|c|dev|post|p)\d*)?(?:[.+-](?:[0-9a-f]{7,40}|nv[\d.]+|(?:post|dev|rc)\d*|(?:cu|rocm)[\d.]+|cpu|[\d._]{1,12}))*"
_FORM = re.compile(
    # A version with or without its commit: `12.8`, `2.9.0a0+872d972e41.nv25.08`, `20.00`.
    rf"(?i:{_VERSION})"
    # A kernel: `6.8.0-87-generic`, `6.6.87.2-microsoft-standard-WSL2`, `6.16.9-200.fc42.x86_64`.
    r"|(?i:\d+\.\d+\.\d+(?:[.+_-](?:\d+|generic|lts|amd64|arm64|arch\d+|microsoft|standard|wsl2|tegra|pve|el\d+|fc\d+|x86|aarch64"
    r"|azure|aws|gcp|oracle|nvidia|lowlatency|rt\d*|realtime|zen\d*|xanmod\d*|cachyos|default))+)"
    # A word before a version: `python3.11`, `cuda-12.8`, `cu128`, `sm_90a`, `gfx90a`, `dir-1`.
    r"|(?i:(?:python|py|cp|pypy|cpython|cuda|cudnn|torch|driver|nvidia|v|r|rocm|gcc|g\+\+|clang|cu|sm|compute|gfx|dir|x)[._-]?\d[\d._x-]*[at]?)"
    # `manylinux_2_28_x86_64`, `x86_64-linux-gnu`, `aarch64`.
    r"|(?i:(?:manylinux|musllinux|macosx|linux|win)[\d_]*_?(?:x86_64|aarch64|arm64|amd64)|(?:x86_64|aarch64|x86)[\w-]*)"
    # A date; a hash that the rules for secrets left: `2026-11-20T00`, `9f86d081884c7d659a2f`.
    r"|\d{4}-\d\d-\d\d(?:T\d\d)?|[0-9a-f]{20,}"
    # The build of a conda package: `py3.11_cuda12.4_cudnn9.1.0_0`, `cuda124py311h5aa0d8f_303`.
    r"|(?:[a-z]+-[\d.]+-)?(?:(?:cuda|cpu|gpu|mkl|generic|np|cu)_?(?:\d+_?)?)*py[\d.]+(?:h[0-9a-f]{5,8})?(?:_[\w.]{0,40}\d)?"
    r"|h[0-9a-f]{5,8}_\d+"
    # A GPU's chip: `GA102`, `AD104M`; a mangled C++ name; a pointer.
    r"|[A-Z]{2}\d{3}[A-Z]{0,3}|_*Z[A-Z]\w+|0x(?:0000)?[0-9a-f]{1,12}"
    # Usual names of network interfaces: `eth0`, `bond0.100`, `enp3s0f1`, `mlx5_0`.
    r"|(?:eth|ib|bond|docker|veth|virbr|br|team|wlan|hsn|roce|rdmap?|tun|tap|cni|cbr|flannel|gpu\d+rdma"
    r"|en[ospx]|ib[ps]|wl[ps]|mlx\d_(?:bond_)?|mlx|bnxt_re|irdma|efa_?|qedr|hfi\d_?|cxi)\d{1,3}(?:(?:np|[spfndv_.])\d{1,3})*"
    # The aliases of GPUs, and `\xNN` or a unit behind a number: `64GiB`, `80GB`, `5s`, `400W`.
    r"|(?:GPU|MIG)-\d{4}|\d+(?:\.\d+)?(?:[KMGT]i?B?|ms|us|ns|s|W|C|MHz|GHz|bit|nd|st|th)"
)
"""The forms of words that reveal nothing."""
_FILE = r"\.(?:so(?:\.[\d.]+)?|py[cdiox]?|dll|dylib|exe|whl|egg|egg-link|dist-info|egg-info|pth|json|toml|ya?ml|txt|cfg|ini|log|cu|cuh|c|cc|cpp|h|hpp|hip|sh|bat|ps1|lock|md|gz|tar|zip|conda|a|lib|bin|safetensors|pt|ckpt|ipynb|html?|metadata|conf)"
"""The extensions of files that programs use."""
MOST_DIGITS = 11
"""A number with more digits than a size in bytes has (80 GiB: 11) may be a serial number or an
account."""


@cache
def is_harmless(word: str) -> bool:
    """Whether a word of a text reveals nothing about a person.

    >>> [is_harmless(word) for word in ("out_of_memory", "OutOfMemoryError", "sm_90a", "klarsson")]
    [True, True, True, False]
    """
    # One or two letters identify nobody.
    if len(word) <= 2 or _FORM.fullmatch(word):
        return True
    lower = word.lower()
    if lower in vocabulary():
        return True
    # The names of a cluster's machines have common words and a number (`hpc-gpu-22`,
    # `titan-lab7`), and so has a build label (`torch-cu128`), which is harmless.
    last = word.rpartition("-")[2]
    if last != word and re.fullmatch(r"\d{1,4}|(?!cu\d)[a-z]+\d+", last):
        return False
    numbers = re.findall(r"\d+", word)
    # In a token, digits and letters alternate, so more than three numbers are suspicious.
    if len(numbers) > 3 or any(len(number) > MOST_DIGITS for number in numbers):
        return False
    parts = re.findall(r"[^\W\d_]+", word)
    # One or two letters between digits are part of a token. In a word without digits, or as its
    # only letters, they are an abbreviation or a unit.
    is_mixed = bool(numbers) and len(parts) > 1
    return all(part.lower() in vocabulary() or (len(part) <= 2 and not is_mixed) for part in parts)


@cache
def is_known_folder(name: str) -> bool:
    """Whether a folder's or file's name reveals nothing about a person or a project.

    >>> is_known_folder("site-packages"), is_known_folder("python3.11"), is_known_folder("acme")
    (True, True, False)
    """
    # A home, a relative folder, a pattern, a mark, a short hash and a variable.
    if re.fullmatch(r"~|\.{1,2}|\*|<[\w-]+>|[0-9a-f]{1,3}|\$\w+", name):
        return True
    if name.lower() in FOLDERS or name.lower() in public_names():
        return True
    file = re.fullmatch(rf"(?i)(.+?){_FILE}", name)
    if file:
        return is_harmless(file[1])
    return _FORM.fullmatch(name) is not None
