"""What was read of a machine, whether it fits together by the catalog, as for the machine that
`install` chooses a build for, and when the answer is `ok`."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.accelerators.makers import BY_ID, maker_of
from gpusetup.choose.host import driver_family
from gpusetup.choose.installed import vendors_of
from gpusetup.evidence.context import (
    RuleContext,
    cuda_needed,
    events,
    gpus,
    is_cuda_build,
    is_report,
    on,
    serving,
    shows_no_other_failure,
    source_of,
)
from gpusetup.evidence.facts import driver_serves
from gpusetup.findings.other_makers import serves_its_maker
from gpusetup.model.documents import Fit, ReadFact
from gpusetup.model.machine import Snapshot, visible_gpus
from gpusetup.model.versions import parsed


def facts_read(context: RuleContext) -> tuple[ReadFact, ...]:
    """The facts that were read, each with its line or source; what was not read is left out."""
    machine = context.snapshot
    driver, torch, failing = machine.driver, machine.torch, machine.failing
    newest_cuda = newest_served(context)
    served = f", {_runs(context)}" if newest_cuda else ""
    driver_in_words = f"{driver.version}{served}" if driver.version else None
    torch_in_words = torch.version
    # A version without the build's label (`2.5.1+cu124`) gets the build that was read elsewhere.
    if torch.version and "+" not in torch.version:
        torch_in_words = f"{torch.version} ({torch.backend or 'no build'})"
    rows = (
        ("system", machine.os.name or machine.os.family, source_of(context, "os.family")),
        ("container", None if machine.container.kind == "none" else machine.container.kind, None),
        ("GPU", "; ".join(gpu.name for gpu in gpus(context)), source_of(context, "gpus")),
        ("driver", driver_in_words, source_of(context, "driver.version")),
        ("torch", torch_in_words, source_of(context, "torch.version")),
        ("installer", torch.installer, source_of(context, "torch.installer")),
        ("Python", machine.python.version, source_of(context, "python.version")),
        ("program", failing.program, failing.source),
        ("failing step", failing.stage, failing.source),
    )
    return tuple(
        ReadFact(name=name, value=value, source=source or "")
        for name, value, source in rows
        if value
    )


def newest_served(context: RuleContext) -> str | None:
    """The newest CUDA of torch's builds that the driver runs; None if no driver was read."""
    cudas = {build.cuda for build in context.catalog.builds if build.cuda}
    served = [cuda for cuda in cudas if driver_serves(context, cuda)]
    return max(served, key=parsed, default=None)


def fits_together(context: RuleContext) -> tuple[Fit, ...]:
    """A sentence for each pair of facts that fit or contradict each other."""
    with_torch = (_driver_and_torch, _gpus_and_torch, _python_and_torch)
    pairs = with_torch if context.torch.version else (_build_to_install,)
    fits = (fit for judge in (*pairs, _driver_and_nvcc) for fit in judge(context))
    # Several GPUs of one model give the same sentence.
    return tuple(dict.fromkeys(fits))


def _runs(context: RuleContext) -> str:
    """The end of a sentence about the driver: which CUDA builds it runs."""
    return f"runs builds for CUDA {newest_served(context)} and older"


def _driver_and_nvcc(context: RuleContext) -> Iterator[Fit]:
    """Why nvidia-smi and nvcc show different CUDA versions, if both were read and differ."""
    by_driver, by_nvcc = context.driver.cuda, context.snapshot.toolkit.nvcc
    if by_driver and by_nvcc and by_driver != by_nvcc:
        sentence = (
            f"nvidia-smi shows the newest CUDA that the driver supports ({by_driver}), and nvcc "
            f"shows the toolkit's version ({by_nvcc}), so the two may differ"
        )
        yield Fit(sentence=sentence, fits=True)


def _driver_and_torch(context: RuleContext) -> Iterator[Fit]:
    """Whether the driver runs torch's CUDA build; nothing if one of the two is unknown."""
    version, cuda = context.driver.version, cuda_needed(context.torch)
    if not version or not cuda:
        return
    name = f"torch {context.torch.version}"
    serves = driver_serves(context, cuda)
    if serves:
        sentence = f"driver {version} {_runs(context)}, and {name} is built for CUDA {cuda}"
        yield Fit(sentence=sentence, fits=True)
    elif serves is False:
        floor = context.catalog.driver_floor(cuda, driver_family(context.snapshot))
        sentence = f"driver {version} does not run {name}: CUDA {cuda} needs driver {floor}"
        yield Fit(sentence=sentence, fits=False)


