"""Reads the files that bring their own Python: an environment.yml of conda with the pip packages in
it, and the lines of a Dockerfile that install packages or name an image with a torch."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.builds import FAMILY
from gpusetup.project.ask import LONGEST, LONGEST_SHOWN, MOST_BYTES, Ask
from gpusetup.project.requirements import SHORT_NAMES, add_line, lines_of, option_of

TORCH_NAMES = {"pytorch": "torch", "pytorch-gpu": "torch", "pytorch-cpu": "torch"}
"""Packages of conda's channels that are torch under another name."""
CUDA_NAMES = ("pytorch-cuda", "cudatoolkit", "cuda-version", "cuda-toolkit", "cuda")
"""Packages of conda's channels that choose torch's CUDA."""
SPEC = re.compile(
    r"(?:[\w.-]+(?:/[\w-]+)?::)?(?P<name>[A-Za-z0-9_.-]+)\s*(?P<versions>(?:[<>!~=]=?|(?=[*\d]))[^\s=]*)?"
    r"(?:[= ](?P<build>\S+))?"
)
"""A package of conda with channel, version and build: `nvidia::pytorch=2.1.2=py3.10_cuda11.8_0`."""


def add_environment(ask: Ask) -> None:
    """Add what an environment.yml asks for. Raises BadInput if it is no YAML, or lists nothing."""
    # Loading the YAML parser is slow, and few projects have such a file.
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    text = named_file.read_text(ask.path, MOST_BYTES)
    try:
        document = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError) as problem:
        # The parser's message quotes the file's lines, which may be long.
        raise BadInput(f"{ask.path} is not valid YAML: {str(problem)[:200]}") from problem
    listed = document.get("dependencies") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise BadInput(f"{ask.path} has no list of dependencies", hint="conda's file needs one")
    ask.brings_python = True
    path = Path(ask.path)
    for item in listed:
        if isinstance(item, str):
            add_spec(ask, item, path.name)
        # `- pip: [...]` lists what pip installs.
        lines = item.get("pip") if isinstance(item, dict) else None
        for line in lines if isinstance(lines, list) else ():
            add_line(ask, *option_of(str(line)), f"{path.name}, pip", path.parent)


def add_spec(ask: Ask, text: str, file: str) -> None:
    """Add one package of conda, such as `pytorch=2.1.2` or `cudatoolkit=11.3`.

    Only torch, its family, Python and what chooses CUDA matter: conda installs the rest itself.
    """
    spec = SPEC.fullmatch(text.strip()[:LONGEST])
    if not spec:
        return
    conda_name, versions = spec["name"].lower(), spec["versions"] or ""
    name = TORCH_NAMES.get(conda_name, conda_name)
    number = re.search(r"(\d{1,2})\.(\d{1,2})", versions)
    if name == "python":
        # `=3.10`, `3.10.4` or `3.10.*`. Within bounds (`>=3.9,<3.12`), conda chooses.
        single = re.fullmatch(r"={0,2}(\d+\.\d+)(?:\.\d+)?(?:\.?\*)?", versions)
        ask.python = single[1] if single else None
    elif name == "cpuonly":
        ask.backend = "cpu"
    elif name in CUDA_NAMES and number:
        # A label has one digit of the minor version: `cu128` of 12.8.
        ask.backend = f"cu{number[1]}{number[2][0]}"
    elif name in FAMILY:
        # `=2.1` of conda means any 2.1 release, and `==2.1.2`, `=2.1.2` or `2.1.2` that release.
        single = re.fullmatch(r"={0,2}([\d.]+)(?:\.?\*)?", versions)
        if single:
            release = single[1].rstrip(".")
            versions = f"=={release}" if release.count(".") > 1 else f"=={release}.*"
        ask.add(f"{name}{versions}", f"{file}: {text}")
        # The build string names the CUDA: `pytorch=1.12.1=py3.9_cuda11.3_cudnn8.3.2_0`.
        cuda = re.search(r"cuda_?(\d{2})\.?(\d)", spec["build"] or "")
        ask.backend = f"cu{cuda[1]}{cuda[2]}" if cuda else ask.backend


# --- Dockerfiles ----------------------------------------------------------------------------------

INSTALLS = re.compile(
    r"(?:\S*/)?(?:(?:uv\s+)?pip3?|python[\d.]*\s+-m\s+(?:uv\s+)?pip)\s+install\s+(?P<pip>.*)"
    r"|(?:\S*/)?(?:conda|mamba|micromamba)\s+(?:install|create)\s+(?P<conda>.*)"
)
"""A command that installs: `uv pip install torch`, `python3 -m pip install` or `conda install`."""
SHORT_OPTION = re.compile(r"-[UIqvy]*(?P<letter>[bcefinprtCP])=?(?P<value>.*)")
"""A short option that takes a value, alone (`-r`), joined (`-rmore.txt`) or after flags (`-Ur`)."""
LONG_OPTIONS = (
    *(*SHORT_NAMES, "--target", "--prefix", "--timeout", "--python", "--channel", "--name"),
    *("--retries", "--root", "--progress-bar", "--cache-dir", "--no-binary", "--only-binary"),
    *("--trusted-host", "--index-strategy"),
)
"""Options of pip, uv and conda that are followed by a value."""
VARIABLE = re.compile(r"\$\{(?P<braced>\w+)(?::-(?P<default>[^}]*))?\}|\$(?P<plain>\w+)")
"""A variable of a Dockerfile: `$TORCH`, `${TORCH}`, or with a default `${TORCH:-2.6.0}`."""
LONGEST_COMMAND, LONGEST_INSTRUCTION = 20_000, 100_000
"""In characters: a stranger's variables may name others, and double the text with each line."""


