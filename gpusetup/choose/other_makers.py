"""Which torch build serves a GPU of AMD or Intel that somebody names, and what it needs. Pure.

Apple's GPUs need nothing of this: torch's ordinary wheel for macOS serves them. The driver of these
makers is not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpusetup.accelerators.amd import BUILT_FOR, BUILT_FOR_TORCH, RELATIVES
from gpusetup.accelerators.makers import AMD, BY_ID, INTEL, Maker, maker_of
from gpusetup.accelerators.other_gpus import has_xpu
from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.choose.choice import Choice
from gpusetup.choose.constraints import (
    has_this_python,
    is_asked_backend,
    is_asked_torch,
    libc_reaches,
)
from gpusetup.choose.host import BuildQuestion, Host, question_of
from gpusetup.choose.wish import Wish
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import Fallback, Rejection, TorchBuild
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Gpu
from gpusetup.model.versions import parsed

WITH_OWN_BUILDS = (AMD.id, INTEL.id)
"""The makers other than NVIDIA for which torch has builds of its own."""
NAME_OF_BUILDS = {AMD.id: "ROCm", INTEL.id: "XPU"}
CONSTRAINTS = (is_asked_torch, is_asked_backend, has_this_python, libc_reaches)


def maker_to_serve(wish: Wish, host: Host) -> Maker | None:
    """The maker whose own builds are needed: of the backend that is wanted, else of the GPUs.

    None where the ordinary builds serve. Unsatisfiable where GPUs of two makers would need two
    builds, or a backend is another maker's than the GPU.
    """
    gpus = host.machine.gpus or ()
    makers = {gpu.maker for gpu in gpus if gpu.maker}
    wanted = maker_of(wish.backend)
    with_own_builds = makers & {*WITH_OWN_BUILDS}
    if with_own_builds and len(makers) > 1:
        names = ", ".join(gpu.name for gpu in gpus)
        raise Unsatisfiable(
            f"No build of torch supports GPUs of two makers: {names}",
            hint="name the GPUs of one maker; each needs its own environment",
        )
    gpu_maker = BY_ID[next(iter(with_own_builds))] if with_own_builds else None
    if wanted and gpu_maker and wanted != gpu_maker.id:
        raise Unsatisfiable(
            f"{wish.backend} is a build for GPUs of {BY_ID[wanted].name}, and {gpus[0].name} is "
            f"{gpu_maker.name}'s",
            hint=f"leave out `--backend`: torch's {NAME_OF_BUILDS[gpu_maker.id]} build is for it",
        )
    # Another maker's build for NVIDIA's GPUs: the ordinary builds' reasons say why there is none.
    has_nvidia = host.facts.presence == "some" and gpu_maker is None
    if wish.backend == "cpu" or has_nvidia:
        return None
    return BY_ID[wanted] if wanted in WITH_OWN_BUILDS else gpu_maker


def newest_for_maker(wish: Wish, host: Host, catalog: Catalog, maker: Maker) -> Choice:
    """The newest torch whose build for this maker's GPUs fits, and why the others do not."""
    question = question_of(wish, host, catalog)
    facts = host.facts
    rows = builds_for(catalog, maker, (facts.family, facts.architecture))
    gpus = tuple(gpu for gpu in host.machine.gpus or () if gpu.maker == maker.id)
    problems = tuple(filter(None, (why_no_build(gpu, maker) for gpu in gpus)))
    if problems or not rows:
        builds = f"no {NAME_OF_BUILDS[maker.id]} build of torch is known"
        platform = f"{facts.family} on {facts.architecture}"
        nowhere = f"{builds} for {platform}: {platforms_of(catalog, maker)}"
        return Choice(notes=problems or (nowhere,), wish=wish, catalog_as_of=catalog.as_of)
    reasons_of = [(row, why_not(row, question)) for row in rows]
    fitting = [row for row, reasons in reasons_of if not reasons]
    build = fitting[0] if fitting else None
    return Choice(
        build=build,
        action="first" if build else "nothing",
        reason=f"asked for: {wish.torch}" if wish.torch else "the newest that fits",
        alternatives=tuple(
            Fallback(torch=row.torch, backend=row.backend, index_url=index_url(row.backend))
            for row in fitting[1:]
            if row.torch == fitting[0].torch
        ),
        rejections=tuple(
            Rejection(torch=row.torch, backend=row.backend, reason="; ".join(reasons))
            for row, reasons in reasons_of
            if reasons
        ),
        notes=tuple(notes_of(gpus, maker, build, catalog)),
        wish=wish,
        catalog_as_of=catalog.as_of,
    )


