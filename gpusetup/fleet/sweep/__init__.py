"""Which rank, node or path is slow, broken or silent: collectives on pairs."""
