"""What `nvidia-smi` prints, read: real captures, and texts composed from real formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Gpu
from gpusetup.model.versions import Capability
from gpusetup.probe.dmesg import parse_kernel_log
from gpusetup.probe.smi import IN_SHORT, read_smi
from gpusetup.readings.nvidia_smi.csv import parse_csv, parse_list
from gpusetup.readings.nvidia_smi.log import parse_query, parse_xml
from gpusetup.readings.nvidia_smi.table import parse_banner, parse_table
from gpusetup.readings.nvidia_smi.values import Smi, parse_error
from gpusetup.system.processes import Output
from gpusetup.system.tape import ReplaySystem, Tape

CAPTURES = Path(__file__).parent / "captures"
PARSERS = {
    "table": parse_table,
    "list": parse_list,
    "csv": parse_csv,
    "xml": parse_xml,
    "query": parse_query,
}

XML_V11 = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v11.dtd">
<nvidia_smi_log>
  <driver_version>515.105.01</driver_version>
  <cuda_version>11.7</cuda_version>
  <attached_gpus>1</attached_gpus>
  <gpu id="00000000:00:1E.0">
    <product_name>NVIDIA A10G</product_name>
    <persistence_mode>Disabled</persistence_mode>
    <display_active>Disabled</display_active>
    <mig_mode><current_mig>N/A</current_mig><pending_mig>N/A</pending_mig></mig_mode>
    <driver_model><current_dm>N/A</current_dm></driver_model>
    <uuid>GPU-00000000-0000-0000-0000-00000000a10a</uuid>
    <gpu_virtualization_mode>
      <virtualization_mode>Pass-Through</virtualization_mode>
    </gpu_virtualization_mode>
    <pci>
      <pci_bus_id>00000000:00:1E.0</pci_bus_id>
      <pci_gpu_link_info>
        <pcie_gen><max_link_gen>4</max_link_gen><current_link_gen>1</current_link_gen></pcie_gen>
        <link_widths><max_link_width>16x</max_link_width><current_link_width>8x</current_link_width></link_widths>
      </pci_gpu_link_info>
    </pci>
    <clocks_throttle_reasons>
      <clocks_throttle_reason_gpu_idle>Active</clocks_throttle_reason_gpu_idle>
      <clocks_throttle_reason_sw_power_cap>Not Active</clocks_throttle_reason_sw_power_cap>
      <clocks_throttle_reason_display_clocks_setting>Active</clocks_throttle_reason_display_clocks_setting>
    </clocks_throttle_reasons>
    <fb_memory_usage><total>23028 MiB</total><used>22 MiB</used></fb_memory_usage>
    <bar1_memory_usage><total>32768 MiB</total><used>1 MiB</used></bar1_memory_usage>
    <compute_mode>Default</compute_mode>
    <utilization><gpu_util>0 %</gpu_util></utilization>
    <ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode>
    <ecc_errors>
      <volatile><sram_uncorrectable>1</sram_uncorrectable><dram_uncorrectable>2</dram_uncorrectable></volatile>
      <aggregate><sram_uncorrectable>9</sram_uncorrectable><dram_uncorrectable>9</dram_uncorrectable></aggregate>
    </ecc_errors>
    <retired_pages><pending_retirement>N/A</pending_retirement></retired_pages>
    <remapped_rows>
      <remapped_row_pending>No</remapped_row_pending><remapped_row_failure>No</remapped_row_failure>
    </remapped_rows>
    <temperature><gpu_temp>17 C</gpu_temp></temperature>
    <power_readings><power_draw>25.58 W</power_draw><power_limit>310.00 W</power_limit>
      <enforced_power_limit>300.00 W</enforced_power_limit></power_readings>
    <processes></processes>
  </gpu>
</nvidia_smi_log>
"""
A10G = Gpu(
    name="NVIDIA A10G",
    uuid="GPU-00000000-0000-0000-0000-00000000a10a",
    memory_total_bytes=23028 << 20,
    memory_used_bytes=22 << 20,
    pci_bus_id="00000000:00:1E.0",
    compute_mode="Default",
    ecc_enabled=True,
    ecc_uncorrected=3,
    retired_pending=False,
    remap_failed=False,
    temperature_celsius=17,
    power_watts=25.58,
    power_limit_watts=300.0,
    throttle_reasons=("gpu_idle", "display_clock_setting"),
    utilization_percent=0,
    pcie_generation=1,
    pcie_generation_max=4,
    pcie_width=8,
    pcie_width_max=16,
    virtualization="passthrough",
)
XML_V12_WINDOWS = (
    XML_V11.replace("device_v11", "device_v12")
    .replace("clocks_throttle_reason", "clocks_event_reason")
    .replace("<current_dm>N/A", "<current_dm>WDDM")
    .replace("power_readings", "gpu_power_readings")
    .replace("enforced_power_limit", "current_power_limit")
)
XML_V13 = (
    XML_V12_WINDOWS.replace("device_v12", "device_v13")
    .replace(
        "sram_uncorrectable>1</sram_uncorrectable",
        "sram_uncorrectable_parity>1</sram_uncorrectable_parity",
    )
    .replace(
        "<power_draw>25.58 W</power_draw>",
        "<average_power_draw>N/A</average_power_draw>\n"
        "<instant_power_draw>25.58 W</instant_power_draw>",
    )
)
QUERY_TEXT = """==============NVSMI LOG==============

Timestamp                                 : Mon Aug  5 12:57:09 2024
Driver Version                            : 545.29.06
CUDA Version                              : 12.3

Attached GPUs                             : 1
GPU 00000000:0B:00.0
    Product Name                          : GRID A100D-4C
    Persistence Mode                      : Enabled
    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    GPU UUID                              : GPU-00000000-0000-0000-0000-00000000000c
    GPU Virtualization Mode
        Virtualization Mode               : VGPU
        Host VGPU Mode                    : N/A
    vGPU Software Licensed Product
        Product Name                      : NVIDIA Virtual Compute Server
        License Status                    : Unlicensed (Restricted)
    PCI
        Bus Id                            : 00000000:0B:00.0
        GPU Link Info
            PCIe Generation
                Max                       : 4
                Current                   : 2
            Link Width
                Max                       : 16x
                Current                   : 4x
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Active
    FB Memory Usage
        Total                             : 4096 MiB
        Used                              : 128 MiB
    Compute Mode                          : Prohibited
    Utilization
        Gpu                               : 12 %
    Temperature
        GPU Current Temp                  : 77 C
    Fabric
        State                             : In Progress
        Status                            : N/A
"""
BANNER_610 = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 615.10.01              KMD Version: 615.10.01     CUDA UMD Version: 13.4     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|=========================================+========================+======================|
|   0  NVIDIA GeForce RTX 5070 ...    Off |   00000000:02:00.0  On |                  N/A |
| N/A   51C    P8              7W /   70W |     273MiB /  12227MiB |      2%   E. Process |
|                                         |                        |                  N/A |
"""
TABLE_WSL = """\
| NVIDIA-SMI 510.60.02    Driver Version: 512.15       CUDA Version: ERR!     |
"""
TABLE_WINDOWS = """\
| NVIDIA-SMI 581.29                 Driver Version: 581.29         CUDA Version: 13.0     |
| GPU  Name                  Driver-Model | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|   0  NVIDIA GeForce RTX 3050 ...  WDDM  |   00000000:01:00.0 Off |                  N/A |
| N/A   50C    P0             26W /   60W |     234MiB /   4096MiB |      1%      Default |
"""


def captured(name: str) -> str:
    return (CAPTURES / name).read_text()


def test_the_csv_of_a_lost_gpu_marks_that_gpu_only() -> None:
    smi = parse_csv(captured("a100-gpu3-lost/csv.stdout"))
    assert (smi.driver_version, smi.persistence, smi.complete) == ("550.163.01", True, True)
    assert [gpu.lost for gpu in smi.gpus] == [None, None, None, True, None, None, None, None]
    assert smi.gpus[3] == Gpu(
        name="NVIDIA A100-SXM4-40GB",
        uuid="GPU-12345678-1234-1234-1234-123456780003",
        nvml_index=3,
        pci_bus_id="00000000:4E:00.0",
        compute_capability=Capability(8, 0),
        power_limit_watts=400.0,
        pcie_generation=4,
        pcie_generation_max=4,
        pcie_width=16,
        pcie_width_max=16,
        throttle_reasons=("gpu_idle",),
        clock_sm_max_mhz=1410,
        ecc_enabled=True,
        mig_enabled=False,
        compute_mode="Default",
        lost=True,
    )


@pytest.mark.parametrize(
    "blank",
    (
        "[N/A]",
        "N/A",
        "[Not Supported]",
        "[Unknown Error]",
        "ERR!",
        "",
        "[GPU requires reset]",
        "[Insufficient Permissions]",
        "Requested functionality has been deprecated",
    ),
)
def test_a_cell_without_a_value_is_none(blank: str) -> None:
    (gpu,) = parse_csv(f"name, uuid, memory.total [MiB]\n{blank}, {blank}, {blank}").gpus or ()
    assert gpu == Gpu(name="unknown")


def test_the_table_of_a_lost_gpu_marks_that_gpu_only() -> None:
    smi = parse_table(captured("a100-gpu3-lost/table.stdout"))
    assert (smi.smi_version, smi.driver_version, smi.cuda_version) == (
        "535.261.03",
        "550.163.01",
        "12.4",
    )
    assert [gpu.lost for gpu in smi.gpus] == [None, None, None, True, None, None, None, None]
    assert (smi.gpus[3].pci_bus_id, smi.gpus[3].temperature_celsius) == ("00000000:4E:00.0", None)
    assert (smi.gpus[2].memory_total_bytes, smi.gpus[2].mig_enabled) == (40960 << 20, False)


def test_a_cut_xml_says_so_and_gives_what_it_holds() -> None:
    smi = parse_xml(captured("a100-gpu3-lost/xml.stdout"))
    assert (smi.driver_version, smi.cuda_version) == ("550.163.01", "12.4")
    assert (smi.complete, smi.problems) == (False, ("cut after 1 of 8 GPUs",))
    assert smi.gpus[0].uuid == "GPU-12345678-1234-1234-1234-123456780000"


@pytest.mark.parametrize(
    ("text", "model"), [(XML_V11, None), (XML_V12_WINDOWS, "WDDM"), (XML_V13, "WDDM")]
)
def test_the_xml_formats_say_the_same_in_their_own_words(text: str, model: str | None) -> None:
    smi = parse_xml(text)
    assert (smi.driver_version, smi.cuda_version, smi.complete) == ("515.105.01", "11.7", True)
    assert smi.persistence is False
    assert smi.gpus[0].driver_model == model
    assert smi.gpus[0] == _with(A10G, driver_model=model)


def _with(gpu: Gpu, **changes: object) -> Gpu:
    return replace(gpu, **changes)


def test_versions_of_610_have_new_names_in_xml_and_the_old_hold_a_remark() -> None:
    text = XML_V13.replace(
        "<cuda_version>11.7</cuda_version>",
        "<cuda_version>Deprecated; use CUDA UMD Version</cuda_version>"
        "<kmd_version>615.10.01</kmd_version><cuda_umd_version>13.4</cuda_umd_version>",
    )
    assert (parse_xml(text).driver_version, parse_xml(text).cuda_version) == ("615.10.01", "13.4")


def test_err_in_the_banner_is_no_version_but_a_problem() -> None:
    banner = parse_banner(TABLE_WSL)
    assert (banner.driver_version, banner.cuda_version) == ("512.15", None)
    assert banner.problems == ("CUDA version: ERR!",)


def test_the_windows_table_names_the_driver_model() -> None:
    smi = parse_table(TABLE_WINDOWS)
    assert (smi.gpus[0].driver_model, smi.persistence) == ("WDDM", None)


def test_mig_rows_are_no_gpus() -> None:
    text = TABLE_WINDOWS + (
        "| MIG devices:                                                                |\n"
        "|  0    7   0   0  |     12MiB /  9856MiB  | 14      0 |  1   0    0    0    0 |\n"
    )
    assert len(parse_table(text).gpus or ()) == 1


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (captured("no-kernel-module/table.stdout"), 9),
        (captured("no-libnvidia-ml/table.stdout"), 12),
        ("Failed to initialize NVML: Driver/library version mismatch", 18),
        ("Failed to initialize NVML: Unknown Error", 999),
        ("Failed to initialize NVML: Insufficient Permissions", 4),
        ("Failed to initialize NVML: GPU access blocked by the operating system", 17),
        ("Failed to initialize NVML: Driver Not Loaded", 9),
    ],
)
def test_every_error_that_it_prints_becomes_nvmls_code(text: str, code: int) -> None:
    for parse in PARSERS.values():
        assert (parse(text).nvml_code, parse(text).gpus) == (code, None)


def test_a_mismatch_may_name_the_librarys_version() -> None:
    text = (
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95"
    )
    assert parse_error(text).library_version == "580.95"


def test_no_devices_is_an_answer_and_no_error() -> None:
    assert parse_csv("No devices were found") == Smi(
        gpus=(), nvml_code=0, message="No devices were found"
    )


@settings(max_examples=60)
@given(st.data())
def test_a_text_cut_anywhere_is_read_without_an_error(data: st.DataObject) -> None:
    whole = data.draw(
        st.sampled_from((XML_V13, QUERY_TEXT, BANNER_610, captured("a100-gpu3-lost/csv.stdout")))
    )
    cut = whole[data.draw(st.integers(0, len(whole))) : data.draw(st.integers(0, len(whole)))]
    for parse in PARSERS.values():
        assert isinstance(parse(cut), Smi)


@given(st.text(alphabet=st.sampled_from("|<>/:,. \n-0123456789ABCGPUgpunvidia[]x%!"), max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    for parse in PARSERS.values():
        assert isinstance(parse(text), Smi)
    assert parse_error(text) is None or parse_error(text).message
    parse_kernel_log(text)


# --- asking the program

PROGRAM = "/usr/bin/nvidia-smi"


def answered(stdout: str = "", *, code: int | None = 0, problem: str | None = None) -> Output:
    return Output(argv=(), exit=code, stdout=stdout, problem=problem, seconds=1.5)


def machine(said: Output, short: Output | None = None) -> ReplaySystem:
    runs = {f"{PROGRAM} -q -x": said}
    runs |= {" ".join((PROGRAM, *IN_SHORT)): short} if short else {}
    return ReplaySystem(Tape(which={"nvidia-smi": PROGRAM}, run=runs))


def problems(side: Any) -> list[str]:
    return [reading.problem for reading in side.readings if reading.problem]


def test_what_dies_in_its_long_answer_is_asked_in_short_and_a_reading_says_so() -> None:
    text, csv = (captured(f"a100-gpu3-lost/{kind}.stdout") for kind in ("xml", "csv"))
    side = read_smi(machine(answered(text, code=-11), answered(csv)), 30)
    assert len(side.gpus or ()) == 8
    assert side.gpus[3].lost is True
    assert side.driver.version == "550.163.01"
    assert problems(side) == ["cut after 1 of 8 GPUs"]
    alone = read_smi(machine(answered(text, code=-11)), 30)
    assert (len(alone.gpus or ()), alone.driver.cuda) == (1, "12.4")


def test_an_error_ends_the_asking_with_its_code() -> None:
    text = (CAPTURES / "no-kernel-module" / "table.stdout").read_text()
    side = read_smi(machine(answered(text, code=9)), 30)
    assert (side.driver.nvml_code, side.gpus) == (9, None)
    assert side.driver.nvml_message == text.strip()


def test_an_nvidia_smi_that_hangs_is_an_event_and_no_slow_answer() -> None:
    side = read_smi(machine(answered(code=None, problem="no answer in 30 s")), 30)
    assert side.driver.seconds is None
    assert dict(side.events[0].values) == {
        "asked": "nvidia-smi",
        "how": "hung",
        "problem": "no answer in 30 s",
    }


def test_a_machine_without_it_says_so() -> None:
    assert problems(read_smi(ReplaySystem(Tape()), 30)) == ["no such program"]


# --- the kernel log


def test_the_kernel_log_gives_typed_events() -> None:
    log = """\
[ 1.0] NVRM: API mismatch: the client has the version 535.129.03, but
[ 2.0] NVRM: Xid (PCI:0000:61:00): 119, pid=1, name=x, Timeout after 6s of waiting for RPC response
[ 3.0] NVRM: GPU 0000:98:00.0: RmInitAdapter failed! (0x62:0x55:1860)
[ 4.0] NVRM: GPU 0000:65:00.0: GPU has fallen off the bus.
[ 5.0] modprobe: ERROR: could not insert 'nvidia': Key was rejected by service
[ 6.0] usb 1-1: new high-speed USB device
"""
    assert [(event.kind, dict(event.values)) for event in parse_kernel_log(log)] == [
        ("nvml-mismatch", {"client": "535.129.03"}),
        ("xid", {"bus_id": "0000:61:00", "number": "119"}),
        ("gpu-init-failed", {"bus_id": "0000:98:00.0", "code": "0x62:0x55:1860"}),
        ("gpu-fell-off-bus", {"bus_id": "0000:65:00.0"}),
        ("secure-boot-rejected", {"module": "nvidia"}),
    ]
