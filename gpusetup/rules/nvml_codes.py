"""What NVML's errors mean (nvml.h, enum nvmlReturn_t), at its start or for one GPU."""

from __future__ import annotations

from gpusetup.model import Fix
from gpusetup.rules import ways
from gpusetup.rules.case import Case, in_container, on
from gpusetup.shell import Line, lines
from gpusetup.value import Value


class Answer(Value):
    """One error, and its way out."""

    id: str
    title: str
    text: str
    detail: str = ""
    linux: tuple[Line, ...] = ()
    look: tuple[Line, ...] = ()
    needs_reboot: bool = False

    def fix(self, case: Case) -> Fix:
        """Inside a container there is nothing to do but to start it anew."""
        inside = in_container(case)
        here = on(case, "linux") and not inside
        return Fix(
            text=ON_THE_HOST if inside and self.id != "device-permission" else self.text,
            commands=self.linux if here else (),
            looks=ways.look("look first at what the system says", *self.look) if here else (),
            needs_root=True,
            needs_reboot=self.needs_reboot and not inside,
        )


ON_THE_HOST = "Look at the GPU on the host of this container: its kernel log has the reason"
LOG = lines("sudo dmesg | grep -iE 'nvrm|xid'")
REBOOT = lines("sudo reboot")

PERMISSION = Answer(
    id="device-permission",
    title="This user may not ask the driver: NVML answers {said}",
    text="Join the group that owns the nodes and log in again; in a container start it anew with "
    "its GPUs (--gpus all), whose device rules are gone or were never given",
    look=lines("ls -l /dev/nvidia*"),
)
FAULT = Answer(
    id="hardware-fault",
    title="The driver finds a fault of the GPU: NVML answers {said}",
    text="Power the machine off and on; if it comes back have the GPU replaced",
    linux=REBOOT,
    look=LOG,
    needs_reboot=True,
)
NO_START = Answer(
    id="gpu-init-failed",
    title="The driver cannot start the GPU: NVML answers {said}",
    text="Power the machine off, look at the GPU's power cables and seating, and start it again",
    look=LOG,
    needs_reboot=True,
)
LOST = Answer(
    id="gpu-fell-off-bus",
    title="A GPU has fallen off the PCI bus: NVML answers {said}",
    text="Power the machine off and on; if it comes back: power cables, heat, seating, riser",
    linux=REBOOT,
    look=LOG,
    needs_reboot=True,
)
GAVE_UP = Answer(
    id="driver-does-not-answer",
    title="NVML gave up waiting for the driver: it answers {said}",
    text="Reboot",
    linux=REBOOT,
    look=LOG,
    needs_reboot=True,
)
CODES: dict[int, Answer] = {
    4: PERMISSION,
    8: NO_START,
    10: GAVE_UP,
    11: NO_START,
    14: FAULT,
    15: LOST,
    16: FAULT,
    17: PERMISSION,
}
OTHER = Answer(
    id="nvml-init-failed",
    title="The driver's NVML does not start: it answers {said}",
    text="Reboot; if it stays, install the driver anew",
    linux=REBOOT,
    look=LOG,
    needs_reboot=True,
)
"""At NVML's start, what has no cause of its own."""
ONE_GPU = Answer(
    id="gpu-does-not-answer",
    title="A GPU does not answer",
    detail="The driver lists this GPU and cannot read it.",
    text="Reboot; until then leave this GPU out (CUDA_VISIBLE_DEVICES)",
    linux=REBOOT,
    look=LOG,
    needs_reboot=True,
)
"""For one GPU, what has no cause of its own."""
ELSEWHERE = (0, 9, 12, 13, 18)
"""Started, not loaded, no library, an old library, two versions: other rules have these."""
