"""What people say of their trouble in a sentence of their own, where they paste no message.

Sources, as of November 2026: titles and first lines of threads in issue trackers and forums.
"""

from __future__ import annotations

from itertools import permutations

from gpusetup.messages.row import Row, row


def said(kind: str, pattern: str, *needles: str, unless: str = "", **values: str) -> Row:
    """One sentence, by any of these letters."""
    return row(kind, needles, pattern, unless=unless, **values)


IF = r"\b(?:if|when|whenever|whether|unless|until|in case|make sure|once) (?:\S{1,16} ){0,5}?"
MAYBE = r"\b(?:if|whether|may|might|could|would|avoid\w*|prevent\w*|otherwise) (?:\S{1,16} ){0,4}?"

# --- torch ---------------------------------------------------------------------------------------

SEES_NONE = (
    said(
        "cuda-unavailable",
        r"cuda\.is_available(?: ?\(\))?\W{0,6}(?:(?:返回值?|为|為|是|总是|總是|一直|就是|就|始终|发现|发现是|發現|还是|還是|显示|顯示|输出|輸出|打印|结果|得到|仍然?|都|却|變成|变成"
        r"|がいつも|が|は|を|も|常に|いつも|가|이|는|은|값이|항상|계속"
        r"|возвращает|выда[её]т|показывает|всегда|равно|=|dev[uo]elve|devolve|retorna(?:ndo)?|regresa|siempre|sempre|da|d[aá]|es|me|arroja"
        r"|renvoie|retourne|est|toujours|gibt|liefert|ist|immer|ergibt|restituisce|è|zwraca|zawsze|döndürüyor|trả về|luôn)[\s`'\"：:（(]{0,4}){1,4}False",
        "cuda.is_available",
        unless=r"(?:如果|若|if|when|falls|wenn|si|se) \S{0,12}torch\.cuda\.is_available",
        asked="yes",
    ),
    said(
        "cuda-unavailable",
        r"(?:(?<![\w-])(?:py)?torch(?: [\w.+]{1,20})?) (?:can ?not|can't|could not|couldn't|does(?: not|n't|nt)|do(?: not|n't)|is(?: not|n't)|still not|not|fails to|failed to|won't|unable to) (?:\w+ ){0,2}?"
        r"(?:recogni[sz](?:e[sd]?|ing)|detect(?:s|ing|ed)?|see(?:s|ing)?|find(?:s|ing)?|us(?:es?|ing)|access(?:ing)?|identify(?:ing)?|utili[sz](?:es?|ing)) (?:any |the |my |a |an |your |our |this )?(?:\w+ )?(?:CUDA cores?|CUDA|GPUs?|(?:RTX|GTX|GeForce|Tesla|Quadro)[\w -]{0,16}\d{3,4}|graphics? card)\b"
        r"|\b(?:unable|cannot|can't|can not|not able|couldn't|could not|trouble|impossible|struggl\w+)\b[^.\n]{0,30}?\b(?:get|getting|make|making|force|forcing) (?:py)?torch to \w{2,12} (?:any |the |my |a )?(?:\w+ )?(?:CUDA|GPUs?|graphics? card)\b"
        r"|(?:GPU|CUDA|RTX \d{4}|card)\b[^.\n]{0,40}? (?:is |was )?not (?:being )?(?:detected|recogni[sz]ed|found|seen|used) by PyTorch",
        *("torch cannot ", "torch can't ", "torch doesn't ", "torch does not ", "torch is not "),
        *("torch not ", "torch to ", "by pytorch"),
        unless=r"\b(?:if|when|whether|in case|make sure|unless|once) (?:\w+ ){0,3}?(?:py)?torch\b|如果",
        asked="yes",
    ),
    said(
        "smi-sees-it",
        r"\bnvidia-smi[`'\"]? (?:command )?(?:(?:does|do|can|could|also|correctly|always|still|itself|clearly) ){0,2}(?:works?(?! (?:only )?(?:on|in) the host)|shows|showed|detects?|sees?|lists?|finds?|recogni[sz]es?|displays?|reports?) (?:fine|well|correctly|properly|(?:both|all|the|my|a|an|two|three|four|\d) (?:\S{1,16} ){0,3}?(?:GPUs?|cards?|devices?|[RG]TX|[345]0[5-9]0s?)|(?:it|them) (?:just )?fine)\b"
        r"|\bnvidia-smi[^.\n]{0,40}? (?:I|i|we) (?:can )?see (?:both|all|the|my|a|two|three|four|\d) (?:\S{1,16} ){0,3}?(?:GPUs?|cards?|[RG]TX|[345]0[5-9]0s?)\b",
        "nvidia-smi",
        unless=r"\b(?:if|when|whether|make sure|check(?: that)?|no longer|ensure) (?!(?:i|I|we) (?:run|type|call|use)\b)(?:\S{1,12} ){0,3}?[`'\"]?nvidia-smi",
    ),
    said(
        "gpu-computes",
        r"\b(?:definitely|certainly|clearly|indeed|confirm(?:ed)?(?: that)? it(?: is|'s)(?: definitely)?) using (?:the |my )GPU\b|(?:^|[.!\n] )(?P<program>[\w.]{2,30}) uses (?:the|my) GPU\b",
        *("using", "uses"),
        unless=r"\b(?:not|isn't|never|stopped|if) (?:\w+ ){0,3}?using (?:the |my )GPU",
    ),
)
"""What sees no GPU, and what sees one."""

