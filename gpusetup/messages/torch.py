"""Messages about torch's build, CUDA and GPUs, both from torch itself and in people's words.

Sources: torch 0.4 to 2.13 (torch/cuda/__init__.py, c10/cuda, ATen), cuda.h and cudaGetErrorString,
Triton, NVRTC, ptxas, the accelerate, transformers and vLLM checks of precision.

Sources: jax/_src/xla_bridge.py, CuPy, numba-cuda, TensorFlow, vLLM, onnxruntime, bitsandbytes,
SageAttention, xformers, tiny-cuda-nn, oneAPI, ollama's server/sched.go, llama.cpp's
src/llama-model.cpp.

Sources, as of November 2026: titles and first lines of threads in issue trackers and forums.
"""

from __future__ import annotations

from gpusetup.messages.fragments import IF, in_any_order
from gpusetup.messages.row import row, rows

ADVICE = r"if you (?:get|see|run|have|hit)|to (?:avoid|prevent)|in case of|may (?:run|cause|lead)|might (?:run|cause)"
"""Words around a message that somebody only talks about, without having seen it."""


IN_PROSE = r"cuda\.is_available(?:\(\))?\W{1,8}(?:(?:is|are|was|it|i|we|get|gets|got|returns?|returned|returning|always|still|just|only|gives?|gave|says?|saying|said|prints?|shows?|showed|showing(?: up)?|reports?|reporting|stays|remains|outputs?|the|results?|in|me|now|also|evaluates?|to|be|comes?|back|as|equals|value)\W{1,6}){1,6}false\b"
"""How people mention the result of `torch.cuda.is_available()` in a sentence."""


GOT = r"\b(?:(?:(?:re)?install|download|pick|pull|restor|replac|overrid|swapp?|switch|revert|downgrad|chang|turn|upgrad|updat|resolv|select|forc|trigger|caus|yield|result|end|gett|giv|bring|putt|fall)(?:s|es|ed|ing)(?: in| up(?: with)?)?|reinstall\w{0,6}|(?:will|always|only) install|install only|(?:I|we|you) (?:only )?(?:get|have)|got|gets|gave|brought|put|went|goes|fell|fallen|overwr[io]t\w{1,3}|chose|left with)\b"


A_BUILD = (
    r"(?:(?:non[- ]cuda,? )?cpu(?:[- ]only)? (?:versions?|builds?|wheels?|variants?|release|one|package|only)\b|(?:none?|non)[- ]?(?:cuda|gpu)(?:[- ]enabled)?,? (?:version|build|wheel|variant|release|one|package|cpu)\b"
    r"|cuda[- ]?less build\b|(?:version|build|one|torch)(?: \d[\w.]{1,12})? without (?:cuda|gpu)\b)"
)


CPU_TORCH = r"(?:(?:torch\W{1,3})?\d\.\d{1,2}\.\d\+cpu\b|(?:py)?torch[ -]?\+?cpu\b|(?:non[- ]?cuda,? |none?[- ]cuda |cpu[- ]only |cpu |cuda[- ]?less )(?:(?:version|build|wheel|variant)s? of )?(?:the )?(?:py|lib)?torch\b|(?:that )?non[- ]CUDA,? CPU\b)"


THERE = r"(?:is|was|gets?|got|are|were|be|being|has been|keeps being) (?:\w+ )?(?:(?:re)?install|pick|download|select|chos|resolv|us|put|restor)(?:ed|en)\b"


NEW_GPU = r"(?:sm_?1[02][0-3]\b|compute_1[02][0-3]\b|Blackwell\b|(?:RTX ?)?50(?:XX|[5-9]0|(?: ?xx)? series)(?: ?Ti)?\b)"


NOT = r"(?:not|\w+n't|\w+ n[o']t|doesnt|cannot) (?:yet |currently |officially |be )?"


ADA_ON = r"(?<![A-Za-z0-9])(?:RTX ?(?:40[5-9]0|6000 Ada)|L40S?|L4|H100)(?![A-Za-z0-9])"


CUDA_11_7 = r"(?:\b(?:py)?torch(?:[ =:v]|version){0,4}(?:1\.\d{1,2}\b|2\.0\.\d\+cu117)|\b(?:py)?torch ?< ?2\b|\+cu11[0-7]\b|\bCUDA(?: Version)?[ =:]{1,3}11\.[0-7]\b)"


