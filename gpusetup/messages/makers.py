"""Messages about GPUs of other makers: AMD's ROCm and HIP, Intel's Level Zero and SYCL, Apple's MPS.

Sources: torch's c10/hip, c10/xpu and aten/mps, rocminfo, HIP's and Level Zero's error names, SYCL's
device selection, Metal's assertions, DPC++' runtime, bitsandbytes' cextension.py.
"""

from __future__ import annotations

from gpusetup.messages.row import row

AMDS = r"lib(?:amdhip64|amd_comgr|hip(?:blas(?:lt)?|fft|rtc|rand|solver|sparse(?:lt)?)|roc(?:blas|fft|rand|solver|sparse|tracer64|tx64|m_smi64|profiler[\w-]*)|rccl|MIOpen|hsa-runtime64)"
"""ROCm's libraries."""
ONEAPIS = r"lib(?:ur_loader|ur_adapter_\w{2,20}|sycl|pi_\w{2,20}|umf|ccl)"
"""Libraries of Intel's oneAPI that torch's XPU wheels contain too."""
LEVEL_ZEROS = r"lib(?:ze_loader|ze_intel_gpu|sycl|ur_loader|ur_adapter_\w{4,12}|pi_level_zero|intel-ext-pt-gpu|mkl_sycl\w{0,12})"
"""Libraries that torch's XPU build loads."""
OTHER_CARDS = r"(?<!www\.)NVIDIA(?! driver| GPU and installed)|GeForce|\bRTX|\bGTX|\bTesla"
"""Words that name an NVIDIA card, but not the NVIDIA driver, which torch's messages mention on
every machine."""

WITHOUT_MPS = r"\bbuilt\b\W{0,12}(?:(?:is|returns?) )?False\b|not (?:built|compiled) with MPS"
"""Words beside an MPS that is not available, because torch was built without it."""

