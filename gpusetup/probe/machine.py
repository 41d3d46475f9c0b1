"""Assembles the snapshot of one machine from all readers; the slow ones run in parallel."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpusetup.accelerators.makers import LABEL
from gpusetup.errors import Blocked
from gpusetup.model.machine import Conda, Event, Reading, Snapshot, Wanted
from gpusetup.probe.container import read_container
from gpusetup.probe.deadline import LIMIT_SECONDS, Notify, in_background
from gpusetup.probe.host import read_cpu, read_disks, read_memory, read_os, read_toolkit
from gpusetup.probe.other_makers import read_other_makers
from gpusetup.probe.own_files import unfinished_events
from gpusetup.probe.snapshot_files import without_endless_numbers
from gpusetup.probe.target import TargetPython, choose_target
from gpusetup.probe.torch import library_events, read_torch, runtime_events
from gpusetup.readings.environment import allowed_variables
from gpusetup.readings.sources import merged_snapshots, missing
from gpusetup.system.system import System


def read_machine(
    system: System,
    *,
    named: str | None = None,
    need_target: bool = False,
    notify: Notify | None = None,
    limit: float = LIMIT_SECONDS,
) -> Snapshot:
    """The snapshot of this machine from all sources.

    The target is chosen in the documented order, which begins with `named` (`--python`). If there
    is no target, `need_target` makes this raise `Blocked`; otherwise Python and torch are unknown,
    and a reading says why. `notify` is called if a source is slow. `limit` is how many seconds the
    driver may take.
    """
    # Imported here because it loads the driver's readers, which a described machine does not need.
    from gpusetup.probe.gpu import read_driver_and_gpus

    target = None
    try:
        target = choose_target(system, named)
        record = target.record
        reading = Reading(
            subject="python",
            source=record.chosen_by or "",
            value=record.version,
            problem=target.problem,
        )
        python = Snapshot(python=record, readings=(reading,))
    except Blocked as problem:
        if need_target:
            raise
        python = missing("python", "target", problem.message)
    # Start the sources that wait for a child process or a slow disk first, so that they run in
    # parallel with the rest.
    gpu_call = in_background(lambda: read_driver_and_gpus(system, notify=notify, limit=limit))
    toolkit_call = in_background(read_toolkit, system)
    torch_call = in_background(read_torch, system, target)
    host_os, container = read_os(system), read_container(system)
    torch, gpu = torch_call.result(), gpu_call.result()
    # GPUs of other makers only matter if there is no NVIDIA GPU, so this waits for the GPU sources.
    makers, host = read_other_makers(system, gpu), _read_host(system, target)
    toolkit = toolkit_call.result()
    parts = (gpu, makers, python, torch, host_os, container, toolkit, host)
    return without_endless_numbers(merged_snapshots(parts))


INDEX_VARIABLES = (
    "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL",
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL",
)  # fmt: skip
"""Variables that may make an installer use one of torch's own indexes."""


def _read_host(system: System, target: TargetPython | None) -> Snapshot:
    """The state of the host, the allowed variables, and events about files in the environment."""
    environ = system.environ()
    allowed = allowed_variables(environ)
    # The active conda environment, unless the target is one itself.
    conda_prefix = environ.get("CONDA_PREFIX") or None
    if target is not None and target.record.manager == "conda":
        conda_prefix = target.prefix
    stale: tuple[Event, ...] = ()
    activated = environ.get("VIRTUAL_ENV")
    # The activated environment no longer exists, so that another one is used. With `--python`, it
    # does not matter which environment is activated.
    if activated and target and target.record.chosen_by not in ("--python", "VIRTUAL_ENV"):
        values = {"variable": "VIRTUAL_ENV", "path": activated, "instead": target.python}
        event = Event(kind="stale-environment", values=values, source="VIRTUAL_ENV", text=activated)
        stale = (event,)
    return Snapshot(
        conda=Conda(prefix=conda_prefix),
        cpu=read_cpu(system),
        memory=read_memory(system),
        disks=read_disks(system, target),
        environment=allowed,
        wanted=_wanted_build(allowed),
        events=(
            *stale,
            *library_events(system, target),
            *runtime_events(system, target),
            *unfinished_events(system, target),
        ),
    )


def _wanted_build(environment: Mapping[str, str]) -> Wanted:
    """The backend that uv's own variable, or the URL of one of torch's indexes, requests."""
    backend = environment.get("UV_TORCH_BACKEND")
    if backend and backend != "auto":
        return Wanted(backend=backend, source="UV_TORCH_BACKEND")
    for name in INDEX_VARIABLES:
        # An index such as `https://download.pytorch.org/whl/cu128`.
        if index := re.search(rf"/whl/({LABEL})\b", environment.get(name, "")):
            return Wanted(backend=index[1], source=name)
    return Wanted()
