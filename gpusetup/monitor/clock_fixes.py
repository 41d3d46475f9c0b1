"""Advice and commands for GPUs whose clocks are lowered: cooling, power supply, power limits and
locked clocks. Each text or command names every GPU that needs the same fix. Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.monitor.evidence import UNKNOWN, whole
from gpusetup.monitor.peers import equally_judged
from gpusetup.monitor.situation import Command, Situation
from gpusetup.monitor.subject import Subject


def alike(situation: Situation) -> list[Subject]:
    """The GPUs with the same verdict; empty if the verdict is about the whole run."""
    subject = situation.subject
    return equally_judged(subject) if subject else []


def labels_of(subjects: list[Subject], separator: str = ",") -> str:
    """The indexes of these GPUs in the form that `nvidia-smi -i` accepts; a question mark if there
    are none."""
    labels = [subject.gpu.label for subject in subjects]
    return separator.join(labels) or UNKNOWN


def several_words(situation: Situation, before: str) -> str:
    """Words such as ` of GPU 0, 1` if the machine has several GPUs; "" if it has only one."""
    if len(situation.run.gpus) < 2:
        return ""
    return f" {before} GPU {labels_of(alike(situation), ', ')}"


def details(sections: str) -> Command:
    """The command that prints these sections of `nvidia-smi -q` for the GPUs that need the fix."""

    def command(situation: Situation) -> str:
        # With only one GPU, `-i` is not needed.
        if len(situation.run.gpus) < 2:
            return f"nvidia-smi -q -d {sections}"
        return f"nvidia-smi -i {labels_of(alike(situation))} -q -d {sections}"

    return command


# --- heat and supply ------------------------------------------------------------------------------


def cool(situation: Situation) -> str:
    """Advice against heat, naming the GPUs that are too hot."""
    place = several_words(situation, "of")
    cooling = f"the cooling{place}" if place else "the GPU's cooling"
    return f"Improve {cooling}: check fans, dust, airflow and neighbouring cards"


def check_the_supply(situation: Situation) -> str:
    """Advice against the power supply's brake signal: if all GPUs brake, check what they share;
    otherwise check the cables of those that brake."""
    braking = alike(situation)
    all_brake = len(braking) == len(situation.run.at_work)
    if len(braking) > 1 and all_brake:
        # A single bad cable would slow down only one card, so look for something that all cards
        # share.
        return (
            f"All {len(braking)} GPUs brake, so look at what they share: the server's power "
            "supplies (has one failed?) and its power limit or power capping in the BMC"
        )
    place = several_words(situation, "of")
    return f"Check the power cables and the slot{place}, and the power supply"


# --- power limits ---------------------------------------------------------------------------------


def limit_words(situation: Situation) -> str:
    """The second half of an advice sentence: why the GPU seems to get too little power."""
    subject = situation.subject
    if subject is None or subject.power_limit_watts is None:
        return "something outside the GPU holds its clocks far down"
    return "the GPU gets less power than its limit allows"


def plug_it_in(situation: Situation) -> str:
    """Advice for a laptop GPU that gets too little power."""
    words = limit_words(situation)
    return f"Connect the charger and choose the performance mode: {words}"


def look_outside(situation: Situation) -> str:
    """Advice for a server GPU that gets too little power: where to look outside the GPU."""
    return (
        "Check the power budget of the chassis (BMC) or of the module, the power supply, and "
        f"limits in the firmware: {limit_words(situation)}"
    )


def set_limits(subjects: list[Subject], watts_of: Callable[[Subject], float | None]) -> str:
    """The commands that set each GPU's power limit, one command for each different number of
    watts."""
    by_watts: dict[str, list[Subject]] = {}
    for subject in subjects:
        watts = whole(watts_of(subject))
        by_watts.setdefault(watts, []).append(subject)
    commands = []
    for watts, equals in by_watts.items():
        commands.append(f"sudo nvidia-smi -i {labels_of(equals)} -pl {watts}")
    return "; ".join(commands)


def raise_the_limit(situation: Situation) -> str:
    """The commands that raise each GPU's power limit to the highest value that the card supports
    (its rated or maximum limit)."""
    return set_limits(alike(situation), lambda subject: subject.could_draw)


def higher_limit(situation: Situation) -> str:
    """Advice to raise the power limit, with the current and the higher limit in watts."""
    limits = {whole(subject.power_limit_watts) for subject in alike(situation)}
    possible = {whole(subject.could_draw) for subject in alike(situation)}
    place = several_words(situation, "on")
    # The limit may have been lowered on purpose, because the cooling is weak.
    condition = "if the cooling allows it"
    if len(limits) > 1 or len(possible) > 1:
        return f"Raise the power limit{place} to what each card is rated at, {condition}"
    limit = situation.figure(lambda subject: subject.power_limit_watts)
    watts = situation.figure(lambda subject: subject.could_draw)
    return f"Raise the power limit{place} from {limit} W to {watts} W, {condition}"


# --- locked clocks --------------------------------------------------------------------------------


def find_the_lock(situation: Situation) -> str:
    """Advice for clocks that are low although the driver reports no reason."""
    place = several_words(situation, "of")
    return (
        f"Find out what slows the clocks{place} down. If `nvidia-smi -lgc` locked them, reset "
        "them; else `nvidia-smi -q -d CLOCK,PERFORMANCE` tells more"
    )


def unlock(situation: Situation) -> str:
    """The command that unlocks clocks locked with `nvidia-smi -lgc`."""
    return f"sudo nvidia-smi -i {labels_of(alike(situation))} -rgc"


def reset(situation: Situation) -> str:
    """Advice for clocks that a user has set."""
    return f"Reset the clocks{several_words(situation, 'of')}"


def reset_clocks(situation: Situation) -> str:
    """The commands that reset both the application clocks and the locked clocks."""
    application_clocks = f"sudo nvidia-smi -i {labels_of(alike(situation))} -rac"
    # The driver does not report whether application clocks or locked clocks were set, so reset
    # both.
    return f"{application_clocks}; {unlock(situation)}"
