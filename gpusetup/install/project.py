"""The lines that a uv project's pyproject.toml needs so that torch comes from its own index.

The index is `explicit`, so that no other packages come from it. Only AMD's and Intel's builds need
other packages from it. A platform without that build (a Mac, or an aarch64 host with an old CUDA
version) uses the default index. A project with one extra for each build gets a source for each of
them, and uv is told that no two can be installed together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpusetup.accelerators.amd import INDEX_OF_AMD
from gpusetup.accelerators.makers import maker_of
from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.choose.commands import NEEDS_ITS_INDEX
from gpusetup.choose.wish import Wish, backend_label, specifier
from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.install.project_file import EXTRA_NAME, Kind, NamedExtra, ProjectFile
from gpusetup.model.builds import TorchBuild
from gpusetup.model.frozen import Frozen
from gpusetup.model.versions import allows, cuda_of

PLATFORMS = {
    "sys_platform == 'linux' and platform_machine != 'aarch64'": ("linux", "x86_64"),
    "sys_platform == 'linux' and platform_machine == 'aarch64'": ("linux", "aarch64"),
    "sys_platform == 'win32'": ("windows", "x86_64"),
}
"""The marker of each platform for which torch's own index has builds. The two Linux markers
together cover all of Linux, because uv locks a project for every machine that its `environments`
allow."""


LINUX_MARKERS = tuple(marker for marker, (family, _) in PLATFORMS.items() if family == "linux")


def project_lines(
    names: Iterable[str], url: str, build: TorchBuild, catalog: Catalog
) -> Iterator[str]:
    """Yields the TOML lines that make uv install these packages from torch's index, on all
    platforms for which the index has this build."""
    marker = marker_of(build.torch, build.backend, catalog)
    needs_more_of_index = maker_of(build.backend) in NEEDS_ITS_INDEX
    if needs_more_of_index:
        # Without this limit, uv would look for torch on this index for other platforms too, which
        # have no such build.
        yield from ("[tool.uv]", f'environments = ["{marker}"]', "")
    yield from ("[[tool.uv.index]]", 'name = "pytorch"', f'url = "{url}"')
    # AMD's and Intel's builds need packages that only this index has, such as their Triton, so for
    # them uv may use the index for every package.
    if not needs_more_of_index:
        yield "explicit = true"
    elif url == INDEX_OF_AMD:
        yield "ignore-error-codes = [403]  # its answer for packages that it does not have"
    yield from ("", "[tool.uv.sources]")
    for name in names:
        yield f'{name} = [{{ index = "pytorch", marker = "{marker}" }}]'


def has_other_makers_build(torch: str, backend: str, platform: str, catalog: Catalog) -> bool:
    """Whether an index has this build for AMD's or Intel's GPUs, on a platform such as
    `linux-x86_64`."""
    for row in catalog.other_makers:
        if row.torch == torch and backend in row.seen.get(platform, "").split():
            return True
    for release in catalog.amd_index:
        is_this_build = release.torch == torch and f"rocm{release.rocm}" == backend
        if is_this_build and platform in release.on.split():
            return True
    return False


def marker_of(torch: str, backend: str, catalog: Catalog) -> str:
    """The environment marker for the platforms on which torch's index has a build; "" if there are
    none."""
    markers = []
    for marker, (family, machine) in PLATFORMS.items():
        is_for_another_maker = has_other_makers_build(
            torch, backend, f"{family}-{machine}", catalog
        )
        if is_for_another_maker or catalog.row_of(torch, backend, family, machine):
            markers.append(marker)
    # If both Linux markers are needed, a single marker for all of Linux is enough.
    if set(LINUX_MARKERS) <= set(markers):
        others = [marker for marker in markers if marker not in LINUX_MARKERS]
        markers = ["sys_platform == 'linux'", *others]
    return " or ".join(markers)


# --- one extra for each build --------------------------------------------------------------------

OF_THE_GPU = ("gpu", "cuda", "nvidia")
"""Extras with these names stand for the build that fits the user's GPU."""


class Variant(Frozen):
    """An extra or dependency group of a project, and the torch build that belongs to it."""

    name: str
    backend: str
    kind: Kind = "extra"
    family: tuple[str, ...] = ("torch",)
    """Which of torch and its companions are in this extra of the project file."""
    is_there: bool = False
    """Whether the extra already exists in the project file."""

    @property
    def words(self) -> tuple[str, str]:
        """The option and the name with which `uv sync` selects this extra, such as `--extra
        cpu`."""
        return (f"--{self.kind}", self.name)

    @property
    def index_name(self) -> str:
        return f"pytorch-{self.backend.replace('.', '-')}"


def variants_wanted(
    asked: Sequence[str], project: ProjectFile, build: TorchBuild | None, catalog: Catalog
) -> tuple[Variant, ...]:
    """The requested extras (`cpu`, `train=cu126`) or, if none is requested, the project's extras
    that contain torch and whose names stand for a build. Raises UsageError if a requested name
    stands for none."""
    there = {extra.name: extra for extra in project.extras}
    if asked:
        return tuple(_asked_variant(word, there, build, catalog) for word in dict.fromkeys(asked))
    variants = []
    for name, extra in there.items():
        backend = backend_of(name, build, catalog)
        if backend:
            variants.append(_variant(name, backend, extra))
    return tuple(variants)


