"""GPUs of AMD, Intel and Apple under the monitor, by composed files and printed answers."""

from __future__ import annotations

import pytest
from tapes import ReplaySystem, said, system

from gpusetup.monitor.amdgpu import open_amdgpu
from gpusetup.monitor.other_makers import open_other_maker
from gpusetup.monitor.powermetrics import gpus_of as gpus_of_powermetrics
from gpusetup.monitor.sources import SourceEnded
from gpusetup.monitor.xpu_smi import QUESTION, gpus_of, held_back

CARD = "/sys/bus/pci/devices/0000:03:00.0"
XPU_ROWS = """Timestamp, DeviceId, GPU Utilization (%), GPU Power (W), GPU Frequency (MHz), \
GPU Core Temperature (Celsius Degree), GPU Memory Used (MiB)
06:14:46.000,    0, 97.50, 114.61, 2400, 61.00, 8123.50
06:14:46.000,    1, N/A, 14.00, 300, 40.00, 12.00
"""


def radeon() -> ReplaySystem:
    """A Radeon under load, as amdgpu's files show it."""
    files = {
        f"{CARD}/class": "0x030000\n",
        f"{CARD}/vendor": "0x1002\n",
        f"{CARD}/device": "0x744c\n",
        f"{CARD}/gpu_busy_percent": "98\n",
        f"{CARD}/mem_busy_percent": "41\n",
        f"{CARD}/mem_info_vram_used": "21474836480\n",
        f"{CARD}/mem_info_vram_total": "25753026560\n",
        f"{CARD}/hwmon/hwmon4/power1_average": "303000000\n",
        f"{CARD}/hwmon/hwmon4/power1_cap": "303000000\n",
        f"{CARD}/hwmon/hwmon4/temp1_input": "61000\n",
        f"{CARD}/hwmon/hwmon4/temp2_input": "88000\n",
        f"{CARD}/hwmon/hwmon4/freq1_input": "2304000000\n",
    }
    return system(files)


def test_amdgpus_files_tell_load_memory_power_and_heat() -> None:
    source = open_amdgpu(0.01, radeon())
    gpu = source.next(1.0).gpus[0]
    assert (gpu.utilization_percent, gpu.memory_busy_percent) == (98.0, 41.0)
    assert gpu.memory_percent is not None and round(gpu.memory_percent) == 83
    assert (gpu.power_watts, gpu.power_limit_watts) == (303.0, 303.0)
    assert (gpu.temperature_celsius, gpu.clock_sm_mhz) == (88.0, 2304)
    assert source.name == "amdgpu"


def test_a_processors_graphics_without_a_load_is_no_source() -> None:
    with pytest.raises(SourceEnded, match="no AMD GPU reports its utilisation"):
        open_amdgpu(1.0, system({f"{CARD}/class": "0x030000\n", f"{CARD}/vendor": "0x1002\n"}))


def test_xpu_smis_rows_are_read_by_their_headings() -> None:
    first, second = gpus_of(XPU_ROWS)
    assert (first.utilization_percent, first.power_watts) == (97.5, 114.61)
    assert (first.temperature_celsius, first.clock_sm_mhz) == (61.0, 2400)
    assert first.memory_used_bytes == round(8123.5 * (1 << 20))
    assert second.utilization_percent is None and second.power_watts == 14.0


@pytest.mark.parametrize("text", ["", "error: no device", "Timestamp, DeviceId\n1, x\n1,2,3\n"])
def test_what_xpu_smi_prints_instead_of_rows_is_no_gpu(text: str) -> None:
    assert gpus_of(text) == ()


def test_intels_tool_is_asked_where_amds_files_are_not_there() -> None:
    key = " ".join(held_back(QUESTION))
    machine = system(which={"xpu-smi": "/usr/bin/xpu-smi"}, says={key: said(XPU_ROWS)})
    assert open_other_maker(0.01, machine).name == "xpu-smi"


def test_powermetrics_tells_load_and_power_of_apples_gpu() -> None:
    text = "*** Sampled ***\nGPU HW active frequency: 1338 MHz\nGPU HW active residency:  93.10%"
    gpu = gpus_of_powermetrics(f"{text} (x)\nGPU Power: 18250 mW\n")[0]
    assert (gpu.utilization_percent, gpu.power_watts, gpu.clock_sm_mhz) == (93.1, 18.25, 1338)


def test_a_machine_without_any_of_them_says_what_was_tried() -> None:
    with pytest.raises(SourceEnded, match=r"amdgpu: .*; xpu-smi: not found"):
        open_other_maker(1.0, system({}))
