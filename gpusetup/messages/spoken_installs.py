"""What people say of an install, a build or an import that failed, where they paste no message.

Sources, as of November 2026: titles and first lines of threads in issue trackers.
"""

from __future__ import annotations

from gpusetup.messages.row import row, rows

IF = r"\b(?:if|when|whenever|whether|unless|in case|until|make sure|once) (?:\S{1,16} ){0,5}?"
OTHERS_GPU = r"\b(?:AMD|Radeon|ROCm|Intel Arc|macOS|Jetson)\b|no (?:NVIDIA )?GPU"

TORCH_MISSING = (
    row(
        "torch-missing",
        ("exist", "not installed", "n't installed", "is missing", "be found"),
        r"\b(?:errors?|says?|saying|said|claims?|claiming|claimed|complain\w*|tells?|told|report\w*|thinks?)\b[^.\n]{0,24}?[`'\"]?(?:py)?torch[`'\"]? "
        r"(?:(?:does ?n[o']t|does not|doesnt) exist\b|is(?: not|n't) installed\b|is missing\b|(?:could not|cannot|can't|can not|couldn't) be found\b)",
        unless=rf"{IF}(?:py)?torch|\b(?:with|for|in) (?:py)?torch (?:is not|isn't|does)",
    ),
)
"""A program that finds no torch, as its user says it."""

PUT_BACK = r"(?:re)?install(?:s|ed|ing)?|download(?:s|ed|ing)?|put(?:s|ting)?|restor(?:es|ed|ing)"
CPU_ONLY = (
    *(
        row(
            "torch-not-compiled-with-cuda",
            needle,
            rf"\btorch\b.{{0,300}}?\bonly (?:the |a )?CPU(?:[- ]only)? (?:version|build|wheel|variant)s?\b[^.\n]{{0,24}}? (?:be |is |was |gets? |are |being )?(?:{PUT_BACK})\b",
            unless=rf"\b(?:want|wants|need|needs) (?:\S{{1,12}} ){{0,3}}only|{OTHERS_GPU}",
        )
        for needle in ("only the cpu", "only a cpu", "only cpu")
    ),
)
"""An update that put torch's CPU build in the place of another."""

NEW_ARCH = r"(?:sm_?1[02][0-3]\b|compute_1[02][0-3]\b|Blackwell\b|RTX ?50[5-9]0)"
SUPPORTS_NOT = r"(?:does not|doesn't|does n[o']t|doesnt|did not|didn't|cannot|can't|do not|don't) (?:yet |currently |officially )?(?:support|include|have (?:support|kernels) for|work (?:with|on)|recogni[sz]e)"
NO_BLACKWELL = tuple(
    row(
        "gpu-not-in-wheel",
        needle,
        rf"\b(?:py)?torch\b(?: version| build| wheel| install(?:ation)?)?(?: \d[\w.+]{{1,20}})?,?(?: (?:which|that|and it|it|still))? {SUPPORTS_NOT} (?:my |the |an? |NVIDIA |GeForce )*{NEW_ARCH}",
        unless=rf"{IF}(?:py)?torch|\b(?:flash|xformers|triton|vllm|extension)\b[^.\n]{{0,40}}does",
        side="new",
        said="in words",
    )
    for needle in ("support", "include", "have ", "work ", "recogni")
)
"""A torch of which somebody says that it lacks the kernels of the newest GPUs."""

TO_NOUVEAU = (
    row(
        "nouveau-in-the-way",
        "nouveau",
        r"\bfalls? back to (?:the )?nouv?eau\b|\bnouveau (?:is |was |gets? )?(?:still )?(?:loaded|used|active|running) (?:instead|rather)\b",
        unless=rf"{IF}(?:\S{{1,16}} )?fall|\b(?:not|never|no longer) (?:\w+ )?falls? back",
    ),
    row(
        "nouveau-in-the-way",
        "noveau",
        r"\bfalls? back to (?:the )?noveau\b",
        unless=rf"{IF}(?:\S{{1,16}} )?fall",
    ),
)

COMPILER = (
    row(
        "compiler-missing",
        "cl.exe",
        r"(?:\b(?:cpp_extension|setup\.py|wheel|pip|build|install\w*)\b.{0,400}?)?[`'\"]?\bcl(?:\.exe)?[`'\"]?(?: (?:being|was|is) (?:called|invoked|run)\b[^,\n]{0,60}?)?,? (?:but )?(?:it )?(?:is not|isn't|was not|wasn't|could not be|cannot be|can't be|not) (?:be )?found\b",
        unless=rf"{IF}[`'\"]?cl\b",
    ),
)

