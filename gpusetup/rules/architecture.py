"""Kernels: does the wheel, or an extension beside it, hold code for this GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpusetup.jetpack import board_of
from gpusetup.model import (
    Capability,
    Event,
    Evidence,
    Finding,
    Fix,
    Gpu,
    Torch,
    parsed,
    visible_gpus,
)
from gpusetup.rules import ways, which
from gpusetup.rules.case import (
    Case,
    cuda_errors,
    cuda_needed,
    error,
    events,
    gpus,
    is_cuda_build,
    is_report,
    one_of,
    readable,
    serving,
    shown,
    told,
)
from gpusetup.rules.torch_build import version_evidence
from gpusetup.rules.wording import sentence


def arch_not_in_wheel(case: Case) -> Iterator[Finding]:
    """A visible GPU that no kernel of the installed torch serves."""
    torch = case.snapshot.torch
    said = events(case, "gpu-not-in-wheel")
    if said:
        yield _said_unserved(case, said)
    if board_of(case.snapshot):
        return  # jetson_wrong_wheel says it, with where its torch comes from
    if said or not torch.kernels or not (is_cuda_build(torch) or is_report(case)):
        return
    known = tuple(gpu for gpu in visible_gpus(case.snapshot) if gpu.compute_capability)
    unserved = tuple(gpu for gpu in known if serving(case, gpu) is None)
    for id, older in (("arch-too-old-for-wheel", True), ("arch-too-new-for-wheel", False)):
        concerned = tuple(gpu for gpu in unserved if _is_older(torch, gpu) is older)
        if concerned:
            yield _unserved(case, id, concerned)


def _said_unserved(case: Case, said: tuple[Event, ...]) -> Finding:
    """torch's own warning, which names the GPU and at times the kernels."""
    values = max(said, key=lambda event: len(event.values)).values
    older = _said_older(case, values)
    side = "older" if older else "newer"
    name, capability = values.get("gpu") or which.names(case), values.get("capability")
    return error(
        "arch-too-old-for-wheel" if older else "arch-too-new-for-wheel",
        f"torch {case.snapshot.torch.version or ''} has no kernels for {name}".replace("  ", " ")
        + (f" ({capability})" if capability else "")
        + f": the GPU is {side} than what it was built for",
        evidence=(*told(said), *version_evidence(case)),
        fix=_other_wheel(case),
    )


def _said_older(case: Case, values: Mapping[str, str]) -> bool:
    """Which side the GPU stands on: by its capability and the kernels, else as the words say."""
    known = [Capability.parse(k) for k in readable(tuple(values.get("kernels", "").split()))]
    known += [Capability.parse(k) for k in readable(case.snapshot.torch.kernels or ())]
    stated = _capability(values.get("capability", ""))
    listed = [g.compute_capability for g in gpus(case) if g.compute_capability]
    own = stated or min(listed, default=None)
    if known and own:
        return own < max(known)
    return values.get("side", "").startswith("old")


def _capability(text: str) -> Capability | None:
    try:
        return Capability.parse(text)
    except ValueError:
        return None


def _other_wheel(case: Case) -> Fix:
    """The torch that serves the GPU; where none does, what can be done without."""
    build = ways.chosen(case)
    if build is not None and build.backend != "cpu":
        return ways.install_torch(case)
    known = all(gpu.compute_capability for gpu in visible_gpus(case.snapshot))
    if build is None and known and case.resolution.advice is not None:
        return ways.install_torch(case)
    return Fix(
        text="No wheel in the catalog serves this GPU: use the CPU build, another GPU, or a torch "
        "built from source",
        commands=(ways.gpusetup(case, "--backend", "cpu"),),
    )


def _is_older(torch: Torch, gpu: Gpu) -> bool:
    """Whether the GPU stands below the wheel's oldest kernel, or in a gap under its newest."""
    known = [Capability.parse(kernel) for kernel in readable(torch.kernels or ())]
    return (
        bool(known) and gpu.compute_capability is not None and gpu.compute_capability < max(known)
    )


def _unserved(case: Case, id: str, concerned: tuple[Gpu, ...]) -> Finding:
    torch = case.snapshot.torch
    gpu = concerned[0]
    capability = gpu.compute_capability
    assert capability is not None
    side = "older" if id == "arch-too-old-for-wheel" else "newer"
    names = one_of(tuple(g.name for g in concerned))
    return error(
        id,
        f"torch {torch.version or 'here'} has no kernels for {names} ({capability.sm}): the GPU is "
        f"{side} than what it was built for",
        detail="What works on a CPU fails on the GPU with `no kernel image is available for "
        f"execution on the device`.{_and_dropped(case, capability)}",
        evidence=(
            shown(case, "torch.kernels", f"kernels: {' '.join(torch.kernels or ())}"),
            shown(case, "gpus", f"{gpu.name}: compute capability {capability}"),
        ),
        fix=_other_wheel(case),
    )


def _and_dropped(case: Case, capability: Capability) -> str:
    because = case.catalog.why_dropped(capability, case.snapshot.torch.version or "0")
    return f" {sentence(because)}." if because else ""


TORCH_ITSELF = ("torch", "aten", "c10", "functorch")
IN_EVERY_WHEEL = (Capability(7, 5), Capability(9, 0))
"""Turing to Hopper: wheels of the last years hold a kernel for each of them."""


NO_IMAGE = (8, 48, 98, 209)
"""Invalid device function and no binary for the GPU, in the numbers of both runtimes."""


def no_kernel_image(case: Case) -> Iterator[Finding]:
    """A kernel for this GPU is missing: in torch itself, or in an extension beside it."""
    heard = (*events(case, "no-kernel-image"), *cuda_errors(case, *NO_IMAGE))
    if heard and not _torch_lacks_it(case):
        id = _who_lacks_the_kernel(case, heard)
        yield _no_kernel(case, id, heard)


