"""Failures of running programs: in CUDA, torch, NCCL, extensions, or their own code."""

from __future__ import annotations

from gpusetup.causes.programs import fix_of_program
from gpusetup.causes.record import RECORDS, Message
from gpusetup.evidence.context import (
    RuleContext,
    cuda_errors,
    driver_answers,
    events,
    gib,
    gpus,
    is_report,
    shows_no_other_failure,
    whole_number,
)
from gpusetup.findings.message_rules import finding, marked
from gpusetup.fixes import gpu_naming
from gpusetup.model.finding import Findings
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Events, Gpu
from gpusetup.model.units import GIB

MEMORY_ALLOCATION = 2
"""cudaErrorMemoryAllocation."""
LARGE_SHARE = 0.6
"""Above this share of a GPU's memory, other programs use most of it."""


def out_of_memory(context: RuleContext) -> Findings:
    """The GPU's memory was not enough."""
    messages = (*events(context, "out-of-memory"), *cuda_errors(context, MEMORY_ALLOCATION))
    if not messages:
        return
    # The message with the most numbers explains the most. A heading may quote only its beginning.
    measured = tuple(map(_measured, sorted(messages, key=lambda message: -len(message.values))))
    found = finding(context, "out-of-memory", measured)
    values = measured[0].values
    # If other programs use the memory, or much of it is free, the case's own title has the numbers.
    if "total_bytes" in values and not ("others" in values or "unused" in values):
        requested = gib(whole_number(values.get("asked_bytes")) or 0)
        total = gib(whole_number(values["total_bytes"]) or 0)
        title = f"{found.title}: tried to allocate {requested} more of {total}"
        found = replace(found, title=title)
    yield found


def _measured(message: Event) -> Event:
    """A message with the value that selects the record's case: `alone` (the request is larger than
    the GPU), `others` (other programs use the memory), or `unused` (much of it is free)."""
    names = ("asked_bytes", "total_bytes", "free_bytes", "held_bytes")
    requested, total, free, held_by_torch = (
        whole_number(message.values.get(name)) for name in names
    )
    if requested is None or total is None:
        return message
    values = {}
    if requested > total:
        values["alone"] = gib(requested)
    elif free is not None:
        values = {"asked": gib(requested), "total": gib(total)}
        # If the message does not contain torch's own share, the share of other programs is unknown.
        held_by_others = 0 if held_by_torch is None else total - free - held_by_torch
        if held_by_others > LARGE_SHARE * total:
            values["others"] = gib(held_by_others)
        elif free > 2 * requested:
            # Far more memory is free than the program requested.
            values["unused"] = gib(free)
    return replace(message, values={**message.values, **values})


def nccl_unreached_rank(context: RuleContext) -> Findings:
    """NCCL cannot reach another rank through the network interface that it chose."""
    messages: Events = ()
    # A rank that ended for another reason cannot be reached either.
    if not events(context, *ENDS_A_RANK):
        messages += events(context, "nccl-connect-failed")
    # A container bridge connects only one machine, so it is the wrong interface if the ranks cannot
    # connect. NCCL's log names it in a run that works, too.
    if events(context, "nccl-error", "run-hangs"):
        messages += events(context, "nccl-on-a-bridge")
    if messages:
        yield finding(context, "nccl-no-socket-interface", messages, message=UNREACHED)


ENDS_A_RANK = ("out-of-memory", "host-out-of-memory", "dataloader-worker-killed")
"""Failures that end one rank."""

# Source: docker's documentation, bridge network driver (the default bridge docker0).
UNREACHED = Message(
    title="The rank at {peer} cannot be reached: {how}",
    plain="NCCL connects through a network interface that does not reach the other ranks",
    means="NCCL uses the first interface that it finds. Docker's default bridge has the same "
    "address (172.17.0.1) on each machine, so nodes cannot reach each other through it. In other "
    "cases, a firewall, a wrong address or a separate network keeps the machines apart.",
    text="Exclude the bridge on each node with the command below, or set NCCL_SOCKET_IFNAME (and "
    "GLOO_SOCKET_IFNAME) to the interface of the network between the machines (`ip -brief addr` "
    "lists them). If the ranks still cannot connect, check that the rendezvous address belongs to "
    "the other machine, that the other rank runs, and that the firewall allows the connection",
    commands=("export NCCL_SOCKET_IFNAME=^docker0,lo",),
    look=("ip -brief addr",),
)