def _gpus_and_torch(context: RuleContext) -> Iterator[Fit]:
    """Whether torch's build is for these GPUs: for each NVIDIA GPU by its kernels, and for GPUs
    from other makers by the maker that the build is for."""
    torch, name = context.torch, f"torch {context.torch.version}"
    for gpu in gpus(context):
        if torch.backend == "cpu":
            sentence = f"{name} is a build for the CPU and cannot use the {gpu.name}"
            yield Fit(sentence=sentence, fits=False)
        elif torch.kernels and gpu.compute_capability:
            kernel = serving(context, gpu)
            has = "has" if kernel else "has no"
            target = kernel or gpu.compute_capability.sm
            sentence = f"{name} {has} kernels for {gpu.name} ({target})"
            yield Fit(sentence=sentence, fits=bool(kernel))
    maker, vendors = maker_of(torch.backend), vendors_of(context.snapshot)
    if maker and maker != "nvidia" and vendors:
        sentence = f"{name} is a build for {BY_ID[maker].name} GPUs"
        yield Fit(sentence=sentence, fits=maker in vendors)


def _python_and_torch(context: RuleContext) -> Iterator[Fit]:
    """Whether the release of torch has wheels for this Python; nothing if either is unknown."""
    release = (context.torch.version or "").split("+")[0]
    python = ".".join((context.snapshot.python.version or "").split(".")[:2])
    builds = [build for build in context.catalog.builds if build.torch == release]
    pythons = {version for build in builds for version in build.pythons}
    if python and pythons:
        has = "has" if python in pythons else "has no"
        sentence = f"torch {release} {has} wheels for Python {python}"
        yield Fit(sentence=sentence, fits=python in pythons)


def _build_to_install(context: RuleContext) -> Iterator[Fit]:
    """The build that fits the card and the driver, if no torch was read."""
    build, version = context.choice.build, context.driver.version
    names = ", ".join(dict.fromkeys(gpu.name for gpu in gpus(context)))
    # A build for the CPU needs neither. Without a card or a driver, nothing was read to fit.
    if build is None or not build.cuda or not (names or version):
        return
    if names and version:
        sentence = (
            f"driver {version} {_runs(context)}, so torch {build.torch} from {build.backend} works "
            f"with this driver and {names}"
        )
    elif version:
        sentence = f"torch {build.torch} from {build.backend} fits driver {version}"
    else:
        needs = f", and needs driver {build.driver_floor} or newer" if build.driver_floor else ""
        sentence = f"torch {build.torch} from {build.backend} has kernels for {names}{needs}"
    yield Fit(sentence=f"{sentence}; you do not need a CUDA toolkit", fits=True)


# --- when the answer is `ok` ---------------------------------------------------------------------

# On a probed machine every reading was taken, so `ok` needs a proof. For a text it means that no
# failure was found in what was read: no program's failure, no statement of a person that something
# fails, no `False` from torch, and no two facts that contradict each other.

FAILURES = (
    *("gpu-unused", "run-hangs", "program-crashed", "silent-crash", "machine-powers-off"),
    *("container-start-failed", "names-failure"),
)
"""Events that report a failure without its cause. Messages of known causes are no part of them."""
DESCRIPTIONS = ("foreign-gpu", "no-nvidia-gpu", "smi-sees-it", "cuda-toolkit-missing", "bare-yes")
"""Events that may show a cause if something fails, but otherwise only describe the machine."""


def may_be_ok(context: RuleContext, fits: tuple[Fit, ...]) -> bool:
    """Whether nothing that fails was found: on a machine with a proof, in a text with a fact."""
    if not is_report(context):
        return serves_its_maker(context) or _machine_is_healthy(context)
    successes = events(context, "run-finished", "gpu-computes", "bare-yes")
    shows_something = bool(facts_read(context) or successes)
    return shows_something and not failure_is_open(context) and all(fit.fits for fit in fits)