def _torch_lacks_it(case: Case) -> bool:
    """Whether another finding says it already: torch's kernels and the GPU are known."""
    known = [g for g in gpus(case) if g.compute_capability]
    kernels = case.snapshot.torch.kernels
    lacks = kernels and known and any(serving(case, gpu) is None for gpu in known)
    return bool(lacks) or bool(events(case, "gpu-not-in-wheel"))


def _who_lacks_the_kernel(case: Case, heard: tuple[Event, ...]) -> str:
    known = [g for g in gpus(case) if g.compute_capability]
    if _extension(case, heard) or (case.snapshot.torch.kernels and known):
        return "extension-arch-mismatch"
    return _by_age(known, case.snapshot.torch)


def _by_age(known: list[Gpu], torch: Torch) -> str:
    """Where the wheel's kernels are not known, the GPU's age says which way it fails."""
    capabilities = [g.compute_capability for g in known if g.compute_capability]
    oldest, newest = _usual_range(torch)
    if not capabilities:
        return "no-kernel-image"
    if _may_be_for_cuda_10(torch) and newest >= max(capabilities) > LAST_OF_CUDA_10:
        return "no-kernel-image"
    if max(capabilities) > newest:
        return "arch-too-new-for-wheel"
    if min(capabilities) < oldest:
        return "arch-too-old-for-wheel"
    return "extension-arch-mismatch"


OLD_WHEELS = (
    ("1.7", Capability(3, 5), Capability(7, 5)),
    ("1.13", Capability(3, 7), Capability(8, 6)),
)
"""Releases before this one, and the first and last GPU that their wheels serve (torch's own lists
of architectures; builds for CUDA 10.2 or older end with Turing)."""
LAST_OF_CUDA_10 = Capability(7, 5)


def _may_be_for_cuda_10(torch: Torch) -> bool:
    """A release whose default wheels were for CUDA 10.2, and no word on its CUDA."""
    old = torch.version is not None and parsed(torch.version) < parsed("1.13")
    return old and cuda_needed(torch) is None


def _usual_range(torch: Torch) -> tuple[Capability, Capability]:
    if torch.version is None:
        return IN_EVERY_WHEEL
    needed = cuda_needed(torch)
    for before, oldest, newest in OLD_WHEELS:
        if parsed(torch.version) < parsed(before):
            old_cuda = needed is not None and parsed(needed) < parsed("11")
            return oldest, LAST_OF_CUDA_10 if old_cuda else newest
    return IN_EVERY_WHEEL


def _extension(case: Case, heard: tuple[Event, ...]) -> str | None:
    """The extension that raised it, or that was built for other architectures only."""
    for event in heard:
        module = event.values.get("module", "")
        if module and module.partition(".")[0] not in TORCH_ITSELF:
            return module
    for event in events(case, "extension-arch"):
        if not _built_for(case, event.values.get("arches", "")):
            return event.values.get("module") or "an extension"
    return None


def _built_for(case: Case, arches: str) -> bool:
    """Whether a list such as `7.5 8.6` or `sm_75,sm_86` names every GPU; yes if none is known."""
    listed = set()
    for word in arches.replace(",", " ").replace(";", " ").split():
        try:
            listed.add(Capability.parse(word.partition("+")[0]))
        except ValueError:
            continue
    known = [g.compute_capability for g in gpus(case) if g.compute_capability]
    return not listed or all(any(a.major == c.major and a <= c for a in listed) for c in known)


def _no_kernel(case: Case, id: str, heard: tuple[Event, ...]) -> Finding:
    known = [g for g in gpus(case) if g.compute_capability]
    of = one_of(tuple(f"{g.name} ({g.compute_capability})" for g in known)) or "this GPU"
    if id == "extension-arch-mismatch":
        module = _extension(case, heard) or "an extension"
        title = f"{module} has no kernel for {of}" + ("; torch itself supports it" if known else "")
        fix = _rebuild(case, module)
    elif id == "no-kernel-image":
        title = "torch, or an extension beside it, has no kernel for this GPU"
        compute = "import torch; print((torch.ones(9, device='cuda') * 2).sum().item())"
        ask = ways.command(case, ways.python(case), "-c", compute)
        title_of_ask = "see first which of them: a number means that torch works, and that an "
        title_of_ask += "extension beside it must be built anew"
        fix = Fix(
            text="Install a torch made for this GPU; where torch itself works, build the extension "
            "anew",
            commands=(ways.gpusetup_install(case),),
            looks=ways.look(title_of_ask, ask),
        )
    else:
        side = "newer" if id == "arch-too-new-for-wheel" else "older"
        title = (
            f"The installed torch has no kernel for {of}: the GPU is {side} than it was built for"
        )
        fix = ways.install_torch(case)
    built = events(case, "extension-arch")
    return error(id, title, evidence=(*told(heard), *told(built), *_gpu_lines(known)), fix=fix)


def _gpu_lines(known: list[Gpu]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(source="catalog", text=f"{g.name}: compute capability {g.compute_capability}")
        for g in known[:2]
    )


def _rebuild(case: Case, module: str) -> Fix:
    from gpusetup.rules.distributions import distribution_of

    anew = ("install", "--no-build-isolation", "--no-deps", ways.anew(case), "--no-cache-dir")
    source = distribution_of(module) if module != "an extension" else None
    return Fix(
        text="Build the extension anew for this GPU (or install its wheel for a newer release)",
        commands=(
            *ways.build_for(case),
            *((ways.pip(case, *anew, source),) if source else ()),
        ),
    )


RULES = (
    arch_not_in_wheel,
    no_kernel_image,
)