GOT = r"\b(?:(?:(?:re)?install|download|pick|pull|restor|replac|overrid|swapp?|switch|revert|downgrad|chang|turn|upgrad|updat|resolv|select|forc|trigger|caus|yield|result|end|gett|giv|bring|putt|fall)(?:s|es|ed|ing)(?: in| up(?: with)?)?|reinstall\w{0,6}|(?:will|always|only) install|install only|(?:I|we|you) (?:only )?(?:get|have)|got|gets|gave|brought|put|went|goes|fell|fallen|overwr[io]t\w{1,3}|chose|left with)\b"
A_BUILD = (
    r"(?:(?:non[- ]cuda,? )?cpu(?:[- ]only)? (?:versions?|builds?|wheels?|variants?|release|one|package|only)\b|(?:none?|non)[- ]?(?:cuda|gpu)(?:[- ]enabled)?,? (?:version|build|wheel|variant|release|one|package|cpu)\b"
    r"|cuda[- ]?less build\b|(?:version|build|one|torch)(?: \d[\w.]{1,12})? without (?:cuda|gpu)\b)"
)
CPU_TORCH = r"(?:(?:torch\W{1,3})?\d\.\d{1,2}\.\d\+cpu\b|(?:py)?torch[ -]?\+?cpu\b|(?:non[- ]?cuda,? |none?[- ]cuda |cpu[- ]only |cpu |cuda[- ]?less )(?:(?:version|build|wheel|variant)s? of )?(?:the )?(?:py|lib)?torch\b|(?:that )?non[- ]CUDA,? CPU\b)"
THERE = r"(?:is|was|gets?|got|are|were|be|being|has been|keeps being) (?:\w+ )?(?:(?:re)?install|pick|download|select|chos|resolv|us|put|restor)(?:ed|en)\b"
CPU_BUILDS = (
    said(
        "torch-not-compiled-with-cuda",
        rf"torch(?:vision)?\b.{{0,300}}?{GOT}[^.\n]{{0,40}}? (?:by |with |to |for |into |as |in |the |a |an |only |me |back )*{A_BUILD}|{GOT}[^.\n]{{0,40}}? (?:the |a |an |only )*(?:non[- ]CUDA,? )?cpu(?:[- ]only)? (?:version|build|variant|wheel)s?\b.{{0,300}}?torch|{GOT}[^.\n]{{0,40}}?[ :]{CPU_TORCH}"
        rf"|{GOT}[^.\n]{{0,40}}?torch\b[^\n]{{0,60}}? (?:by|with|to|into|as) (?:the |a |an )*(?:{A_BUILD}|\+?cpu\b)|(?:lib|py)torch +\d[\w.]{{1,12}} +cpu_\w{{3,40}}|{A_BUILD} {THERE}.{{0,300}}?torch"
        rf"|torch.{{0,300}}?{A_BUILD}[^.\n]{{0,24}} {THERE}|{CPU_TORCH}\W{{0,3}}{THERE}"
        r"|torch[^。\n]{0,12}?(?:会|就|又|自动|都|版本|选择|安装|裝|装|下载|用|被|给|替换|換|换|改|覆盖|重装|降级|变|變)(?:的|了|成|为|是|為| ){0,4}(?:torch)?cpu|(?:选择|安装|装|下载)(?:的|了|成|为|是){0,3} ?cpu版",
        *("cpu version", "cpu build", "cpu wheel", "cpu variant", "cpu release", "cpu package"),
        *("cpu-only", "cpu only", "+cpu", "torch cpu", "torch-cpu", "cpu torch", "cpu pytorch"),
        *("to cpu", "to the cpu", "cpu_", "cpu版", "了cpu", "成cpu", "为cpu", "成 cpu"),
        *("non-cuda", "non cuda", "none cuda", "without cuda", "without gpu"),
        unless=r"\b(?:want|wants|wanted|need|needs|prefer|try|should|must|please|can|could|cannot|can't) (?:\S{1,12} ){0,3}(?:install|get|use|download|replace|switch|change|revert|downgrade|have)\b|\b(?:no|without an?) (?:NVIDIA )?GPU\b|\b(?:AMD|Radeon|ROCm|Intel Arc|macOS|Jetson)\b"
        r"|\bon purpose\b|\bif\b[^.\n]{0,60}cpu|\b(?:not|never|without|avoid\w*|isn't|wasn't) (?:be |being |been )?(?:replac|overwr|chang|switch|downgrad|revert)|(?:想|要|需要|如果|若|建议)[^。\n]{0,8}(?:安装|装|下载|用|替换|换|改)|tensor|\.cpu\(|\.to\(",
    ),
    said(
        "torch-not-compiled-with-cuda",
        r"torch (?:build |version |install(?:ation)? )?(?:does ?n[o']t|does not|doesnt) have (?:any )?(?:CUDA|GPU)(?: support)?(?= ?(?:[.,;!?)`'\"\n#]|$|and\b|but\b|any ?more|I\b))"
        r"|\b(?:distribution|distro|package manager|repository|package|apt|pacman|portage|nix|nixpkgs|homebrew|fedora|debian|arch)\b[^.\n]{0,40}? (?:does(?: not|n't)|do(?: not|n't)|did(?: not|n't)|never) (?:compile|build|ship|package)s? (?:its |the |a )?(?:py)?torch with CUDA\b|\btorch (?:is |was )?(?:not|n't) being compiled with CUDA",
        *("torch does not have ", "torch doesn't have ", "with cuda"),
        unless=rf"{IF}(?:py)?torch|\b(?:AMD|Radeon|ROCm|Intel Arc|macOS|Jetson)\b|no (?:NVIDIA )?GPU",
    ),
    row(
        "torch-not-compiled-with-cuda",
        "cuda_cmake_macros.h",
        r"c10/cuda/impl/cuda_cmake_macros\.h\W{1,3}(?:No such file|[| ^~]{1,90}compilation terminated)",
    ),
    row(
        "torch-missing",
        ("exist", "not installed", "n't installed", "is missing", "be found"),
        r"\b(?:errors?|says?|saying|said|claims?|claiming|claimed|complain\w*|tells?|told|report\w*|thinks?)\b[^.\n]{0,24}?[`'\"]?(?:py)?torch[`'\"]? (?:(?:does ?n[o']t|does not|doesnt) exist\b|is(?: not|n't) installed\b|is missing\b|(?:could not|cannot|can't|can not|couldn't) be found\b)",
        unless=rf"{IF}(?:py)?torch|\b(?:with|for|in) (?:py)?torch (?:is not|isn't|does)",
    ),
)
"""A torch without CUDA, or none."""

