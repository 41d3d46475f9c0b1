"""The engines that run work on the nodes of a fleet: Slurm, Ray, Kubernetes and ssh."""
