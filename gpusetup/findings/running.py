"""What programs say while they run: CUDA, torch, NCCL, extensions, failures of their own."""

from __future__ import annotations

from gpusetup.causes.programs import programs_own
from gpusetup.causes.record import RECORDS, Message
from gpusetup.evidence.context import (
    RuleContext,
    cuda_errors,
    driver_answers,
    events,
    gib,
    gpus,
    is_report,
    says_nothing_else,
    whole_number,
)
from gpusetup.evidence.facts import failing_file_is_in_a_checkout
from gpusetup.findings.message_rules import finding, marked
from gpusetup.fixes import gpu_naming
from gpusetup.model.finding import Findings
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Events, Gpu
from gpusetup.readings.gpu_use import GpuUse, gpu_use
from gpusetup.readings.smi_processes import shows_computing


def out_of_memory(context: RuleContext) -> Findings:
    """The GPU's memory did not suffice."""
    messages = (*events(context, "out-of-memory"), *cuda_errors(context, 2))
    # cuBLAS and cuDNN do not start where the memory of every GPU is taken.
    seen = [(g.memory_used_bytes, g.memory_total_bytes) for g in gpus(context)]
    if seen and all(used and total and used >= 0.95 * total for used, total in seen):
        messages += events(context, "cuda-library-error")
    if measured := tuple(map(_measured, messages)):
        found, values = finding(context, "out-of-memory", measured), measured[0].values
        sizes = (values.get(f"{name}_bytes") for name in ("asked", "total"))
        asked, total = (gib(whole_number(size) or 0) for size in sizes)
        told = f"{found.title}: tried to allocate {asked} more of {total}"
        sized = "total_bytes" in values and not {"others", "unused"} & values.keys()
        yield replace(found, title=told) if sized else found


MOST = 0.6
"""The share of a GPU above which other programs hold most of it."""


def _measured(message: Event) -> Event:
    """With what other programs hold of the GPU, if that is most of it, or else with what is free
    although less was asked for."""
    asked, total, free, held = (
        whole_number(message.values.get(f"{name}_bytes"))
        for name in ("asked", "total", "free", "held")
    )
    if asked and total and asked > total:
        return replace(message, values={**message.values, "alone": gib(asked)})
    if asked is None or total is None or free is None:
        return message
    values = {"asked": gib(asked), "total": gib(total)}
    # A message that does not say what torch holds cannot tell what others hold.
    if held is not None and total - free - held > MOST * total:
        values["others"] = gib(total - free - held)
    elif free > 2 * asked:
        values["unused"] = gib(free)
    return replace(message, values={**message.values, **values})


HANGS = Message(
    title="A model on several GPUs hangs; perhaps the GPUs cannot access each other's memory "
    "(peer access)",
    means="Virtual machines, an IOMMU or ACS on the PCIe bridges can break peer access. Then NCCL "
    "waits without an error.",
    text="Check first whether the program runs without peer access. If not, NCCL's log shows "
    "where it waits",
    commands=("export NCCL_P2P_DISABLE=1", "export NCCL_DEBUG=INFO"),
    look=("nvidia-smi topo -p2p r",),
)


def nccl_error(context: RuleContext) -> Findings:
    """NCCL failed, and the text does not say over what."""
    unreached = events(context, "nccl-connect-failed")
    if unreached and not events(context, *ENDS_A_RANK):
        yield finding(context, "nccl-no-socket-interface", unreached, message=UNREACHED)
    on_a_bridge = events(context, "nccl-on-a-bridge")
    # A bridge of containers serves one machine alone, and is wrong where a run does not connect.
    if on_a_bridge and events(context, "nccl-timeout", "nccl-error", "run-hangs"):
        yield finding(context, "nccl-no-socket-interface", on_a_bridge, message=ON_A_BRIDGE)
    hangs = events(context, "nccl-hangs")
    if hangs and not events(context, *TELLS_WHY):
        yield finding(context, "nccl-p2p-failure", hangs, message=HANGS)


TELLS_WHY = ("nccl-p2p-failure", "nccl-timeout", "nccl-connect-failed", "cuda-error", "xid")


ENDS_A_RANK = ("out-of-memory", "host-out-of-memory", "dataloader-worker-killed")
"""Where one rank ended for a reason of its own, the others cannot reach it."""