NEW_GPU = r"(?:sm_?1[02][0-3]\b|compute_1[02][0-3]\b|Blackwell\b|(?:RTX ?)?50(?:XX|[5-9]0|(?: ?xx)? series)(?: ?Ti)?\b)"
NOT = r"(?:not|\w+n't|\w+ n[o']t|doesnt|cannot) (?:yet |currently |officially |be )?"
AMPERE_ON = r"(?<![A-Za-z0-9])(?:RTX ?(?:A[2456]\d00|[345]0[5-9]0)|A(?:[2456]000|10|30|40|100)|L40S?|H100)(?![A-Za-z0-9])"
CUDA_10 = r"(?:\b(?:tensorflow|tf)(?:[-_ ]?gpu)?[ =:v]{0,24}1\.1[0-5]\b|\bcuda(?:[ -]?toolkit)?[ =:v]{0,24}(?:9|10)\.[0-2]\b)"
ADA_ON = r"(?<![A-Za-z0-9])(?:RTX ?(?:40[5-9]0|6000 Ada)|L40S?|L4|H100)(?![A-Za-z0-9])"
CUDA_11_7 = r"(?:\b(?:py)?torch(?:[ =:v]|version){0,4}(?:1\.\d{1,2}\b|2\.0\.\d\+cu117)|\b(?:py)?torch ?< ?2\b|\+cu11[0-7]\b|\bCUDA(?: Version)?[ =:]{1,3}11\.[0-7]\b)"


