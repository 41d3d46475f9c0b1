"""The answer for a person whose GPU works: what proves it, and what helps with the person's
question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.accelerators.makers import maker_of
from gpusetup.choose.installed import vendors_of
from gpusetup.evidence.context import events, on, says_nothing_else
from gpusetup.evidence.maker_facts import may_be_another_makers
from gpusetup.messages.working import NOT_SEEN, NOTICES

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext
    from gpusetup.model.machine import Event

WORKS = ("gpu-in-use", "gpu-speed", "gpu-trains", "works-there")
"""Events of a GPU that computes. `report.works` makes them only if no failure is open."""
OF_OTHER_MAKERS = {
    "amd": "`amd-smi monitor`",
    "intel": "`xpu-smi dump`",
    "apple": "the Activity Monitor's GPU history",
}
"""A maker whose GPUs `gpusetup monitor` cannot read -> the tool that shows their load."""


DEVICES_SEEN = ("foreign-gpu", "smi-sees-it", "backend-runs", "no-nvidia-gpu")
"""Events that only show the GPU's maker and which program sees the GPU."""


def shows_a_working_gpu(context: RuleContext) -> bool:
    """Whether a GPU computes in a text that contains no unresolved failure."""
    if not events(context, *WORKS) or events(context, "run-hangs"):
        return False
    for complaint in events(context, "gpu-unused"):
        # If a program names the GPU, a message that no GPU was found does not count (see
        # `report.works`).
        if not NOT_SEEN.search(complaint.text or ""):
            return False
    return _only_notices_are_left(context)


def _only_notices_are_left(context: RuleContext) -> bool:
    """Whether all other messages are warnings after which the program continued."""
    kinds_of_notices = []
    for event in context.snapshot.events:
        if NOTICES.search(event.text or ""):
            kinds_of_notices.append(event.kind)
    return says_nothing_else(context, *DEVICES_SEEN, *kinds_of_notices)


def answer_to_a_working_stack(context: RuleContext) -> str:
    """What shows that the GPU computes, and what helps with the question about it."""
    proof = next(iter(events(context, *WORKS)), None)
    # A GPU that waits for its input computes at times, though no event shows it computing.
    works = f"{_gpu_in_words(context)} computes"
    if proof:
        works = _what_works(context, proof)
    next_step = _next_step(context, _topic(context))
    return f"{works}, and the text shows no failure. {next_step}"


def _topic(context: RuleContext) -> str:
    """The topic of the person's question about a working GPU, as `_next_step` takes it; "" if
    nothing is asked.
    """
    # Whatever the question is, only a faster data loader helps a GPU that waits for its input.
    if events(context, "gpu-starved"):
        return "loader"
    question = next(iter(events(context, "asks-about")), None)
    if question is None:
        return ""
    topic = question.values["topic"]
    # "Is this normal?" next to a measured speed is a question about the speed.
    if topic == "normal" and events(context, "gpu-speed"):
        return "speed"
    return topic


def _what_works(context: RuleContext, event: Event) -> str:
    """What an event shows about a GPU, with the words that show it."""
    gpu = _gpu_in_words(context)
    quote = (event.text or "").strip(" .:")
    if event.kind == "works-there":
        return f"the text says that it works (“{quote}”)"
    sentences = {
        "available": f"torch sees {gpu}",
        "device": f"a program uses {gpu}",
        "found": f"the program finds {gpu}",
        "server": f"a program runs on {gpu}",
        "training": f"a training runs on {gpu}",
    }
    form = event.values.get("form", "")
    sentence = sentences.get(form, f"{gpu} computes")
    return f"{sentence} (“{quote}”)"


NAMES_SHOWN = 2
"""The most GPUs that a sentence names. If there are more, it gives their number."""


def _gpu_in_words(context: RuleContext) -> str:
    """The GPUs by name, or else by their maker."""
    names = list(dict.fromkeys(gpu.name for gpu in context.snapshot.gpus or ()))
    # Beside a card of another maker, an NVIDIA card is often named for comparison only.
    if may_be_another_makers(context.snapshot):
        return "the GPU"
    if 0 < len(names) <= NAMES_SHOWN and "unknown" not in names:
        return f"the {' and '.join(names)}"
    makers = {"amd": "the AMD GPU", "intel": "the Intel GPU", "apple": "the Mac's GPU"}
    return makers.get(maker_in_a_text(context), "the GPU")


def _next_step(context: RuleContext, topic: str) -> str:
    """What helps with a person's question about a GPU that works."""
    monitor = OF_OTHER_MAKERS.get(maker_in_a_text(context), "`gpusetup monitor`")
    steps = {
        "result": (
            "Convolutions use TF32 on GPUs from compute capability 8.0 on, and sums run in "
            "another order than on the CPU, so the last digits differ. To compare again, set "
            "`torch.backends.cudnn.allow_tf32 = False` (for matrix products: "
            '`torch.set_float32_matmul_precision("highest")`)'
        ),
        "compile": (
            "torch.compile uses its first runs to compile, so do not measure them (warm-up). "
            "Compile a function without Python loops over batches"
        ),
        "first run": (
            "The first run of a new shape searches for the fastest kernels or compiles them, and "
            "later runs reuse the result, so do not measure it. A fixed input size avoids this"
        ),
        "memory": (
            "To see what needs the memory (weights, gradients, optimizer, activations, cache), "
            "run `gpusetup plan` with your model and settings"
        ),
        "loader": (
            f"To see what it waits for, run {monitor} next to the program; if it waits for data, "
            "more loader workers with persistent_workers=True help"
        ),
        "warnings": (
            "You can ignore warnings if the program continues. To test the GPU itself, run "
            "`gpusetup verify`"
        ),
        "speed": (
            f"To see what limits the speed, run {monitor} next to the program; for a training "
            "config, `gpusetup tune` proposes faster settings"
        ),
    }
    return steps.get(
        topic, "You do not need to change anything. To test this machine, run `gpusetup verify`"
    )


def maker_in_a_text(context: RuleContext) -> str:
    """The maker of the GPU; "" if the text does not show it."""
    of_the_build = maker_of(context.torch.backend)
    if of_the_build:
        return of_the_build
    if on(context, "macos"):
        return "apple"
    vendors = vendors_of(context.snapshot)
    return next(iter(vendors)) if len(vendors) == 1 else ""