UNREACHED = Message(
    title="The rank at {peer} cannot be reached: {how}",
    plain="NCCL cannot reach another rank (process) through the network interface that it chose",
    means="A firewall, a wrong address or another network lies between the two machines.",
    text="Check that the rendezvous names an address of the other machine. Open the ports between "
    "them, and check that the other rank runs. Set NCCL_SOCKET_IFNAME to the interface of the "
    "network between the machines (NCCL may have chosen a bridge or lo)",
    commands=("export NCCL_DEBUG=INFO",),
    look=("ip -brief addr",),
)


ON_A_BRIDGE = Message(
    title="NCCL connects through {interface}, a bridge that only its own machine reaches",
    means="NCCL takes the first interface that it finds. Docker's bridge has the same address "
    "(172.17.0.1) on each machine, so that no node reaches another through it.",
    text="Name the interface of the network between the machines on each node: `export "
    "NCCL_SOCKET_IFNAME=NAME` (and GLOO_SOCKET_IFNAME). Or exclude the bridge, as below",
    commands=("export NCCL_SOCKET_IFNAME=^docker0,lo",),
    look=("ip -brief addr",),
)


def of_programs(context: RuleContext) -> Findings:
    """What a program says of itself."""
    for cause in ("program-without-gpu-support", "program-sees-no-gpu", "program-failed"):
        record = RECORDS[cause]
        heard = _about_it(context, *record.kinds)
        if heard and all(holds(context) for holds in record.where):
            yield finding(context, cause, heard)


OF_A_PROGRAM = Message(
    title="{library} cannot be loaded: {program} runs on the CPU",
    way=lambda context, _: programs_own(context, ""),
)


def library_missing(context: RuleContext) -> Findings:
    """A program whose GPU part is there, and a CUDA library that it loads is not."""
    heard = _about_it(context, "program-lib-missing")
    if not events(context, "no-nvidia-driver", "gpu-computes"):
        heard = heard or _about_it(context, "program-lib-unfound")
    stops = events(context, "cuda-lib-missing", "driver-too-old")
    if not driver_answers(context):
        stops += events(context, "no-nvidia-driver")
    if heard and not stops:
        yield finding(context, "cuda-lib-missing", heard, message=OF_A_PROGRAM)


UNSAID = {"library": "A CUDA library"}


def _about_it(context: RuleContext, *kinds: str) -> Events:
    """The events of the program that the text is about, with its name: others only log beside it.

    torch stands under most programs: that its name is there does not say that it failed.
    """
    program = context.snapshot.failing.program
    # Others load these as well: they log their own fall back while it computes.
    if program in ("JAX", "TensorFlow") and events(context, "backend-runs"):
        return ()
    known = {**UNSAID, "program": program if program not in (None, "torch") else "The program"}
    return tuple(
        replace(e, values={**known, "said": (e.text or "an error")[:120], **e.values})
        for e in events(context, *kinds)
        if (program or "").lower() in ("", e.values.get("program", program or "").lower())
    )


def gpu_works_little(context: RuleContext) -> Findings:
    """A text whose only content is a GPU that computes less than half of the time.

    A machine that is read live shows one moment between two others: `monitor` watches it.
    """
    # No order: a text about a failure is not about speed.
    asks_about_speed = says_nothing_else(context) and context.torch.cuda_available is not False
    if not is_report(context) or not asks_about_speed:
        return
    used = [(gpu, use) for gpu in gpus(context) if (use := _use_of(gpu)).use == "low"]
    if not used:
        return
    first, use = used[0]
    concerned = [gpu for gpu, _ in used]
    said = marked(context, concerned, "utilization_percent", "power_watts", "temperature_celsius")
    low = finding(
        context, "gpu-works-little", said, who=gpu_naming.gpu_label(first), picture=use.words
    )
    steps = ", ".join(f"{number}. {step}" for number, step in enumerate(use.steps, 1))
    fix = low.fix and replace(low.fix, text=f"In this order: {steps}. {low.fix.text}")
    yield replace(low, fix=fix)


def _use_of(gpu: Gpu) -> GpuUse:
    return gpu_use(
        gpu.utilization_percent,
        gpu.memory_used_bytes,
        gpu.memory_total_bytes,
        shows_computing(gpu.processes),
    )


def source_checkout(context: RuleContext) -> Findings:
    """A package that is imported from its unbuilt sources in the working folder."""
    failed = [
        event for event in events(context, "failing-file") if event.values.get("checkout") == "yes"
    ]
    if failed and not events(context, "extension-not-built"):
        fact = failing_file_is_in_a_checkout(context)
        yield finding(context, "source-checkout-imported", failed, fact=fact)


RULES = (
    source_checkout,
    out_of_memory,
    gpu_works_little,
    nccl_error,
    of_programs,
    library_missing,
)