SECURE = r"secure[- ]?boot"
LOADS_NOT = r"(?:can ?not|can't|cant|could not|couldn't|won't|wont|does not|doesn't|do not|don't|fails? to|refus\w{1,4} to|not able to|unable to) (?:be )?(?:loaded|load|accepted)"
UNSIGNED = (
    *(
        row(
            "secure-boot-rejected",
            needle,
            rf"\b(?:nvidia|driver|modules?)\b[^.\n]{{0,80}}?\b{LOADS_NOT}\b[^.\n]{{0,40}}?\b(?:because of|due to|thanks to|by|under|with) {SECURE}\b",
            unless=rf"{IF}(?:nvidia|driver|module|secure)|{SECURE} (?:is )?(?:off|disabled)",
        )
        for needle in ("secure boot", "secureboot", "secure-boot")
    ),
    *(
        row(
            "secure-boot-rejected",
            needle,
            r"\bMOK\b.{0,500}?\b(?:NVIDIA|DKMS) (?:\w+ ){0,3}modules? (?:are|is|were|was|get) (?:\w+ )?(?:not (?:being )?(?:accepted|trusted)|rejected|refused)\b",
            unless=rf"{IF}(?:the )?(?:NVIDIA|DKMS)",
        )
        for needle in ("not accepted", "not trusted", "rejected", "refused")
    ),
)
"""A kernel that takes no unsigned module, as somebody concludes it."""

TRITON = (
    row(
        "triton-missing-windows",
        "triton",
        r"\b(?:because|fail(?:s|ed)?|errors?|complain\w*|says?|turn(?:s|ed) out)\b[^.\n]{0,60}?\btriton (?:(?:was|is|were)(?: not|n't) installed|not being installed|(?:was|is) missing\b(?! [`'\"A-Za-z]))",
        unless=rf"{IF}triton|\btriton (?:is|was) (?:missing|not installed)[^.\n]{{0,20}}\b(?:optional|warning|ignored)|\boptimi[sz]ations will not be enabled",
    ),
)

NETWORK = tuple(
    row(
        "download-network-error",
        needle,
        rf"\b(?:pip3?|uv|conda) (?:keeps |kept |is |was |always )?{needle}\b|\b(?:downloads?|downloading)\b (?:[^\s.]{{1,20}} ){{0,6}}?(?:keeps |kept |is |was |always |just )?{needle}\b|\b{needle} (?:while |when |during |in )(?:the )?download(?:s|ing)?\b",
        unless=rf"{IF}(?:pip|uv|conda|the download)",
        how="timeout",
    )
    for needle in ("timed out", "timing out", "times out")
)

NAMES_IT = r"(?:torchcodec|xformers|flash[-_ ]?attn|flash[-_ ]?attention|bitsandbytes|sage-?attention|torch[-_]scatter|torch[-_]sparse|pytorch3d|detectron2|mmcv|apex|deepspeed|gsplat|nvdiffrast|causal[-_]conv1d|mamba[-_]ssm)"
BREAKS_IT = tuple(
    row(
        "extension-abi-mismatch",
        needle,
        rf"\b(?:py)?torch(?: ?(?:==)?v?\d[\w.+]{{0,14}})? (?:update |upgrade |release )?{needle} (?P<module>{NAMES_IT})\b",
        unless=r"\b(?:if|whether|may|might|could) (?:\S{1,16} ){0,3}?(?:py)?torch",
    )
    for needle in ("broke", "breaks", "has broken")
)
"""A new torch, beside which an extension no longer loads."""

LACKS = (
    row(
        "library-missing",
        "libpython",
        r"\b(?P<library>libpython[\w.]{0,8}\.so[.\d]*)\b[^\n]{0,80}?\b(?:not found|missing)\b",
    ),
    row(
        "program-requirement-missing",
        "missing dependenc",
        r"\bmissing dependenc(?:y|ies):? [`'\"]?(?P<lacks>torchcodec|ffmpeg|ninja|cmake|packaging|wheel|psutil)\b",
    ),
    row(
        "program-release-too-old",
        "not compatible with",
        r"\bnot compatible with (?:the )?(?:py)?torch(?: versions?)? ?(?:above|newer than|later than|after|beyond|older than|below|under|[<>]=?) ?v?\d",
        beside="installed torch",
    ),
)

OF_SOURCES = r"(?:flash[-_]attn|causal[-_]conv1d|mamba[-_]ssm|deepspeed|auto[-_]gptq|mmcv(?:-full)?|detectron2)"
"""Packages that come as sources, so that an installer drops none of their releases for a Python."""
NOT_FOUND = (
    row(
        "no-matching-distribution",
        "looking in links",
        r"Looking in links: \S{0,160}(?:cu\d{2,3}|torch-?\d)\S{0,80}.{0,400}?No matching distribution found for (?P<requirement>(?!torch(?:vision|audio)?(?![\w-]))[a-z][\w-]{1,40}(?:[=<>!~]{1,2}[\w.+]{1,30})?)(?![\w-])",
        none_found="true",
    ),
    row(
        "no-matching-distribution",
        "satisfies the requirement",
        rf"satisfies the requirement (?P<requirement>{OF_SOURCES}==[\w.+]{{1,30}}) \(from versions: (?P<versions>\d[\w.+, ]{{4,600}})",
    ),
)
"""A page of wheels without one for this torch, or a release that never was."""

