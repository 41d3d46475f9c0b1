"""A run in the form that the next steps need, with the texts and commands that depend on the run.
Pure functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpusetup.model.shell import own_word
from gpusetup.monitor import signs as s
from gpusetup.monitor.evidence import UNKNOWN, megabytes, whole
from gpusetup.monitor.health import faults_of
from gpusetup.monitor.holders import named_with_size
from gpusetup.monitor.run import WatchedRun, useful_workers
from gpusetup.monitor.subject import Subject
from gpusetup.monitor.work import Work


class Situation(NamedTuple):
    """A run, and the GPU that its verdict is about; None if the verdict is about the whole run."""

    run: WatchedRun
    subject: Subject | None = None

    def figure(self, read: Callable[[Subject], float | None]) -> str:
        """One of the GPU's figures as text, rounded to a whole number; a question mark if it is
        unknown."""
        subject = self.subject
        if subject is None:
            return UNKNOWN
        return whole(read(subject))

    @property
    def work(self) -> Work | None:
        """The GPU's figures during the run or, if no GPU was watched, those of the command since it
        started. None if there are none."""
        subject = self.subject
        if subject is None:
            return self.run.since_start
        return subject.work

    @property
    def config(self) -> str | None:
        """The training config in the command line, quoted for a shell; None if there is none, or if
        a recording does not contain the command."""
        command = self.run.command or ()
        return config_of(command)

    @property
    def script(self) -> str | None:
        """The script in the command line, quoted for a shell; None if there is none, as in `python
        -m package`."""
        command = self.run.command or ()
        scripts = [word for word in command if word.endswith(".py")]
        if not scripts:
            return None
        return own_word(scripts[0])

    @property
    def pid(self) -> int | None:
        """The pid of a process that computes on a GPU; None if none is known."""
        for gpu in self.run.gpus:
            if gpu.holders:
                return min(gpu.holders)
        return None

    @property
    def working_gpus(self) -> int:
        """The number of GPUs that are not lost."""
        working = [gpu for gpu in self.run.gpus if gpu.lost_at is None]
        # This is how many ranks torchrun can start on this machine.
        return len(working)


CONFIG_ENDINGS = (".yaml", ".yml", ".json")


def config_of(command: tuple[str, ...]) -> str | None:
    """The training config that the command line names, quoted for a shell; None if it names none.

    >>> config_of(("python", "train.py", "--config=conf/a.yaml"))
    'conf/a.yaml'
    >>> config_of(("deepspeed", "train.py", "--deepspeed_config", "zero3.json"))
    """
    previous = ""
    for word in command:
        # An option may be joined to its file (`--config=FILE`) or be the word before the file, so
        # look at both words, up to the first dot (`--deepspeed_config zero3`).
        option = f"{previous} {word}".partition(".")[0]
        # DeepSpeed's settings are not a training config.
        is_for_deepspeed = "deepspeed" in option
        if word.endswith(CONFIG_ENDINGS) and not is_for_deepspeed:
            # The command line may contain `--config=FILE` or `--config FILE`.
            file = word.rpartition("=")[2]
            return own_word(file)
        previous = word
    return None


Words = Callable[[Situation], str]
Command = Callable[[Situation], str | None]
"""Builds the shell command of a step; returns None if the run lacks something that the command
needs."""


def always(text: str) -> Callable[[Situation], str]:
    """A function that returns this text for every run."""
    return lambda situation: text


def tune(situation: Situation) -> str | None:
    """The command that adapts the config to this machine; None if the watched command has no
    config."""
    config = situation.config
    if config is None:
        return None
    return f"gpusetup tune {config}"


def benchmark(situation: Situation) -> str | None:
    """The command that measures which settings make the training faster; None if the watched
    command has no config."""
    config = situation.config
    if config is None:
        return None
    return f"gpusetup tune {config} --benchmark"


def plan(situation: Situation) -> str | None:
    """The command that shows how much memory the training needs; None if the watched command has no
    config."""
    config = situation.config
    if config is None:
        return None
    return f"gpusetup plan {config}"


def torchrun(situation: Situation) -> str | None:
    """The command that starts one process for each working GPU; None if no script is known."""
    if situation.script is None:
        return None
    return f"torchrun --nproc_per_node={situation.working_gpus} {situation.script}"


def show_where_it_waits(situation: Situation) -> str:
    """The py-spy command that prints what a running Python process is doing; `PID` stands for an
    unknown pid."""
    pid = situation.pid
    # In a container nvidia-smi lists no processes, so the user has to look up the PID.
    process = "PID" if pid is None else str(pid)
    return f"py-spy dump --pid {process}"


def where_it_waits(situation: Situation) -> str:
    """Advice for a process that waits: find out where it waits; if there may be several ranks,
    check each of them."""
    run = situation.run
    has_one_gpu = len(run.gpus) <= 1
    is_idle_with_a_model = not run.at_work and run.busiest_cpu is None
    if is_idle_with_a_model and has_one_gpu:
        return (
            "A loaded model that gets no requests is normal. If the program should compute, see "
            "where it waits: the command prints what it is doing now"
        )
    # `launched` only shows whether there are ranks if the command's processes were watched.
    processes_are_known = run.command is not None and run.cpu is not None
    has_ranks = run.launched or run.nodes > 1
    if not has_ranks and (has_one_gpu or processes_are_known):
        return "See where the process waits: the command prints what it is doing now"
    return (
        "See where the process waits. If there are several ranks, look at each: the rank that "
        "waits elsewhere is the cause. NCCL_DEBUG=INFO and TORCH_NCCL_TRACE_BUFFER_SIZE=2000 "
        "name the collective"
    )


def watching_words(situation: Situation) -> str:
    """Advice on how to let the monitor see what the GPU waits for."""
    run = situation.run
    if run.command:
        return (
            "The recording does not show the command's processes: run the command under the "
            "monitor to see what the GPU waits for"
        )
    if run.at_work or run.is_reading:
        return "Let the monitor watch the process too: `gpusetup monitor -- COMMAND`"
    return (
        "Nothing computed on the GPU. Start your training under the monitor (`gpusetup monitor -- "
        "COMMAND`). If it runs already, `gpusetup doctor` says whether its torch can use the GPU"
    )


def watch_the_command(situation: Situation) -> str | None:
    """The command that lets the monitor also watch the processes of the command, or of the program
    on the GPU. If nothing ran on the GPU, `gpusetup doctor`; None if the program is unknown."""
    command = situation.run.command
    if command:
        words = " ".join(map(own_word, command))
        return f"gpusetup monitor -- {words}"
    pid = situation.pid
    if pid is not None:
        return f"gpusetup monitor --pid {pid}"
    ran_on_the_gpu = situation.run.at_work or situation.run.is_reading
    return None if ran_on_the_gpu else "gpusetup doctor"


def processes_by(column: str) -> Command:
    """The command that lists the processes with the highest values in this column of `ps`, such as
    `pcpu` or `rss`."""
    columns = f"pid,user,{column},comm"
    # `head` shows the heading and the first nine processes.
    return always(f"ps -eo {columns} --sort=-{column} | head")


def in_each_process(situation: Situation) -> str:
    """The words ` in each process` if the run has several training processes; otherwise ""."""
    has_several = situation.run.training_processes > 1
    return " in each process" if has_several else ""


def more_workers(situation: Situation) -> str:
    """Advice to use more loader workers, with the current number and the largest useful one."""
    work = situation.work
    worker_count = whole(work.workers if work else None)
    most = useful_workers(situation.run)
    return (
        f"Use up to {most} loader workers{in_each_process(situation)} (now {worker_count}). Then "
        "decode less per item, or cache decoded items"
    )


def other_programs(situation: Situation) -> str:
    """Advice to end other programs, with how much CPU they use."""
    cores = situation.run.host_cores
    cpu = situation.figure(lambda subject: subject.others_cpu)
    return (
        f"End other programs: they use {cpu} % CPU of this machine's "
        f"{cores} cores (100 % is one core)"
    )


def other_users(situation: Situation) -> str:
    """Advice to free the GPU from other processes, which are named if possible."""
    subject = situation.subject
    foreign = subject.run.foreign_holders(subject.gpu) if subject else []
    if foreign:
        names = ", ".join(map(named_with_size, foreign))
        return f"Stop or unload {names}, or run the job on another GPU"
    if subject and s.several_holders(subject):
        names = " and ".join(map(named_with_size, subject.gpu.big_holders))
        return f"{names} share this GPU: end what is not part of the job, or use another GPU"
    return "Other processes use this GPU: end them, or use another GPU"


def the_link(situation: Situation) -> str:
    """Advice for a PCIe link with too few lanes, with how much it can transfer if that is known."""
    subject = situation.subject
    limit = subject.gpu.link_limit if subject else 0.0
    carries = ""
    if limit:
        carries = (
            f": it carries {megabytes(limit)} in one direction; with 16 lanes it would carry at "
            "least 15000 MB/s"
        )
    return (
        f"Check the PCIe link{carries}. Seat the card again, try another slot and leave out the "
        "riser, and check the lanes in the firmware's settings"
    )


def who_uses_the_cpu(situation: Situation) -> str:
    """Advice to find out what uses the CPU, with the share of all cores that is busy."""
    work = situation.work
    busy = whole(work.host_share if work else None)
    return (
        f"Find out who uses the CPU ({busy} % is busy). If it is the data loaders, "
        "do less per item or use more cores"
    )


def first_workers(situation: Situation) -> str:
    """Advice for a loader without workers, with the number of workers it should get."""
    workers = useful_workers(situation.run)
    # From pinned memory, copies to the GPU can overlap with computing.
    place = in_each_process(situation)
    return f"Load with workers{place}: num_workers={workers}, pin_memory=True"


def run_ahead(situation: Situation) -> str:
    """Advice to let workers prepare batches while the GPU computes."""
    most = useful_workers(situation.run)
    return (
        "Let the loader work in advance: persistent_workers=True, a larger prefetch_factor, up to "
        f"{most} workers"
    )


def fetch_in_advance(situation: Situation) -> str:
    """Advice for workers that wait for storage or the network: more workers can fetch more items at
    the same time."""
    workers = whole(situation.work.workers if situation.work else None)
    return (
        "The loader workers hardly compute. Keep the data on a local disk or in memory, or fetch "
        f"more at once: a larger prefetch_factor and more workers (now {workers}; waiting takes no "
        "core, so there may be more of them than cores). `py-spy dump --pid PID` shows what a "
        "worker waits for"
    )


def more_cores(situation: Situation) -> str:
    """Advice to give the command more CPU cores, with the number of cores that it may use now, if
    known."""
    cores = situation.run.usable_cores
    count = f" {cores:g}" if cores else ""
    return f"Give the command more CPU cores: it uses all{count}"


def more_threads(situation: Situation) -> str:
    """Advice for a single computing process to use more of the cores."""
    cores = situation.run.usable_cores
    cores_in_words = f"more of the {cores:g} cores" if cores else "more cores"
    return (
        f"Compute on {cores_in_words}: set OMP_NUM_THREADS or torch.set_num_threads, or "
        "load data in worker processes. If this machine has a GPU for torch, `gpusetup doctor` "
        "says why it is not used"
    )


def its_error(situation: Situation) -> str:
    """Advice to read the command's error, with its exit code."""
    exit_code = situation.run.exit
    return f"Read the command's error: it ended with exit code {exit_code}"


