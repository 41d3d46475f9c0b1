"""What a maker of GPUs is: its names, its index labels, its targets.

Who made a GPU, and whose a build of torch is, is told by the first rung that says something
(`makers.py`):

1. a device on the PCI bus: the vendor's id (`10de`), else its name in a listing;
2. a GPU that a driver listed: a maker's word in its name (`Radeon`), else it is NVIDIA's, since
   only NVIDIA's driver is asked;
3. a build of torch: how the label of its version or its index begins (`cu124`, `rocm6.4`, `xpu`);
   `cpu` and no label are nobody's.

NVIDIA's GPUs are judged: their driver, their kernels, the build that serves them. Those of the
others are seen, and torch's builds for them are left in peace; nothing is said of whether they
work. A maker that is to be judged takes a reader in `probe/`, and rows of builds in
the catalog.
"""