def _variant(name: str, backend: str, extra: NamedExtra | None) -> Variant:
    """A variant for an extra and its build; `extra` is None if the project file does not have it
    yet."""
    if extra is None:
        return Variant(name=name, backend=backend)
    return Variant(name=name, backend=backend, kind=extra.kind, family=extra.family, is_there=True)


def _asked_variant(
    word: str, there: Mapping[str, NamedExtra], build: TorchBuild | None, catalog: Catalog
) -> Variant:
    """The variant that one `--extra` requests. Its build is the one after `=`, or the one for which
    its name stands."""
    name, _, named_backend = word.partition("=")
    if not re.fullmatch(EXTRA_NAME, name):
        raise UsageError(
            f"{name!r} is not the name of an extra", hint="for example `cpu` or `train=cu126`"
        )
    backend = backend_of(named_backend or name, build, catalog)
    if backend is None:
        raise UsageError(
            f"`--extra {word}` does not say which build of torch it is for",
            hint=f"add it: `--extra {name}=cu130` or `--extra {name}=cpu`",
        )
    return _variant(name, backend, there.get(name))


def backend_of(name: str, build: TorchBuild | None, catalog: Catalog) -> str | None:
    """The backend for which the name of an extra stands; None if it stands for none.

    `gpu` stands for the CUDA build for this machine or, if it has no GPU, for that of the default
    index.
    """
    label = backend_label(name)
    known = {row.backend for row in catalog.builds if row.channel == "pytorch"}
    if label in known:
        return label
    if name.lower() not in OF_THE_GPU:
        return None
    if build is not None and build.cuda:
        return build.backend
    defaults = [row.backend for row in catalog.default_wheels if row.on == "linux-x86_64"]
    return next((backend for backend in reversed(defaults) if cuda_of(backend)), None)


def common_release(backends: Sequence[str], wish: Wish, catalog: Catalog) -> str | None:
    """The newest torch that meets the request and has a build for each of these backends; None if
    there is none."""
    for release in reversed(catalog.releases):
        has_all = all(marker_of(release.torch, backend, catalog) for backend in backends)
        if has_all and is_wanted(release.torch, wish):
            return release.torch
    return None


def is_wanted(torch: str, wish: Wish) -> bool:
    limits = specifier(wish.torch)
    return limits is None or allows(str(limits), torch)


def pins_of(
    variant: Variant,
    family: Sequence[str],
    torch: str | None,
    question: tuple[Wish, Catalog],
) -> dict[str, str]:
    """The versions of torch and its companions for an extra. If `torch` is None, the newest torch
    for the extra's backend is used. Raises Unsatisfiable if the backend has no build."""
    wish, catalog = question
    torch = torch or common_release([variant.backend], wish, catalog)
    rows = (catalog.row_of(torch or "", variant.backend, *on) for on in PLATFORMS.values())
    build = next(filter(None, rows), None)
    if build is None:
        raise Unsatisfiable(
            f"No torch that was asked for has builds for {variant.backend} (extra {variant.name})",
            hint="`gpusetup resolve --explain` lists the builds",
        )
    return build.family((*family, *variant.family))


def extras_lines(
    pins: Mapping[Variant, Mapping[str, str]], root: str, catalog: Catalog
) -> Iterator[str]:
    """Yields the TOML lines for a project whose extras use different builds: new extras, conflicts,
    indexes and sources."""
    new = [variant for variant in pins if not variant.is_there]
    if new:
        yield "[project.optional-dependencies]"
    for variant in new:
        exact = [f"{name}=={version}" for name, version in pins[variant].items()]
        yield f"{key(variant.name)} = {json.dumps(exact)}"
    yield from ("",) if new else ()
    if len(pins) > 1:
        members = ", ".join(f'{{ {one.kind} = "{one.name}" }}' for one in pins)
        yield from ("[tool.uv]", f"conflicts = [[{members}]]", "")
    for backend, name in {one.backend: one.index_name for one in pins}.items():
        url = index_url(backend, root)
        yield from (
            "[[tool.uv.index]]",
            f'name = "{name}"',
            f'url = "{url}"',
            "explicit = true",
            "",
        )
    yield "[tool.uv.sources]"
    names = dict.fromkeys(name for versions in pins.values() for name in versions)
    for name in names:
        yield f"{name} = ["
        for variant, versions in pins.items():
            if name in versions:
                marker = marker_of(versions["torch"], variant.backend, catalog)
                yield (
                    f'    {{ index = "{variant.index_name}", {variant.kind} = "{variant.name}", '
                    f'marker = "{marker}" }},'
                )
        yield "]"


def key(name: str) -> str:
    """A name written as a key in TOML.

    >>> key("cu130"), key("cuda-13.0")
    ('cu130', '"cuda-13.0"')
    """
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
