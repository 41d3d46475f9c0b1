"""Several processes that prove one job together: who they are, how they meet and compute."""
