"""The record of a maker of GPUs."""

from __future__ import annotations

from gpusetup.model.frozen import Frozen, Text


class Maker(Frozen):
    id: str
    """As in a snapshot: `nvidia`."""
    name: str
    judged: bool = False
    """Whether its GPUs are judged; else they are seen only."""
    pci: Text = None
    """Its id on the PCI bus."""
    listed: Text = None
    """What the lines of `lspci` say of it, as a pattern."""
    words: tuple[str, ...] = ()
    """Words in the names of its GPUs that no other maker's have."""
    models: Text = None
    """What its GPUs are called, as a pattern over a whole description."""
    index: Text = None
    """Where torch's builds for it are, which are not proven here."""
    label: Text = None
    """How the labels of its builds begin; None where torch's ordinary build serves it."""
    label_form: Text = None
    """Such a label, as a pattern."""
    device: str
    """What torch calls its device."""
    masks: tuple[str, ...] = ()
    """Variables that hide its GPUs from programs."""
    noted: Text = None
    """What to add where only its GPUs are there and another build is chosen."""