def early_error(situation: Situation) -> str:
    """Advice to read the error of a command that ended before it used the GPU, with its exit
    code."""
    error = its_error(situation)
    return f"{error}, and nothing had run on the GPU"


def watch_longer(situation: Situation) -> str:
    """Advice to watch for longer, with the number of seconds watched so far."""
    seconds = whole(situation.run.seconds)
    return (
        f"Watch longer: nothing ran on the GPU in the first {seconds} s. The command may still be "
        "loading or downloading. If nothing changes, see where the process waits"
    )


def reset_the_gpu(situation: Situation) -> str | None:
    """The command that resets every GPU with memory faults; None if there is no such GPU.

    nvidia-smi refuses to reset a GPU while a process uses it.
    """
    faulty = [gpu.label for gpu in situation.run.gpus if faults_of(gpu)]
    # `-i` without a GPU would be an error.
    if not faulty:
        return None
    labels = ",".join(faulty)
    return f"sudo nvidia-smi --gpu-reset -i {labels}"


def other_gpus(situation: Situation) -> str:
    """Advice to use the GPUs that did nothing, with their indexes."""
    run = situation.run
    unused = [gpu.label for gpu in run.unused_gpus]
    labels = ", ".join(unused)
    return (
        f"{len(unused)} of {len(run.gpus)} GPUs did nothing (GPU {labels}). If they are "
        "yours, train on all of them: start one process for each GPU with torchrun "
        "(--nproc_per_node), and look at CUDA_VISIBLE_DEVICES"
    )


