"""What a project asks for: torch and its family, packages, Python, indexes and sources.

The reader of each kind of file fills one `Ask`. Nothing of a project is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Literal
from urllib.parse import unquote, urlsplit

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from gpusetup.accelerators.makers import LABEL
from gpusetup.model.builds import FAMILY
from gpusetup.model.frozen import Frozen, Record, Text, replace
from gpusetup.model.logins import without_logins

OF_A_FOLDER = (
    *("pyproject.toml", "setup.cfg", "setup.py", "requirements.txt"),
    *("environment.yml", "environment.yaml", "Dockerfile"),
)
"""The files of a folder that may say what a project asks for, in the order in which they count."""
MOST_BYTES = 1 << 20
"""The maximum size of a file that a person wrote."""
LONGEST = 2000
"""In characters: a longer line is no person's requirement, and takes long to parse as one."""
LONGEST_SHOWN = 80
"""In characters: how much of a line that was not understood is shown."""
WITH_TORCH = re.compile(
    r"(cuda-(toolkit|bindings|pathfinder|python)|nvidia-(?!ml-py|dali|modelopt|nvimgcodec|nat\b)"
    r"[a-z0-9-]+?(-cu1[0-9])?|triton|pytorch-triton(-rocm|-xpu)?)"
)
"""Packages that torch's own wheels for Linux require in exact versions. A file of `uv pip compile`
lists them for the CUDA of its own machine, so they are not asked for. torch does not require the
names in `(?!...)`, such as DALI."""
ADDRESS = re.compile(r"(?i)(?:(?:git|hg|svn|bzr)\+|https?://|file:|ssh://|git@)\S*|[./~\\]\S*")
"""What pip installs without an index: a repository, a URL, or a folder or file by its path."""

Kind = Literal["requirements", "pyproject", "setup", "environment", "dockerfile", "lock"]


class Requested(Frozen):
    """A requirement of a project, and where it stands."""

    name: str
    """The normalised name, such as `torch`."""
    text: str
    """The requirement with its extras and versions, such as `torch>=2.6`."""
    versions: str
    """Its versions alone, as a specifier: `>=2.6`, or `==2.6.0+cu124`."""
    place: str
    """The file with the line or the table, such as `requirements.txt, line 3`."""
    marker: str = ""
    """The machines that it is for: `sys_platform == 'linux'`; "" for all."""
    variant: Text = None
    """The extra or dependency group that contains it; None for the project's own dependencies."""


class DirectReference(Frozen):
    """A line for which no index can be asked: a wheel's URL, `git+https://...` or `-e .`."""

    text: str
    """The line as it is installed, such as `git+https://github.com/...`, without its marker."""
    place: str
    marker: str = ""
    torch: Text = None
    """The torch that a wheel was built for, as a specifier."""
    backend: Text = None
    """The backend that a wheel was built for: `cu128`, or `cu12` for any CUDA 12."""
    variant: Text = None


class NamedIndex(Frozen):
    """A package index, or a page of wheels, that a project names."""

    url: str
    place: str
    name: Text = None
    backend: Text = None
    """The backend in the URL, such as `cu128`; None if it names none."""


class Source(Frozen):
    """The index from which uv takes one package of a project (`[tool.uv.sources]`)."""

    package: str
    index: str
    variant: Text = None
    """The extra or group for which this source counts; None if it counts for all."""
    marker: str = ""


class Variant(Frozen):
    """An extra or a dependency group that contains torch or a companion."""

    name: str
    kind: Literal["extra", "group"] = "extra"
    family: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, str]:
        """The option and the name with which `uv sync` selects it, such as `--extra cpu`."""
        return (f"--{self.kind}", self.name)