def in_any_order(*parts: str, within: int = 700) -> str:
    return "|".join(f".{{0,{within}}}?".join(order) for order in permutations(parts))


NOT_IN_WHEEL = (
    said(
        "gpu-not-in-wheel",
        in_any_order(AMPERE_ON, CUDA_10, "CUBLAS_STATUS_EXECUTION_FAILED"),
        "cublas_status_execution_failed",
        side="new",
        said="in words",
    ),
    said(
        "gpu-not-in-wheel",
        in_any_order(ADA_ON, CUDA_11_7, "CUFFT_INTERNAL_ERROR"),
        "cufft_internal_error",
        side="new",
        said="in words",
    ),
    said(
        "gpu-not-in-wheel",
        rf"torch\b[^\n]{{0,60}}? {NOT}(?:support|include|have (?:support|kernels) for|work (?:with|on)|recogni[sz]e) (?:my |the |an? |NVIDIA |GeForce )*{NEW_GPU}"
        rf"|\b(?:{NOT}(?:run|work|support|start)|\bcrash\w{{0,3}}|\bfail\w{{0,3}})\w{{0,6}}\b[^.\n]{{0,60}}?{NEW_GPU}.{{0,400}}?\b(?:needs?|requires?|update|upgrade|must|only works? with|want)\b[^.\n]{{0,60}}?\b(?:torch|CUDA|cu)\b[^.\n]{{0,24}}?\b(?:12\.8|cu128|2\.7)\b"
        rf"|{NEW_GPU}[^.\n]{{0,40}}? {NOT}(?:use|work with|run(?: on| with)?|support) (?:the )?CUDA 1(?:1|2\.[0-6])\b",
        *("sm_1", "sm1", "compute_1", "blackwell", "5050", "5060", "5070", "5080", "5090"),
        *("50xx", "50 xx", "50 series"),
        unless=rf"{IF}(?:py)?torch|\b(?:flash|xformers|triton|vllm|extension)\b[^.\n]{{0,40}}does|\+cu1(?:28|29|30)\b",
        side="new",
        said="in words",
    ),
    said(
        "gpu-not-in-wheel",
        r"\b(?:(?:py)?torch|cu1[123]\d|wheels?)\b[^\n]{0,240}?\b(?:no|without|lacks?|lacking|missing|dropped|removed|not (?:include|contain|have|ship)|n't (?:include|contain|have|ship))\b (?:\S{1,16} ){0,7}?[`'\"(]{0,2}(?P<capability>sm_(?:3[0257]|5[02]|6[01]|70))\b[`'\"]?(?: (?:CUDA )?(?:kernels?|support|binar\w+|images?|code)\b|[^\w\n])",
        "sm_",
        unless=r"flash|xformers|vllm|sglang|bitsandbytes|extension|deepspeed|apex|llama\.cpp|onnxruntime|ctranslate2|jax\b|tensorflow|sage|kernel library|\b(?:if|unless|whether) (?:\S{1,16} ){0,4}?(?:lacks|dropped|no|without)\b",
        side="old",
        said="in words",
    ),
    row(
        "no-kernel-image",
        "no kernel image is available",
        r"no kernel image is available for execution on the device \(at [^()]{0,200}?[/\\](?P<module>(?!pytorch|torch|aten|c10)[a-z][a-z0-9_]{3,30}?)(?:-(?:dev|main|master|\d[\d.]{0,8}))?[/\\](?:src|csrc)[/\\]",
    ),
    said(
        "ptx-unsupported-toolchain",
        r"\bPTX mismatch\b",
        "ptx mismatch",
        unless=rf"{MAYBE}PTX|\b(?:no|without) PTX",
    ),
)
"""A GPU that a build does not serve."""

