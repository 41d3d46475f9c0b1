"""Makers of GPUs: their names, the labels of torch's builds for their GPUs, and the GPUs' targets.

Three sources tell who made a GPU, or for which maker's GPUs a build of torch is (`makers.py`). The
first source that gives an answer counts:

1. a device on the PCI bus: the vendor's id (`10de`), or its name in a listing;
2. a GPU that a driver listed: a maker's word in its name (`Radeon`); without one it is NVIDIA's,
   because only NVIDIA's driver is asked;
3. a build of torch: how the label of its version or its index begins (`cu124`, `rocm6.4`, `xpu`);
   `cpu` and no label are nobody's.

NVIDIA's GPUs are judged: their driver, their kernels, and which build fits them. GPUs of other
makers get their build too, but nobody has run gpusetup on one.
"""
