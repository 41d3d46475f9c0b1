"""gpusetup: a PyTorch that sees its GPU, installed, proven, sized, tuned and watched.

`import gpusetup` costs a few milliseconds; the Python API is `gpusetup.api`.
"""

__version__ = "1.0.0rc1"
