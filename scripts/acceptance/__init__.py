"""The tests behind `scripts/gpu_acceptance.py`: one file a part, and what they share."""
