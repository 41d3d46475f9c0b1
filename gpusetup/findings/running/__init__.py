"""What CUDA, torch and NCCL say while a program runs."""