IN_AN_IMAGE = (
    *(
        row(
            "build-without-gpu",
            needle,
            r"\bis_available\b[^\n]{0,80}?\b(?:false|no GPU)\b[^.\n]{0,60}?\b(?:during|in|at|while|inside)(?: an?| the)? docker (?:image )?build\b|\b(?:during|in|at|while|inside)(?: an?| the)? docker (?:image )?build\b[^.\n]{0,80}?\b(?:false|no GPU|GPU is not)\b",
            unless=r"--gpus|\bdocker run\b",
        )
        for needle in ("docker build", "docker image build")
    ),
    row(
        "build-without-gpu",
        "falling back to multiple",
        r"CUDA not available\. Falling back to multiple architectures",
    ),
)
"""An extension that was built where no GPU could be asked for its architecture."""

HALVES = (
    row(
        "program-release-too-old",
        "incompatible function arguments",
        r"TypeError: (?P<called>\w{2,40}_(?:fwd|bwd|forward|backward|cuda))\(\): incompatible function arguments",
        beside="compiled extension that it calls",
    ),
    row(
        "extension-not-built",
        "not ",
        rf"\bwheels? for (?P<module>{NAMES_IT}) (?:are|is|were|was)(?:n't| not) (?:actually |really )?(?:built|compiled) (?:against|with|for) (?:CUDA|GPU)",
        unless=rf"{IF}(?:the )?wheels?",
    ),
    row(
        "cuda-toolkit-missing",
        "get_cuda_bare_metal_version",
        r"in get_cuda_bare_metal_version\b.{0,500}?\bsubprocess\.check_output\(.{0,500}?\bsubprocess\.py\W.{0,20}?line \d{1,5}, in (?:run|__init__|check_output)\b",
        unless=r"CalledProcessError|PermissionError|mismatch|Installed CUDA version",
    ),
)
"""Halves of a package that do not fit, or of which one is not there."""

NVIDIAS = r"(?:nvidia|driver \d{3}\b|GeForce|RTX \d{4}|GTX \d{3,4})"
FAILS = r"(?:br(?:eak|oke)\w{0,3}|fail\w{0,5}|disappear\w{0,2}|(?:is |was |be )?(?:complete(?:ly)? |entirely )?(?:gone|missing|deleted)|delet\w{2,3}|(?:is |are )?incompatible|not compatible|can(?:no|')t build|does(?: not|n't) build|won't build)"
DKMS = tuple(
    row(
        "driver-build-failed",
        "dkms",
        pattern,
        unless=rf"{IF}(?:the )?dkms|virtualbox|wi-?fi|wlan|\bvbox|\bzfs\b|broadcom|amdgpu|rtl\d|v4l2",
    )
    for pattern in (
        rf"\b{NVIDIAS}.{{0,400}}?(?:\b{FAILS}\b[^.\n]{{0,60}}?\bDKMS\b(?! ?(?:status|build -m|install -m|remove|add))|\bDKMS (?:\w+ ){{0,3}}?{FAILS}\b)"
        rf"|(?:\b{FAILS}\b[^.\n]{{0,60}}?\bDKMS\b(?! ?(?:status|build -m|install -m|remove|add))|\bDKMS (?:\w+ ){{0,3}}?{FAILS}\b).{{0,400}}?\b{NVIDIAS}",
    )
)
"""A driver whose module was not built, or is gone, as somebody says it."""

