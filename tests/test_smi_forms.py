"""The forms in which nvidia-smi tells of MIG, processes, links, repairs and power: composed samples."""

from __future__ import annotations

import pytest

from gpusetup.model.machine import Gpu, GpuProcess
from gpusetup.readings.nvidia_smi.csv import parse_csv, parse_list
from gpusetup.readings.nvidia_smi.log import parse_query, parse_xml
from gpusetup.readings.nvidia_smi.table import parse_table
from gpusetup.report.read import read_report

HEAD = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.172.08             Driver Version: 570.172.08     CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
"""


def rows(index: int, mig: str) -> str:
    return f"""\
|   {index}  NVIDIA A100-SXM4-40GB          On  |   00000000:0{index + 1}:00.0 Off |                   On |
| N/A   32C    P0             43W /  400W |      87MiB /  40960MiB |     N/A      Default |
|                                         |                        | {mig:>20} |
+-----------------------------------------+------------------------+----------------------+
"""


MIG_HEAD = """
+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |                     Memory-Usage |        Vol|        Shared         |
|      ID  ID  Dev |                       BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |
|                  |                                  |        ECC|                       |
|==================+==================================+===========+=======================|
"""
INSTANCE = """\
|  {gpu}    {gi}   0   {dev}  |              37MiB / 20096MiB    | 42      0 |  3   0    2    0    0 |
|                  |                 0MiB / 32767MiB  |           |                       |
+------------------+----------------------------------+-----------+-----------------------+
"""
NONE = (
    "|  No MIG devices found                                                                   |\n"
)
PROCESSES = """
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
"""


def test_a_table_counts_the_instances_of_each_gpu_and_what_waits_for_a_reset() -> None:
    text = HEAD + rows(0, "Enabled") + rows(1, "Enabled") + rows(2, "Disabled*") + MIG_HEAD
    text += INSTANCE.format(gpu=0, gi=1, dev=0) + INSTANCE.format(gpu=0, gi=2, dev=1) + PROCESSES
    gpus = parse_table(text).gpus or ()
    assert [(gpu.mig_enabled, gpu.mig_count, gpu.mig_pending) for gpu in gpus] == [
        (True, 2, None),
        (True, 0, None),
        (False, None, True),
    ]


def test_a_table_without_instances_says_so_and_a_cut_one_does_not() -> None:
    (whole,) = parse_table(HEAD + rows(0, "Enabled") + MIG_HEAD + NONE).gpus or ()
    (cut,) = parse_table(HEAD + rows(0, "Enabled") + MIG_HEAD).gpus or ()
    assert (whole.mig_count, cut.mig_count) == (0, None)


@pytest.mark.parametrize(
    ("row", "process"),
    [
        (
            "|    0    1    0            88123      C   /opt/env/bin/python3                  20123MiB |",
            GpuProcess(pid=88123, name="python3", kind="C", memory_bytes=20123 << 20),
        ),
        (
            "|    0   N/A  N/A          2355      G   /usr/lib/xorg/Xorg                        71MiB |",
            GpuProcess(pid=2355, name="Xorg", kind="G", memory_bytes=71 << 20),
        ),
        (
            "|    0   N/A  N/A      9848    C+G   ...ta\\Local\\Games\\launcher.exe      N/A      |",
            GpuProcess(pid=9848, name="launcher.exe", kind="C+G"),
        ),
        (
            "|    0     16372      C   python                                      9731MiB |",
            GpuProcess(pid=16372, name="python", kind="C", memory_bytes=9731 << 20),
        ),
    ],
)
def test_a_tables_processes_in_all_forms(row: str, process: GpuProcess) -> None:
    (gpu,) = parse_table(HEAD + rows(0, "N/A") + PROCESSES + row + "\n").gpus or ()
    assert gpu.processes == (process,)


def test_a_table_that_lists_no_process_knows_that_there_is_none() -> None:
    said = "|  No running processes found                                                            |\n"
    assert (parse_table(HEAD + rows(0, "N/A") + PROCESSES + said).gpus or ())[0].processes == ()
    assert (parse_table(HEAD + rows(0, "N/A")).gpus or ())[0].processes is None


QUERY = """\
==============NVSMI LOG==============
Driver Version                            : 610.43.02
CUDA Version                              : 13.3
Attached GPUs                             : 1
GPU 00000000:18:00.0
    Product Name                          : NVIDIA B200
    MIG Mode
        Current                           : Enabled
        Pending                           : Disabled
    MIG Device
        Index                             : 0
        GPU Instance ID                   : 1
        Compute Instance ID               : 0
        FB Memory Usage
            Total                         : 20096 MiB
    MIG Device
        Index                             : 1
        GPU Instance ID                   : 5
        Compute Instance ID               : 0
    GPU Recovery Action                   : Drain P2P
    ECC Errors
        Volatile
            DRAM Uncorrectable            : 0
        Aggregate
            SRAM Threshold Exceeded       : Yes
    Retired Pages
        Single Bit ECC                    : 61
        Double Bit ECC                    : 2
        Pending Page Blacklist            : No
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 4
        Pending                           : Yes
        Remapping Failure Occurred        : No
    GPU Power Readings
        Power Draw
            Average                       : 143.10 W
            Instantaneous                 : 151.25 W
        Power Limit
            Current                       : 700.00 W
            Requested                     : 700.00 W
            Default                       : 1000.00 W
    Fabric
        State                             : Completed
        Status                            : Success
        CliqueId                          : 1
    Processes
        GPU instance ID                   : 1
        Compute instance ID               : 0
        Process ID                        : 4711
            Type                          : C
            Name                          : /srv/a/bin/python3
            Used GPU Memory               : 17000 MiB
        GPU instance ID                   : 5
        Compute instance ID               : 0
        Process ID                        : 4712
            Type                          : C
            Name                          : python3
            Used GPU Memory               : N/A