ROWS = (
    # `device: mps`, `on cuda:0`, `Found 1 ROCm devices`: the backend runs, so a complaint in the same text
    # is about something else. A refusal that names the device shows nothing.
    row("backend-runs", r"(?<!torch\.)\bdevice\b['\"]?(?:\((?:type=)?|[:=]) ?['\"]?(?:mps|xpu)\b|\bon cuda:\d|\.to\(['\"](?:mps|xpu)\b|\busing (?:device:? )?['\"]?(?:mps|xpu)\b|(?<!if torch\.)\b(?:mps|xpu)\.is_available\(\)\W{0,8}True|\bXPU available: True|\bfound [1-9]\d? (?:ROCm|SYCL) devices|\bggml_metal_init: found device|\bMetal device set to", "mps", "xpu", "cuda:", " devices", "metal", unless=r"(?:mps|xpu)\.is_available\(\)\W{0,8}False|not compiled with|can(?:not|'t) (?:use|run)"),
    row("no-hip-gpus", r"(?:open|access) '?/dev/kfd'?(?: read-write)?\W{1,3}(?:Permission denied|Operation not permitted|No such file or directory)", why="devices"),
    row("no-hip-gpus", r"not (?:a )?member of \W?(?:render|video)\W? group", why="devices"),
    # docker looks for a device on the host before it starts: without amdgpu, there is none.
    row("no-hip-gpus", r"error gathering device information while adding custom device ['\"\\]*/dev/kfd", why="devices"),
    row("no-hip-gpus", "hiperrornodevice", why="devices"),
    row("no-hip-gpus", "no rocm-capable device is detected", why="devices"),
    row("no-hip-gpus", r"rocBLAS error: Could not initialize Tensile host:.{0,20}?No devices found", why="devices"),
    row("no-hip-gpus", "rock module is not loaded", why="devices"),
    # rocminfo's list of agents.
    row("rocm-lists-gpu", r"\bDevice Type: GPU\b"),
    row("rocm-lists-gpu", r"\bName: gfx\d{3,4}[a-f]?\b"),
    # `Iris Xe`, `UHD Graphics 770`: graphics of a processor.
    row("foreign-gpu", r"\b(?:Intel(?:\(R\))? )?(?:Iris(?:\(R\))? (?:Xe|Plus|Pro)|U?HD Graphics)\b", "iris", "hd graphics", unless=OTHER_CARDS, vendor="intel", name="integrated graphics"),
    row("foreign-gpu", r"\[ZLUDA\]|\bzluda(?:\.exe|\.py| -- )|ComfyUI-Zluda|stable-diffusion-webui-amdgpu|--use-zluda|\.zluda\b|zluda_\w{2,12}\b", vendor="amd"),
    row("foreign-gpu", r"\bHIPBLAS_STATUS_\w{3,40}|hipBLASLt on an unsupported", vendor="amd"),
    row("foreign-gpu", "runtimeerror: hip error", vendor="amd"),
    # `intelanalytics/ipex-llm-xpu`: an image that is made for Intel's GPUs only.
    row("foreign-gpu", r"(?<![\w./-])(?:intelanalytics|intel)/[\w.-]{0,40}(?:ipex|xpu|intel-extension-for-pytorch)[\w.-]{0,40}", "intelanalytics/", "intel/", unless=OTHER_CARDS, vendor="intel", name="Intel GPU"),
    row("no-hip-gpus", r"(?i:error|fail\w*|find|found|missing|cannot|unable)\b[^\n]{0,120}?amdhip64(?:_\d)?\.dll", why="driver"),
    row("no-hip-gpus", rf"\b(?P<library>{AMDS}\.so[.\d]*): cannot (?!enable exec)", why="driver"),
    # HIP error: invalid device function on gfx1036
    # llama.cpp prints CUDA's name for HIP.
    row("hip-kernel-missing", r"\bfound [1-9]\d? ROCm devices.{0,2000}?CUDA error: invalid device function", what="kernel"),
    row("hip-kernel-missing", r"\bROCm error: (?:device kernel image is invalid|invalid device function|no kernel image)", what="kernel"),
    # A single target. A list names the targets that a library was built for.
    row("hip-kernel-missing", r"HIP error: invalid device function(?:.{0,600}?(?<!\w,)(?<!\w, )(?<!\w' ')\b(?P<gfx>gfx\d{3,4}[a-f]?)\b(?!\W{1,5}gfx))?", what="kernel"),
    row("hip-kernel-missing", r"(?:Cannot read \S{1,200}TensileLibrary|TensileLibrary\S{0,24}:? Illegal seek)(?:.{0,120}?(?P<gfx>gfx\d{3,4}[a-f]?)\b)?", "tensilelibrary", what="kernel"),
    row("hip-kernel-missing", "hiperrornobinaryforgpu", what="kernel"),
    row("hip-kernel-missing", "hiperrorinvaliddevicefunction", what="kernel"),
    row("hip-kernel-missing", "hsa_status_error_invalid_isa", what="kernel"),
    # ollama's message that the ROCm it includes has no library for the GPU.
    row("hip-kernel-missing", r"amdgpu is not supported \(supported types:\[[\w ]{0,300}\]\)\W{1,3}gpu_type=(?P<gfx>gfx\d{3,4}[a-f]?)", what="kernel"),
    row("no-xpu", "failed to initialize xpu devices", why="driver"),
    row("no-xpu", r"\bUR_RESULT_ERROR_(?:UNINITIALIZED|DEVICE_NOT_FOUND|INVALID_DEVICE|UNSUPPORTED_\w+|UNKNOWN|OUT_OF_\w{3,20})", why="driver"),
    row("no-xpu", rf"\b(?P<library>{LEVEL_ZEROS}\.so[.\d]*): cannot ", why="driver"),
    row("no-xpu", "no device of requested type available", why="driver"),
    row("no-xpu", r"ZE_RESULT_ERROR_(?:UNINITIALIZED|UNSUPPORTED_FEATURE|DEPENDENCY_UNAVAILABLE|INSUFFICIENT_PERMISSIONS)", why="driver"),
    row("no-xpu", r"\b(?:UR_RESULT_ERROR|ZE_RESULT_ERROR)_DEVICE_LOST", why="driver"),
    # torch.xpu.device_count() 0
    row("no-xpu", r"(?<!if )(?<!if not )\b(?:torch|ipex)\.xpu\.is_available\(\)[\"'`)]{0,3}\W{0,6}(?:is\W{1,3}|returns? )?False\b", why="driver"),
    row("no-xpu", r"\bNo XPU devices? (?:are|is) available", why="driver"),
    # `/x/venv/bin/python 2.7.1+xpu False`, the answer to doctor's own question.
    row("no-xpu", r"[/\\]python[\d.]*(?:\.exe)? \d\.\d{1,2}\.\d{1,2}\+xpu False\b", why="driver"),
    row("no-xpu", r"Required aspect fp64 is not supported", why="float64"),
    row("no-xpu", r"\b(?:Double type|double[- ]precision|fp64|float64) (?:is )?not supported (?:on|by) (?:this|the) (?:platform|device|GPU)", why="float64"),
    # MPS built: True, MPS available: False
    row("mps-lacks", r"\bMPS\b[^?\n]{0,60}?\b(?:is_)?available\b.{0,24}?\bFalse\b", unless=WITHOUT_MPS, why="metal"),
    row("mps-lacks", r"MPS backend is supported on [Mm]acOS \d{1,2}(?:\.\d{1,2})?", why="metal"),
    # torch's own refusals of a type or of an operation
    row("mps-lacks", r"\bMPS framework doesn't support float64|\bMPS float64|Cannot convert a MPS Tensor to float64", why="dtype"),
    row("mps-lacks", r"Trying to convert \w+ to the MPS backend but it does not have support", why="dtype"),
    row("mps-lacks", r"[Pp]laceholder storage has not been allocated on MPS", why="tensors"),
    row("mps-lacks", r"(?:is|are) not supported on MPS\b"),
    row("mps-lacks", r"(?:not supported|unsupported)[^\n]{0,60}? (?:by mps\b|(?:at|for) the MPS device)(?!\. As| and will)", "by mps", "mps device"),
    row("mps-lacks", r"\bMPS(?: backend)?: (?:Unsupported|[A-Z]\w+ is|input)|RuntimeError: MPS\b(?! (?:server|client|control|backend out|backend is))"),
    # `The operator 'aten::x' is not currently implemented for the MPS device.`: the errors that
    # PYTORCH_ENABLE_MPS_FALLBACK catches.
    row("mps-lacks", r"\b[Oo]perator ['\"`]?aten::[\w.]{2,60}['\"`]? is not (?:currently )?(?:implemented|supported) (?:for|on) (?:the )?MPS|not (?:currently )?implemented (?:for|on) (?:the )?MPS|Could not run '[\w.:]{3,60}' with arguments from the 'MPS' backend|the MPS device\. As a temporary fix", "mps", unless=r"will fall back to run", caught="by the fallback"),
    row("mps-lacks", r"[Ii]nput type \((?:torch\.)?(?:mps\.)?\w+\) and (?:weight|bias) type \((?:torch\.)?(?:mps\.)?\w+\) should be the same", "mpshalf", "mpsfloat", "mpsbfloat", "torch.mps.", why="tensors", example="Input type (MPSHalfType) and weight type (torch.HalfTensor) should be the same"),
    row("built-for-another-processor", r"incompatible architecture \(have ['\"(]{0,2}(?P<built>x86_64|arm64)[^()]{0,16}?,? need ['\"(]{0,2}(?P<needed>x86_64|arm64)", "incompatible architecture", example="(mach-o file, but is an incompatible architecture (have 'x86_64', need 'arm64'))"),
)  # fmt: skip