BROUGHT = (
    row(
        "torch-not-compiled-with-cuda",
        "cpu",
        r"\btorch\b[^\n]{0,60}?\bfrom (?:the )?(?:cuda|gpu)\b[^\n]{0,30}? to (?:the )?cpu\b",
        unless=rf"\b(?:move|moved|moving|copy|copied|transfer\w*|switch(?:ing)?) [^\n]{{0,40}}?from (?:the )?(?:cuda|gpu)|tensor|\.cpu\(|\.to\(|{OTHERS_GPU}",
    ),
    row(
        "torch-not-compiled-with-cuda",
        "cpu",
        r"\bpip3? install torch[\w=. -]{0,30}[`'\"]{0,2} (?:resulted in|results in|gives?|gave|yields?|installs|installed|gets|pulls in|pulled in|ends? up with|brings) (?:me )?(?:the |a )?CPU(?:[- ]only)? (?:version|build|wheel|variant)\b",
        unless=rf"{IF}pip|{OTHERS_GPU}",
    ),
    row(
        "torch-not-compiled-with-cuda",
        "cpu版",
        r"(?:torch[^。\n]{0,12}?(?:选择|安装|裝|装|下载|用)(?:的|了|成|为|是){0,3} ?(?:torch)?[^。\n]{0,4}cpu版|(?:选择|安装|装|下载)(?:的|了|成|为|是){0,3} ?cpu版(?:本)?(?:的)? ?(?:py)?torch)",
        unless=r"(?:想|要|需要|如果|若|建议)[^。\n]{0,8}(?:安装|装|下载|用)[^。\n]{0,8}cpu版",
    ),
    *rows(
        "torch-not-compiled-with-cuda",
        {
            "with cuda": r"\b(?:distribution|distro|package manager|repository|package|apt|pacman|portage|nix|nixpkgs|homebrew|fedora|debian|arch)\b[^.\n]{0,40}? (?:does(?: not|n't)|do(?: not|n't)|did(?: not|n't)|never) (?:compile|build|ship|package)s? (?:its |the |a )?(?:py)?torch with CUDA\b",
            "compiled with cuda": r"\btorch (?:is |was )?(?:not|n't) being compiled with CUDA",
        },
        unless=OTHERS_GPU,
    ),
)
"""An install that brought torch's CPU build, as somebody says it."""

PUT_IN_PLACE = (
    row(
        "torch-not-compiled-with-cuda",
        "cpu",
        r"\b(?:force[sd]?|triggers?|causes?|does|leads to|ends in|results in)\b[^.\n]{0,24}?\breinstall\w{0,6} (?:of )?(?:the |a )?CPU(?:[- ]only)? (?:version|build|wheel)(?: of)? (?:py)?torch\b",
        unless=OTHERS_GPU,
    ),
    row(
        "torch-not-compiled-with-cuda",
        "cpu",
        r"torch ?(?:会|就|又|自动|都|版本){0,3}(?:被|给)?(?:替换|換|换|改|覆盖|重装|降级|变|變)(?:成|为|為)?了? ?(?:了 ?)?cpu",
        unless=r"(?:想|要|需要|如果|若|建议)[^。\n]{0,8}(?:替换|换|改)",
    ),
)

MISMATCH = (
    row(
        "torch-not-compiled-with-cuda",
        "cuda_cmake_macros.h",
        r"c10/cuda/impl/cuda_cmake_macros\.h\W{1,3}(?:No such file|[| ^~]{1,90}compilation terminated)",
    ),
    row(
        "cuda-toolkit-mismatch-extension-build",
        "cuda_mismatch_message",
        r"raise RuntimeError\(CUDA_MISMATCH_MESSAGE\b",
    ),
)
"""torch's refusal, of which only the line of its source is shown, and a header that its CPU builds lack."""

OF_ANOTHER_RELEASE = (
    row(
        "program-release-too-old",
        "no module named",
        r"No module named ['\"]?(?P<lacks>torch\.(?:nn\.attention|_six|accelerator|export|compiler|distributed\.(?:tensor|_tensor|device_mesh|pipelining|_composable|_shard))\b)",
        beside="installed torch",
    ),
    row(
        "program-release-too-old",
        "no module named",
        r"No module named ['\"]?(?P<lacks>torchvision\.(?:transforms\.(?:v2|functional_tensor)|tv_tensors|datapoints|prototype)\b)",
        beside="installed torchvision",
    ),
    row(
        "program-release-too-old",
        "no module named",
        r"No module named ['\"]?(?P<lacks>torchaudio\.(?:backend|io|_backend|sox_effects|prototype)\b)",
        beside="installed torchaudio",
    ),
)
"""Modules that a release of torch, torchvision or torchaudio brought or took away."""

OF_SOURCE_FILE = (
    row(
        "no-kernel-image",
        "no kernel image is available",
        r"no kernel image is available for execution on the device \(at [^()]{0,200}?[/\\](?P<module>(?!pytorch|torch|aten|c10)[a-z][a-z0-9_]{3,30}?)(?:-(?:dev|main|master|\d[\d.]{0,8}))?[/\\](?:src|csrc)[/\\]",
    ),
)
"""A kernel's source file, whose folder names the extension that has it."""

ROWS = (
    *PUT_IN_PLACE,
    *MISMATCH,
    *OF_ANOTHER_RELEASE,
    *DKMS,
    *BROUGHT,
    *OF_SOURCE_FILE,
    *IN_AN_IMAGE,
    *HALVES,
    *NOT_FOUND,
    *UNSIGNED,
    *TRITON,
    *NETWORK,
    *BREAKS_IT,
    *LACKS,
    *TORCH_MISSING,
    *CPU_ONLY,
    *NO_BLACKWELL,
    *TO_NOUVEAU,
    *COMPILER,
)
