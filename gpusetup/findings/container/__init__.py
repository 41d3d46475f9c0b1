"""The boundary around the process: containers, Kubernetes, WSL."""