def failure_is_open(context: RuleContext) -> bool:
    """Whether a text shows a failure, whatever its cause is."""
    if events(context, *FAILURES) or torch_printed_false(context.snapshot):
        return True
    # The last thing that such a text shows is a run that ended normally, after any message above.
    if events(context, "run-finished"):
        return False
    return bool(events(context, "program-failed")) or not shows_no_other_failure(
        context, *DESCRIPTIONS
    )


def torch_printed_false(machine: Snapshot) -> bool:
    """Whether torch printed anywhere in a text that it cannot use the GPU."""
    torch = machine.torch
    # With an XPU build or on a Mac, CUDA is never available, so `False` is normal.
    has_no_cuda = torch.backend == "xpu" or machine.os.family == "macos"
    # With a ROCm build, a program may print False for CUDA next to True for HIP.
    is_only_for_cuda = maker_of(torch.backend) == "amd" and torch.cuda_available
    if has_no_cuda or is_only_for_cuda:
        return False
    return any(
        reading.subject == "torch.cuda_available" and reading.value == "False"
        for reading in machine.readings
    )


def _machine_is_healthy(context: RuleContext) -> bool:
    """Whether a driver answered for a GPU, and torch sees it or has kernels for every GPU."""
    machine = context.snapshot
    torch, visible = machine.torch, visible_gpus(machine)
    # NVML or CUDA must have answered; files of the kernel alone are not enough. The driver of
    # another host cannot be queried here.
    answered = 0 in (machine.driver.nvml_code, machine.cuda_api.init_code) or any(
        {gpu.nvml_index, gpu.cuda_index} != {None} for gpu in gpus(context)
    )
    if not context.other_host and not (visible and answered):
        return False
    if torch.cuda_available:
        return True
    if not is_cuda_build(torch):
        return False
    # If the build's kernels or a GPU's compute capability are unknown, assume that the build
    # supports the GPU.
    if torch.kernels is None:
        return True
    return all(serving(context, gpu) for gpu in visible if gpu.compute_capability)


def proof(context: RuleContext, fits: tuple[Fit, ...]) -> str:
    """What was shown to work, in one line, for the answer `ok`."""
    if is_report(context):
        return _what_a_text_shows(context, fits)
    torch, visible = context.torch, visible_gpus(context.snapshot)
    build = f"torch {torch.version}" if torch.version else "torch"
    if serves_its_maker(context):
        # On a Mac, torch's only build is called `cpu`, and it supports Apple's GPU.
        if torch.backend == "cpu" and not on(context, "macos"):
            return (
                f"this machine has no GPU that torch supports, and {build} is the right build for "
                "its CPU. A program that needs CUDA must run on another machine"
            )
        # torch's name for another maker's GPU, if it is known; programs often say `cuda`.
        stack = context.snapshot.makers
        # A stranger's snapshot may name any maker.
        maker = BY_ID.get(stack.maker) if stack else None
        device = f', device "{maker.device}"' if maker else ""
        return f"{build} is the right build for this GPU{device}; not tested: run `gpusetup verify`"
    names = ", ".join(dict.fromkeys(gpu.name for gpu in visible))
    has_kernels = torch.version and visible and all(serving(context, gpu) for gpu in visible)
    if has_kernels and context.other_host:
        return f"{build} has kernels for {names}, but gpusetup did not test the driver there"
    if has_kernels and is_cuda_build(torch):
        return f"{build} can use {names}"
    return "the driver works and reports no fault, but gpusetup could not check torch"


def _what_a_text_shows(context: RuleContext, fits: tuple[Fit, ...]) -> str:
    """That the text shows no failure, and what fits together in it."""
    # The text is nothing but torch's `True`.
    if answers := events(context, "bare-yes"):
        word = answers[0].values["bare"]
        return f"if torch printed `{word}`, it sees the GPU; to test it, run `gpusetup verify`"
    if not fits:
        return "the text shows no error that gpusetup knows"
    sentences = "; ".join(fit.sentence for fit in fits)
    return f"the text shows no error that gpusetup knows, and its facts fit together: {sentences}"
