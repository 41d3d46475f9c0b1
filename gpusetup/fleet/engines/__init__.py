"""Ways to reach the nodes of a fleet: Slurm, Ray, Kubernetes, and ssh."""
