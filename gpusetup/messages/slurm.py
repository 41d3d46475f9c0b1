"""Messages of Slurm: what it refuses, and what it knows of a node's GPUs.

Sources, as of November 2026: Slurm's gres.c, and the messages of sbatch, srun and slurmd.
"""

from __future__ import annotations

from gpusetup.messages.row import failed

RESUME = (
    "`scontrol update nodename=NODE state=resume` (as root) then takes a drained node back into use"
)
ROWS = (
    failed(
        "Slurm",
        "batch job submission failed",
        r"sbatch: error: Batch job submission failed: (?!Requested node configuration|Invalid generic resource)\w",
        says="Slurm refuses the job: its account, partition or limits",
        way="The line names the reason, or the one above it does: see what this account may use "
        "(`sacctmgr show assoc user=$USER format=account,partition,qos`) and what the partitions "
        "have (`sinfo -o '%P %G'`), then change the script's #SBATCH lines",
        stage="start",
    ),
    failed(
        "Slurm",
        "requested node configuration is not available",
        says="Slurm has no node such as the job asks for",
        way="Compare the request with what the partitions have (`sinfo -o '%P %G %c %m %t'`) and "
        "with one node (`scontrol show node NODE`). Where its Gres lacks the GPUs, name them in "
        "gres.conf (`AutoDetect=nvml`) and in the node's line of slurm.conf (`Gres=gpu:4`), and "
        f"restart slurmctld and slurmd; {RESUME}",
        stage="start",
    ),
    failed(
        "Slurm",
        "invalid generic resource (gres) specification",
        says="Slurm does not know the GPU that the job asks for",
        way="Use the names that `sinfo -o '%P %G'` lists (`--gres=gpu:a100:1`)",
        stage="start",
    ),
    failed(
        "Slurm",
        "gres/gpu count",
        r"gres/gpu count reported lower than configured(?: \((?P<found>\d+) < \d+\))?",
        says="slurmd finds fewer GPUs on the node than slurm.conf says",
        way="Make `nvidia-smi -L` list all of them on the node; write `AutoDetect=nvml` into "
        "gres.conf, or correct its devices (`slurmd -G` prints what slurmd finds, `scontrol show "
        f"node NODE` what Slurm expects); {RESUME}",
        stage="start",
    ),
    failed(
        "Slurm",
        "gres.conf file /dev/nvidia",
        r"(?:can't stat|Waiting for) gres\.conf file (?P<device>/dev/nvidia\w{1,12})",
        says="slurmd starts on a node whose NVIDIA driver is not loaded: its device files are missing",
        way="On the node, load the driver (`nvidia-smi -L` must list the GPUs) and let slurmd start "
        "after nvidia-persistenced; write `AutoDetect=nvml` into gres.conf, or the devices that are "
        f"there (`Name=gpu File=/dev/nvidia[0-3]`); {RESUME}",
        stage="start",
    ),
    failed(
        "Slurm",
        "has no file= in gres.conf",
        r"Gres gpu has no File= in gres\.conf",
        says="gres.conf names no device files of the GPUs",
        way="Write `AutoDetect=nvml`, or `Name=gpu File=/dev/nvidia[0-3]`, into the node's gres.conf",
        stage="start",
    ),
    failed(
        "Slurm",
        "autodetect nvml functionality",
        says="This Slurm was built without NVML, and gres.conf asks for AutoDetect=nvml",
        way="Install a Slurm that was built with NVML's headers, or name the devices with `File=`",
        stage="start",
    ),
)