def add_dockerfile(ask: Ask) -> None:
    """Add what the install lines of a Dockerfile ask for. Raises BadInput if it cannot be read."""
    text, file = named_file.read_text(ask.path, MOST_BYTES), Path(ask.path).name
    ask.brings_python = True
    variables: dict[str, str] = {}

    def value_of(variable: re.Match[str]) -> str:
        """The variable's value, its default, or, if it has neither, its own text."""
        name = variable["braced"] or variable["plain"]
        return variables.get(name, variable["default"] or variable[0])

    for number, line in lines_of(text):
        place = f"{file}, line {number}"
        word, _, rest = line.partition(" ")
        rest = VARIABLE.sub(value_of, rest.strip())[:LONGEST_INSTRUCTION]
        if word.upper() in ("ARG", "ENV"):
            # `ARG TORCH=2.6`, `ENV TORCH="2.6" CUDA=cu124`, or the old `ENV TORCH 2.6`.
            for name, value in re.findall(r"""(\w+)[= ]["']?([^\s"']*)""", rest):
                variables[name] = value
        elif word.upper() == "FROM":
            # `FROM --platform=linux/amd64 IMAGE AS name`
            image = next((part for part in rest.split() if not part.startswith("--")), "")
            enter_image(ask, image)
        elif word.upper() == "RUN":
            # A `cd` or an activation often comes first, so each command is read by itself.
            for command in re.split(r"&&|\|\||;", rest):
                installs = INSTALLS.search(command.strip()[:LONGEST_COMMAND])
                if installs:
                    add_command(ask, installs, place)
    # The image's torch is the project's bound, unless a line installs another.
    if ask.image_torch and not any(one.name == "torch" for one in ask.requests):
        ask.add(f"torch=={ask.image_torch}", f"{file}, the image {ask.image}")
        cuda = re.search(r"cuda(\d+)\.(\d)", ask.image or "")
        ask.backend = f"cu{cuda[1]}{cuda[2]}" if cuda else ask.backend


def enter_image(ask: Ask, image: str) -> None:
    """Begin a stage with an image, whose name shows its Python, or the torch that it brings. An
    earlier stage's image does not reach the last one."""
    # `pytorch/pytorch:2.4.1-cuda12.1-cudnn9-runtime`
    torch = re.search(r"(?:^|/)pytorch(?:/pytorch)?:(\d+\.\d+\.\d+)", image)
    of_nvidia = re.search(r"nvcr\.io/nvidia/(?:pytorch|nemo|tritonserver|tensorrt-llm)", image)
    ask.image = image if torch or of_nvidia else None
    ask.image_torch = torch[1] if torch else None
    # `python:3.11-slim`, and images with it in their name, such as `uv:python3.11-bookworm`.
    python = re.search(r"(?:^|/)python:(\d+\.\d+)|python(3\.\d+)", image)
    # A stage that names an earlier one (`FROM base`) keeps its Python. An image that brings torch
    # brings the Python for it, whatever its name says.
    if python and ask.image is None:
        ask.python = python[1] or python[2]


def add_command(ask: Ask, installs: re.Match[str], place: str) -> None:
    """Add what one command of pip, uv or conda installs."""
    text = installs["conda"] or installs["pip"] or ""
    try:
        words = iter(shlex.split(text))
    except ValueError:  # a quote that is not closed
        ask.unread.append(f"{place}: {text[:LONGEST_SHOWN]}")
        return
    folder = Path(ask.path).parent
    for option, value in options_and_packages(words):
        if installs["conda"]:
            # No option of conda names a package: `-c` is a channel, where pip's is a constraint.
            if not option:
                add_spec(ask, value, place)
        elif option in ("-r", "-c"):
            # A file's path inside the image differs from its path here, but its name does not.
            file = value.lstrip("/")
            here = file if (folder / file).is_file() else Path(file).name
            add_line(ask, option, here, place, folder)
        # The other options, such as `--target`, do not say what is installed.
        elif option in ("", "-i", "-f", "-e"):
            add_line(ask, option, value, place, folder)


def options_and_packages(words: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Yields each option that has a value, by pip's short name, and its value; for a package, ""
    and the package. Flags are skipped."""
    for word in words:
        short = SHORT_OPTION.fullmatch(word)
        name, equal, value = word.partition("=")
        if short:
            yield f"-{short['letter']}", short["value"] or next(words, "")
        elif name in LONG_OPTIONS:
            yield SHORT_NAMES.get(name, name), value if equal else next(words, "")
        elif not word.startswith("-"):
            yield "", word