ROWS = (
    # `assert torch.cuda.is_available()"` … `AssertionError`.
    row("cuda-unavailable", r"assert torch\.cuda\.is_available\(\).{0,700}?AssertionError"),
    # `torch.cuda.is_available()  # => False`.
    *rows(
        "cuda-unavailable",
        r"torch\.cuda\.is_available\(\)(?:(?: is|:|\)| ==)? ?|.{0,200}?# ?(?:[-=]*> ?)?)False",
        IN_PROSE,
        asked="yes",
    ),
    # `Invalid CUDA 'device=0' requested`.
    *rows(
        "cuda-unavailable",
        "torch is not able to use gpu",
        r"device_type of 'cuda', but CUDA is not available",
        "no cuda gpus are available",
        "might not have a cuda gpu",
        "no cuda runtime is found",
        r"Invalid CUDA '?(?:--)?device[ =][^\s{]{1,12} requested",
        "gpu is needed for quantization",
        r"vLLM is running on UnspecifiedPlatform",
        r"CUDA unavailable, invalid device \S{1,12} requested",
        r"(?<!cuda\.)\bselect_device\([\w.]{1,30}(?!.{0,600}?Invalid CUDA '?(?:--)?device[ =](?:cuda|gpu)'?)",
        r"No (?:CUDA |compatible )?GPUs?(?: or other accelerators?)? (?:was |were )?detected",
        r"no nvidia gpu found\?",
        "cannot find any torch accelerator",
        r"requested gpus?: .{1,60}?But your machine only has: \[\]",
        r"CUDA is not available\.? {1,2}Disabling|ops, but CUDA is not available",
        r"deserialize object on a CUDA device but torch\.cuda\.is_available\(\) is False",
    ),
    # `compiled with CUDA support: No`.
    *rows(
        "torch-not-compiled-with-cuda",
        r"(?:built|compiled) with CUDA(?: support)?:\s?(?:False|No)\b",
        r"Torch not compiled with CUDA(?: enabled)?",
        r"PyTorch (?:was|is) compiled without CUDA support",
        r"Torch not linked with CUDA",
        r"PyTorch is not linked with support for cuda",
    ),
    row("no-hip-gpus", "no hip gpus are available"),
    # `not linked with support for xpu`.
    row("no-xpu", r"Torch not compiled with XPU|not linked with support for xpu", why="build"),
    row("no-xpu", "failed to initialize xpu devices", why="driver"),
    row("no-xpu", "no xpu devices are available"),
    # `no compatible CUDA GPU was detected`.
    row("cuda-unavailable", r"\bno (?:supported|compatible|suitable) (?:nvidia |cuda )?gpus? (?:backend )?(?:was |were |is |are )?(?:found|detected|available)\b", "no supported ", "no compatible ", "no suitable ", unless=r"\b(?:if|when) no (?:supported|compatible|suitable)"),
    # Assertion `srcIndex < srcSelectDimSize` failed
    row("cuda-error", r"(?:block: \[[\d, ]{3,40}\],? thread: \[[\d, ]{3,40}\]\W{1,5}Assertion|\bAssertion\W{1,4}(?:srcIndex < |t >= 0 && t < |-sizes\[i\] <= index|idx_dim >= 0 &&|input_val >= )).{1,160}?failed", code="710", name="cudaErrorAssert"),
    # `Unknown CUDA arch (12.0) or GPU not supported`.
    row("gpu-not-in-wheel", r"Unknown CUDA arch \((?P<capability>(?:[89]|1\d)\.\d)[af]?\) or GPU not supported", side="new"),
    *rows(
        "no-nvidia-driver",
        "cuda driver library cannot be found",
        "could not open libcuda",
        library="libcuda.so",
    ),
    # `Unknown compute capability. Specify`.
    *rows(
        "cuda-unavailable",
        r"FAILED_PRECONDITION: No visible GPU devices",
        r"Unknown compute capability\. (?:Ensure|Specify|Make)",
        "failed to infer device type",
        r"failed call to cuInit.{0,80}CUDA_ERROR_NO_DEVICE",
    ),
    # `Native API returns`.
    *rows(
        "no-xpu",
        r"Native API (?:failed|returns)",
        r"No device of requested type ['\"]?(?:info::device_type::)?gpu",
        why="driver",
    ),
    # `cuda.is_available() retorna sempre False`.
    row("cuda-unavailable", r"cuda\.is_available(?: ?\(\))?\W{0,6}(?:(?:返回值?|为|為|是|总是|總是|一直|就是|就|始终|发现|发现是|發現|还是|還是|显示|顯示|输出|輸出|打印|结果|得到|仍然?|都|却|變成|变成|がいつも|が|は|を|も|常に|いつも|가|이|는|은|값이|항상|계속|возвращает|выда[её]т|показывает|всегда|равно|=|dev[uo]elve|devolve|retorna(?:ndo)?|regresa|siempre|sempre|da|d[aá]|es|me|arroja|renvoie|retourne|est|toujours|gibt|liefert|ist|immer|ergibt|restituisce|è|zwraca|zawsze|döndürüyor|trả về|luôn)[\s`'\"：:（(]{0,4}){1,4}False", unless=r"(?:如果|若|if|when|falls|wenn|si|se) \S{0,12}torch\.cuda\.is_available", asked="yes"),
    # `cuda-unavailable | GPU not detected by PyTorch`.
    row("cuda-unavailable", r"(?:(?<![\w-])(?:py)?torch(?: [\w.+]{1,20})?) (?:can ?not|can't|could not|couldn't|does(?: not|n't|nt)|do(?: not|n't)|is(?: not|n't)|still not|not|fails to|failed to|won't|unable to) (?:\w+ ){0,2}?(?:recogni[sz](?:e[sd]?|ing)|detect(?:s|ing|ed)?|see(?:s|ing)?|find(?:s|ing)?|us(?:es?|ing)|access(?:ing)?|identify(?:ing)?|utili[sz](?:es?|ing)) (?:any |the |my |a |an |your |our |this )?(?:\w+ )?(?:CUDA cores?|CUDA|GPUs?|(?:RTX|GTX|GeForce|Tesla|Quadro)[\w -]{0,16}\d{3,4}|graphics? card)\b|\b(?:unable|cannot|can't|can not|not able|couldn't|could not|trouble|impossible|struggl\w+)\b[^.\n]{0,30}?\b(?:get|getting|make|making|force|forcing) (?:py)?torch to \w{2,12} (?:any |the |my |a )?(?:\w+ )?(?:CUDA|GPUs?|graphics? card)\b|(?:GPU|CUDA|RTX \d{4}|card)\b[^.\n]{0,40}? (?:is |was )?not (?:being )?(?:detected|recogni[sz]ed|found|seen|used) by PyTorch", *("torch cannot ", "torch can't ", "torch doesn't ", "torch does not ", "torch is not "), *("torch not ", "torch to ", "by pytorch"), unless=r"\b(?:if|when|whether|in case|make sure|unless|once) (?:\w+ ){0,3}?(?:py)?torch\b|如果", asked="yes"),
    # `nvidia-smi in a terminal I can see my two 3090`.
    row("smi-sees-it", r"\bnvidia-smi[`'\"]? (?:command )?(?:(?:in|inside|within|under) (?:the |my )?(?:WSL2?|Ubuntu|container|host) )?(?:(?:does|do|can|could|also|correctly|always|still|itself|clearly) ){0,2}(?:works?(?! (?:only )?(?:on|in) the host)|shows|showed|detects?|sees?|lists?|finds?|recogni[sz]es?|displays?|reports?) (?:fine|well|correctly|properly|(?:both|all|the|my|a|an|two|three|four|\d) (?:\S{1,16} ){0,3}?(?:GPUs?|cards?|devices?|[RG]TX|[345]0[5-9]0s?)|(?:it|them) (?:just )?fine)\b|\bnvidia-smi[^.\n]{0,40}? (?:I|i|we) (?:can )?see (?:both|all|the|my|a|two|three|four|\d) (?:\S{1,16} ){0,3}?(?:GPUs?|cards?|[RG]TX|[345]0[5-9]0s?)\b", unless=r"\b(?:if|when|whether|make sure|check(?: that)?|no longer|ensure) (?!(?:i|I|we) (?:run|type|call|use)\b)(?:\S{1,12} ){0,3}?[`'\"]?nvidia-smi"),
    # `confirm it's using the GPU`.
    row("gpu-computes", r"\b(?:definitely|certainly|clearly|indeed|confirm(?:ed)?(?: that)? it(?: is|'s)(?: definitely)?) using (?:the |my )GPU\b|(?:^|[.!\n] )(?P<program>[\w.]{2,30}) uses (?:the|my) GPU\b", unless=r"\b(?:not|isn't|never|stopped|if) (?:\w+ ){0,3}?using (?:the |my )GPU"),
    # `tensor([[0., 0., 0.]], device='cuda:1'`.
    row("gpu-computes", r"tensor\(\S.{0,200}?, device='(?P<device>cuda:\d{1,2})'"),
    # `updates torch from cuda (2.0.1+cu118) to cpu`.
    row("torch-not-compiled-with-cuda", rf"torch(?:vision)?\b.{{0,300}}?{GOT}[^.\n]{{0,40}}? (?:by |with |to |for |into |as |in |the |a |an |only |me |back )*{A_BUILD}|{GOT}[^.\n]{{0,40}}? (?:the |a |an |only )*(?:non[- ]CUDA,? )?cpu(?:[- ]only)? (?:version|build|variant|wheel)s?\b.{{0,300}}?torch|{GOT}[^.\n]{{0,40}}?[ :]{CPU_TORCH}|{GOT}[^.\n]{{0,40}}?torch\b[^\n]{{0,60}}? (?:by|with|to|into|as) (?:the |a |an )*(?:{A_BUILD}|\+?cpu\b)|(?:lib|py)torch +\d[\w.]{{1,12}} +cpu_\w{{3,40}}|{A_BUILD} {THERE}.{{0,300}}?torch|torch.{{0,300}}?{A_BUILD}[^.\n]{{0,24}} {THERE}|{CPU_TORCH}\W{{0,3}}{THERE}" r"|torch[^。\n]{0,12}?(?:会|就|又|自动|都|版本|选择|安装|裝|装|下载|用|被|给|替换|換|换|改|覆盖|重装|降级|变|變)(?:的|了|成|为|是|為| ){0,4}(?:torch)?cpu|(?:选择|安装|装|下载)(?:的|了|成|为|是){0,3} ?cpu版", *("cpu version", "cpu build", "cpu wheel", "cpu variant", "cpu release", "cpu package"), *("cpu-only", "cpu only", "+cpu", "torch cpu", "torch-cpu", "cpu torch", "cpu pytorch"), *("to cpu", "to the cpu", "cpu_", "cpu版", "了cpu", "成cpu", "为cpu", "成 cpu"), *("non-cuda", "non cuda", "none cuda", "without cuda", "without gpu"), unless=r"\b(?:want|wants|wanted|need|needs|prefer|try|should|must|please|can|could|cannot|can't) (?:\S{1,12} ){0,3}(?:install|get|use|download|replace|switch|change|revert|downgrade|have)\b|\b(?:no|without an?) (?:NVIDIA )?GPU\b|\b(?:AMD|Radeon|ROCm|Intel Arc|XPU|macOS|Jetson)\b|\bon purpose\b|\bif\b[^.\n]{0,60}cpu|\b(?:not|never|without|avoid\w*|isn't|wasn't) (?:be |being |been )?(?:replac|overwr|chang|switch|downgrad|revert)|(?:想|要|需要|如果|若|建议)[^。\n]{0,8}(?:安装|装|下载|用|替换|换|改)|tensor|\.cpu\(|\.to\("),
    # `package manager does not ship torch with CUDA`.
    row("torch-not-compiled-with-cuda", r"torch (?:build |version |install(?:ation)? )?(?:does ?n[o']t|does not|doesnt) have (?:any )?(?:CUDA|GPU)(?: support)?(?= ?(?:[.,;!?)`'\"\n#]|$|and\b|but\b|any ?more|I\b))|\b(?:distribution|distro|package manager|repository|package|apt|pacman|portage|nix|nixpkgs|homebrew|fedora|debian|arch)\b[^.\n]{0,40}? (?:does(?: not|n't)|do(?: not|n't)|did(?: not|n't)|never) (?:compile|build|ship|package)s? (?:its |the |a )?(?:py)?torch with CUDA\b|\btorch (?:is |was )?(?:not|n't) being compiled with CUDA", *("torch does not have ", "torch doesn't have ", "with cuda"), unless=rf"{IF}(?:py)?torch|\b(?:AMD|Radeon|ROCm|Intel Arc|macOS|Jetson)\b|no (?:NVIDIA )?GPU"),
    # `c10/cuda/impl/cuda_cmake_macros.h: No such file`.
    row("torch-not-compiled-with-cuda", r"c10/cuda/impl/cuda_cmake_macros\.h\W{1,3}(?:No such file|[| ^~]{1,90}compilation terminated)"),
    # `CUFFT_INTERNAL_ERROR with torch < 2 on an RTX 4090`.
    row("gpu-not-in-wheel", in_any_order(ADA_ON, CUDA_11_7, "CUFFT_INTERNAL_ERROR"), side="new", said="in words"),
    # `torch 2.4.0+cu121 doesn't include compute_120`.
    row("gpu-not-in-wheel", rf"torch\b[^\n]{{0,60}}? {NOT}(?:support|include|have (?:support|kernels) for|work (?:with|on)|recogni[sz]e) (?:my |the |an? |NVIDIA |GeForce )*{NEW_GPU}|\b(?:{NOT}(?:run|work|support|start)|\bcrash\w{{0,3}}|\bfail\w{{0,3}})\w{{0,6}}\b[^.\n]{{0,60}}?{NEW_GPU}.{{0,400}}?\b(?:needs?|requires?|update|upgrade|must|only works? with|want)\b[^.\n]{{0,60}}?\b(?:torch|CUDA|cu)\b[^.\n]{{0,24}}?\b(?:12\.8|cu128|2\.7)\b|{NEW_GPU}[^.\n]{{0,40}}? {NOT}(?:use|work with|run(?: on| with)?|support) (?:the )?CUDA 1(?:1|2\.[0-6])\b", *("sm_1", "sm1", "compute_1", "blackwell", "5050", "5060", "5070", "5080", "5090"), *("50xx", "50 xx", "50 series"), unless=rf"{IF}(?:py)?torch|\b(?:flash|xformers|triton|vllm|extension)\b[^.\n]{{0,40}}does|\+cu1(?:28|29|30)\b", side="new", said="in words"),
    # `wheel | PyTorch 2.8 dropped support for sm_61`.
    row("gpu-not-in-wheel", r"\b(?:(?:py)?torch|cu1[123]\d|wheels?)\b[^\n]{0,240}?\b(?:no|without|lacks?|lacking|missing|dropped|removed|not (?:include|contain|have|ship)|n't (?:include|contain|have|ship))\b (?:\S{1,16} ){0,7}?[`'\"(]{0,2}(?P<capability>sm_(?:3[0257]|5[02]|6[01]|70))\b[`'\"]?(?: (?:CUDA )?(?:kernels?|support|binar\w+|images?|code)\b|[^\w\n])", unless=r"flash|xformers|vllm|sglang|bitsandbytes|extension|deepspeed|apex|llama\.cpp|onnxruntime|ctranslate2|jax\b|tensorflow|sage|kernel library|\b(?:if|unless|whether) (?:\S{1,16} ){0,4}?(?:lacks|dropped|no|without)\b", side="old", said="in words"),
    row("no-matching-distribution", r"Looking in links: \S{0,160}(?:cu\d{2,3}|torch-?\d)\S{0,80}.{0,400}?No matching distribution found for (?P<requirement>(?!torch(?:vision|audio)?(?![\w-]))[a-z][\w-]{1,40}(?:[=<>!~]{1,2}[\w.+]{1,30})?)(?![\w-])", none_found="true"),
    # `satisfies the requirement flash_attn==2.9.9 (from versions: 0.2.4, 2.8.3`.
    row("no-matching-distribution", r"satisfies the requirement (?P<requirement>(?:flash[-_]attn|causal[-_]conv1d|mamba[-_]ssm|deepspeed|auto[-_]gptq|mmcv(?:-full)?|detectron2)==[\w.+]{1,30}) \(from versions: (?P<versions>\d[\w.+, ]{4,600})"),
    # `nouveau is loaded instead`.
    row("nouveau-in-the-way", r"\bfalls? back to (?:the )?nouv?eau\b|\bfalls? back to (?:the )?noveau\b|\bnouveau (?:is |was |gets? )?(?:still )?(?:loaded|used|active|running) (?:instead|rather)\b", unless=rf"{IF}(?:\S{{1,16}} )?fall|\b(?:not|never|no longer) (?:\w+ )?falls? back"),
    # `Nvidia kernel module missing`.
    row("module-not-found", r"NVIDIA kernel module (?:is )?(?:missing|not found)", unless=r"\b(?:if|when)\b[^.\n]{0,40}NVIDIA kernel module"),
)  # fmt: skip