def of_programs(context: RuleContext) -> Findings:
    """Failures that programs report about themselves, if the conditions of their records hold."""
    for cause in ("program-without-gpu-support", "program-sees-no-gpu", "program-failed"):
        record = RECORDS[cause]
        messages = _events_of_failing_program(context, *record.kinds)
        if messages and all(condition(context) for condition in record.where):
            yield finding(context, cause, messages)


OF_A_PROGRAM = Message(
    title="{program} runs on the CPU because {library} cannot be loaded",
    fix_for=lambda context, _: fix_of_program(context, ""),
)


def library_missing(context: RuleContext) -> Findings:
    """A program's GPU part is installed, but a CUDA library that it loads is missing."""
    # These findings tell more about the same library, or about the driver that it needs.
    if events(context, "cuda-lib-missing", "driver-too-old"):
        return
    if events(context, "no-nvidia-driver") and not driver_answers(context):
        return
    messages = _events_of_failing_program(context, "program-lib-missing")
    # If TensorFlow finds no driver, it prints "cannot find" for each library.
    if not messages and not events(context, "no-nvidia-driver", "gpu-computes"):
        messages = _events_of_failing_program(context, "program-lib-unfound")
    if messages:
        yield finding(context, "cuda-lib-missing", messages, message=OF_A_PROGRAM)


def _events_of_failing_program(context: RuleContext, *kinds: str) -> Events:
    """The events of these kinds from the program that failed, with its name for the title.

    Events of other programs are left out: a program often logs warnings of the libraries that it
    loads. An event that names no program counts as one of the program that failed.
    """
    program = context.snapshot.failing.program
    # Most programs run on torch, so its name in a traceback does not say that torch itself failed.
    name = program if program and program != "torch" else "The program"
    events_of_program = []
    for event in events(context, *kinds):
        if program and event.values.get("program", program).lower() != program.lower():
            continue
        message = (event.text or "an error")[:QUOTED_CHARACTERS]
        defaults = {"library": "a CUDA library", "program": name, "said": message}
        events_of_program.append(replace(event, values={**defaults, **event.values}))
    return tuple(events_of_program)


QUOTED_CHARACTERS = 120
"""How many characters of a message a title quotes."""


# The limits follow the acceleration guide, which lists steps to take below 50 % utilisation.
LOW_PERCENT = 50.0
IDLE_PERCENT = 5.0
"""A GPU with a lower utilisation counts as idle. A display or a stray kernel causes that much."""
DESKTOP_SHARE = 0.15
"""The share of memory that a desktop and its programs use. If more is in use, something
computes."""


def gpu_works_little(context: RuleContext) -> Findings:
    """A text whose only content is a GPU that computes less than half of the time.

    A probed machine shows only one moment, so `gpusetup monitor` has to watch it.
    """
    # A text that reports a failure does not ask about speed, even if it shows an idle GPU.
    asks_about_speed = shows_no_other_failure(context) and context.torch.cuda_available is not False
    if not is_report(context) or not asks_about_speed:
        return
    for gpu in gpus(context):
        measured = _low_use(gpu)
        if measured:
            label = gpu_naming.gpus_in_title(context, (gpu,))
            fields = ("utilization_percent", "power_watts", "temperature_celsius")
            values = marked(context, (gpu,), *fields)
            yield finding(context, "gpu-works-little", values, who=label, picture=measured)
            # The others mostly work on the same job, so the advice is the same.
            return


def _low_use(gpu: Gpu) -> str:
    """The utilisation and memory use of a GPU on which a program computes less than half of the
    time; "" for any other GPU, and if one of the two is unknown."""
    use, used, total = gpu.utilization_percent, gpu.memory_used_bytes, gpu.memory_total_bytes
    if use is None or not IDLE_PERCENT <= use < LOW_PERCENT or used is None or not total:
        return ""
    # A desktop alone causes a utilisation of 10 to 30 %, but it uses little memory.
    if used < DESKTOP_SHARE * total:
        return ""
    sizes = f"{used / GIB:.1f} of {total / GIB:.1f} GiB"
    return f"utilisation {use:.0f} %, memory {sizes} ({100 * used / total:.0f} %)"


RULES = (
    out_of_memory,
    gpu_works_little,
    nccl_unreached_rank,
    of_programs,
    library_missing,
)
