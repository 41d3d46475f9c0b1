"""gpusetup finds out why PyTorch does not see a GPU, installs and tests the build that fits, plans
and tunes training, and watches it run.

`import gpusetup` costs a few milliseconds; the Python API is `gpusetup.api`.
"""

__version__ = "1.0.0rc1"
