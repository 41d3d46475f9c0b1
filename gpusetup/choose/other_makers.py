"""torch's builds for the GPUs of AMD and Intel: an index, a target, and an extra. Pure functions.

PyTorch's own index has ROCm builds for Linux and XPU builds for Linux and Windows. AMD's index has
ROCm builds for Windows too, and their extras choose the target. Apple's GPUs need none of this,
because torch's ordinary wheel for macOS supports them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from gpusetup.accelerators.amd import (
    BUILT_FOR,
    BUILT_FOR_ROCM,
    INDEX_OF_AMD,
    LAST_ROCM,
    RADEON,
    device_extras,
    has_kernels,
)
from gpusetup.accelerators.makers import AMD, BY_ID, INTEL, Maker, maker_of
from gpusetup.accelerators.other_gpus import has_a_build, has_xpu, is_small
from gpusetup.catalog.builds import Catalog
from gpusetup.choose.wish import Wish
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import TorchBuild
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Gpu, Snapshot
from gpusetup.model.versions import parsed

NAME_OF_BUILDS = {AMD.id: "ROCm", INTEL.id: "XPU"}
"""The makers other than NVIDIA for which torch has separate builds."""
CPU_WORKS = "The CPU build runs there: add `--backend cpu`"


def maker_to_serve(wish: Wish, machine: Snapshot, presence: str) -> Maker | None:
    """The maker (AMD or Intel) whose builds are needed, according to the requested backend or the
    GPUs; None if the ordinary builds work. `presence` tells of NVIDIA's GPUs."""
    present = maker_of_gpus(machine)
    # With an NVIDIA GPU, the ordinary search explains why there is no build for another maker.
    if wish.wanted_backend == "cpu" or (presence == "some" and present is None):
        return None
    requested = maker_of(wish.wanted_backend)
    return present or (BY_ID[requested] if requested in NAME_OF_BUILDS else None)


def maker_of_gpus(machine: Snapshot) -> Maker | None:
    """The maker of the first AMD or Intel GPU that the build should support; None without one."""
    makers = (gpu.maker for gpu in gpus_of_any_maker(machine))
    return next((BY_ID[maker] for maker in makers if maker in NAME_OF_BUILDS), None)


def refuse_foreign_backend(wish: Wish, machine: Snapshot) -> None:
    """Raise Unsatisfiable if the requested backend is not for the maker of the AMD or Intel GPU."""
    present, requested = maker_of_gpus(machine), maker_of(wish.wanted_backend)
    if requested and present and requested != present.id:
        gpu = next(gpu for gpu in gpus_of_any_maker(machine) if gpu.maker == present.id)
        step = "change the label in the file" if wish.from_project else "leave out `--backend`"
        raise Unsatisfiable(
            f"{wish.wanted_backend} is a build for {BY_ID[requested].name} GPUs, but {gpu.name} "
            f"is an {present.name} GPU",
            hint=f"{step}: torch's {NAME_OF_BUILDS[present.id]} build supports it",
        )


def gpus_of_any_maker(machine: Snapshot) -> tuple[Gpu, ...]:
    """The GPUs that the build should support, NVIDIA's or another maker's. The CPU build is right
    for graphics that are too small to be worth it or that torch has no build for."""
    stack = machine.makers
    # `machine.gpus` lists NVIDIA's GPUs, and those that the user describes, of any maker.
    if machine.gpus or stack is None:
        return machine.gpus or ()
    return stack.gpus if has_a_build(stack) and not is_small(stack) else ()


@lru_cache(maxsize=64)
def builds_of_maker(
    maker: Maker, gpus: tuple[Gpu, ...], platform: str, catalog: Catalog
) -> tuple[TorchBuild, ...]:
    """The builds for a maker's GPUs on a platform, best first: those of PyTorch's index with the
    newest torch and the newest ROCm whose kernels were read, then those of AMD's index."""
    rows = []
    family, _, machine = platform.partition("-")
    for releases in catalog.other_makers:
        backends = releases.seen.get(platform, "").split()
        of_maker = [backend for backend in backends if maker_of(backend) == maker.id]
        for torch in releases.torch.split():
            # Python versions, C library and companions are those of the CPU build of the same
            # torch, which is built the same way.
            cpu_build = catalog.row_of(torch, "cpu", family, machine)
            if cpu_build:
                rows += [replace(cpu_build, labelled=True, backend=one) for one in of_maker]

    def best_last(row: TorchBuild) -> tuple[object, ...]:
        """A sort key: by torch, then whether the ROCm's kernels were read, then by ROCm."""
        # Intel's backend `xpu` has no version.
        version = parsed(row.backend.removeprefix(maker.label or "") or "0")
        return parsed(row.torch), version <= parsed(BUILT_FOR_ROCM), version

    of_pytorch = tuple(sorted(rows, key=best_last, reverse=True))
    of_amd = builds_of_amd(catalog, gpus, platform) if maker is AMD else ()
    # AMD's come first if PyTorch's builds have no kernels for one of the GPUs.
    is_amds_first = any(gpu.target not in (None, *BUILT_FOR) for gpu in gpus)
    return (*of_amd, *of_pytorch) if is_amds_first else (*of_pytorch, *of_amd)


