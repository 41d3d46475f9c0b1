"""What people say of a torch that another install put in the place of theirs.

Sources, as of November 2026: titles and first lines of threads in issue trackers.
"""

from __future__ import annotations

from gpusetup.messages.row import row

CPUS = (
    r"(?:(?:the |a |an )?(?:(?:py)?torch[ -]?(?:==)?)?\d\.\d{1,2}\.\d\+cpu\b"
    r"|(?:the |a |an )?(?:py)?torch[ -]?\+cpu\b"
    r"|(?:the |a |an |its |some )?(?:CPU(?:[- ]only)?|non[- ]?(?:CUDA|GPU)|CUDA[- ]?less) (?:version|build|wheel|variant|release|one|package|(?:py)?torch)\b"
    r"|(?:a |the )?(?:version|build|one|(?:py)?torch)(?: \d[\w.]{1,12})? without (?:CUDA|GPU)(?: support)?\b)"
)
PUT = r"(?:replac|overwr[io]t|overrid|swapp|switch|revert|downgrad|chang|turn|reinstall|upgrad|updat)\w{0,6}"
GOT = (
    r"(?:\b(?:replac|overwr[io]t|downgrad|forc|download|install|pull)(?:ed|es|e|s|ing|ten)?\b"
    r"|\b(?:brought|brings|got|gets) in\b)"
)
OF_NO_GPU = r"(?:none?[- ]CUDA|CPU[- ]only)(?:[- ]enabled)? (?:(?:version|build|wheel|variant)s? of )?(?:the )?(?:py)?torch\b"
NO_WISH = (
    r"\b(?:want|wants|wanted|need|needs|prefer|try|should|must|to|please) (?:\S{1,12} ){0,3}(?:replace|switch|change|install|downgrade|revert)\b"
    r"|\b(?:no|without an?) (?:NVIDIA )?GPU\b|\b(?:AMD|Radeon|ROCm)\b|\bif\b[^.\n]{0,60}\+?cpu|\b(?:replaced|switched|changed)\b[^.\n]{0,30}\bon purpose|\b(?:not|never|without|avoid\w*|isn't|wasn't) (?:be |being |been )?(?:replac|overwr|chang|switch|downgrad|revert)"
)
ASKED_FOR = (
    r"\b(?:want|wants|wanted|need|needs|prefer|should|must|please) (?:\S{1,12} ){0,3}(?:install|download|replace|downgrade)\b"
    r"|\b(?:no|without an?) (?:NVIDIA )?GPU\b|\b(?:AMD|Radeon|ROCm)\b|\bon purpose\b"
)
REPLACED = (
    *(
        row(
            "torch-not-compiled-with-cuda",
            needle,
            rf"\b(?:py)?torch\b.{{0,500}}?\b{PUT}[^.\n]{{0,40}}? (?:by|with|to|for|into|as) {CPUS}"
            rf"|\b{PUT}[^.\n]{{0,40}}?\b(?:py)?torch\b[^.\n]{{0,60}}? (?:by|with|to|for|into|as) {CPUS}",
            unless=NO_WISH,
        )
        for needle in ("cpu", "non-cuda", "non cuda", "without cuda", "without gpu")
    ),
    *(
        row(
            "torch-not-compiled-with-cuda",
            needle,
            rf"{GOT}[^.\n]{{0,40}}? {OF_NO_GPU}",
            unless=ASKED_FOR,
        )
        for needle in ("non-cuda", "non cuda", "none cuda", "cpu-only")
    ),
)

BESIDE = r"(?:xformers|flash[-_ ]?attn|flash[-_ ]?attention|bitsandbytes|sageattention|torch[-_]scatter|torch[-_]sparse|torch[-_]cluster|pytorch3d|detectron2|mmcv(?:-full)?|apex|auto-?gptq|exllamav2|vllm|deepspeed|tiny-?cuda-?nn|kaolin|gsplat|nvdiffrast|causal[-_]conv1d|mamba[-_]ssm)"
BREAKS = r"(?:fails? to (?:load|import)|failed to (?:load|import)|(?:can ?not|can't|could not|couldn't|won't|does not|doesn't|no longer) (?:be )?(?:load|import)(?:ed|s)?\b|breaks\b|broke\b|(?:stops?|stopped) (?:working|loading)|is (?:now )?incompatible|no longer (?:works?|loads?))"
NEW_TORCH = r"(?:(?:un)?install|replac|updat|upgrad|downgrad|overwr[io]t|chang)\w{0,6}[^.\n]{0,40}?\b(?:py)?torch\b"
LEFT_BEHIND = (
    row(
        "extension-abi-mismatch",
        (" load", " import", "breaks", "broke", "incompatible", "no longer", "stop"),
        rf"\b{NEW_TORCH}.{{0,260}}?\b(?P<module>{BESIDE}) {BREAKS}|\b(?P<extension>{BESIDE}) {BREAKS}[^.\n]{{0,60}}?\b(?:after|since|because|when|as)\b[^.\n]{{0,60}}?{NEW_TORCH}",
        unless=r"\b(?:if|to avoid|otherwise|may|might|could|would) (?:\S{1,16} ){0,4}?(?:update|upgrade|fail|break|install)",
    ),
)
"""An extension of another torch, whose own message is not shown."""

HAS_NONE = tuple(
    row(
        "torch-not-compiled-with-cuda",
        needle,
        r"\b(?:py)?torch (?:build |version |install(?:ation)? )?(?:does ?n[o']t|does not|doesnt) have (?:any )?(?:CUDA|GPU)(?: support)?(?= ?(?:[.,;!?)`'\"\n#]|$|and\b|but\b|anymore|any more|I\b))",
        unless=r"\b(?:if|when|whether|in case|unless)\b (?:\S{1,16} ){0,4}?(?:py)?torch|\b(?:AMD|Radeon|ROCm|Intel Arc|macOS|Jetson)\b",
    )
    for needle in ("torch does not have ", "torch doesn't have ")
)

PTX = (
    row(
        "ptx-unsupported-toolchain",
        "ptx mismatch",
        r"\bPTX mismatch\b",
        unless=r"\b(?:if|avoid|no|without|prevent)\b (?:\S{1,16} ){0,3}?PTX mismatch",
    ),
)
"""A driver that is older than the compiler, as somebody says it."""

ROWS = (*REPLACED, *LEFT_BEHIND, *HAS_NONE, *PTX)
