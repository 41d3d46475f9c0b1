"""Reads the lines of a Dockerfile that install packages, and the images that bring a torch."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.frozen import replace
from gpusetup.project.ask import Ask, Requested
from gpusetup.project.conda_file import with_spec
from gpusetup.project.pyproject import joined
from gpusetup.project.requirements import LONG_NAMES, read_requirements, with_line

MOST_BYTES = 1 << 20
IMAGE = re.compile(r"(?i)from\s+(?:--\S+\s+)*(?P<image>[^\s#]+)")
INSTALLS = re.compile(
    r"(?:\S*/)?(?:(?:uv\s+)?pip3?|python[\d.]*\s+-m\s+(?:uv\s+)?pip)\s+install\s+(?P<pip>.*)"
    r"|(?:\S*/)?(?:conda|mamba|micromamba)\s+(?:install|create)\s+(?P<conda>.*)"
)
WITH_VALUE = (
    *("-r", "-c", "-i", "-f", "-e", "--requirement", "--constraint", "--index-url", "--editable"),
    *("--extra-index-url", "--find-links", "--default-index", "--index", "--target", "-t", "-n"),
    *(
        "--prefix",
        "--timeout",
        "--python",
        "-p",
        "--channel",
        "--name",
        "--trusted-host",
        "--retries",
    ),
    *(
        "--root",
        "--progress-bar",
        "--cache-dir",
        "--no-binary",
        "--only-binary",
        "--index-strategy",
    ),
)
PYTHON_OF_UBUNTU = {"20.04": "3.8", "22.04": "3.10", "24.04": "3.12"}
"""The `python3` of Ubuntu's releases, on which NVIDIA's images are built (packages.ubuntu.com)."""


def read_dockerfile(path: str) -> Ask:
    """What the install lines of a Dockerfile ask for. Raises BadInput if it cannot be read."""
    text = named_file.read_text_once(path, MOST_BYTES)
    ask = Ask(path=path, kind="dockerfile", brings_python=True)
    variables: dict[str, str] = {}
    image_backend: str | None = None
    for number, line in _instructions(text):
        place = f"{Path(path).name}, line {number}"
        word, _, rest = line.partition(" ")
        rest = _filled(rest.strip(), variables)
        if word.upper() in ("ARG", "ENV"):
            for name, value in re.findall(r"""(\w+)[= ]["']?([^\s"']*)""", rest):
                variables.setdefault(name, value)
        elif word.upper() == "FROM":
            found = IMAGE.match(f"from {rest}")
            if found:
                ask = _with_image(ask, found["image"])
                cuda = re.search(r"nvidia/cuda:(\d+)\.(\d)", found["image"])
                image_backend = f"cu{cuda[1]}{cuda[2]}" if cuda else None
        elif word.upper() == "RUN":
            # A `cd` or an activation stands before the command, so each command is looked at alone.
            for command in re.split(r"&&|\|\||;|\n", rest):
                installs = INSTALLS.search(command.strip()[:20_000])
                if installs:
                    # `torch==2.1.2+cu${CUDA}`, where the shell computes the variable from the
                    # image's CUDA.
                    without = re.sub(r"(==[\d.]+)\+\w*\$\{?\w+\}?", r"\1", command)
                    if without != command:
                        installs = INSTALLS.search(without.strip()[:20_000]) or installs
                        ask = replace(ask, backend=ask.backend or image_backend)
                    is_conda = installs["conda"] is not None
                    words = installs["conda"] if is_conda else installs["pip"]
                    ask = _with_command(ask, words, place, is_conda=is_conda)
    return _with_torch_of_image(ask)


def _instructions(text: str) -> Iterator[tuple[int, str]]:
    """Yields the line number and the text of each instruction, with its continued lines joined."""
    begun, parts = 0, list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        plain = line.strip()
        if not plain or plain.startswith("#"):
            continue
        if not parts:
            begun = number
        if plain.endswith("\\"):
            parts.append(plain[:-1])
            continue
        yield begun, " ".join((*parts, plain))
        parts.clear()


def _filled(text: str, variables: dict[str, str]) -> str:
    """The text with the variables that the Dockerfile sets: `torch==${TORCH}`."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[3]
        return variables.get(name, found[2] or found[0])

    return re.sub(r"\$\{(\w+)(?::-([^}]*))?\}|\$(\w+)", value, text)[:100_000]


def _with_image(ask: Ask, image: str) -> Ask:
    """What is asked for in a stage that begins with an image. Its Python, and the torch that it
    brings, are in its name. An earlier stage's packages do not reach the last one."""
    ask = replace(ask, image=None, image_torch=None)
    torch = re.search(r"(?:^|/)pytorch(?:/pytorch)?:(\d+\.\d+\.\d+)", image)
    if torch:
        return replace(ask, image=image, image_torch=torch[1])
    if re.search(r"nvcr\.io/nvidia/(?:pytorch|nemo|tritonserver|tensorrt-llm)", image):
        return replace(ask, image=image)
    python = re.search(r"(?:^|/)python:(\d+\.\d+)", image) or re.search(r"python(3\.\d+)", image)
    ubuntu = re.search(r"ubuntu:?(\d\d\.\d\d)", image)
    version = python[1] if python else PYTHON_OF_UBUNTU.get(ubuntu[1]) if ubuntu else None
    return replace(ask, python=version or ask.python)


def _with_torch_of_image(ask: Ask) -> Ask:
    """What is asked for if the image brings torch and no line installs another: that torch, with
    the CUDA in the image's name."""
    named = any(one.name == "torch" for one in ask.requests)
    if ask.image_torch is None or named:
        return ask
    place = f"{Path(ask.path).name}, the image {ask.image}"
    request = Requested(name="torch", text=f"torch=={ask.image_torch}", place=place)
    cuda = re.search(r"cuda(\d+)\.(\d)", ask.image or "")
    backend = f"cu{cuda[1]}{cuda[2]}" if cuda else ask.backend
    return replace(ask, requests=(*ask.requests, request), backend=backend)


def _with_command(ask: Ask, text: str, place: str, *, is_conda: bool) -> Ask:
    """What is asked for with one command of pip, uv or conda."""
    try:
        words = shlex.split(text)
    except ValueError:
        return replace(ask, unread=(*ask.unread, f"{place}: {text[:80]}"))
    waiting = iter(words)
    for word in waiting:
        option, equal, value = word.partition("=")
        if word in WITH_VALUE:
            option, value = word, next(waiting, "")
        elif not (equal and option in WITH_VALUE):
            if word.startswith("-"):
                continue
            ask = with_spec(ask, word, place) if is_conda else with_line(ask, "", word, place)
            continue
        kind = {"--index": "-i", "--default-index": "-i"}.get(
            option, LONG_NAMES.get(option, option)
        )
        if kind in ("-r", "-c"):
            ask = _with_file(ask, value, place, is_constraints=kind == "-c")
        elif kind in ("-i", "-f", "-e"):
            ask = with_line(ask, kind, value, place)
    return ask


def _with_file(ask: Ask, value: str, place: str, *, is_constraints: bool) -> Ask:
    """What is asked for with a requirements file beside the Dockerfile, which copies it."""
    folder = Path(ask.path).parent
    # The path inside the image differs from the one beside the Dockerfile, the name does not.
    for file in (folder / value.lstrip("/"), folder / Path(value).name):
        if file.is_file():
            try:
                other = read_requirements(str(file))
            except BadInput as problem:
                return replace(ask, unread=(*ask.unread, f"{place}: {problem.message}"))
            if is_constraints:
                return replace(ask, constraints=(*ask.constraints, *other.requests))
            return joined(ask, other)
    return replace(ask, unread=(*ask.unread, f"{place}: -r {value[:80]}"))