def builds_of_amd(catalog: Catalog, gpus: tuple[Gpu, ...], platform: str) -> tuple[TorchBuild, ...]:
    """The builds on AMD's own index with kernels for all of these GPUs, if any, newest first."""
    targets = [gpu.target for gpu in gpus]
    extras = device_extras(targets)
    family, _, machine = platform.partition("-")
    # AMD's index lacks the kernels for one of the targets, or no GPU is known. For Windows, it
    # only has wheels for Radeon and Ryzen, not for Instinct.
    if not extras or (family == "windows" and not {*targets} <= {*RADEON}):
        return ()
    return tuple(
        TorchBuild(
            torch=release.torch,
            backend=f"rocm{release.rocm}",
            cuda=None,
            os=family,  # type: ignore[arg-type]
            machine=machine,
            pythons=tuple(release.pythons.split()),
            kernels=(),
            torchvision=release.torchvision,
            torchaudio=release.torchaudio,
            index=INDEX_OF_AMD,
            device_extras=extras,
        )
        for release in reversed(catalog.amd_index)
        if platform in release.on.split()
    )


def why_no_kernels(build: TorchBuild, gpu: Gpu) -> str | None:
    """The reason why a ROCm build has no kernels for a GPU; None if it has them, or may have them
    because the GPU's target is unknown. AMD's own index has them: its extras are for the GPU."""
    target = gpu.target
    if build.index or target is None or not build.backend.startswith("rocm"):
        return None
    is_built_for_gpu = has_kernels(target, build.backend.removeprefix("rocm"))
    # No kernel list was read for this newer ROCm version. Assume that its builds are for the same
    # targets, except those that ROCm itself no longer supports.
    is_assumed = is_built_for_gpu is None and target in BUILT_FOR and target not in LAST_ROCM
    if is_built_for_gpu or is_assumed:
        return None
    # Of a chip that ROCm dropped (`LAST_ROCM`), later builds lack the libraries' files.
    return f"has no kernels for {target}, or no files for its matrix products"


def why_no_builds(
    maker: Maker, gpus: Sequence[Gpu], rows: Sequence[TorchBuild], platform: str
) -> tuple[str, ...]:
    """The reasons why none of a maker's builds (`rows`) supports all of these GPUs, if known."""
    problems = []
    for gpu in gpus:
        if maker is INTEL and not has_xpu(gpu.name):
            problems.append(
                f"torch's XPU builds do not support {gpu.name}, only Arc, the Core Ultra's Arc "
                f"graphics and Data Center GPU Max. {CPU_WORKS}"
            )
        # A row with an index of its own comes from AMD, and was chosen for these GPUs' kernels.
        is_served = gpu.target in (None, *BUILT_FOR) or any(row.index for row in rows)
        if maker is AMD and not is_served:
            problem = f"no ROCm build of torch has kernels for {gpu.name} ({gpu.target})"
            problems.append(f"{problem}. {CPU_WORKS}")
    if not rows and not problems:
        where = platform.replace("-", " on ")
        problems.append(
            f"no {NAME_OF_BUILDS[maker.id]} build of torch is known for {where}. {CPU_WORKS}"
        )
    return tuple(problems)


def notes_of(gpus: Sequence[Gpu], maker: Maker, build: TorchBuild | None) -> Iterator[str]:
    """Yields notes on a build for AMD or Intel, which gpusetup has never run."""
    if build is not None and build.index:
        yield (
            f"torch {build.torch} comes from AMD's own index, which also has ROCm as packages. "
            f"`{build.project('torch')}` installs the kernels for your GPU"
        )
    for gpu in gpus:
        if maker is AMD and gpu.target is None:
            yield f"{gpu.name} has an unknown target (gfx...), so the build may lack its kernels"
    yield (
        f"torch's {NAME_OF_BUILDS[maker.id]} builds were not tested with gpusetup: run "
        "`gpusetup verify` afterwards"
    )