def help_the_host(situation: Situation) -> str:
    """Advice for a GPU that waits for the host, either for data or for kernels."""
    workers = useful_workers(situation.run)
    return (
        f"Load data with more workers (num_workers={workers} or more{in_each_process(situation)}), "
        "or give the GPU more work "
        f"in each launch (a larger batch, torch.compile). {watching_words(situation)}"
    )


def whose_they_are(situation: Situation) -> str:
    """Advice about several processes that share one GPU, with their names and memory."""
    shared = [gpu for gpu in situation.run.gpus if len(gpu.big_holders) > 1]
    subject = situation.subject
    # A single reading is judged as a whole, without a subject; use the first shared GPU then.
    gpu = subject.gpu if subject else next(iter(shared), None)
    names = " and ".join(map(named_with_size, gpu.big_holders if gpu else []))
    label = gpu.label if gpu else UNKNOWN
    return (
        f"{names or 'Several processes'} share GPU {label}. Are all of them yours? If "
        "not, or if one is left over from an earlier run, end it or use another GPU"
    )


def balance(situation: Situation) -> str:
    """Advice for GPUs that work differently: balance the ranks and, if there may be none, start one
    process for each GPU."""
    words = (
        "Give every rank the same amount of work: batches of similar length, a "
        "DistributedSampler, evenly split layers. Find out what the busiest rank does that the "
        "others do not"
    )
    if situation.run.launched:
        return words
    return f"{words}. If one process drives all GPUs, start one process for each GPU"


def one_process_each(situation: Situation) -> str:
    """Advice for the case that one process drives several GPUs."""
    words = "Start one process for each GPU"
    all_work = len(situation.run.at_work) == situation.working_gpus
    if situation.run.launched or not all_work:
        return words
    # All GPUs work, so each may already have its own process.
    return (
        f"{words} (DistributedDataParallel with torchrun). If there is one for each already, give "
        "them the same amount of work"
    )