def why_not(row: TorchBuild, question: BuildQuestion) -> tuple[str, ...]:
    """What of the wish and the system speaks against a build."""
    reasons = []
    for constraint in CONSTRAINTS:
        reason = constraint(row, question)
        # Neither the driver nor the GPU is judged.
        if reason:
            reasons.append(reason)
    return tuple(reasons)


def builds_for(catalog: Catalog, maker: Maker, platform: tuple[str, str]) -> tuple[TorchBuild, ...]:
    """A maker's builds for a system and machine: newest torch first, then the newest backend.

    The Pythons and the C library are those of the CPU build of the same torch, which is built in
    the same way.
    """
    family, machine = platform
    rows = []
    for release in catalog.other_makers:
        cpu_build = catalog.row_of(release.torch, "cpu", family, machine)
        if cpu_build is None:
            continue
        # Which torchaudio has such a build was not looked at.
        like = replace(cpu_build, labelled=True, torchaudio=None)
        backends = release.seen.get(f"{family}-{machine}", "").split()
        for backend in backends:
            if maker_of(backend) == maker.id:
                rows.append(replace(like, backend=backend))

    def newest_last(row: TorchBuild) -> tuple[object, ...]:
        # `rocm7.2` is version 7.2 of ROCm; `xpu` has none.
        version = row.backend.removeprefix(maker.label or "")
        return parsed(row.torch), parsed(version)

    rows.sort(key=newest_last, reverse=True)
    return tuple(rows)


def platforms_of(catalog: Catalog, maker: Maker) -> str:
    """Where torch's index has builds for a maker, in words."""
    platforms: set[str] = set()
    for release in catalog.other_makers:
        for platform, backends in release.seen.items():
            makers = {maker_of(backend) for backend in backends.split()}
            if maker.id in makers:
                platforms.add(platform.replace("-", " on "))
    return f"torch's own index has them for {' and '.join(sorted(platforms))}"


def why_no_build(gpu: Gpu, maker: Maker) -> str | None:
    """Why no build has code for a GPU; None if one has, or if the name does not tell."""
    if maker is INTEL and not has_xpu(gpu.name):
        return (
            f"{gpu.name} is not among the GPUs of torch's XPU builds: they are for Arc, the Core "
            "Ultra's Arc graphics and Data Center GPU Max"
        )
    is_known = gpu.target is None or gpu.target in BUILT_FOR or gpu.target in RELATIVES
    if maker is AMD and not is_known:
        return f"no ROCm build of torch has kernels for {gpu.name} ({gpu.target})"
    return None


def notes_of(
    gpus: Iterable[Gpu], maker: Maker, build: TorchBuild | None, catalog: Catalog
) -> Iterator[str]:
    """What a reader should know of a build that gpusetup does not judge as it judges NVIDIA's."""
    if maker is AMD:
        for gpu in gpus:
            yield note_on_target(gpu)
        if build and not build.torch.startswith(f"{BUILT_FOR_TORCH}."):
            yield f"whether torch {build.torch} has the same kernels was not looked at"
    newest = catalog.other_makers[-1].torch if catalog.other_makers else "?"
    yield (
        f"gpusetup knows the {NAME_OF_BUILDS[maker.id]} builds up to torch {newest}; it does not "
        f"check {maker.name}'s driver, so run `gpusetup verify` afterwards"
    )


def note_on_target(gpu: Gpu) -> str:
    """Whether torch's ROCm wheels have kernels for a GPU of AMD."""
    name = gpu.name if gpu.name == gpu.target else f"{gpu.name} ({gpu.target})"
    if gpu.target is None:
        return f"{gpu.name} names no target of AMD: whether the build has kernels is unknown"
    if gpu.target in BUILT_FOR:
        return f"torch {BUILT_FOR_TORCH}'s ROCm wheels have kernels for {name}"
    target, version = RELATIVES[gpu.target]
    return (
        f"no ROCm wheel has kernels for {name}; those for {target} run with "
        f"HSA_OVERRIDE_GFX_VERSION={version}, which AMD does not support"
    )
