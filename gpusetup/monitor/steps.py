"""The table of next steps, and the choice of the step that fits a run. Pure functions.

A verdict lists several steps, and the first one whose `when` is true is shown; most conditions make
sure that the run does not do this already. Texts and commands name figures in braces (`words.py`);
a command is left out if the run lacks one of them, such as the script's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpusetup.monitor import signs as s
from gpusetup.monitor.documents import NextStep
from gpusetup.monitor.run import Subject
from gpusetup.monitor.signs import Sign
from gpusetup.monitor.words import filled, filled_command


class StepRule(NamedTuple):
    text: str
    command: str | None = None
    when: Sign | None = None


TUNE, BENCHMARK = "gpusetup tune {config}", "gpusetup tune {config} --benchmark"
TORCHRUN = "torchrun --nproc_per_node={present_gpus} {script}"
PY_SPY = "py-spy dump --pid {pid}"
POWER_DETAILS = "nvidia-smi -i {gpu.label} -q -d POWER,PERFORMANCE"
ON_THE_GPU = "nvidia-smi --query-compute-apps=gpu_uuid,pid,name,used_memory --format=csv"

# Sources: the acceleration guide and the multi-GPU guide; PyTorch's performance tuning guide
# (workers, pinning, compile, DDP) and its page on DDP communication hooks; vLLM's optimisation
# page; `nvidia-smi --help`.
STEPS: dict[str, StepRule] = {
    "load-with-workers": StepRule(
        "Load with workers{in_each_process}: num_workers={run.useful_workers}, pin_memory=True",
        TUNE,
        s.works_between_steps & ~(s.workers | s.no_training | s.cores_used_up)),
    "more-workers": StepRule(
        "Use up to {run.useful_workers} loader workers{in_each_process} (now {work.workers}). Then "
        "decode less per item: cache decoded items, store smaller ones, or decode on the GPU",
        TUNE),
    "more-cores": StepRule(
        "Give the command more CPU cores: it uses all {cores}", None,
        s.fewer_cores & s.cores_used_up),
    "faster-storage": StepRule(
        "Move the data to a local disk or memory, in fewer and larger files"),
    "fetch-in-advance": StepRule(
        "Let the loader fetch in advance: persistent_workers=True, a larger prefetch_factor, and "
        "more workers (now {work.workers}; a waiting worker needs no core, so there may be more "
        "workers than cores). `py-spy dump` shows what a worker waits for", TUNE, s.workers),
    "off-the-loop": StepRule(
        "Move CPU work out of the training loop: do it once, in other processes, or on the GPU"),
    "see-where-it-waits": StepRule("{where_it_waits}", PY_SPY),
    "see-why-it-was-lost": StepRule(
        "Find out why the GPU was lost: the kernel log has an error number (Xid; 79 means that the "
        "GPU fell off the bus). Check its power supply, seating and temperature, and run "
        "`gpusetup doctor`",
        "sudo dmesg -T | grep -iE 'nvrm|xid|aer'"),
    "reset-the-gpu": StepRule(
        "What this GPU computed since the first error may be wrong. Stop its job, reset the GPU or "
        "reboot so that the repair is made, look for Xid 48, 63 and 94 in the kernel log, and run "
        "`gpusetup doctor`. If it happens again, replace the card",
        "sudo dmesg -T | grep -iE 'nvrm|xid'"),
    "larger-work": StepRule(
        "Give the GPU more work at once: a larger batch or, if you are not training, more "
        "requests or runs at the same time", BENCHMARK, ~s.memory_high),
    "compile-or-graphs": StepRule(
        "Start fewer kernels: torch.compile, CUDA graphs, fused optimizers", BENCHMARK),
    "fewer-bytes": StepRule(
        "Move fewer bytes: bf16 autocast, channels_last, torch.compile to fuse small steps; for "
        "inference, more requests at once", BENCHMARK),
    "fewer-bytes-between-gpus": StepRule(
        "Exchange less data between GPUs: accumulate gradients, use DDP's bf16 hook or larger "
        "buckets, or shard within one node. With several machines, check the network: with "
        "NCCL_DEBUG=INFO the log shows NET/IB or the slower NET/Socket; nccl-tests measures it",
        "nvidia-smi topo -m"),
    "stay-on-the-gpu": StepRule(
        "Copy less to the GPU in each step: offload less, use pinned memory, copy while the GPU "
        "computes", "gpusetup plan {config}"),
    "free-the-card": StepRule(
        "Other programs are on the GPU: stop or unload {others}, or run the job on another GPU",
        ON_THE_GPU, s.held_by_others | s.shared_by_programs),
    "leave-a-margin": StepRule(
        "Find the largest batch that leaves a margin, and accumulate gradients",
        "gpusetup tune --batch-size --code MODULE:FUNCTION"),
    "find-the-leak": StepRule(
        "Find out what keeps tensors in memory: losses with their graph, lists of outputs, caches. "
        "torch.cuda.memory._record_memory_history shows it"),
    "see-how-it-ended": StepRule(
        "See whether the program finished or failed: read the end of its log (`gpusetup doctor "
        "--report LOG` explains an error) and, if it was killed, the kernel log",
        "sudo dmesg -T | grep -iE 'killed process|xid'"),
    "see-whose-they-are": StepRule(
        "Are all of these programs yours? If not, or if one is left over from an earlier run, end "
        "it or use another GPU", ON_THE_GPU, s.shared_by_programs),
    "find-the-holder": StepRule(
        "Find out what uses the GPU's memory. The driver lists no process, so it is a process in "
        "another container, or one that died without freeing its memory. End it; if you find "
        "none, reset the GPU", "sudo fuser -v /dev/nvidia*"),
    "cool": StepRule(
        "Improve the cooling: check fans, dust, airflow and neighbouring cards",
        "nvidia-smi -i {gpu.label} -q -d TEMPERATURE,PERFORMANCE"),
    "check-the-supply": StepRule(
        "Check the power cables and the slot, the power supply, and power capping in the chassis "
        "(BMC) or the firmware: the GPU gets less power than it can use", POWER_DETAILS),
    "raise-the-power-limit": StepRule(
        "Raise the power limit to what the card is rated at, if the cooling allows it",
        "sudo nvidia-smi -i {gpu.label} -pl {gpu.latest.power_limit_default_watts}"),
    "compare-the-power-limit": StepRule(
        "Compare the power limit with the card's default (below). If it is lower and the cooling "
        "allows it, raise it (`sudo nvidia-smi -i {gpu.label} -pl WATTS`); otherwise accept "
        "the lower clocks", "nvidia-smi -i {gpu.label} -q -d POWER"),
    "plug-it-in": StepRule(
        "Connect the charger and choose the performance mode: the GPU gets less power than it can "
        "use", POWER_DETAILS, s.laptop),
    "unlock-the-clocks": StepRule(
        "Find out what slows the clocks down. If somebody set or locked them (`nvidia-smi -ac`, "
        "`-lgc`), reset them; else `nvidia-smi -q -d CLOCK,PERFORMANCE` shows more",
        # The driver does not report which of the two was set.
        "sudo nvidia-smi -i {gpu.label} -rac; sudo nvidia-smi -i {gpu.label} -rgc"),
    "read-how-it-ended": StepRule(
        "Read the command's error: it ended with exit code {run.exit}. `gpusetup doctor --report "
        "LOG` explains errors of torch and the driver"),
    "watch-longer": StepRule(
        "Watch longer: nothing ran on the GPU in the first {run.seconds} s. The command may still "
        "be loading or downloading. If nothing changes, see where the process waits", PY_SPY),
    "ask-the-driver": StepRule(
        "See what the driver reports about this card; a log needs the column utilization.gpu. With "
        "MIG, only NVIDIA's DCGM shows how busy an instance is: `dcgmi dmon -e "
        "1001,1002,1004,1005`", "nvidia-smi -q -d UTILIZATION"),
    "see-whether-torch-can": StepRule(
        "Nothing ran on the GPU: start your training, or check whether its torch can use the GPU",
        "gpusetup doctor"),
    "move-to-the-gpu": StepRule(
        "The CPU computes while the GPU only holds memory. Move the model and each batch to the "
        'GPU: model.to("cuda"); `gpusetup doctor` shows whether this torch can use it'),
    "watch-the-command": StepRule(
        "Let the monitor watch the process too (`gpusetup monitor -- COMMAND`), to see what the "
        "GPU waits for", "gpusetup monitor --pid {pid}", ~s.watched),
    "send-more-requests": StepRule(
        "If requests are rare, this is normal. Otherwise send more requests at once, or run a "
        "second service too"),
    "release-between-cells": StepRule(
        "A pause between cells is normal. Write a slow cell to a script and watch the script "
        "(`gpusetup monitor -- python SCRIPT`). If you do not need the card, stop the kernel",
        None, s.notebook),
    "shorter-pauses": StepRule(
        "Shorten the pauses: evaluate on the GPU or less often, keep loader workers alive "
        "(persistent_workers=True), save while the training runs "
        "(torch.distributed.checkpoint.async_save). If you are not training: prepare the next "
        "input while the GPU works"),
    "use-the-other-gpus": StepRule(
        "GPU {unused} did nothing. If all GPUs are yours, train on all of them: start one process "
        "for each with torchrun (--nproc_per_node), and look at CUDA_VISIBLE_DEVICES", TORCHRUN),
    "balance-the-work": StepRule(
        "Give every rank the same amount of work: batches of similar length, a "
        "DistributedSampler, evenly split layers. If one process drives all GPUs, start one for "
        "each (DDP with torchrun)",
        TORCHRUN),
    "use-a-gpu": StepRule(
        "Find out whether torch can use a GPU of this machine. If there is none, compute on all "
        "cores (OMP_NUM_THREADS, torch.set_num_threads) and load data in worker processes",
        "gpusetup doctor"),
    "use-less-host-memory": StepRule(
        "Use less of the machine's memory: fewer workers, a smaller prefetch_factor, arrays "
        "instead of lists of objects (each worker copies a list)",
        "ps -eo pid,user,rss,comm --sort=-rss | head"),
    "see-why-no-gpu": StepRule("Find out why monitor cannot watch a GPU", "gpusetup doctor"),
}  # fmt: skip


def next_step(ids: Sequence[str], subject: Subject) -> NextStep | None:
    """The first of these next steps that fits the run, with its text and command, if any does."""
    for name in ids:
        step = STEPS[name]
        if step.when is None or step.when(subject):
            command = filled_command(step.command, subject) if step.command else None
            return NextStep(id=name, text=filled(step.text, subject), command=command)
    return None
