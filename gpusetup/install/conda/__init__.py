"""Installing by conda, mamba or micromamba."""