# --- drivers, libraries, builds ------------------------------------------------------------------

LIBRARY = r"(?:xformers|flash[-_ ]?attn|flash[-_ ]?attention|bitsandbytes|sage-?attention|torch[-_]scatter|torch[-_]sparse|torch[-_]cluster|torchcodec|pytorch3d|detectron2|mmcv(?:-full)?|apex|auto-?gptq|exllamav2|vllm|deepspeed|tiny-?cuda-?nn|kaolin|gsplat|nvdiffrast|causal[-_]conv1d|mamba[-_]ssm)"
BREAKS = r"(?:fails? to (?:load|import)|failed to (?:load|import)|(?:can ?not|can't|could not|couldn't|won't|does not|doesn't|no longer) (?:be )?(?:load|import)(?:ed|s)?\b|breaks\b|broke\b|(?:stops?|stopped) (?:working|loading)|is (?:now )?incompatible|no longer (?:works?|loads?))"
NEW_TORCH = r"(?:(?:un)?install|replac|updat|upgrad|downgrad|overwr[io]t|chang)\w{0,6}[^.\n]{0,40}?\b(?:py)?torch\b"
BUILDS = (
    said(
        "extension-abi-mismatch",
        rf"\b{NEW_TORCH}.{{0,260}}?\b(?P<module>{LIBRARY}) {BREAKS}|\b(?P<extension>{LIBRARY}) {BREAKS}[^.\n]{{0,60}}?\b(?:after|since|because|when|as)\b[^.\n]{{0,60}}?{NEW_TORCH}"
        rf"|torch(?: ?(?:==)?v?\d[\w.+]{{0,14}})? (?:update |upgrade |release )?(?:broke|breaks|has broken) (?P<broken>{LIBRARY})\b",
        *(" load", " import", "breaks", "broke", "broken", "incompatible", "no longer", "stop"),
        unless=rf"{MAYBE}(?:update|upgrade|fail|break|install|torch)",
    ),
    said(
        "build-isolation-no-torch",
        r"\b(?:pip3?|setup(?:\.py)?|install(?:s|ed|ing|ation)?|build(?:s|ing)?|built|compil\w{1,4}|wheel)\b[^.\n]{0,120}?\b(?:fail\w{0,4}|errors?|unable|cannot|can't|does ?n[o']t|could ?n[o']t|not able)\b[^.\n]{0,60}?\bfind torch\b(?! ?[<>=~])",
        "find torch",
        unless=r"\bif\b[^.\n]{0,40}find torch|python (?:-c|train|run|main)",
    ),
    said(
        "build-without-gpu",
        r"\bis_available\b[^\n]{0,80}?\b(?:false|no GPU)\b[^.\n]{0,60}?\b(?:during|in|at|while|inside)(?: an?| the)? docker (?:image )?build\b|\b(?:during|in|at|while|inside)(?: an?| the)? docker (?:image )?build\b[^.\n]{0,80}?\b(?:false|no GPU|GPU is not)\b|CUDA not available\. Falling back to multiple architectures",
        *("docker build", "docker image build", "falling back to multiple"),
        unless=r"--gpus|\bdocker run\b",
    ),
    said(
        "program-without-gpu-support",
        r"\b(?:GPUs?|CUDA)(?: support)?(?: is| are)? not (?:supported|enabled|included|available|compiled) (?:by|in|into|with) (?:your|this|the|my) onnx ?runtime build\b",
        "runtime build",
        unless=rf"{IF}(?:the )?(?:GPUs?|CUDA)",
        program="onnxruntime",
    ),
    said(
        "program-without-gpu-support",
        r"\bonly (?:the |a )?CPU version of (?P<program>JAX|TensorFlow|onnxruntime|PaddlePaddle|CuPy|llama\.cpp)\b[^.\n]{0,20}?(?:is|was|got|has been) installed",
        "cpu version of ",
        unless=rf"{IF}only (?:the |a )?CPU version",
    ),
    said(
        "extension-not-built",
        rf"\bwheels? for (?P<module>{LIBRARY}) (?:are|is|were|was)(?:n't| not) (?:actually |really )?(?:built|compiled) (?:against|with|for) (?:CUDA|GPU)",
        "wheel",
        unless=rf"{IF}(?:the )?wheels?",
    ),
    said(
        "triton-missing-windows",
        r"\b(?:because|fail(?:s|ed)?|errors?|complain\w*|says?|turn(?:s|ed) out)\b[^.\n]{0,60}?\btriton (?:(?:was|is|were)(?: not|n't) installed|not being installed|(?:was|is) missing\b(?! [`'\"A-Za-z]))",
        "triton",
        unless=rf"{IF}triton|\btriton (?:is|was) (?:missing|not installed)[^.\n]{{0,20}}\b(?:optional|warning|ignored)|\boptimi[sz]ations will not be enabled",
    ),
    said(
        "triton-build-failed",
        r"\btriton\b[^.\n]{0,80}?\b(?:(?:missing|lack\w*|without|not find|cannot find|can't find|couldn't find|no) [`'\"]?Python\.h\b|Python\.h[`'\"]? (?:is |was )?(?:missing|not found)\b)",
        "python.h",
        lacks="Python.h",
    ),
    said(
        "triton-build-failed",
        r"\btriton\b.{0,300}?undefined symbol:? ?[`'\"]?cu(?!Tensor)[A-Z][a-z]\w+",
        "undefined symbol",
        lacks="libcuda",
    ),
    said(
        "compiler-missing",
        r"[`'\"]?\bcl(?:\.exe)?[`'\"]?(?: (?:being|was|is) (?:called|invoked|run)\b[^,\n]{0,60}?)?,? (?:but )?(?:it )?(?:is not|isn't|was not|wasn't|could not be|cannot be|can't be|not) (?:be )?found\b",
        "cl.exe",
        unless=rf"{IF}[`'\"]?cl\b",
    ),
    said(
        "resolver-conflict",
        r"\bconflicts? between (?:py)?torch(?:==[\w.+]{1,20})? and (?:the )?(?:\w+ )?(?:cuda|nvidia|torchvision|torchaudio|xformers)\b",
        "conflict",
    ),
    said(
        "download-network-error",
        r"\b(?:pip3?|uv|conda) (?:keeps |kept |is |was |always )?tim(?:ed|ing|es) out\b|\b(?:downloads?|downloading)\b (?:[^\s.]{1,20} ){0,6}?(?:keeps |kept |is |was |always |just )?tim(?:ed|ing|es) out\b|\btim(?:ed|ing|es) out (?:while |when |during |in )(?:the )?download(?:s|ing)?\b",
        *("timed out", "timing out", "times out"),
        unless=rf"{IF}(?:pip|uv|conda|the download)",
        how="timeout",
    ),
    row(
        "cuda-toolkit-missing",
        "get_cuda_bare_metal_version",
        r"in get_cuda_bare_metal_version\b.{0,500}?\bsubprocess\.check_output\(.{0,500}?\bsubprocess\.py\W.{0,20}?line \d{1,5}, in (?:run|__init__|check_output)\b",
        unless=r"CalledProcessError|PermissionError|mismatch|Installed CUDA version",
    ),
    row(
        "cuda-toolkit-mismatch-extension-build",
        "cuda_mismatch_message",
        r"raise RuntimeError\(CUDA_MISMATCH_MESSAGE\b",
    ),
    row(
        "no-matching-distribution",
        "looking in links",
        r"Looking in links: \S{0,160}(?:cu\d{2,3}|torch-?\d)\S{0,80}.{0,400}?No matching distribution found for (?P<requirement>(?!torch(?:vision|audio)?(?![\w-]))[a-z][\w-]{1,40}(?:[=<>!~]{1,2}[\w.+]{1,30})?)(?![\w-])",
        none_found="true",
    ),
    row(
        "no-matching-distribution",
        "satisfies the requirement",
        r"satisfies the requirement (?P<requirement>(?:flash[-_]attn|causal[-_]conv1d|mamba[-_]ssm|deepspeed|auto[-_]gptq|mmcv(?:-full)?|detectron2)==[\w.+]{1,30}) \(from versions: (?P<versions>\d[\w.+, ]{4,600})",
    ),
)

