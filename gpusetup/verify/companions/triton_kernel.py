"""The kernel of the check of Triton; Triton reads its source from this file."""

from typing import Any

try:
    import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]
except ImportError:  # what only reads the file needs none
    triton = tl = None

BLOCK = 256

if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def _add(a, b, out, count, size: tl.constexpr):  # type: ignore[no-untyped-def]
        place = tl.program_id(0) * size + tl.arange(0, size)
        inside = place < count
        both = tl.load(a + place, mask=inside) + tl.load(b + place, mask=inside)
        tl.store(out + place, both, mask=inside)


def added(torch: Any, tri: Any, a: Any, b: Any) -> Any:
    """The sum of two vectors on a GPU."""
    out = torch.empty_like(a)
    _add[(tri.cdiv(a.numel(), BLOCK),)](a, b, out, a.numel(), size=BLOCK)
    return out
