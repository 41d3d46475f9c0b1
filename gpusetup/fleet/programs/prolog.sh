# Exit 1 is the answer that the node is not healthy; no other error makes a job fail.

# slurmd names the GPUs of a job. It names none for shards, MPS, and GPUs without a device file in
# gres.conf: then the job's record is asked, on nodes with NVIDIA's driver only.
has_gpus() {
    [ -n "$SLURM_JOB_GPUS$SLURM_GPUS$SLURM_SHARDS_ON_NODE" ] && return 0
    [ -e /dev/nvidiactl ] || return 1
    timeout 10 scontrol -o show job "$SLURM_JOB_ID" | grep -qE 'gres[:/](gpu|mps|shard)'
}

has_gpus || exit 0
answer=$(check)
status=$?
[ $status -eq 0 ] && exit 0
echo "$answer" >&2
[ $status -eq 1 ] || { report "the check did not run (exit $status); the job starts" >&2; exit 0; }
# Out of service already: Slurm may only send the job elsewhere.
case $(field State) in *DRAIN*) exit 1 ;; esac
drain_within_limit "${answer#failed: }" >&2 && exit 1
exit 0