"""


def test_the_long_text_tells_all_of_a_gpus_health() -> None:
    (gpu,) = parse_query(QUERY).gpus or ()
    assert gpu == Gpu(
        name="NVIDIA B200",
        pci_bus_id="00000000:18:00.0",
        mig_enabled=True,
        mig_pending=False,
        mig_count=2,
        recovery_action="drain_p2p",
        sram_threshold_exceeded=True,
        ecc_uncorrected=0,
        retired_pages=63,
        retired_pending=True,
        remap_failed=False,
        power_watts=151.25,
        power_limit_watts=700.0,
        power_limit_default_watts=1000.0,
        fabric_state="completed",
        fabric_status="success",
        processes=(
            GpuProcess(pid=4711, name="python3", kind="C", memory_bytes=17000 << 20),
            GpuProcess(pid=4712, name="python3", kind="C"),
        ),
    )


@pytest.mark.parametrize(
    ("lines", "draw", "limit", "default"),
    [
        (("Power Draw : 12.5 W", "Power Limit : 70.0 W", "Default Power Limit : 72.0 W",
          "Enforced Power Limit : 69.0 W"), 12.5, 69.0, 72.0),
        (("Average Power Draw : N/A", "Instantaneous Power Draw : 31.64 W",
          "Current Power Limit : 140.0 W", "Min Power Limit : 5 W"), 31.64, 140.0, None),
        (("Average Power Draw : 24.0 W", "Instantaneous Power Draw : N/A"), 24.0, None, None),
    ],
)  # fmt: skip
def test_power_is_read_in_the_names_of_every_driver(
    lines: tuple[str, ...], draw: float, limit: float | None, default: float | None
) -> None:
    text = "GPU 00000000:18:00.0\n    GPU Power Readings\n" + "".join(
        f"        {line}\n" for line in lines
    )
    text += "    Module Power Readings\n        Instantaneous Power Draw : 900.0 W\n"
    (gpu,) = parse_query(text).gpus or ()
    assert (gpu.power_watts, gpu.power_limit_watts, gpu.power_limit_default_watts) == (
        draw,
        limit,
        default,
    )


XML = """<?xml version="1.0" ?>
<nvidia_smi_log><driver_version>580.95.05</driver_version><attached_gpus>2</attached_gpus>
<gpu id="00000000:10:00.0"><product_name>NVIDIA H100 80GB HBM3</product_name>
<mig_mode><current_mig>Enabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode>
<mig_devices>
<mig_device><index>0</index><gpu_instance_id>1</gpu_instance_id></mig_device>
<mig_device><index>1</index><gpu_instance_id>2</gpu_instance_id></mig_device>
<mig_device><index>2</index><gpu_instance_id>5</gpu_instance_id></mig_device>
</mig_devices>
<gpu_recovery_action>None</gpu_recovery_action>
<gpu_power_readings><instant_power_draw>70.5 W</instant_power_draw>
<current_power_limit>700.00 W</current_power_limit>
<default_power_limit>700.00 W</default_power_limit></gpu_power_readings>
<retired_pages><multiple_single_bit_retirement><retired_count>1</retired_count>
</multiple_single_bit_retirement><double_bit_retirement><retired_count>2</retired_count>
</double_bit_retirement></retired_pages>
<fabric><state>Completed</state><status>Success</status></fabric>
<processes><process_info><gpu_instance_id>1</gpu_instance_id><pid>7</pid><type>C</type>
<process_name>/usr/bin/python3.12</process_name><used_memory>1024 MiB</used_memory></process_info>
<process_info><gpu_instance_id>2</gpu_instance_id><pid>8</pid><type>C</type>
<process_name></process_name><used_memory>N/A</used_memory></process_info></processes>
</gpu>
<gpu id="00000000:20:00.0"><product_name>NVIDIA H100 80GB HBM3</product_name>
<mig_mode><current_mig>Enabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode>
<mig_devices>
    None
