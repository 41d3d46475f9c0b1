"""What the driver recommends after a fault, by one name: NVML's, nvidia-smi's and the kernel's words.

Sources: nvml.h (nvmlDeviceGpuRecoveryAction_t), nvidia-smi's manual page (GPU Recovery Action), the
kernel module's message beside Xid 154.
"""

from __future__ import annotations

RECOVERY_ACTIONS = (
    ("none", "none"),
    ("drain and reset", "drain_and_reset"),
    ("drain p2p and reset", "drain_and_reset"),
    ("drain p2p", "drain_p2p"),
    ("imex", "recover_imex_domain"),
    ("bus reset", "bus_reset"),
    ("system reboot", "system_reboot"),
    ("reboot", "node_reboot"),
    ("reset", "gpu_reset"),
    ("flr", "gpu_reset"),
)
"""Words in nvidia-smi's and the kernel's names -> NVML's; the first that is there counts."""


def recovery_action(text: str | None) -> str | None:
    """What the driver recommends, by one name; `None` is a word of its own here.

    >>> recovery_action("Reset"), recovery_action("Node Reboot Required"), recovery_action("N/A")
    ('gpu_reset', 'node_reboot', None)
    """
    low = (text or "").strip().lower()
    return next((name for words, name in RECOVERY_ACTIONS if words in low), None)
