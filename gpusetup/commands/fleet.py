"""`gpusetup fleet`: one node or many, and which of them is not like the others."""

SUMMARY = (
    "Checks one node (`check`), a folder of records (`show`), all nodes of a cluster (`run`), or "
    "the exchange between them (`sweep`); `slurm` sets up the programs that Slurm calls on a node."
)
EXAMPLES = (
    "gpusetup fleet check",
    "gpusetup fleet show records/",
    "gpusetup fleet run --slurm --partition train --level standard --into records/",
    "srun --ntasks-per-node=8 gpusetup fleet sweep",
)
ACTIONS = {
    "check": "says within seconds whether this node can take jobs",
    "show": "compares the records of a folder, one file for each node",
    "run": "collects such a folder from the nodes of a cluster, and compares it",
    "sweep": "measures communication between ranks (launch it with srun, torchrun or Ray)",
    "slurm": "prints or installs Slurm's prolog and health program",
}
