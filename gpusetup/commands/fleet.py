"""`gpusetup fleet`: checks one node or many, and finds the one that differs from the others."""

SUMMARY = (
    "Checks one node (`check`) or all nodes of a cluster (`run`), compares the records in a folder "
    "(`show`), or measures the communication between ranks (`sweep`). `slurm` sets up the programs "
    "that Slurm calls on a node."
)
EXAMPLES = (
    "gpusetup fleet check",
    "gpusetup fleet show records/",
    "gpusetup fleet run --slurm --partition train --level standard --into records/",
    "srun --ntasks-per-node=8 gpusetup fleet sweep",
)
ACTIONS = {
    "check": "tells within seconds whether this node can take jobs",
    "show": "compares the records in a folder, one file for each node",
    "run": "collects records from all nodes of a cluster, and compares them",
    "sweep": "measures communication between ranks (launch it with srun, torchrun or Ray)",
    "slurm": "writes a prolog and a health program for Slurm",
}
