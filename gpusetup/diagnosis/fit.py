"""What was read of a machine, and whether it fits together: by the catalog, as for the machine that
`install` chooses a build for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpusetup.accelerators.makers import BY_ID, maker_of
from gpusetup.choose.host import driver_family
from gpusetup.choose.installed import vendors_of
from gpusetup.evidence.context import cuda_needed, gpus, serving, source_of
from gpusetup.evidence.facts import driver_serves
from gpusetup.model.documents import Fit, ReadFact
from gpusetup.model.versions import parsed

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext


def facts_read(context: RuleContext) -> tuple[ReadFact, ...]:
    """The facts that were read, each with its line or source; what was not read is left out."""
    machine = context.snapshot
    driver, torch, failing = machine.driver, machine.torch, machine.failing
    runs = newest_served(context)
    served = f", runs CUDA builds up to {runs}" if runs else ""
    build = "" if not torch.version or "+" in torch.version else f" ({torch.backend or 'no build'})"
    rows = (
        ("system", machine.os.name or machine.os.family, "os.family"),
        ("container", None if machine.container.kind == "none" else machine.container.kind, ""),
        ("GPU", "; ".join(gpu.name for gpu in gpus(context)) or None, "gpus"),
        ("driver", driver.version and f"{driver.version}{served}", "driver.version"),
        ("torch", torch.version and f"{torch.version}{build}", "torch.version"),
        ("installer", torch.installer, "torch.installer"),
        ("Python", machine.python.version, "python.version"),
        ("program", failing.program, ""),
        ("failing step", failing.stage, ""),
    )
    read = []
    for name, value, subject in rows:
        of_program = failing.source if name in ("program", "failing step") else ""
        source = of_program or (source_of(context, subject) if subject else "")
        if value:
            read.append(ReadFact(name=name, value=value, source=source or ""))
    return tuple(read)


def newest_served(context: RuleContext) -> str | None:
    """The newest CUDA of torch's builds that the driver runs; None if no driver was read."""
    cudas = {build.cuda for build in context.catalog.builds if build.cuda}
    served = [cuda for cuda in cudas if driver_serves(context, cuda)]
    return max(served, key=parsed, default=None)


def fits_together(context: RuleContext) -> tuple[Fit, ...]:
    """A sentence for each pair of facts that fit or contradict each other; () if no pair was
    read."""
    return (
        *_torch_and_the_rest(context),
        *_build_that_fits(context),
        *_two_numbers(context),
    )


def _runs(context: RuleContext) -> str:
    """Which CUDA builds the driver runs."""
    return f"runs CUDA builds up to {newest_served(context)}, older CUDA builds too"


def _two_numbers(context: RuleContext) -> Iterator[Fit]:
    """Why nvidia-smi and nvcc show different CUDA versions, if the text shows both."""
    by_driver, by_nvcc = context.driver.cuda, context.snapshot.toolkit.nvcc
    if by_driver and by_nvcc and by_driver != by_nvcc:
        sentence = (
            f"nvidia-smi shows the newest CUDA that the driver supports ({by_driver}), nvcc the "
            f"toolkit's own ({by_nvcc}): the two may differ"
        )
        yield Fit(sentence=sentence, fits=True)


def _torch_and_the_rest(context: RuleContext) -> Iterator[Fit]:
    """Whether torch's build, the driver, the cards and Python fit together."""
    torch, version = context.torch, context.driver.version
    if not torch.version:
        return
    cuda, name = cuda_needed(torch), f"torch {torch.version}"
    if cuda and version:
        floor = context.catalog.driver_floor(cuda, driver_family(context.snapshot))
        if driver_serves(context, cuda):
            sentence = f"driver {version} {_runs(context)}, and {name} is built for CUDA {cuda}"
            yield Fit(sentence=sentence, fits=True)
        elif floor:
            sentence = f"driver {version} does not run {name}: builds for CUDA {cuda} need {floor}"
            yield Fit(sentence=sentence, fits=False)
    for gpu in dict.fromkeys(gpus(context)):
        if torch.backend == "cpu":
            sentence = f"{name} is a build for the CPU and cannot use {gpu.name}"
            yield Fit(sentence=sentence, fits=False)
        elif torch.kernels and gpu.compute_capability:
            kernel = serving(context, gpu)
            has = "has" if kernel else "has no"
            target = kernel or gpu.compute_capability.sm
            sentence = f"{name} {has} kernels for {gpu.name} ({target})"
            yield Fit(sentence=sentence, fits=bool(kernel))
    maker, vendors = maker_of(torch.backend), vendors_of(context.snapshot)
    if maker and maker != "nvidia" and vendors:
        sentence = f"{name} is a build for GPUs of {BY_ID[maker].name}"
        yield Fit(sentence=sentence, fits=maker in vendors)
    yield from _python_and_wheels(context)


def _python_and_wheels(context: RuleContext) -> Iterator[Fit]:
    """Whether the release of torch has wheels for this Python."""
    release = (context.torch.version or "").split("+")[0]
    tag = ".".join((context.snapshot.python.version or "").split(".")[:2])
    rows = [row for row in context.catalog.builds if row.torch == release]
    pythons = {version for row in rows for version in row.pythons}
    if tag and pythons:
        has = "has" if tag in pythons else "has no"
        sentence = f"torch {release} {has} wheels for Python {tag}"
        yield Fit(sentence=sentence, fits=tag in pythons)


def _build_that_fits(context: RuleContext) -> Iterator[Fit]:
    """The build that fits the card and the driver, for a text that shows no torch."""
    build, version = context.choice.build, context.driver.version
    names = ", ".join(dict.fromkeys(gpu.name for gpu in gpus(context)))
    if context.torch.version or build is None or not build.cuda or not (names or version):
        return
    if names and version:
        sentence = (
            f"driver {version} {_runs(context)}: torch {build.torch} from {build.backend} fits it "
            f"and {names}"
        )
    elif version:
        sentence = f"torch {build.torch} from {build.backend} fits driver {version}"
    else:
        needs = f", and needs driver {build.driver_floor} or newer" if build.driver_floor else ""
        sentence = f"torch {build.torch} from {build.backend} has kernels for {names}{needs}"
    yield Fit(sentence=f"{sentence}; no CUDA toolkit is needed for it", fits=True)
