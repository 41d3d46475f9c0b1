"""Several processes that test one job together: which rank each is, how they meet, and what they
compute."""
