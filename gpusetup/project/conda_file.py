"""Reads an environment.yml of conda, and the pip packages in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.frozen import replace
from gpusetup.project.ask import Ask
from gpusetup.project.pyproject import joined
from gpusetup.project.requirements import LONG_NAMES, OPTION, read_requirements, with_line
from gpusetup.project.words import requested

MOST_BYTES = 1 << 20
TORCH_NAMES = {"pytorch": "torch", "pytorch-gpu": "torch", "pytorch-cpu": "torch"}
"""Packages of conda's channels that are torch under another name."""
OF_FAMILY = ("torch", "torchvision", "torchaudio")
CUDA_NAMES = ("pytorch-cuda", "cudatoolkit", "cuda-version", "cuda-toolkit", "cuda")
"""Packages of conda's channels that choose torch's CUDA."""
SPEC = re.compile(
    r"(?:[\w.-]+(?:/[\w-]+)?::)?(?P<name>[A-Za-z0-9_.-]+)\s*(?P<versions>(?:[<>!~=]=?|(?=[*\d]))[^\s=]*)?"
    r"(?:[= ](?P<build>\S+))?"
)


def read_environment(path: str) -> Ask:
    """What an environment.yml asks for. Raises BadInput if it cannot be read or is no YAML."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    text = named_file.read_text_once(path, MOST_BYTES)
    try:
        document = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError) as problem:
        raise BadInput(f"{path} is not valid YAML: {str(problem)[:200]}") from problem
    listed = document.get("dependencies") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise BadInput(f"{path} has no list of dependencies", hint="conda's file has one")
    ask = Ask(path=path, kind="environment", brings_python=True)
    name = Path(path).name
    for item in listed:
        if isinstance(item, str):
            ask = with_spec(ask, item, name)
        elif isinstance(item, dict):
            for line in _texts(item.get("pip")):
                ask = _with_pip_line(ask, line, path)
    return ask


def with_spec(ask: Ask, text: str, file: str) -> Ask:
    """What is asked for with one package of conda, such as `pytorch=2.1.2` or `cudatoolkit=11.3`.

    Only torch, its family, Python and what chooses CUDA matter: conda installs the rest itself.
    """
    found = SPEC.fullmatch(text.strip()[:500])
    if not found:
        return ask
    name, versions = found["name"].lower(), found["versions"] or ""
    if name == "python":
        series = re.search(r"\d+\.\d+", versions)
        return replace(ask, python=series[0] if series else None)
    if name in CUDA_NAMES:
        cuda = re.search(r"(\d{1,2})\.(\d)", versions)
        return replace(ask, backend=f"cu{cuda[1]}{cuda[2]}") if cuda else ask
    if name == "cpuonly":
        return replace(ask, backend="cpu")
    name = TORCH_NAMES.get(name, name)
    if name not in OF_FAMILY:
        return ask
    # `=2.1` of conda means any 2.1 release, and `==2.1.2`, `=2.1.2` or `2.1.2` that release.
    single = re.fullmatch(r"={0,2}([\d.]+)(?:\.?\*)?", versions)
    if single:
        number = single[1].rstrip(".")
        versions = f"=={number}" if number.count(".") > 1 else f"=={number}.*"
    request = requested(f"{name}{versions}", f"{file}: {text}")
    if request is None:
        return replace(ask, unread=(*ask.unread, f"{file}: {text[:80]}"))
    # The build string of a package names its CUDA: `pytorch=1.12.1=py3.9_cuda11.3_cudnn8.3.2_0`.
    cuda = re.search(r"cuda_?(\d{2})\.?(\d)", found["build"] or "")
    backend = f"cu{cuda[1]}{cuda[2]}" if cuda else ask.backend
    return replace(ask, requests=(*ask.requests, request), backend=backend)


def _with_pip_line(ask: Ask, line: str, path: str) -> Ask:
    """What is asked for with one line of the part for pip, which may name a requirements file."""
    place = f"{Path(path).name}, pip"
    option = OPTION.fullmatch(line.strip())
    if not option:
        return with_line(ask, "", line.strip(), place)
    kind = option["short"] or LONG_NAMES.get(option["long"], option["long"])
    value = (option["value"] or option["rest"] or "").strip()
    if kind != "-r":
        return with_line(ask, kind, value, place)
    try:
        return joined(ask, read_requirements(str(Path(path).parent / value)))
    except BadInput as problem:
        return replace(ask, unread=(*ask.unread, problem.message))


def _texts(value: Any) -> Iterator[str]:
    for item in value if isinstance(value, list) else ():
        if isinstance(item, str):
            yield item