class Ask(Record):
    """What a project asks for, as its files say it."""

    path: str
    """The file as the user named it, or the file of the folder that was read."""
    kind: Kind
    requests: list[Requested] = []
    limits: list[Requested] = []
    """Limits that install nothing by themselves, such as those in a file of `-c`."""
    direct: list[DirectReference] = []
    """What is installed after torch, because no index has it."""
    indexes: list[NamedIndex] = []
    sources: list[Source] = []
    variants: list[Variant] = []
    left_out: list[str] = []
    """The requirements that torch's own wheels bring, such as `nvidia-cudnn-cu13==9.1`."""
    unread: list[str] = []
    """Lines that were not understood, each once, with their place."""
    files: set[str] = set()
    """The requirements files that were read, because a stranger's may name each other."""
    python: Text = None
    """The Python versions that it supports (`>=3.9,<3.13`) or brings itself (`3.10`)."""
    brings_python: bool = False
    """Whether the file creates its own Python, as an environment.yml or an image does."""
    backend: Text = None
    """The backend that the file names by its CUDA (`pytorch-cuda=12.1`)."""
    image: Text = None
    """The container image that brings a torch of its own, such as `pytorch/pytorch:2.4.1-...`."""
    image_torch: Text = None
    """The torch version of that image, if its name shows it."""
    tables: list[str] = []
    """uv's tables that the file already has; TOML allows each only once."""
    has_project: bool = False
    """Whether there is a `[project]` table, to which `uv add` can add."""
    is_poetry: bool = False

    def of(self, variant: str | None = None) -> list[Requested]:
        """The project's own requirements, and those of this extra or group if one is given."""
        return [one for one in self.requests if one.variant in (None, variant)]

    def on_machine(self, environment: Mapping[str, str], variant: str | None = None) -> Ask:
        """What counts on a machine with these marker variables: nothing of extras and groups other
        than `variant`, and no line whose marker excludes the machine."""

        def counts(one: Requested | DirectReference | Source) -> bool:
            return one.variant in (None, variant) and applies(one.marker, environment)

        return replace(
            self,
            requests=[*filter(counts, self.requests)],
            limits=[*filter(counts, self.limits)],
            direct=[*filter(counts, self.direct)],
            sources=[*filter(counts, self.sources)],
        )

    @property
    def family(self) -> tuple[str, ...]:
        """Which of torch and its companions the project itself names, torch first."""
        return named_family(one.name for one in self.of())

    @property
    def names_torch(self) -> bool:
        """Whether the file says which torch it wants, in any of the ways in which it can."""
        by_wheels = any(one.torch for one in self.direct)
        return bool(self.family or self.variants or self.image or by_wheels)

    # --- what a reader adds -----------------------------------------------------------------------

    def add(
        self, line: str, place: str, variant: str | None = None, *, is_limit: bool = False
    ) -> None:
        """Add a requirement, or a package given by its URL or path, as pip and pyproject.toml write
        it; any other line is unread. One of `WITH_TORCH` is left out, as torch brings it.

        A requirement that `is_limit` only bounds the versions, as in pip's `-c` files."""
        # pip allows options after a requirement, such as `--hash=sha256:...`.
        text = re.split(r"\s--[a-z]", line, maxsplit=1)[0].strip()
        requirement = None
        if len(text) <= LONGEST:
            with suppress(InvalidRequirement, RecursionError):
                requirement = Requirement(text)
        # `name @ https://...` is a valid requirement; an address without a name is not.
        if requirement is None or requirement.url:
            reference = direct_reference(text, place, variant)
            if reference:
                self.direct.append(reference)
            else:
                self.unread.append(f"{place}: {without_logins(text[:LONGEST_SHOWN])}")
            return
        request = Requested(
            name=canonicalize_name(requirement.name),
            text=" ".join(text.partition(";")[0].split()),
            versions=str(requirement.specifier),
            place=place,
            marker=str(requirement.marker or ""),
            variant=variant,
        )
        if WITH_TORCH.fullmatch(request.name):
            self.left_out.append(request.text)
        elif is_limit:
            self.limits.append(request)
        else:
            self.requests.append(request)

    def add_index(self, url: str, place: str, name: str | None = None) -> None:
        """Add an index with the backend that its URL names: torch's own and its mirrors
        (`.../whl/cu128`), and the pages of extensions (`.../whl/torch-2.4.0+cu121.html`)."""
        label = re.search(rf"/whl/(?:nightly/|test/)?({LABEL})/?$", url)
        label = label or re.search(r"[+/](cu\d{3}|cpu)(?![a-z\d])", url)
        backend = label[1] if label else None
        self.indexes.append(NamedIndex(url=url, place=place, name=name, backend=backend))


def applies(marker: str, environment: Mapping[str, str]) -> bool:
    """Whether an environment marker holds; True for "" and if it cannot be evaluated."""
    try:
        return not marker.strip() or Marker(marker).evaluate(dict(environment))
    except (ValueError, RecursionError):
        return True


def direct_reference(
    line: str, place: str, variant: str | None = None, marker: str = ""
) -> DirectReference | None:
    """What a line installs from an address or a folder; None if it names neither. `variant` is the
    extra or group with the line. `marker` counts if the line has none, as in uv's sources.

    Projects write the torch and the CUDA of an extension into the name of its wheel:

    >>> wheel = "https://x/flash_attn-2.8.3%2Bcu12torch2.9-cp311-cp311-linux_x86_64.whl"
    >>> direct_reference(wheel, "").torch
    '==2.9.*'
    """
    # A space separates the marker, because a URL may contain a `;` (PEP 508).
    text, _, own_marker = line.partition(" ;")
    # `name @ https://...` names the package, too (PEP 508).
    named = re.match(r"([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*@\s*(\S.*)", text)
    address = (named[2] if named else text).strip()
    torch = backend = None
    try:
        path = urlsplit(address).path if "://" in address else address
        file = unquote(path).replace("\\", "/").rpartition("/")[2]
        name, version, _, _ = parse_wheel_filename(file)
    except (InvalidWheelFilename, ValueError):
        # No wheel, but perhaps a repository or a folder, which may have extras: `.[train]`.
        if not named and not ADDRESS.fullmatch(address.split("[")[0]):
            return None
    else:
        label = version.local or ""
        # `cu12torch2.9` or `pt25cu124` of an extension; `cu128` or `cpu` of torch's own wheel.
        series = re.search(r"(?:torch|pt)[._]?(\d)[._]?(\d{1,2})", label)
        cuda = re.search(r"cu1\d{1,2}(?!\d)|^cpu$", label)
        if name == "torch":
            torch = f"=={version.public}"
        elif series:
            torch = f"=={series[1]}.{series[2]}.*"
        backend = cuda[0] if cuda else None
    return DirectReference(
        text=text.strip(),
        place=place,
        marker=own_marker.strip() or marker,
        torch=torch,
        backend=backend,
        variant=variant,
    )


def named_family(names: Iterable[str]) -> tuple[str, ...]:
    """torch and its companions among these names, torch first."""
    members = {*FAMILY} & {*names}
    return tuple(name for name in FAMILY if name in members)
