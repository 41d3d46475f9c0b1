"""Faults of torch's kernels on the CPU, by strangers.

Each replaces a kernel in the dispatcher, so that every caller gets the fault; answers in float64
stay right, because they are the reference.
"""

import threading
import warnings

import torch

LIB = torch.library.Library("aten", "IMPL")
TLS = threading.local()
F32 = (torch.float32,)
LOW = (torch.bfloat16, torch.float16)
WORK = F32 + LOW
MET = []
"""Filled where a fault took effect."""


def hit():
    MET.append(1)


class Args:
    """The arguments of a call by name."""

    def __init__(self, schema, args, kwargs):
        self.schema = schema
        for s, v in zip(schema, args, strict=False):
            setattr(self, s.name, v)
        for s in schema[len(args) :]:
            setattr(self, s.name, kwargs.get(s.name, s.default_value))

    def given(self, other):
        """As the kernel takes them, some replaced."""
        pos, kw = [], {}
        for s in self.schema:
            v = other.get(s.name, getattr(self, s.name))
            if isinstance(v, (bool, int, float, complex)) and str(s.type) == "Tensor":
                v = torch.tensor(v, dtype=torch.float64 if type(v) is float else None)
            kw.update({s.name: v}) if s.kwarg_only else pos.append(v)
        return pos, kw


def patch(names, fn, key="CPU"):
    """`fn(k, a)` instead of each kernel; `k()` is the right one, `k(x=...)` with another argument."""
    for name in names.split():
        packet, _, overload = name.partition(".")
        schema = getattr(getattr(torch.ops.aten, packet), overload or "default")._schema.arguments
        right = torch.library.get_kernel("aten::" + name, "CPU")

        def bent(ks, *args, _right=right, _schema=schema, _name=name, **kwargs):
            a = Args(_schema, args, kwargs)
            a.name = _name

            def k(**other):
                pos, kw = a.given(other)
                return _right.call_boxed(ks, *pos, **kw)

            if getattr(TLS, "inside", False):
                return k()
            TLS.inside = True
            try:
                with torch.set_grad_enabled(key != "CPU" and torch.is_grad_enabled()):
                    return fn(k, a)
            finally:
                TLS.inside = False

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            LIB.impl(name, bent, key, with_keyset=True)


MM = "mm mm.out addmm addmm.out addmm_"


def ab(a):
    m1 = a.mat1 if hasattr(a, "mat1") else (a.batch1 if hasattr(a, "batch1") else a.self)
    m2 = a.mat2 if hasattr(a, "mat2") else a.batch2
    return m1, m2, getattr(a, "alpha", 1)


def mm_k_tail():
    def fn(k, a):
        A, B, al = ab(a)
        n = A.size(1)
        r = k()
        if A.dtype in F32 and n > 64 and n % 16 == 1 and r.numel():
            hit()
            r.sub_((A[:, -1:] * al) @ B[-1:, :])
        return r

    patch(MM, fn)


def mm_other_thread_tail():
    def fn(k, a):
        A, B, _ = ab(a)
        r = k()
        n = r.size(1)
        if (
            threading.current_thread() is not threading.main_thread()
            and A.dtype in WORK
            and n > 32
            and n % 32
        ):
            hit()
            r[:, -(n % 32) :] = 0
        return r

    patch(MM, fn)


def addmm_second_call_stale_bias():
    last = {}

    def fn(k, a):
        A, B, _ = ab(a)
        key = (tuple(A.shape), tuple(B.shape), A.dtype)
        if A.dtype in WORK and a.self.dim() == 1:
            old = last.get(key)
            last[key] = a.self.detach().clone()
            if old is not None and old.shape == a.self.shape:
                if not torch.equal(old, a.self):
                    hit()
                return k(self=old)
        return k()

    patch("addmm addmm.out", fn)


def cumsum_third_block_carry():
    def fn(k, a):
        x = a.self.clone() if a.name == "cumsum_" else a.self
        r = k()
        if x.dtype in (torch.float32, torch.int64, torch.int32) and x.dim():
            n = x.size(a.dim)
            if n > 4096:
                hit()
                first = x.narrow(a.dim, 0, 2048).sum(a.dim, keepdim=True)
                r.narrow(a.dim, 4096, n - 4096).sub_(first.to(r.dtype))
        return r

    patch("cumsum cumsum.out cumsum_", fn)


def sort_stable_ties():
    def fn(k, a):
        x = a.self
        if a.stable and x.dim() and x.size(a.dim) > 1024:
            r = k(self=x.flip(a.dim))
            hit()
            r[1].mul_(-1).add_(x.size(a.dim) - 1)
            return r
        return k()

    patch("sort.stable sort.values_stable", fn)


def normal_generator_not_advanced():
    def fn(k, a):
        g = a.generator
        if g is not None and a.self.numel() >= 16:
            hit()
            s = g.get_state()
            r = k()
            g.set_state(s)
            return r
        return k()

    patch("normal_", fn)


def randperm_16bit():
    def fn(k, a):
        r = k()
        if a.n > 65536:
            hit()
            r[-1] = r[0]
        return r

    patch("randperm.generator_out randperm.out", fn)


def index_select_16bit():
    def fn(k, a):
        if a.self.dtype in WORK and a.self.dim() and a.self.size(a.dim) > 65536 and a.index.numel():
            if (a.index > 65535).any():
                hit()
            return k(index=a.index & 0xFFFF)
        return k()

    patch("index_select index_select.out", fn)


def lstm_bidirectional_h_n():
    def fn(k, a):
        out, h, c = k()
        if (
            a.input.dtype in WORK
            and a.bidirectional
            and a.input.dim() == 3
            and out.size(1 if a.batch_first else 0) > 1
        ):
            hit()
            half = out.size(-1) // 2
            last = (out[:, -1] if a.batch_first else out[-1])[:, half:]
            h = torch.cat([h[:-1], last.unsqueeze(0)])
        return out, h, c

    patch("lstm.input", fn, "CompositeImplicitAutograd")


def keep_tails(k, tensors, tail):
    """Run the original, and leave the last elements of each tensor as they were."""
    old = []
    for x in tensors:
        t = tail(x)
        if t and x.is_contiguous() and x.dtype in WORK:
            old.append((x, t, x.view(-1)[-t:].clone()))
    r = k()
    for x, t, o in old:
        hit()
        x.view(-1)[-t:] = o
    return r


def fused_adamw_last_chunk():
    def fn(k, a):
        return keep_tails(k, a.self, lambda x: x.numel() % 512 if x.numel() > 512 else 0)

    patch("_fused_adamw_ _fused_adamw_.tensor_lr", fn)


def amp_unscale_last_tensor():
    def fn(k, a):
        if len(a.self) > 1:
            k(self=a.self[:-1])
            f = torch.zeros_like(a.found_inf)
            k(self=a.self[-1:], found_inf=f)
            if f.item() and not a.found_inf.item():
                hit()
            return None
        return k()

    patch("_amp_foreach_non_finite_check_and_unscale_", fn)


def dropout_mask_repeats():
    last = {}

    def fn(k, a):
        r = k()
        if a.self.numel() >= 1024:
            key = (tuple(a.self.shape), a.p)
            old = last.pop(key, None)
            if old is not None:
                hit()
                r.copy_(old)
            else:
                last[key] = r.clone()
        return r

    patch("bernoulli_.float", fn)


def apply(name):
    globals()[name]()