DRIVERS = (
    row(
        "driver-build-failed",
        "dkms",
        r"\b(?:nvidia|driver \d{3}\b|GeForce|[RG]TX \d{3,4}).{0,400}?(?:DKMS\b[^.\n]{0,30}?FAILS\b|FAILS\b[^.\n]{0,60}?\bDKMS\b(?! ?(?:status|build -m|install -m|remove|add)))|FAILS\b[^.\n]{0,60}?\bDKMS\b.{0,400}?\b(?:nvidia|driver \d{3}\b|GeForce)".replace(
            "FAILS",
            r"\b(?:br(?:eak|oke)\w{0,3}|fail\w{0,5}|disappear\w{0,2}|gone|missing|delet\w{2,3}|incompatible|not compatible|(?:can(?:no|')t|does(?: not|n't)|won't) build)",
        ),
        unless=rf"{IF}(?:the )?dkms|virtualbox|wi-?fi|wlan|\bvbox|\bzfs\b|broadcom|amdgpu|rtl\d|v4l2",
    ),
    said(
        "secure-boot-rejected",
        r"\b(?:nvidia|driver|modules?)\b[^.\n]{0,80}?\b(?:\w*(?:not|n't|nt)|fails? to|refus\w{1,4} to|unable to) (?:be )?(?:loaded|load|accepted)\b[^.\n]{0,40}?\b(?:because of|due to|thanks to|by|under|with) secure[- ]?boot\b"
        r"|\bMOK\b.{0,500}?\b(?:NVIDIA|DKMS) (?:\w+ ){0,3}modules? (?:are|is|were|was|get) (?:\w+ )?(?:not (?:being )?(?:accepted|trusted)|rejected|refused)\b",
        *("secure boot", "secureboot", "secure-boot"),
        *("not accepted", "not trusted", "rejected", "refused"),
        unless=rf"{IF}(?:the )?(?:nvidia|driver|module|secure|dkms)|secure[- ]?boot (?:is )?(?:off|disabled)",
    ),
    said(
        "nouveau-in-the-way",
        r"\bfalls? back to (?:the )?nouv?eau\b|\bfalls? back to (?:the )?noveau\b|\bnouveau (?:is |was |gets? )?(?:still )?(?:loaded|used|active|running) (?:instead|rather)\b",
        *("nouveau", "noveau"),
        unless=rf"{IF}(?:\S{{1,16}} )?fall|\b(?:not|never|no longer) (?:\w+ )?falls? back",
    ),
    said(
        "module-not-found",
        r"NVIDIA kernel module (?:is )?(?:missing|not found)",
        "nvidia kernel module",
        unless=r"\b(?:if|when)\b[^.\n]{0,40}NVIDIA kernel module",
    ),
    said(
        "driver-too-old",
        r"\bdriver\b[^\n]{0,60}? (?:was|is) (?:below|under|lower than|older than) the (?:required )?\d{3}(?:\.\d+)* minimum|\b(?:needs?|requires?) a newer (?:nvidia |gpu )?driver than (?:my |the |our )?(?:installed|current)",
        *("minimum", "newer"),
        unless=r"\bif (?:\w+ ){0,4}needs?\b",
    ),
    said(
        "k8s-gpu-not-allocatable",
        r"\bno (?:GPUs? (?:are|is|were) allocatable|allocatable GPUs?)\b",
        "allocatable",
        unless=r"\bif no\b",
    ),
    said(
        "cuda-lib-missing",
        r"\b(?P<library>(?:cudnn|cublas|cudart|cufft|curand|cusolver|cusparse|nvrtc)[\w ]{0,24}\.dll)[`'\"]? (?:is |was |are )?(?:missing|not found)\b",
        ".dll",
        unless=r"\b(?:if|when|in case|whether|make sure|no longer|never|not) (?:\w+ ){0,5}?[`'\"]?cu",
    ),
    said(
        "library-missing",
        r"\b(?P<library>libpython[\w.]{0,8}\.so[.\d]*)\b[^\n]{0,80}?\b(?:not found|missing)\b",
        "libpython",
    ),
)

