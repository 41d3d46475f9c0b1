"""What `nvidia-smi` prints, in all its forms."""
