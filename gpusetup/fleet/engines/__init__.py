"""Ways to ask the nodes of a fleet: Slurm, Ray, Kubernetes, and ssh."""
