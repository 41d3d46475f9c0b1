"""A GPU of AMD under the monitor, by composed files."""

from __future__ import annotations

import pytest
from tapes import ReplaySystem, system

from gpusetup.monitor.polled import open_amdgpu
from gpusetup.monitor.sources import SourceEnded

CARD = "/sys/bus/pci/devices/0000:03:00.0"


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
