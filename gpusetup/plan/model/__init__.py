"""What is trained: the shape of a model, and the job around it."""