# --- programs ------------------------------------------------------------------------------------

PROGRAMS = (
    said(
        "program-requirement-missing",
        r"\bmissing dependenc(?:y|ies):? [`'\"]?(?P<lacks>torchcodec|ffmpeg|ninja|cmake|packaging|wheel|psutil)\b",
        "missing dependenc",
    ),
    said(
        "program-release-too-old",
        r"\bnot compatible with (?:the )?(?:py)?torch(?: versions?)? ?(?:above|newer than|later than|after|beyond|older than|below|under|[<>]=?) ?v?\d|No module named ['\"]?(?P<lacks>torch\.(?:nn\.attention|_six|accelerator|export|compiler|distributed\.(?:tensor|_tensor|device_mesh|pipelining|_composable|_shard))\b)",
        *("not compatible with", "no module named"),
        beside="installed torch",
    ),
    said(
        "program-release-too-old",
        r"No module named ['\"]?(?P<lacks>(?:torchvision\.(?:transforms\.(?:v2|functional_tensor)|tv_tensors|datapoints|prototype)|torchaudio\.(?:backend|io|_backend|sox_effects|prototype))\b)",
        "no module named",
        beside="installed torchvision or torchaudio",
    ),
    said(
        "program-release-too-old",
        r"TypeError: (?P<called>\w{2,40}_(?:fwd|bwd|forward|backward|cuda))\(\): incompatible function arguments",
        "incompatible function arguments",
        beside="compiled extension that it calls",
    ),
)