</mig_devices><processes>
</processes>
</gpu></nvidia_smi_log>
"""


def test_xml_tells_instances_processes_repairs_and_the_fabric() -> None:
    first, second = parse_xml(XML).gpus or ()
    assert (first.mig_count, second.mig_count) == (3, 0)
    assert (first.recovery_action, first.retired_pages) == ("none", 3)
    assert first.processes == (
        GpuProcess(pid=7, name="python3.12", kind="C", memory_bytes=1 << 30),
        GpuProcess(pid=8, kind="C"),
    )
    assert (first.power_watts, first.power_limit_default_watts) == (70.5, 700.0)


def test_a_report_puts_all_its_outputs_together_by_gpu() -> None:
    text = """\
$ nvidia-smi -L
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-1)
$ nvidia-smi --query-gpu=index,name,uuid,pci.bus_id,memory.total --format=csv
index, name, uuid, pci.bus_id, memory.total [MiB]
0, NVIDIA H100 80GB HBM3, GPU-0, 00000000:10:00.0, 81559 MiB
1, NVIDIA H100 80GB HBM3, GPU-1, 00000000:20:00.0, 81559 MiB
$ nvidia-smi --query-remapped-rows=gpu_bus_id,remapped_rows.failure --format=csv
gpu_bus_id, remapped_rows.uncorrectable, remapped_rows.pending, remapped_rows.failure
00000000:10:00.0, 0, No, No
00000000:20:00.0, 8, Yes, Yes
$ nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv
gpu_uuid, pid, process_name, used_gpu_memory [MiB]
GPU-1, 4711, /opt/env/bin/python3, 70000 MiB
GPU-1, 4712, python3, 512 MiB
"""
    first, second = read_report(text).gpus or ()
    assert (first.remap_failed, first.processes) == (False, None)
    assert (second.remap_failed, second.retired_pending) == (True, True)
    assert [one.pid for one in second.processes or ()] == [4711, 4712]


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("memory.total [MiB]\n23034 MiB\n", 23034 << 20),
        ("timestamp, memory.total [MiB]\n2026/11/20 06:03:41.123, 23034 MiB\n", 23034 << 20),
        (
            "name, count, serial, vbios_version, pcie.link.gen.max, inforom.img, clocks.max.sm [MHz]"
            ", memory.total [MiB]\nNVIDIA L4, 1, 0, 95.04, 4, G193, 2040 MHz, 23034 MiB\n",
            23034 << 20,
        ),
    ],
)
def test_a_csv_is_read_whatever_the_length_of_its_header(text: str, memory: int) -> None:
    (gpu,) = parse_csv(text).gpus or ()
    assert gpu.memory_total_bytes == memory


def test_a_csv_without_header_is_read_by_the_command_above_it() -> None:
    text = """$ nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader
NVIDIA L4, 23034 MiB, 580.95.05
"""
    snapshot = read_report(text)
    assert [gpu.name for gpu in snapshot.gpus or ()] == ["NVIDIA L4"]
    assert snapshot.driver.version == "580.95.05"


def test_a_list_counts_instances() -> None:
    text = "GPU 0: NVIDIA A30 (UUID: GPU-1)\n  MIG 1g.6gb      Device  0: (UUID: MIG-2)\n"
    assert (parse_list(text).gpus or ())[0].mig_count == 1
