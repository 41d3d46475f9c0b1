"""Which torch build serves a GPU of AMD or Intel that somebody names, and what it needs. Pure.

Apple's GPUs need nothing of this: torch's ordinary wheel for macOS serves them. The driver of these
makers is not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpusetup.accelerators.amd import BUILT_FOR, BUILT_FOR_TORCH, RELATIVES
from gpusetup.accelerators.makers import AMD, BY_ID, INTEL, NVIDIA, Maker, maker_of
from gpusetup.accelerators.other_gpus import has_xpu
from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.errors import Unsatisfiable
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Gpu, Snapshot
from gpusetup.model.resolution import Choice, Rejection, Request, Resolution, TorchBuild
from gpusetup.model.versions import parsed
from gpusetup.resolver.constraints import (
    has_this_python,
    is_asked_backend,
    is_asked_torch,
    libc_reaches,
)
from gpusetup.resolver.situation import Situation, situation_of

WITH_OWN_BUILDS = (AMD.id, INTEL.id)
"""The makers other than NVIDIA for which torch has builds of its own."""
NAME_OF_BUILDS = {AMD.id: "ROCm", INTEL.id: "XPU"}
CONSTRAINTS = (is_asked_torch, is_asked_backend, has_this_python, libc_reaches)


def maker_to_serve(machine: Snapshot, request: Request) -> Maker | None:
    """The maker whose own builds are needed: of the backend that was asked for, else of the GPUs.

    None where the ordinary builds serve. Unsatisfiable where GPUs of two makers would need two
    builds, or a backend is another maker's than the GPU.
    """
    makers = {gpu.maker for gpu in machine.gpus or () if gpu.maker}
    asked = maker_of(request.backend)
    others = makers & {*WITH_OWN_BUILDS}
    if others and len(makers) > 1:
        names = ", ".join(gpu.name for gpu in machine.gpus or ())
        raise Unsatisfiable(
            f"No build of torch supports GPUs of two makers: {names}",
            hint="name the GPUs of one maker; each needs its own environment",
        )
    gpu_maker = BY_ID[next(iter(others))] if others else None
    if asked and gpu_maker and asked != gpu_maker.id:
        named = next(gpu.name for gpu in machine.gpus or ())
        raise Unsatisfiable(
            f"{request.backend} is a build for GPUs of {BY_ID[asked].name}, and {named} is "
            f"{gpu_maker.name}'s",
            hint=f"leave out `--backend`: torch's {NAME_OF_BUILDS[gpu_maker.id]} build is for it",
        )
    # A build of another maker for NVIDIA's GPUs: the ordinary resolver says why there is none.
    if request.backend == "cpu" or makers == {NVIDIA.id}:
        return None
    if asked in WITH_OWN_BUILDS:
        return BY_ID[asked]
    return gpu_maker


def resolve_for_maker(
    machine: Snapshot, request: Request, catalog: Catalog, maker: Maker
) -> Resolution:
    """The newest torch whose build for this maker's GPUs fits, and why the others do not."""
    host = situation_of(machine, request, catalog)
    rows = builds_for(catalog, maker, (host.family, host.machine))
    gpus = tuple(gpu for gpu in machine.gpus or () if gpu.maker == maker.id)
    trouble = tuple(filter(None, (why_no_build(gpu, maker) for gpu in gpus)))
    if trouble or not rows:
        where = f"no {NAME_OF_BUILDS[maker.id]} build of torch is known for {host.family}"
        reasons = trouble or (f"{where} on {host.machine}: {platforms_of(catalog, maker)}",)
        return Resolution(build=None, notes=reasons, catalog_as_of=catalog.as_of)
    reasons_of = [(row, why_not(row, host)) for row in rows]
    fitting = [row for row, reasons in reasons_of if not reasons]
    build = fitting[0] if fitting else None
    same_torch = [row for row in fitting[1:] if build and row.torch == build.torch]
    return Resolution(
        build=build,
        index_url=index_url(build.backend) if build else None,
        fallbacks=tuple(
            Choice(torch=row.torch, backend=row.backend, index_url=index_url(row.backend))
            for row in same_torch
        ),
        rejections=tuple(
            Rejection(torch=row.torch, backend=row.backend, reason="; ".join(reasons))
            for row, reasons in reasons_of
            if reasons
        ),
        notes=tuple(notes_of(gpus, maker, build, catalog)),
        catalog_as_of=catalog.as_of,
    )


def why_not(row: TorchBuild, host: Situation) -> tuple[str, ...]:
    """What of the question and the system speaks against a build."""
    answers = (constraint(row, host) for constraint in CONSTRAINTS)
    return tuple(filter(None, answers))


def builds_for(catalog: Catalog, maker: Maker, place: tuple[str, str]) -> tuple[TorchBuild, ...]:
    """A maker's builds for a system and machine: newest torch first, then the newest backend.

    The Pythons and the C library are those of the CPU build of the same torch, which is built in
    the same way.
    """
    family, machine = place
    rows = []
    for release in catalog.other_makers:
        backends = release.seen.get(f"{family}-{machine}", "").split()
        like = catalog.row_of(release.torch, "cpu", family, machine)
        for backend in backends if like else ():
            if like and maker_of(backend) == maker.id:
                rows.append(replace(like, backend=backend, labelled=True, torchaudio=None))

    def newest_last(row: TorchBuild) -> tuple[object, ...]:
        return parsed(row.torch), parsed(row.backend.removeprefix(maker.label or ""))

    return tuple(sorted(rows, key=newest_last, reverse=True))


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
    for gpu in gpus if maker is AMD else ():
        name = gpu.name if gpu.name == gpu.target else f"{gpu.name} ({gpu.target})"
        if gpu.target is None:
            yield f"{gpu.name} names no target of AMD: whether the build has kernels is unknown"
        elif gpu.target in BUILT_FOR:
            yield f"torch {BUILT_FOR_TORCH}'s ROCm wheels have kernels for {name}"
        else:
            target, version = RELATIVES[gpu.target]
            yield (
                f"no ROCm wheel has kernels for {name}; those for {target} run with "
                f"HSA_OVERRIDE_GFX_VERSION={version}, which AMD does not support"
            )
    if maker is AMD and build and not build.torch.startswith(f"{BUILT_FOR_TORCH}."):
        yield f"whether torch {build.torch} has the same kernels was not looked at"
    newest = catalog.other_makers[-1].torch if catalog.other_makers else "?"
    yield (
        f"gpusetup knows the {NAME_OF_BUILDS[maker.id]} builds up to torch {newest}; it does not "
        f"check {maker.name}'s driver, so run `gpusetup verify` afterwards"
    )
