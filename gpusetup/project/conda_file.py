"""Reads an environment.yml of conda, and the pip packages in it."""

from __future__ import annotations

import re
from pathlib import Path

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.builds import FAMILY
from gpusetup.project.ask import MOST_BYTES, Ask
from gpusetup.project.requirements import add_line, option_of

TORCH_NAMES = {"pytorch": "torch", "pytorch-gpu": "torch", "pytorch-cpu": "torch"}
"""Packages of conda's channels that are torch under another name."""
CUDA_NAMES = ("pytorch-cuda", "cudatoolkit", "cuda-version", "cuda-toolkit", "cuda")
"""Packages of conda's channels that choose torch's CUDA."""
SPEC = re.compile(
    r"(?:[\w.-]+(?:/[\w-]+)?::)?(?P<name>[A-Za-z0-9_.-]+)\s*(?P<versions>(?:[<>!~=]=?|(?=[*\d]))[^\s=]*)?"
    r"(?:[= ](?P<build>\S+))?"
)


def add_environment(ask: Ask) -> None:
    """Add what an environment.yml asks for. Raises BadInput if it is no YAML, or lists nothing."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    text, name = named_file.read_text(ask.path, MOST_BYTES), Path(ask.path).name
    try:
        document = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError) as problem:
        raise BadInput(f"{ask.path} is not valid YAML: {str(problem)[:200]}") from problem
    listed = document.get("dependencies") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise BadInput(f"{ask.path} has no list of dependencies", hint="conda's file has one")
    ask.brings_python = True
    for item in listed:
        if isinstance(item, str):
            add_spec(ask, item, name)
        lines = item.get("pip") if isinstance(item, dict) else None
        for line in lines if isinstance(lines, list) else ():
            add_line(ask, *option_of(str(line)), f"{name}, pip", Path(ask.path).parent)


def add_spec(ask: Ask, text: str, file: str) -> None:
    """Add one package of conda, such as `pytorch=2.1.2` or `cudatoolkit=11.3`.

    Only torch, its family, Python and what chooses CUDA matter: conda installs the rest itself.
    """
    found = SPEC.fullmatch(text.strip()[:500])
    if not found:
        return
    name, versions = found["name"].lower(), found["versions"] or ""
    name = TORCH_NAMES.get(name, name)
    number = re.search(r"(\d{1,2})\.(\d{1,2})", versions)
    if name == "python":
        ask.python = number[0] if number else None
    elif name == "cpuonly":
        ask.backend = "cpu"
    elif name in CUDA_NAMES and number:
        ask.backend = f"cu{number[1]}{number[2][0]}"
    elif name in FAMILY:
        # `=2.1` of conda means any 2.1 release, and `==2.1.2`, `=2.1.2` or `2.1.2` that release.
        single = re.fullmatch(r"={0,2}([\d.]+)(?:\.?\*)?", versions)
        if single:
            release = single[1].rstrip(".")
            versions = f"=={release}" if release.count(".") > 1 else f"=={release}.*"
        ask.add(f"{name}{versions}", f"{file}: {text}")
        # The build string names the CUDA: `pytorch=1.12.1=py3.9_cuda11.3_cudnn8.3.2_0`.
        cuda = re.search(r"cuda_?(\d{2})\.?(\d)", found["build"] or "")
        ask.backend = f"cu{cuda[1]}{cuda[2]}" if cuda else ask.backend
