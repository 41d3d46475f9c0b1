"""`gpusetup fleet`: one node or many, and which of them is not like the others."""

SUMMARY = (
    "Judges one node (`check`), a folder of records (`show`), all nodes of a cluster (`run`), or "
    "what they exchange (`sweep`); `slurm` sets up what Slurm calls on a node."
)
EXAMPLES = (
    "gpusetup fleet check",
    "gpusetup fleet show records/",
    "gpusetup fleet run --slurm --partition train --level standard --into records/",
    "srun --ntasks-per-node=8 gpusetup fleet sweep",
)
ACTIONS = {
    "check": "says within seconds whether this node may take jobs",
    "show": "judges a folder of records, a file a node",
    "run": "gathers such a folder from the nodes of a cluster, and judges it",
    "sweep": "exchanges in pairs, as a rank of srun, torchrun or Ray",
    "slurm": "prints or installs what Slurm calls on a node: prolog, health program",
}
