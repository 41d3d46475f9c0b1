"""The torch that is installed: whole, of the right build, with kernels for the GPU."""
