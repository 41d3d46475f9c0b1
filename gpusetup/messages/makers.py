"""Messages about GPUs of other makers: AMD's ROCm and HIP, Intel's Level Zero and SYCL, Apple's MPS.

Sources: torch's c10/hip, c10/xpu and aten/mps, rocminfo, HIP's and Level Zero's error names, SYCL's
device selection, Metal's assertions, IPEX' kernels, DPC++' runtime, bitsandbytes' cextension.py.
"""

from __future__ import annotations

from gpusetup.messages.row import row, rows

AMDS = r"lib(?:amdhip64|hip(?:blas(?:lt)?|fft|rtc|rand|solver|sparse(?:lt)?)|roc(?:blas|fft|rand|solver|sparse|tracer64|tx64|m_smi64)|rccl|MIOpen|hsa-runtime64)"
"""ROCm's libraries."""


OTHER_CARDS = r"(?<!www\.)NVIDIA(?! driver| GPU and installed)|GeForce|\bRTX|\bGTX|\bTesla"
"""Words that name an NVIDIA card, but not the NVIDIA driver, which torch's messages mention on
every machine."""
OTHERS = r"NVIDIA|GeForce|\bRTX|\bGTX|\bTesla"

AN_AMD = r"(?<![\w-])(?:AMD|amd)(?= (?:(?:on )?(?:[Ll]inux|[Ww]indows)|system|machine|user|laptop|ROCm|ROCM|\(ROCm)\b|[):\]]| ?[-|] )"
"""Words for a machine with an AMD GPU, but not for an AMD processor."""
NO_DRIVER = (
    r"[Ff]ound no NVIDIA driver|[Nn]o CUDA GPUs are available|[Tt]orch not compiled with CUDA"
    r"|Torch is not able to use GPU"
)
INSTALLED_FOR_ROCM = r"pip3? install [^\n]{0,200}?whl/(?:nightly/)?rocm\d"
"""An install command that only somebody with an AMD GPU types."""


NVIDIAS = r"\bNVIDIA\b|\bGeForce\b|\b[RG]TX\b|\bCUDA\b"

FAILS = r"\b(?:crash\w*|fail\w*|errors?|hangs?|segfault|not? (?:\w+ )?(?:detect\w*|found|work\w*|show\w*|see|seen|us\w{2,3})|n[o']t (?:\w+ )?(?:detect\w*|find|work|see|use|show)|nothing|only detects)\b"

IN_USE = row(
    "backend-runs",
    (
        r"(?<!not )(?<!n't )(?<!if )(?<!instead of )(?<!tried )(?<!try )(?<!to )\b(?:us(?:ing|es?)|selected|running|train(?:ing|s)?|runs?|computes)(?: it)? (?:on |the )*(?:device\b:? ?)?['\"]?(?:mps|xpu|cuda(?::\d)?)\b(?!/|\.\w| (?:version|toolkit|build|runtime|\d))"
        r"|(?<!torch\.)\bdevice\b['\"]?(?:\((?:type=)?|[:=]| is| =)? ?['\"]?(?:mps|xpu)\b|\.to\(['\"](?:mps|xpu)\b|(?<!if torch\.)(?<!until torch\.)\b(?:mps|xpu)\.is_available\(\)(?:\W{0,3}(?:returns?|returned|is|prints?|shows?|gives?|says)\b)?\W{0,8}True|\bXPU available: True|\bfound [1-9]\d? (?:ROCm|SYCL) devices|\bggml_metal_init: found device|\bMetal device set to"
    ),
    "mps",
    "xpu",
    "cuda",
    " devices",
    "metal",
    unless=r"(?:mps|xpu)\.is_available\(\)\W{0,8}False",
)
"""A message that shows that a program uses the mps, xpu or cuda backend, so a complaint in the same
text is about something else."""

INTELS = r"(?:\bsycl-ls\b|\blevel_zero:(?:gpu|\d)|\b(?:XPU|GPU|SYCL|Intel)\b.{0,200}?\bLevel Zero\b|\bipex[-_](?:llm|ollama)\b|\btorch\.xpu\.\w{4,24})"
"""Words that name Intel's own tools and runtime."""


