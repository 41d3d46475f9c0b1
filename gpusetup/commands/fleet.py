"""`gpusetup fleet`: checks one node or many, and finds the one that differs from the others."""

SUMMARY = (
    "Checks one node (`check`) or all nodes of a cluster (`run`), or compares the records in a "
    "folder (`show`). `slurm` sets up the programs that Slurm calls on a node."
)
EXAMPLES = (
    "gpusetup fleet check",
    "gpusetup fleet show records/",
    "gpusetup fleet run --slurm --partition train --level standard --into records/",
)
ACTIONS = {
    "check": "checks within seconds whether this node can run jobs",
    "show": "compares the records in a folder, one file for each node",
    "run": "collects records from all nodes of a cluster, and compares them",
    "slurm": "writes a prolog and a health program for Slurm",
}