# --- no GPU --------------------------------------------------------------------------------------

CARD = r"(?:(?:NVIDIA|dedicated|discrete|CUDA|real|external|physical) )*(?:GPU|graphics card|graphics processor|NVIDIA (?:card|adapter))s?\b(?! (?:memory|RAM|usage|load|acceleration|flag|process|driver|left|free|in the queue))"
MY_MACHINE = r"(?:laptop|notebook|PC|computer|desktop|machine|workstation|server|VM|VPS|droplet|box|instance|system|Mac)"
WITHOUT = said(
    "no-nvidia-gpu",
    rf"\b(?:I|we) (?:do not|don['\u2019]?t|dont|do n't) (?:have|own) (?:an? |any )?{CARD}"
    rf"|\b(?:I have|I['\u2019]ve|I got|(?:my|this|the) {MY_MACHINE} (?:has|comes with)) (?:got )?no {CARD}"
    rf"|\b(?:my|this|the) {MY_MACHINE} (?:does not|doesn['\u2019]?t|doesnt) have (?:an? |any )?{CARD}|\b{MY_MACHINE} (?:without|with no) (?:an? |any )?{CARD}"
    rf"|(?:^|[:,;.(] ?)no (?:(?:dedicated|discrete) {CARD}|{CARD}(?: here(?! so\b|, so)|,? (?:just|only)\b))|\bno {CARD} (?:in|on) (?:my|this|the) {MY_MACHINE}"
    r"|\bonly (?:an? |has |have )*(?:integrated|onboard) (?:GPU|graphics)\b|\b(?:integrated|onboard) (?:GPU|graphics) only\b"
    rf"|(?<!running on a )\bCPU[- ]only (?:cloud |linux |docker |windows )?{MY_MACHINE}\b|\b(?:I|we) only have (?:an? |my |the )?CPU\b",
    *(
        f"{no} {verb}"
        for no in ("not", "n't", "n\u2019t", "dont", "doesnt")
        for verb in ("have", "own")
    ),
    *(
        f"no {kind}"
        for kind in ("gpu", "graphics", "dedicated", "discrete", "nvidia ", "cuda ", "real")
    ),
    *("without", "with no", "integrated", "onboard", "cpu-only", "cpu only", "only have"),
    unless=r"\b(?:if|unless|whether|when|says?|said|claims?|thinks?|thought|reports?|tells?|complains|though|container|node|partition|queue)\b[^.:]{0,30}\b(?:don['\u2019]?t|dont|not|no|without)\b|\bbut (?:I (?:do )?have|there is)\b|\b(?:as (?:if|for|on)|according to|thinks?|behaves|work(?:s|ed) (?:fine )?on|build\b[^.]{0,24} on)\b",
)
"""A machine without an NVIDIA GPU, as its owner says it."""

ROWS = (
    WITHOUT,
    *SEES_NONE,
    *CPU_BUILDS,
    *NOT_IN_WHEEL,
    *BUILDS,
    *DRIVERS,
    *PROGRAMS,
)