ROCMS_TOOLS = r"rocm[-_]?info|rocm[-_]smi|amd[-_]smi|rocm tool(?:s|ing)?|rocm utilities"
LISTS = r"(?:shows?|lists?|sees?|detects?|finds?|recogni[sz]es?|reports?|prints?|displays?|works?)\b(?! (?:no|not|nothing|only|just|an? error|the CPU|as root|with sudo)\b)"
"""ROCm's own tools, and the words that they list the GPU."""


ROWS = (
    # `access '/dev/kfd': No such file or directory`.
    *rows(
        "no-hip-gpus",
        r"(?:open|access) '?/dev/kfd'?(?: read-write)?\W{1,3}(?:Permission denied|Operation not permitted|No such file or directory)",
        r"not (?:a )?member of \W?(?:render|video)\W? group",
        why="groups",
    ),
    # `"/dev/kfd": no such file`.
    row(
        "no-hip-gpus",
        r"['\"]?/dev/kfd['\"]?:? (?:is (?:missing|absent|not there)|does(?: not|n't) exist|not found|no such file)",
        unless=r"\b(?:if|when|in case) ['\"]?/dev/kfd",
        why="driver",
    ),
    # `ls: cannot access '/dev/dri': No such file or directory`.
    *rows(
        "device-node-missing",
        r"(?:access|open) ['\"]?/dev/dri(?:/renderD\d+|/card\d)?['\"]?:? No such file or directory",
        r"['\"`]?/dev/dri(?:/renderD\d+|/card\d)?['\"`]? (?:\w+ )?(?:is (?:missing|absent|not there)|does(?: not|n't) exist|is not (?:present|found)|not found)",
        r"\bls (?:-\w+ )?/dev/dri\b[^\n]{0,20}?(?:fails|: No such file)",
        r"graphics device [0-9a-f]{4} is not properly supported by (?:i915|xe)\b",
        unless=r"\b(?:if|when|in case) ['\"`]?/dev/dri",
    ),
    # `/dev/dri does not exist on host`: docker looks for a device on the host before it starts.
    *rows(
        "device-node-missing",
        r"error gathering device information while adding custom device ['\"\\]*/dev/(?:dri|kfd)",
        r"/dev/(?:dri|kfd)['\"`]? (?:\w+ )?(?:is (?:missing|absent|not there)|does(?: not|n't) exist|is not (?:present|found)|not found) on (?:the |my )?host\b",
        r"\b(?:the |my )?host (?:\w+ )?(?:has no|lacks) ['\"`]?/dev/(?:dri|kfd)",
        place="host",
    ),
    # `sudo rocminfo works`.
    row(
        "works-as-root",
        r"\bsudo [^\n]{3,140}?\b(?:works|prints? True|shows? (?:True|the|my)|lists? (?:the|my)|sees (?:the|my))\b|\b(?:as|with|under) root\b[^.\n]{0,40}?\b(?:works|sees|finds|shows|lists|True)\b|\bworks (?:fine )?(?:as|with|under) (?:root|sudo)\b",
        unless=r"\b(?:not|n't|neither|even) (?:\w+ ){0,2}(?:work|as root|with sudo|with root)",
    ),
    # rocminfo's list of agents.
    *rows(
        "rocm-lists-gpu",
        r"\bDevice Type: GPU\b",
        r"\bName: gfx\d{3,4}[a-f]?\b",
        r"\bName: amdgcn-amd-amdhsa-",
        r"\bChip ID: \d{2,6} ?\(0x(?P<chip>[0-9a-f]{4})\)",
        tool="rocminfo",
    ),
    # rocm-smi's table.
    row(
        "rocm-lists-gpu",
        r"\bROCm System Management Interface\b.{0,900}?\b(?:GPU\[\d\]|\d+ \d+ 0x[0-9a-f]{4})",
        tool="rocm-smi",
    ),
    # `rocminfo and rocm-smi both list the card`, `it is recognized by the rocm tooling`.
    *rows(
        "rocm-lists-gpu",
        rf"(?<!sudo )(?<!if )(?<!when )(?<!root )(?<!neither )\b(?P<tool>{ROCMS_TOOLS})\b(?:(?! not| never| fail| can ?not| should| would)[\w ]){{0,24}} {LISTS}",
        rf"(?<!not )(?<!n't )(?<!be )(?<!no GPU )(?<!nothing )\b(?:see (?:it|(?:my|the) (?:\w+ )?(?:GPU|card))|seen|listed|visible|recogni[sz]ed|detected|found|shown|shows up|appears)\b (?:fine |correctly |just fine )?(?:by|in|with|under|from|via) (?:the )?(?P<tool>{ROCMS_TOOLS})\b",
        # Beside a container, the host's list shows nothing of what the program may open.
        unless=r"\bhost\b",
    ),
    # `not available until I sign into the server locally`, `only works when I am logged in at the
    # desktop`: systemd gives the devices to the user at the screen.
    row(
        "works-as-root",
        r"\b(?:until|unless|only|after|once|first|if I|when I) [^.\n]{0,60}?\b(?:sign|log)(?:s|ged|ging|ing|ned)?[ -]?(?:in|on|into|onto)\b[^.\n]{0,40}?\b(?:locally|physically|in person|at the (?:\w+ )?(?:screen|desktop|console|monitor|machine|keyboard)|(?:in|to|into|via) (?:the |a |my )?(?:GNOME|KDE|desktop|GUI|graphical)\b)|\blocal (?:log-?in|sign-?in|session)\b",
        "log",
        "sign",
        unless=r"\bdocker login\b",
        place="seat",
    ),
    # `it works in any docker container`, because the user in a container is root.
    row(
        "works-as-root",
        r"\bit works (?:fine )?(?:in|inside) (?:any|every|an?|the) (?:docker )?container\b",
        place="host",
    ),
    # `os.environ["PYTORCH_MPS_HIGH_WATERMARK_RATIO"] = "0.0"`.
    row(
        "variable-in-script",
        r"os\.environ(?:\.setdefault\(|\[)['\"](?P<variable>PYTORCH_MPS_\w{3,40}|PYTORCH_ENABLE_MPS_FALLBACK|HSA_OVERRIDE_GFX_VERSION|(?:HIP|ROCR)_VISIBLE_DEVICES|ZE_AFFINITY_MASK|ONEAPI_DEVICE_SELECTOR)['\"](?:\]\s?=(?!=)|,)",
    ),
    # `amdgpu driver timeout`.
    *rows(
        "foreign-gpu",
        r"\b(?:amdgpu|AMD (?:GPU |graphics |display )?driver) (?:driver )?timeout",
        r"\b(?:NVIDIA|CUDA)(?:'s)? (?:\w+ )?(?:version|build|variant|one|torch|dependenc\w{1,3}|packages?)(?: of (?:py)?torch)? instead of (?:(?:using|installing|the|my|with|for) ){0,3}(?:AMD|ROCm|DirectML)\b",
        r"\bamd\.com/gpu\b|\bamdgpu_device_initialize:",
        r"amdgpu-install (?:-y )?--usecase=\S{0,40}rocm",
        r"Configured ROCm binary not found at",
        r"ROCm GPU architecture detection failed despite ROCm being available",
        r"msg=\"(?:Radeon GPU detected|ROCm unsupported integrated GPU detected)",
        r"\[ZLUDA\]|\bzluda(?:\.exe|\.py| -- )|ZLUDA (?:load|support|version|\d\.\d)|(?:via|with|using|on) ZLUDA\b|ComfyUI-Zluda|--use-zluda|\.zluda\b|zluda_\w{2,12}\b",
        "found version 2147483647",
        r"\b(?:ollama|vllm|llama\.cpp|pytorch) (?:\w+ )?rocm (?:docker )?(?:image|container)\b[^.\n]{0,60}?\b(?:can ?not|can't|does(?: not|n't)|fails?)\b",
        r"\bmiopenStatus\w{3,40}",
        r"\bHIPBLAS_STATUS_\w{3,40}|hipBLASLt on an unsupported",
        r"/var/lib/dkms/amdgpu/|error processing package amdgpu-dkms",
        "runtimeerror: hip error",
        r"HIP call failed:? hipError(?!NoDevice)",
        r"\bamdgpu\b[^\n]{0,60}?(?:GPU reset|ring \S{3,20} timeout|GPU fault detected|page fault)",
        vendor="amd",
    ),
    # `rocBLAS error: Could not initialize Tensile host: No devices found`.
    *rows(
        "no-hip-gpus",
        "hiperrornodevice",
        r"hipErrorInvalidDevice\b",
        "no rocm-capable device is detected",
        r"rocBLAS error: Could not initialize Tensile host:.{0,20}?No devices found",
        why="devices",
    ),
    # `could not find amdhip64_7.dll; amdhip64.dll is missing`.
    *rows(
        "no-hip-gpus",
        "rock module is not loaded",
        r"(?i:error|fail\w*|find|found|missing|cannot|unable)\b[^\n]{0,120}?amdhip64(?:_\d)?\.dll",
        r"amdhip64(?:_\d)?\.dll\W{0,4}(?:(?:was|is) )?(?i:not found|missing|could not|cannot|failed)",
        rf"\b(?P<library>{AMDS}\.so[.\d]*): cannot (?!enable exec)",
        why="driver",
    ),
    # found 1 ROCm devices … CUDA error: invalid device function: llama.cpp prints CUDA's name for HIP
    row(
        "hip-kernel-missing",
        r"\bfound [1-9]\d? ROCm devices.{0,2000}?CUDA error: invalid device function",
        "rocm devices",
        what="kernel",
    ),
    # Ryzen 5 3400G with Radeon Vega Graphics, iGPU
    row(
        "amd-graphics",
        r"\b[Ii]GPU\b|\bAPU\b|\bRyzen \d \w[\w ]{2,20} with Radeon\b|\bAMD Radeon(?:\(TM\))?(?: Vega \d{1,2})? Graphics\b",
        "igpu",
        "apu",
        "ryzen",
        "radeon",
    ),
    # pip install --index-url https://rocm.nightlies.amd.com/v2/gfx110X-all/ torch
    *rows(
        "amds-index",
        r"https?://[\w.-]{4,60}/(?:v2(?:-staging)?|rocm/whl[\w-]*|whl[\w-]*)/gfx\w{2,6}(?:-\w{2,8})?/?",
        r"https?://(?:rocm\.(?:nightlies|devreleases|prereleases)|(?:stable\.)?repo)\.amd\.com/\S{0,80}",
        r"https?://repo\.radeon\.com/rocm/(?:manylinux|windows)\S{0,120}",
    ),
    # HIP error: unspecified launch failure. Other rows read the missing device and the missing
    # kernel, and "out of memory" is no failure of the stack.
    row(
        "hip-failed",
        r"\bHIP (?:runtime )?error: (?!no ROCm|invalid device function|invalid device ordinal|out of memory|hipError)[a-z][\w -]{4,60}",
        "hip error: ",
        "hip runtime error: ",
    ),
    # HIP error: invalid device function on gfx1036
    *rows(
        "hip-kernel-missing",
        # A single target. A list names the targets that a library was built for.
        r"HIP error: invalid device function(?:.{0,600}?(?<!\w,)(?<!\w, )(?<!\w' ')\b(?P<gfx>gfx\d{3,4}[a-f]?)\b(?!\W{1,5}gfx))?",
        r"(?:Cannot read \S{1,200}TensileLibrary|TensileLibrary\S{0,24}:? Illegal seek)(?:.{0,120}?(?P<gfx>gfx\d{3,4}[a-f]?)\b)?",
        "hiperrornobinaryforgpu",
        "hiperrorinvaliddevicefunction",
        "hsa_status_error_invalid_isa",
        # "omits gfx1152; fails with invalid device function".
        r"\bgfx\d{3,4}\b[^\n]{0,80}?\bfails? with invalid device function",
        # ollama's message that the ROCm it includes has no library for the GPU.
        r"amdgpu is not supported \(supported types:\[[\w ]{0,300}\]\)\W{1,3}gpu_type=(?P<gfx>gfx\d{3,4}[a-f]?)",
        what="kernel",
    ),
    # `Found no NVIDIA driver on your system. (AMD`.
    row(
        "foreign-gpu",
        rf"{AN_AMD}.{{0,160}}?(?:{NO_DRIVER})|(?:{NO_DRIVER}).{{0,160}}?{AN_AMD}",
        "amd",
        unless=OTHER_CARDS,
        vendor="amd",
    ),
    # `pip install torch --index-url …/whl/rocm6.3` … `Found no NVIDIA driver`.
    row(
        "foreign-gpu",
        rf"{INSTALLED_FOR_ROCM}.{{0,1100}}?(?:{NO_DRIVER})|(?:{NO_DRIVER}).{{0,1100}}?{INSTALLED_FOR_ROCM}",
        "whl/rocm",
        "whl/nightly/rocm",
        unless=OTHER_CARDS,
        vendor="amd",
    ),
    # `Arc Pro B60` … `Torch not compiled with CUDA`.
    row(
        "foreign-gpu",
        r"\b(?:Intel (?:\(R\) )?(?:Arc|XPU)|Arc (?:Pro )?[AB]\d{2,3})\b.{0,1100}?Torch not compiled with CUDA|Torch not compiled with CUDA.{0,600}?\b(?:Intel (?:\(R\) )?(?:Arc|XPU)|Arc (?:Pro )?[AB]\d{2,3})\b",
        unless=OTHERS,
        vendor="intel",
        name="Intel GPU",
    ),
    # `Radeon card` … `Torch not compiled with CUDA`.
    *rows(
        "foreign-gpu",
        r"\b(?:Radeon|RX ?[5-9]\d{3}|AMD GPU|AMD graphics)\b.{0,1100}?Torch not compiled with CUDA|Torch not compiled with CUDA.{0,600}?\b(?:Radeon|RX ?[5-9]\d{3}|AMD GPU|AMD graphics)\b",
        r"\b(?:Radeon|RX ?[5-9]\d{3}|AMD (?:GPU|graphics|Ryzen)|Renoir)\b.{0,900}?download\.pytorch\.org/whl/(?:nightly/)?rocm\d",
        r"(?<!if )\brocminfo\b(?! ?ROCk)[^.\n]{0,40}?\b(?:shows? no|lists? no|finds? no|no agents?|(?:does|do|is|can)(?: not|n't|not)|only (?:shows?|lists?)|fails?|failed)\b",
        r"\bamdgpu-dkms\b.{0,600}?\b(?:rocm-core|rocminfo|rocm-smi-lib)\b",
        unless=OTHERS,
        vendor="amd",
    ),
    # `Are you using a GPU? AMD`.
    row(
        "foreign-gpu",
        r"\b(?:Are you using a GPU|What GPU[\w ]{0,20}|[Mm]y (?:GPU|graphics card) is|GPU(?: used| model)?) ?[:?=]?[* ]{1,4}(?:an? )?(?:AMD|Radeon)\b",
        "amd",
        unless=rf"{OTHER_CARDS}|AMD Ryzen|AMD EPYC|AMD Threadripper",
        vendor="amd",
    ),
    # `using an integrated Intel GPU`.
    row(
        "foreign-gpu",
        r"\b(?:using|have|has|got|with|on)(?: an?| my| the| only| just)*(?: integrated)? Intel(?:'s)? (?:integrated )?(?:GPU|graphics\b|iGPU|[Ii]ris\b|UHD\b)|\b(?:GPU|(?:graphics|video) card)(?: used| model| type)?(?: is|:| =)[* ]{1,4}(?:an? |only |the |just )*(?:integrated )?Intel(?:\(R\))? (?:U?HD\b|Iris\b|graphics\b)|\b(?:Intel(?:\(R\))? )?Iris(?:\(R\))? (?:Xe|Plus|Pro)\b|\bUHD (?:Graphics\b|[67]\d0\b)",
        unless=rf"{OTHER_CARDS}|\bdiscrete|\bdedicated",
        vendor="intel",
        name="integrated graphics",
    ),
    # `[GPU] Can't get DEVICE_ID property as no supported devices found`.
    *rows(
        "no-xpu",
        r"\[GPU\] Can't get \w{4,30} property as no supported devices found",
        "atenipextypexpu",
        "failed to initialize xpu devices",
        r"\bUR_RESULT_ERROR_(?:UNINITIALIZED|DEVICE_NOT_FOUND|INVALID_DEVICE|UNSUPPORTED_\w+|UNKNOWN|OUT_OF_\w{3,20})",
        r"\b(?P<library>lib(?:ze_loader|ze_intel_gpu|sycl|ur_loader|ur_adapter_\w{4,12}|pi_level_zero|intel-ext-pt-gpu|mkl_sycl\w{0,12})\.so[.\d]*): cannot ",
        r"Required aspect (?!fp64\b)\w{2,20} is not supported on the device",
        r"sycl_ext_oneapi_(?!.{0,160}?\b(?:NVIDIA|CUDA)\b)",
        r"\(PI_ERROR_(?!DEVICE_LOST)\w{3,40}\)",
        r"Error loading \W?\S{0,200}intel-ext-pt-\w{2,8}\.dll",
        "no device of requested type available",
        r"ZE_RESULT_ERROR_(?:UNINITIALIZED|UNSUPPORTED_FEATURE|DEPENDENCY_UNAVAILABLE|INSUFFICIENT_PERMISSIONS)",
        why="driver",
    ),
    # xpu … RuntimeError: could not create an engine
    row(
        "no-xpu",
        r"\b(?:xpu|Arc (?:Pro )?[AB]\d{2,3}).{0,900}?could not create an engine|could not create an engine.{0,400}?\b(?:xpu|Arc (?:Pro )?[AB]\d{2,3})",
        "could not create an engine",
        why="driver",
        call="oneDNN",
    ),
    # ROCk module is loaded, which rocminfo prints after somebody has loaded it
    row("rock-loaded", r"\bROCk module is loaded\b", "rock module is loaded"),
    # device name [0]: AMD Radeon RX 6800 XT, which AMD's own test for WSL prints
    row(
        "named-by-torch",
        r"\bdevice name \[\d\]: (?:AMD|Radeon)\b",
        "device name [",
    ),
    # Can't add devices across platforms to a single context
    row(
        "no-xpu",
        r"Can't add devices across platforms to a single context",
        why="platforms",
    ),
    # /x/venv/bin/python 2.7.1+xpu False, the answer to doctor's own question
    row(
        "no-xpu",
        r"[/\\]python[\d.]*(?:\.exe)? \d\.\d{1,2}\.\d{1,2}\+xpu False\b",
        "+xpu false",
        why="count",
    ),
    # torch.xpu.device_count() 0
    *rows(
        "no-xpu",
        r"\b(?:XPU|DPCPP) device count is zero",
        r"\b(?:reports?|finds?|sees?|shows?|lists?) no xpu devices?\b",
        r"(?<!if )(?<!if not )\b(?:torch|ipex)\.xpu\.is_available(?:\(\))?[\"'`]?\)?(?: is| returns?| returned| prints?| gives?| says?|:| ==| ->| =)? ?[\"'`]?[Ff]alse\b",
        r"Number of (?:dpcpp|sycl|xpu) devices should be greater than zero",
        r"\bxpu[. ]device_count(?:\(\))?['\"`]*\)?(?:,|:| =| ->|(?: is| returns?| prints?| gives?| shows?))? {0,3}0\b(?!\.)",
        r"\bno xpu devices? (?:(?:are|were|is|was) )?(?:available|found|detected)\b",
        why="count",
    ),
    # sycl-ls lists only a CPU
    row(
        "sycl-finds-none",
        r"\bsycl-ls\b.{0,300}?\[opencl:cpu(?::\d+)?\](?!(?:(?!\bhost\b).){0,600}?:gpu(?::\d+)?\])|\bsycl-ls\b[^.\n]{0,40}?\b(?:shows?|lists?|sees?|finds?|detects?)\b (?:nothing|no|only)\b|\bsycl-ls\b\W{0,3}(?:does(?: not|n't)|can ?not) (?:see|list|show|find|detect)",
        "sycl-ls",
    ),
    # import intel_extension_for_pytorch; torch-2.1.0a0+cxx11.abi, which Intel built for it
    row(
        "ipex",
        r"\bintel[-_]extension[-_]for[-_]pytorch\b|\bipex[-_]llm\b|(?<![\w.])(?<!vision[= ])(?<!audio[= ])(?<!vision==)(?<!audio==)\d\.[\w.]{1,12}\+cxx11\.abi\b|\bipex\.__version__",
        "intel",
        "ipex",
        "cxx11.abi",
    ),
    # --directml, torch_directml
    row("directml", r"\b(?:torch[-_])?directml\b|\bDmlExecutionProvider\b", "directml", "dmlexec"),
    # a rootless podman, distrobox or toolbox
    row(
        "rootless-container",
        r"\brootless\b|\bdistrobox\b|\btoolbox (?:enter|create|run)\b|(?<!sudo )\bpodman (?:run|compose|exec)\b",
        "rootless",
        "distrobox",
        "toolbox ",
        "podman ",
        unless=r"\bsudo podman|\brootful\b|\bnot rootless\b",
    ),
    # With HSA_OVERRIDE_GFX_VERSION=11.0.0 it hangs the system
    row(
        "override-hangs",
        r"HSA_OVERRIDE_GFX_VERSION.{0,240}?\b(?:hangs?|hung|freez\w{1,4}|page faults?|crash(?:es|ed)? (?:the |my )?(?:system|machine|PC|GPU|desktop|session))\b",
        "hsa_override_gfx_version",
    ),
    # access("/dev/dri/renderD128", F_OK) = -1 EPERM
    row(
        "device-cgroup",
        r"access\(\W?/dev/(?:dri/renderD\d+|kfd)[^)\n]{0,12}\)\s*= -1 EPERM|amdgpu_get_auth \(\d\) failed",
        "eperm",
        "amdgpu_get_auth",
    ),
    # Native API returns: 20 (UR_RESULT_ERROR_DEVICE_LOST)
    *rows(
        "no-xpu",
        r"\b(?:UR_RESULT_ERROR|ZE_RESULT_ERROR|PI_ERROR)_DEVICE_LOST",
        why="lost",
    ),
    # MPS built: True, MPS available: False
    *rows(
        "mps-lacks",
        r"\bMPS\b(?:[^?.]|\.(?=\w)){0,60}?\b(?:is_)?built\b.{0,24}?\bTrue\b.{0,200}?\b(?:is_)?available\b.{0,24}?\bFalse\b",
        r"\bMPS\b(?:[^?.]|\.(?=\w)){0,60}?\b(?:is_)?available\b.{0,24}?\bFalse\b.{0,200}?\b(?:is_)?built\b.{0,24}?\bTrue\b",
        r"\bMPS (?:backend )?(?:is |was )?built(?:,| and| in)* but (?:is |was )?(?:not |un)available\b",
        r"\bmps\.is_available\(\)\W{0,8}(?:(?:is|returns?|gives|prints?|says)\W{1,4})?False\b",
        unless=r"\bbuilt\b\W{0,12}(?:(?:is|returns?) )?False\b|not (?:built|compiled) with MPS",
        why="metal",
    ),
    # are not supported on MPS
    *rows(
        "mps-lacks",
        r"(?:is|are) not supported on MPS\b",
        r"(?:is|are) unsupported by mps\b",
        r"requires a GPU \(not ['\"]?mps\b",
        r"MPS backend is supported on macOS \d{1,2}(?:\.\d{1,2})?",
        r"\bMPS: [^\n]{3,60}? supported (?:natively )?(?:starting )?from macOS \d{1,2}(?:\.\d{1,2})?",
        r"Could not run '[\w.:]{3,60}' with arguments from the '(?:Sparse|Quantized)?MPS' backend",
    ),
    # `for the MPS device`.
    row(
        "mps-lacks",
        r"for the MPS device(?!.{0,60}fall back)|\bMPS float64|(?<!aten::)(?:on|a|the) MPS (?:device|[Tt]ensor|framework|backend)\b(?! and will fall back)|\bMPS(?: backend)?: (?:Unsupported|[A-Z]\w+ is|input)|RuntimeError: MPS\b(?! (?:server|client|control|backend out))|MPSNDArray|MPSGraph",
        "mps",
    ),
    # `The operator 'aten::x' is not currently implemented for the MPS device.`: the errors that
    # PYTORCH_ENABLE_MPS_FALLBACK catches.
    row(
        "mps-lacks",
        r"NotImplementedError:[^\n]{0,80}?(?:\boperator\b|aten::)[^\n]{0,120}?\bMPS\b|\b[Oo]perator ['\"`]?aten::[\w.]{2,60}['\"`]? is not (?:currently )?(?:implemented|supported) (?:for|on) (?:the )?MPS|not (?:currently )?implemented (?:for|on) (?:the )?MPS|Could not run '[\w.:]{3,60}' with arguments from the 'MPS' backend|the MPS device\. As a temporary fix",
        "mps",
        unless=r"will fall back to run",
        caught="by the fallback",
    ),
    # tensor([[nan, nan, nan]], device='mps:0')
    row(
        "mps-lacks",
        r"\bnan\b[^\[]{0,120}?device='mps(?::0)?'",
        "device='mps",
        unless=r"\binput\w* (?:is|are|has|have|contains?) nan\b",
        why="numbers",
    ),
    # Input type (MPSHalfType) and weight type (torch.HalfTensor) should be the same
    row(
        "mps-lacks",
        r"[Ii]nput type \((?P<input>(?:torch\.)?(?:MPS|mps\.)?\w+)\) and (?:weight|bias) type \((?P<weight>(?:torch\.)?(?:MPS|mps\.)?\w+)\) should be the same",
        "mpshalf",
        "mpsfloat",
        "mpsbfloat",
        "torch.mps.",
        why="types",
    ),
    # device mps … Input type (c10::Half) and bias type (float) should be the same
    row(
        "mps-lacks",
        r"\bmps\b.{0,900}?[Ii]nput type \((?P<input>c10::\w+|float)\) and (?:weight|bias) type \((?P<weight>c10::\w+|float)\) should be the same|[Ii]nput type \((?P<input_before>c10::\w+|float)\) and (?:weight|bias) type \((?P<weight_before>c10::\w+|float)\) should be the same.{0,200}?\bmps\b",
        "should be the same",
        unless=r"\bcuda:\d",
        why="types",
    ),
    # (mach-o file, but is an incompatible architecture (have 'x86_64', need 'arm64'))
    row(
        "built-for-another-processor",
        r"incompatible architecture \(have ['\"(]{0,2}(?P<built>x86_64|arm64)[^()]{0,16}?,? need ['\"(]{0,2}(?P<needed>x86_64|arm64)",
        "incompatible architecture",
    ),
    IN_USE,
    # `inference compute" library=rocm compute=gfx1102 available="15.8 GiB"`.
    row(
        "program-found-gpu",
        r"inference compute\b.{0,120}?\blibrary=(?:rocm|oneapi|vulkan|metal)\b[^\n]{0,60}",
        "library=",
    ),
    # `torch.xpu.device_count() ends with exit code 0xC0000005`.
    *rows(
        "no-xpu",
        r"\b(?:torch\.xpu|\+xpu)\b.{0,400}?(?:0xC0000005|-1073741819|\bexit(?:ed)?(?: with)?(?: code)? ?139\b|\bSIGSEGV\b|[Ss]egmentation fault|[Aa]ccess violation)",
        why="driver",
    ),
    # `crashes with ONEAPI_DEVICE_SELECTOR=level_zero:0`.
    row(
        "foreign-gpu",
        rf"{INTELS}.{{0,600}}?{FAILS}|{FAILS}.{{0,600}}?{INTELS}",
        "sycl-ls",
        "level_zero:",
        "level zero",
        "ipex",
        "torch.xpu",
        unless=NVIDIAS,
        vendor="intel",
        name="Intel GPU",
    ),
)
