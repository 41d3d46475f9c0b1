"""The engines that reach the nodes of a fleet: Slurm, Ray, Kubernetes and ssh."""
