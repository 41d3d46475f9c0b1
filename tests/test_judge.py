"""The judgement: one root, what it explains, and the ways out that are exact for a machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from each_row import each
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import (
    A100,
    GTX_1080_TI,
    HEALTHY,
    IN_DOCKER,
    NO_DRIVER,
    ON_THE_BUS,
    RTX_3090,
    WINDOWS,
    WSL,
    changed,
    event,
    found,
    gpu,
    judged,
)

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.diagnosis.knowledge import records
from gpusetup.diagnosis.precedence import consequences, explanation
from gpusetup.evidence.context import RuleContext
from gpusetup.findings.installing.environment import PIP_MISSING
from gpusetup.findings.layers import Layer
from gpusetup.findings.record import Cause
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.frozen import fields as fields_of
from gpusetup.model.frozen import replace
from gpusetup.model.machine import (
    Container,
    CudaApi,
    DeviceNode,
    Disk,
    Driver,
    PciDevice,
    Snapshot,
    Torch,
    Wanted,
)
from gpusetup.model.resolution import Request
from gpusetup.model.versions import Capability

CATALOG = load_catalog()
CPU_TORCH = Torch(installed=True, version="2.14.1+cpu", backend="cpu", installer="pip")


def fix(machine: Snapshot, id: str) -> Fix:
    made = found(machine, id)
    assert made is not None and made.fix is not None
    return made.fix


# --- the root ------------------------------------------------------------------------------------

ROOTS = (
    ("ok", HEALTHY),
    ("ok", WSL),
    ("ok", IN_DOCKER),
    ("unknown", Snapshot()),
    ("unknown", changed(torch=Torch(), packages=None)),
    # A missing driver outranks the CPU build above it: the driver is needed either way.
    ("driver-missing", replace(NO_DRIVER, torch=CPU_TORCH)),
    ("torch-cpu-build", changed(torch=CPU_TORCH)),
    # What the process is told outranks the wheel.
    (
        "cuda-visible-devices-hidden",
        changed(gpu(visible=False), torch=CPU_TORCH, env={"CUDA_VISIBLE_DEVICES": ""}),
    ),
    # A lost GPU outranks everything that then fails to start.
    ("gpu-fell-off-bus", changed(gpu(lost=True), cuda_api=CudaApi(init_code=999))),
    ("nvml-mismatch", changed(driver={"nvml_code": 18}, cuda_api=CudaApi(init_code=803))),
    # Error 803 with an NVML that works: a stale libcuda, not a mismatch of the driver.
    (
        "libcuda-driver-mismatch",
        changed(driver={"library_version": "535.161.08"}, cuda_api=CudaApi(init_code=803)),
    ),
    ("driver-too-old", changed(driver={"version": "550.54.14", "cuda": "12.4"})),
    # A driver that says itself that it serves the CUDA of the build is believed.
    ("ok", changed(driver={"version": "575.57.08", "library_version": None, "cuda": "13.0"})),
    # A driver that runs and a bus without a GPU: some GPUs are not on PCI. Nothing is claimed.
    ("unknown", changed(gpus=None, pci_devices=())),
    # GPUs were given to the container, so something else is wrong.
    ("unknown", changed(NO_DRIVER, container=Container(kind="docker", nvidia_requested=True))),
    ("arch-too-old-for-wheel", changed(gpus=(GTX_1080_TI,))),
    # A loss of speed is the root only where nothing is broken.
    ("power-thermal-throttle", gpu(temperature_celsius=95)),
    ("torch-cpu-build", changed(gpu(temperature_celsius=95), torch=CPU_TORCH)),
    # Latent warnings leave a working stack ok.
    ("ok", changed(IN_DOCKER, memory={"shm_total_bytes": 64 << 20})),
    ("ok", changed(env={"CUDA_LAUNCH_BLOCKING": "1"})),
    ("no-nvidia-gpu", replace(NO_DRIVER, pci_devices=(), torch=CPU_TORCH)),
    ("no-nvidia-gpu", replace(NO_DRIVER, pci_devices=(), torch=Torch(installed=False))),
    # Musl has neither torch nor a driver: the platform is what must change.
    ("no-wheel-for-platform", changed(NO_DRIVER, os={"libc": "musl 1.2.5"})),
)


CLOSED = (DeviceNode(path="/dev/nvidia0", mode="crw-------", readable=False),)


def test_what_is_explained_is_not_the_root_even_where_it_stands_first_in_the_order() -> None:
    silent = {"library_found": True, "nvml_code": 9}
    diagnosis = judged(changed(NO_DRIVER, driver=silent, devices=CLOSED))
    explained = {f.id: f.explained_by for f in diagnosis.findings}
    assert diagnosis.cause == "device-permission"
    assert explained["driver-not-loaded"] == "device-permission"


@each("cause, machine", ROOTS)
def test_one_cause_is_named(cause: str, machine: Snapshot) -> None:
    diagnosis = judged(machine)
    assert diagnosis.cause == cause
    order = {row.id for row in records() if row.place}
    assert [f.id for f in diagnosis.findings if f.root] == ([cause] if cause in order else [])


def test_a_consequence_is_kept_and_names_what_explains_it() -> None:
    machine = changed(torch=replace(CPU_TORCH, cuda_available=False))
    symptom = found(machine, "torch-sees-no-gpu")
    assert symptom is not None and symptom.explained_by == "torch-cpu-build" and not symptom.root


def test_torchs_own_no_without_any_reason_is_the_root_itself() -> None:
    assert judged(changed(torch={"cuda_available": False})).cause == "torch-sees-no-gpu"


def test_the_root_stands_first_and_then_the_gravest() -> None:
    machine = changed(
        gpu(temperature_celsius=95),
        torch=replace(CPU_TORCH, cuda_available=False),
        env={"NVIDIA_TF32_OVERRIDE": "1"},
    )
    findings = judged(machine).findings
    assert findings[0].id == "torch-cpu-build"
    gravity = [f.severity for f in findings]
    assert gravity == sorted(gravity, key=(Severity.ERROR, Severity.WARNING, Severity.NOTE).index)


def test_ok_needs_gpu_driver_and_a_torch_that_serves_them_to_be_shown() -> None:
    for part in (
        {"gpus": None},
        {"gpus": ()},
        {"torch": Torch()},
        {"torch": Torch(installed=True, version="2.14.1")},
        {"driver": Driver(), "gpus": None},
    ):
        assert judged(changed(**part, pci_devices=None)).cause != "ok", part


def test_an_unserved_gpu_is_never_ok() -> None:
    machine = changed(gpus=(RTX_3090, replace(GTX_1080_TI, uuid="GPU-2")))
    assert judged(machine).cause == "arch-too-old-for-wheel"


def test_a_hidden_gpu_need_not_be_served() -> None:
    machine = changed(gpus=(RTX_3090, replace(GTX_1080_TI, uuid="GPU-2", visible=False)))
    assert judged(machine).cause == "ok"


# --- the tables ----------------------------------------------------------------------------------


EXPLAINS = {row.id: consequences(row) for row in records() if consequences(row)}


def test_a_record_explains_only_findings_that_have_a_record() -> None:
    known = {row.id for row in records()}
    assert {id for ids in EXPLAINS.values() for id in ids} <= known
    assert all(row.place for row in records() if row.explains)


def new_record(id: str, **fields: Any) -> Cause:
    return Cause(id=id, title="t", means="m", proven_by="p", way_out="w", source="s", **fields)


def test_an_error_without_a_place_in_the_order_fails_when_it_is_loaded() -> None:
    with pytest.raises(ValueError, match="new-cause has no place"):
        new_record("new-cause")


def test_an_id_that_stands_twice_fails_when_it_is_loaded() -> None:
    with pytest.raises(ValueError, match="two records have the id driver-too-old"):
        new_record("driver-too-old", place=(Layer.WHEEL, 0))


def test_nothing_explains_itself_in_a_circle() -> None:
    def reached(id: str, seen: frozenset[str]) -> Iterator[str]:
        for next_id in EXPLAINS.get(id, ()):
            assert next_id not in seen, f"{id} and {next_id} explain each other"
            yield from reached(next_id, seen | {next_id})

    for id in EXPLAINS:
        list(reached(id, frozenset({id})))


def test_only_what_is_there_explains() -> None:
    assert explanation("torch-sees-no-gpu", {"torch-sees-no-gpu"}) is None


def test_a_warning_explains_no_error() -> None:
    machine = changed(gpu(compute_mode="Exclusive_Process"), torch={"cuda_available": False})
    symptom = found(machine, "torch-sees-no-gpu")
    assert symptom is not None and symptom.explained_by is None and symptom.root


# --- rules that break ----------------------------------------------------------------------------


def broken(context: RuleContext) -> Iterator[Finding]:
    raise KeyError("driver")
    yield  # pragma: no cover


def test_a_rule_that_breaks_becomes_one_line_and_the_others_stand() -> None:
    def other(context: RuleContext) -> Iterator[Finding]:
        yield PIP_MISSING.as_note("a note")

    diagnosis = diagnose(HEALTHY, CATALOG, rules=(broken, other))
    assert [f.id for f in diagnosis.findings] == ["pip-missing", "rule-broken"]
    assert "broken" in diagnosis.findings[1].title and "KeyError" in diagnosis.findings[1].title
    assert diagnosis.cause == "ok"


# --- the build that fits -------------------------------------------------------------------------


def test_a_wrong_build_comes_again_in_its_version_from_the_index_that_fits() -> None:
    machine = changed(torch={"version": "2.5.1+cpu", "backend": "cpu", "cuda": None})
    build = judged(machine).resolution.build
    assert build is not None and (build.torch, build.backend) == ("2.5.1", "cu124")


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    (
        (Wanted(torch="==2.5.1"), ("2.5.1", "cu124")),
        (Wanted(backend="cu121"), ("2.5.1", "cu121")),
        (Wanted(cuda="11.8"), ("2.7.1", "cu118")),
        (Wanted(backend="cu131"), ("2.14.1", "cu130")),
    ),
)
def test_what_the_machine_shows_is_the_request(wanted: Wanted, chosen: tuple[str, str]) -> None:
    build = judged(changed(wanted=wanted)).resolution.build
    assert build is not None and (build.torch, build.backend) == chosen


def test_what_a_person_asks_outranks_what_the_machine_shows() -> None:
    machine = changed(wanted=Wanted(torch="==2.5.1"))
    build = diagnose(machine, CATALOG, Request(torch="2.9.1")).resolution.build
    assert build is not None and build.torch == "2.9.1"


def test_an_unknown_driver_gets_a_cuda_that_most_drivers_serve() -> None:
    bare = changed(torch=Torch(installed=False), packages=())
    build = judged(changed(bare, driver=Driver(), cuda_api=CudaApi())).resolution.build
    assert build is not None and (build.torch, build.backend) == ("2.14.1", "cu126")


# --- ways out ------------------------------------------------------------------------------------


def test_the_commands_name_this_interpreter_this_index_and_this_installer() -> None:
    way = fix(changed(torch=CPU_TORCH), "torch-cpu-build")
    assert way.commands[0] == "gpusetup install --python /home/me/env/bin/python"
    assert way.alternatives[0].commands[0].startswith("/home/me/env/bin/python -m pip install")
    assert "--index-url https://download.pytorch.org/whl/cu130" in way.alternatives[0].commands[0]
    assert "torch==2.14.1+cu130" in way.alternatives[0].commands[0]


def test_an_environment_of_uv_gets_uvs_commands() -> None:
    way = fix(changed(torch=replace(CPU_TORCH, installer="uv")), "torch-cpu-build")
    assert (
        way.alternatives[0]
        .commands[0]
        .startswith("uv pip install --python /home/me/env/bin/python")
    )


def test_an_environment_of_conda_gets_condas_commands() -> None:
    machine = changed(
        torch=replace(CPU_TORCH, installer="conda"), python={"manager": "conda", "prefix": "/c/env"}
    )
    way = fix(machine, "torch-cpu-build")
    assert way.alternatives[0].commands[0].startswith("conda install")
    assert "--installer conda" in way.commands[0]


def test_on_windows_paths_with_blanks_are_quoted_for_either_shell() -> None:
    way = fix(changed(WINDOWS, torch=CPU_TORCH), "torch-cpu-build")
    assert way.commands[0] == 'gpusetup install --python "C:\\My Env\\Scripts\\python.exe"'


def test_nothing_is_installed_into_the_systems_python() -> None:
    machine = changed(torch=CPU_TORCH, python={"externally_managed": True})
    own = ("gpusetup install --venv .venv --torch 2.14.1 torchvision",)
    assert fix(machine, "torch-cpu-build").commands == own


@pytest.mark.parametrize(
    ("id", "command"),
    (
        ("ubuntu", "sudo apt install -y nvidia-driver-580-open"),
        ("linuxmint", "sudo apt install -y nvidia-driver-580-open"),
        ("fedora", "sudo dnf install -y akmod-nvidia xorg-x11-drv-nvidia-cuda"),
        ("rocky", "sudo dnf install -y nvidia-driver-cuda kmod-nvidia-open-dkms"),
    ),
)
def test_the_driver_comes_by_the_distributions_own_command(id: str, command: str) -> None:
    version = "9.6" if id == "rocky" else NO_DRIVER.os.version
    way = fix(changed(NO_DRIVER, os={"id": id, "version": version}), "driver-missing")
    assert command in way.commands and way.commands[-2:] == ("sudo modprobe nvidia", "nvidia-smi")
    assert way.needs_root and not way.needs_reboot


def test_a_release_that_rolls_may_have_brought_another_kernel() -> None:
    way = fix(changed(NO_DRIVER, os={"id": "arch"}), "driver-missing")
    assert way.commands[-1] == "sudo reboot" and way.needs_reboot


def test_an_environment_of_ones_own_is_not_the_one_that_may_not_be_changed() -> None:
    own = {"site_writable": False, "prefix": "/home/user/project/.venv"}
    machine = changed(torch=CPU_TORCH, python=own)
    assert "--venv .venv-gpu " in fix(machine, "torch-cpu-build").commands[0]
    assert fix(machine, "site-not-writable").commands == fix(machine, "torch-cpu-build").commands


DOCKER = Container(kind="docker", nvidia_requested=True)


@pytest.mark.parametrize(
    ("id", "changes"),
    (
        ("uvm-missing", {"driver": {"uvm_loaded": False}, "cuda_api": {"init_code": 999}}),
        ("gpu-fell-off-bus", {"gpus": (replace(HEALTHY.gpus[0], lost=True),)}),
    ),
)
def test_a_container_gets_no_command_of_its_host(id: str, changes: dict[str, Any]) -> None:
    way = fix(changed(container=DOCKER, **changes), id)
    assert way.commands == () and way.alternatives[0].title == "on the host, not in this container"
    assert fix(changed(**changes), id).commands == way.alternatives[0].commands


def test_room_comes_first() -> None:
    disk = Disk(subject="site-packages", path="/home/user/x", free_bytes=1 << 29)
    way = fix(changed(torch=CPU_TORCH, disks=(disk,)), "torch-cpu-build")
    assert way.text.startswith("First make room: an install needs 8.0 GiB in /home/user/x (0.5 GiB")
    assert way.commands[0] == "uv cache clean" and "gpusetup install" in way.commands[-1]
    assert all(other.commands[0] == "uv cache clean" for other in way.alternatives)


def on_bus(*ids: str) -> dict[str, Any]:
    slots = (f"0000:0{n}:00.0" for n in range(1, 9))
    pairs = zip(ids, slots, strict=False)
    return {
        "pci_devices": tuple(
            PciDevice(vendor="nvidia", bus_id=slot, device_id=id) for id, slot in pairs
        )
    }


@pytest.mark.parametrize(("id", "version"), (("debian", "12"), ("debian", "13")))
def test_a_gpu_that_only_its_pci_id_names_gets_a_driver_that_knows_it(
    id: str, version: str
) -> None:
    machine = changed(NO_DRIVER, os={"id": id, "version": version}, **on_bus("2b85"))
    way = fix(machine, "driver-missing")
    assert f"repos/{id}{version}/" in " ".join(way.commands)
    assert any("nvidia-open" in line for line in way.commands)


@pytest.mark.parametrize("pair", (("1b06", "2b85"), ("102d", "2684")))
def test_gpus_that_no_driver_drives_together_are_a_choice(pair: tuple[str, str]) -> None:
    way = fix(changed(NO_DRIVER, os={"id": "ubuntu"}, **on_bus(*pair)), "driver-missing")
    assert way.commands == () and "no driver drives both" in way.text
    assert len(way.alternatives) == 2


def test_one_closed_driver_serves_pascal_and_ada() -> None:
    way = fix(changed(NO_DRIVER, os={"id": "ubuntu"}, **on_bus("1b06", "2684")), "driver-missing")
    assert "sudo apt install -y nvidia-driver-580" in way.commands


def test_a_driver_that_replaces_a_loaded_one_needs_a_reboot() -> None:
    held = replace(ON_THE_BUS, driver="nouveau")
    way = fix(changed(NO_DRIVER, pci_devices=(held,)), "driver-missing")
    assert way.needs_reboot and way.commands[-1] == "sudo reboot"


def test_an_unknown_distribution_gets_the_download_page_and_no_invented_command() -> None:
    way = fix(changed(NO_DRIVER, os={"id": "void"}), "driver-missing")
    assert way.commands == () and "https://www.nvidia.com/drivers" in way.text


def test_an_old_driver_gets_its_floor_and_the_build_that_needs_no_update() -> None:
    way = fix(changed(driver={"version": "550.54.14", "cuda": "12.4"}), "driver-too-old")
    assert way.min_driver == CATALOG.driver_floor("13.0", "linux")
    assert "https://download.pytorch.org/whl/cu126" in way.alternatives[0].commands[0]
    assert not way.needs_reboot


def test_debian_is_not_promised_a_driver_that_it_does_not_have() -> None:
    old = {"version": "384.81", "cuda": "9.0"}
    machine = changed(
        os={"id": "debian"},
        driver=old,
        torch=Torch(installed=False),
        wanted=Wanted(backend="cu130"),
    )
    way = fix(machine, "driver-too-old")
    assert way.commands == () and "https://www.nvidia.com/drivers" in way.text


def test_in_wsl_the_driver_is_windows_own() -> None:
    machine = changed(WSL, gpus=None, driver=Driver(library_found=False), cuda_api=CudaApi())
    way = fix(machine, "wsl-driver")
    assert way.commands == ("wsl.exe --update", "wsl.exe --shutdown")
    assert "no Linux driver" in way.text


def test_nouveau_is_kept_from_the_gpu() -> None:
    machine = changed(
        NO_DRIVER,
        driver={"library_found": True, "nouveau_loaded": True},
        pci_devices=(replace(ON_THE_BUS, driver="nouveau"),),
    )
    way = fix(machine, "driver-not-loaded")
    assert "blacklist nouveau" in way.commands[0]
    assert way.commands[1:] == ("sudo update-initramfs -u", "sudo reboot")


def test_the_fabric_manager_is_of_exactly_the_drivers_version() -> None:
    waiting = gpu(name="NVIDIA H100 80GB HBM3", fabric_state="in_progress")
    way = fix(waiting, "system-not-ready-fabric-manager")
    assert way.commands[0] == "sudo apt install -y 'nvidia-fabricmanager-580=580.95.05*'"


def test_a_compat_folder_is_taken_out_of_the_path_and_the_rest_stays() -> None:
    machine = changed(
        IN_DOCKER,
        container={"cuda_compat_path": "/usr/local/cuda/compat"},
        cuda_api=CudaApi(init_code=804),
        env={"LD_LIBRARY_PATH": "/usr/local/cuda/compat:/opt/my libs"},
    )
    way = fix(machine, "forward-compat-unsupported")
    assert way.commands == ("export LD_LIBRARY_PATH='/opt/my libs'",)
    assert not way.needs_reboot


def test_a_python_without_wheels_is_told_which_one_has_them() -> None:
    way = fix(changed(python={"version": "3.6.9"}), "python-no-wheel")
    newest = [b for b in CATALOG.builds if b.torch == "2.15.0" and b.os == "linux"]
    assert way.python is not None and all(way.python in b.pythons for b in newest)
    assert way.commands[0] == f"uv venv --python {way.python} .venv"


def test_a_companion_comes_from_the_index_of_the_torch_that_is_there() -> None:
    machine = changed(packages=(replace(HEALTHY.packages[1], version="0.20.1"),))
    (command,) = fix(machine, "torchvision-mismatch").commands
    assert "https://download.pytorch.org/whl/cu130" in command
    assert "torchvision==0.29.1+cu130" in command


# --- every machine -------------------------------------------------------------------------------

TEXTS = st.sampled_from(
    ("", "2.5.1", "2.14.1+cu130", "580.95.05", "nonsense", "cpu", "cu130", "rocm6.4", "3.12.7", "x")
)


def values_of(annotation: object, name: str) -> st.SearchStrategy[object]:
    """Values for a field by its annotation's text (the model's are simple)."""
    text = str(annotation)
    if "bool" in text:
        return st.sampled_from((None, True, False))
    if "Capability" in text:
        return st.sampled_from((None, Capability(8, 6), Capability(3, 5), Capability(99, 9)))
    if name in ("init_code", "nvml_code"):
        return st.sampled_from((None, 0, 2, 9, 12, 18, 34, 46, 100, 304, 802, 804, 999))
    if "tuple[int" in text:
        return st.sampled_from((None, (), (0, 3)))
    if "int" in text:
        return st.sampled_from((None, 0, 1, 64 << 20, 24 << 30))
    if "float" in text:
        return st.sampled_from((None, 0.0, 99.5))
    if "tuple[str" in text:
        return st.sampled_from(((), ("sm_86", "compute_90"), ("nonsense", "sm_")))
    if name == "family":
        return st.sampled_from((None, "linux", "windows", "macos"))
    if name == "machine":
        return st.sampled_from((None, "x86_64", "aarch64", "riscv64"))
    if "str" in text:
        return st.one_of(st.none(), TEXTS)
    return st.none()


def part(kind: type, **fixed: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    fields = {f.name: values_of(f.type, f.name) for f in fields_of(kind)}
    optional = {
        f.name: fields[f.name] for f in fields_of(kind) if not f.required or f.name in fixed
    }
    return st.fixed_dictionaries({}, optional={**optional, **fixed}).map(
        lambda chosen: chosen  # a dict of changes, applied to a whole value below
    )


KINDS = tuple(
    sorted({event_kind for row in ("xid", "child-failed", "module-shadowed", "libcuda-stub",
     "foreign-library", "nvml-mismatch", "gpu-check-failed", "gpu-init-failed", "driver-too-old")
     for event_kind in (row,)})
)  # fmt: skip


@st.composite
def machines(draw: st.DrawFn) -> Snapshot:
    """Any machine: each part healthy, or with any of its fields changed to anything."""
    base = draw(st.sampled_from((HEALTHY, WINDOWS, WSL, NO_DRIVER, Snapshot())))
    changes: dict[str, object] = {}
    for name in (
        "os",
        "python",
        "driver",
        "cuda_api",
        "torch",
        "container",
        "toolkit",
        "memory",
        "wanted",
    ):
        if draw(st.booleans()):
            own = getattr(base, name)
            changes[name] = replace(own, **draw(part(type(own))))  # type: ignore[arg-type]
    if draw(st.booleans()):
        cards = st.sampled_from((RTX_3090, GTX_1080_TI, A100))
        drawn = st.builds(lambda card, more: replace(card, **more), cards, part(type(RTX_3090)))
        changes["gpus"] = draw(st.one_of(st.none(), st.lists(drawn, max_size=3).map(tuple)))
    if draw(st.booleans()):
        changes["events"] = tuple(
            one
            for kind in draw(st.lists(st.sampled_from(KINDS), max_size=3))
            for one in event(kind)
        )
    if draw(st.booleans()):
        variables = st.sampled_from(("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "CUDA_HOME"))
        changes["environment"] = draw(st.dictionaries(variables, TEXTS, max_size=3))
    return replace(base, **changes)


@settings(max_examples=40)
@given(machines())
def test_whatever_the_machine_one_cause_is_named_and_no_rule_breaks(machine: Snapshot) -> None:
    diagnosis = judged(machine)
    ids = {finding.id for finding in diagnosis.findings}
    roots = [finding for finding in diagnosis.findings if finding.root]
    assert "rule-broken" not in ids, [f.title for f in diagnosis.findings]
    assert len(ids) == len(diagnosis.findings)
    assert len(roots) == (diagnosis.cause not in ("ok", "unknown"))
    assert all(f.explained_by is None or f.explained_by in ids for f in diagnosis.findings)
    if any(f.severity is Severity.ERROR for f in diagnosis.findings):
        assert roots and roots[0].severity is Severity.ERROR and roots[0].explained_by is None
    if diagnosis.cause == "ok":
        # A healthy stack of another maker is ok too, without a GPU of NVIDIA.
        backend = machine.torch.backend or ""
        others = machine.os.family == "macos" or backend.startswith(("rocm", "xpu"))
        assert machine.gpus or others
        assert not any(f.severity is Severity.ERROR for f in diagnosis.findings)


def test_an_update_of_the_driver_is_offered_only_where_it_is_enough() -> None:
    old = {"version": "535.183.01", "cuda": "12.2"}
    torch = {"version": "2.9.1+cu130", "backend": "cu130", "cuda": "13.0"}
    fits = changed(driver=old, torch={**torch, "kernels": ("sm_86",), "cuda_available": False})
    lacks = changed(driver=old, torch={**torch, "kernels": ("sm_120",), "cuda_available": False})
    assert any("update the driver" in w.title for w in fix(fits, "driver-too-old").alternatives)
    ways = fix(lacks, "driver-too-old").alternatives
    assert not any("update the driver" in way.title for way in ways)


def test_closed_modules_do_not_start_a_blackwell() -> None:
    loaded = Driver(version="580.95.05", module_loaded=True, open_module=False, nvml_code=0)
    machine = changed(driver=loaded, gpus=(), cuda_api={"init_code": 100}, **on_bus("2b85"))
    assert found(machine, "gpu-not-supported-by-driver") is not None


def test_a_line_of_the_configuration_comes_before_its_commands() -> None:
    way = fix(changed(NO_DRIVER, os={"id": "nixos"}), "driver-missing")
    assert way.commands == () and way.alternatives[0].commands[-1] == "sudo reboot"


def test_an_image_of_fedora_is_not_written_to() -> None:
    system = {"id": "fedora", "name": "Fedora Linux 43 (Silverblue)"}
    way = fix(changed(NO_DRIVER, os=system), "driver-missing")
    assert "rpm-ostree" in way.commands[0] and not any("dnf" in line for line in way.commands)


def test_a_release_called_blue_onyx_is_no_image() -> None:
    system = {"id": "rocky", "version": "9.6", "name": "Rocky Linux 9.6 (Blue Onyx)"}
    way = fix(changed(NO_DRIVER, os=system), "driver-missing")
    assert way.commands[-2:] == ("sudo modprobe nvidia", "nvidia-smi")


@pytest.mark.parametrize("value", ("3", "MIG-nonexistent", "GPU-nonexistent"))
def test_a_variable_that_names_nothing_hides_the_gpus(value: str) -> None:
    machine = changed(env={"CUDA_VISIBLE_DEVICES": value}, cuda_api={"init_code": 100})
    assert fix(machine, "cuda-visible-devices-hidden").commands == ("unset CUDA_VISIBLE_DEVICES",)
