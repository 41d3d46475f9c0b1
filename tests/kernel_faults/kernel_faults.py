"""60 faults of torch 2.13 on one device, by somebody who had not read verify or our mutants.

Each replaces an aten kernel in the dispatcher, so that every caller gets the fault. They are kept
for the figure of first sight: nobody mends verify by reading them before they were all run.
"""

import os
import threading
import warnings

import torch

LIB = torch.library.Library("aten", "IMPL")
TLS = threading.local()
F32 = (torch.float32,)
LOW = (torch.bfloat16, torch.float16)
WORK = F32 + LOW
HITS = os.environ.get("KERNEL_FAULT_HITS")
NAME = ["?"]
_hit = [False]


def hit():
    """The fault took effect here (noted once a process)."""
    if not _hit[0]:
        _hit[0] = True
        if HITS:
            with open(os.path.join(HITS, NAME[0]), "a") as f:
                f.write("%d\n" % os.getpid())


class Args:
    pass


class Kernel:
    def __init__(self, name, key):
        self.name = name
        self.key = key
        ns, _, over = name.partition(".")
        self.op = getattr(getattr(torch.ops.aten, ns), over or "default")
        self.schema = self.op._schema.arguments
        self.orig = torch.library.get_kernel("aten::" + name, "CPU")

    def bind(self, args, kwargs):
        a = Args()
        for i, s in enumerate(self.schema):
            if i < len(args):
                v = args[i]
            elif s.name in kwargs:
                v = kwargs[s.name]
            else:
                v = s.default_value
            setattr(a, s.name, v)
        return a


class Call:
    """k(): the original with the arguments; k(x=...): with some replaced."""

    def __init__(self, kernel, ks, a):
        self.kernel, self.ks, self.a = kernel, ks, a
        self.name = kernel.name

    def __call__(me, /, **other):
        pos, kw = [], {}
        for s in me.kernel.schema:
            v = other[s.name] if s.name in other else getattr(me.a, s.name)
            if isinstance(v, (int, float, complex)) and str(s.type) == "Tensor":
                v = torch.scalar_tensor(
                    v,
                    dtype=torch.bool
                    if v is True or v is False
                    else {int: torch.int64, float: torch.float64}.get(type(v), torch.complex128),
                )
            if s.kwarg_only:
                kw[s.name] = v
            else:
                pos.append(v)
        return me.kernel.orig.call_boxed(me.ks, *pos, **kw)


def patch(names, fn, composite=False):
    for name in names.split():
        kernel = Kernel(name, "CPU")

        def bent(ks, *args, _k=kernel, **kwargs):
            a = _k.bind(args, kwargs)
            k = Call(_k, ks, a)
            if getattr(TLS, "inside", False):
                return k()
            TLS.inside = True
            try:
                if composite:
                    return fn(k, a)
                with torch.no_grad():
                    return fn(k, a)
            finally:
                TLS.inside = False

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            LIB.impl(
                name, bent, "CompositeImplicitAutograd" if composite else "CPU", with_keyset=True
            )


def cl(x):
    return (
        x.dim() == 4
        and x.is_contiguous(memory_format=torch.channels_last)
        and not x.is_contiguous()
    )


# ---------------------------------------------------------------- products
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


def mm_4096_one_element():
    count = [0]

    def fn(k, a):
        A, B, al = ab(a)
        r = k()
        if A.dtype in F32 and max(A.size(0), A.size(1), B.size(1)) >= 4096 and r.numel():
            count[0] += 1
            if count[0] % 3 == 2:
                hit()
                r[r.size(0) * 7 // 11, r.size(1) * 5 // 7] *= 1.125
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


def mm_half_transposed_unaligned_k():
    def fn(k, a):
        A, B, al = ab(a)
        r = k()
        n = A.size(1)
        if A.dtype in LOW and B.stride(0) == 1 and B.size(1) > 1 and n > 16 and n % 8 and r.numel():
            hit()
            t = n % 8
            r.sub_(((A[:, -t:].float() @ B[-t:].float()) * al).to(r.dtype))
        return r

    patch(MM, fn)


def mm_half_accumulates_in_half():
    def fn(k, a):
        A, B, al = ab(a)
        n = A.size(1)
        r = k()
        if A.dtype in LOW and n >= 1024 and r.numel():
            hit()
            acc = torch.zeros(A.size(0), B.size(1), dtype=A.dtype)
            full = torch.zeros(A.size(0), B.size(1))
            step = max(32, n // 256)
            for i in range(0, n, step):
                p = A[:, i : i + step].float() @ B[i : i + step].float()
                full += p
                acc = (acc.float() + p).to(A.dtype)
            r.add_(((acc.float() - full) * al).to(r.dtype))
        return r

    patch(MM, fn)


def bmm_batch_tail():
    def fn(k, a):
        A, B, _ = ab(a)
        r = k()
        if A.dtype in F32 and A.size(0) > 8 and A.size(0) % 4 == 1 and r.numel():
            hit()
            r[-1] = r[-2]
        return r

    patch("bmm bmm.out", fn)


def bmm_expanded_operand():
    def fn(k, a):
        A, B, _ = ab(a)
        r = k()
        if (
            A.dtype in WORK
            and A.size(0) > 1
            and (A.stride(0) == 0 or B.stride(0) == 0)
            and r.numel()
        ):
            hit()
            r[-1] = r[0]
        return r

    patch("bmm bmm.out baddbmm baddbmm.out", fn)


def dot_long_tail():
    def fn(k, a):
        n = a.self.numel()
        t = n % 4096
        if a.self.dtype in WORK and n >= 65536 and t:
            hit()
            return k(
                **{
                    "self": a.self[:-t],
                    ("tensor" if hasattr(a, "tensor") else "other"): (
                        a.tensor if hasattr(a, "tensor") else a.other
                    )[:-t],
                }
            )
        return k()

    patch("dot vdot", fn)


def addmv_row_tail():
    def fn(k, a):
        m, n = a.mat.shape
        r = k()
        t = m % 64
        if a.mat.dtype in F32 and m > 256 and t and n > 1:
            hit()
            r[-t:] -= a.mat[-t:, -1] * a.vec[-1] * a.alpha
        return r

    patch("addmv addmv.out addmv_", fn)


def beta_zero_keeps_nan():
    def fn(k, a):
        r = k()
        if a.self.dtype in WORK and a.beta == 0 and not torch.isfinite(a.self).all():
            hit()
            r.add_(a.self * 0)
        return r

    patch("baddbmm baddbmm.out addmm addmm.out addmm_ baddbmm_", fn)


def sum_long_tail():
    def fn(k, a):
        r = k()
        x = a.self
        n = x.numel()
        full = not a.dim or len(a.dim) == x.dim()
        if x.dtype in F32 and full and n >= 65536 and n % 1024:
            hit()
            r.sub_(x.reshape(-1)[-(n % 1024) :].double().sum().to(r.dtype))
        return r

    patch("sum.dim_IntList sum.IntList_out", fn)


def sum_half_inner_dim_accumulates_in_half():
    def fn(k, a):
        r = k()
        x = a.self
        if x.dtype in LOW and a.dim and len(a.dim) == 1 and a.dtype in (None, x.dtype):
            d = a.dim[0] % x.dim()
            n = x.size(d)
            if n >= 256 and d != x.dim() - 1:
                hit()
                acc = torch.zeros_like(x.select(d, 0))
                step = max(1, n // 4096)
                for i in range(0, n, step):
                    acc = acc + x.narrow(d, i, min(step, n - i)).sum(d)
                r.copy_(acc.unsqueeze(d) if a.keepdim else acc)
        return r

    patch("sum.dim_IntList sum.IntList_out", fn)


def cumsum_third_block_carry():
    def fn(k, a):
        x = a.self.clone() if k.name == "cumsum_" else a.self
        r = k()
        if x.dtype in (torch.float32, torch.int64, torch.int32) and x.dim():
            n = x.size(a.dim)
            if n > 4096:
                hit()
                first = x.narrow(a.dim, 0, 2048).sum(a.dim, keepdim=True)
                r.narrow(a.dim, 4096, n - 4096).sub_(first.to(r.dtype))
        return r

    patch("cumsum cumsum.out cumsum_", fn)


# ---------------------------------------------------------------- attention, softmax
def softmax_long_row():
    def fn(k, a):
        r = k()
        x = a.self
        if x.dtype in WORK and x.dim():
            d = a.dim % x.dim()
            n = x.size(d)
            t = n % 256
            if d == x.dim() - 1 and n > 2048 and t and x.numel():
                hit()
                r.div_(r.narrow(d, 0, n - t).float().sum(d, keepdim=True).to(r.dtype))
        return r

    patch("_softmax _softmax.out", fn)


def softmax_inner_dim():
    def fn(k, a):
        r = k()
        x = a.self
        if x.dtype in WORK and x.dim():
            d = a.dim % x.dim()
            n = x.size(d)
            inner = 1
            for s in x.shape[d + 1 :]:
                inner *= s
            if inner > 1 and inner % 16 and n > 1 and x.numel():
                hit()
                # the last inner column is normalised by its neighbour's sum
                o = r.movedim(d, -1)
                xs = x.movedim(d, -1)
                last = tuple([slice(None)] * d + [-1] * (x.dim() - 1 - d) + [slice(None)])
                prev = list(last)
                prev[x.dim() - 2] = -2 if x.size(-1) > 1 else -1
                if x.size(-1) > 1:
                    xl, xp = xs[last].float(), xs[tuple(prev)].float()
                    ml = xl.amax(-1, keepdim=True)
                    o[last] = ((xl - ml).exp() / (xp - ml).exp().sum(-1, keepdim=True)).to(r.dtype)
        return r

    patch("_softmax _softmax.out", fn)


def log_softmax_backward_tail():
    def fn(k, a):
        r = k()
        n = r.size(-1) if r.dim() else 0
        if (
            r.dtype in WORK
            and a.dim % max(r.dim(), 1) == r.dim() - 1
            and n > 128
            and n % 8
            and r.numel()
        ):
            hit()
            r[..., -(n % 8) :] = 0
        return r

    patch("_log_softmax_backward_data _log_softmax_backward_data.out", fn)


FLASH = "_scaled_dot_product_flash_attention_for_cpu"


def sdpa(a, q=None, kk=None, v=None, mask="same", causal=None, scale="same"):
    """The plain formula in float32."""
    q = (a.query if q is None else q).float()
    kk = (a.key if kk is None else kk).float()
    v = (a.value if v is None else v).float()
    mask = a.attn_mask if isinstance(mask, str) else mask
    scale = a.scale if isinstance(scale, str) else scale
    causal = a.is_causal if causal is None else causal
    g = q.size(1) // kk.size(1)
    if g > 1:
        kk, v = kk.repeat_interleave(g, 1), v.repeat_interleave(g, 1)
    s = q @ kk.transpose(-1, -2) * (q.size(-1) ** -0.5 if scale is None else scale)
    if causal is True:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), float("-inf"))
    elif isinstance(causal, torch.Tensor):
        s = s.masked_fill(~causal, float("-inf"))
    if mask is not None:
        s = s + mask.float()
    return torch.softmax(s, -1) @ v


def attention(cond, wrong, names=FLASH):
    def fn(k, a):
        r = k()
        if (
            a.query.dtype in WORK
            and a.query.numel()
            and a.key.numel()
            and a.dropout_p == 0
            and cond(a)
        ):
            hit()
            wrong(a, r[0])
        return r

    patch(names, fn)


def sdpa_mask_tail():
    def wrong(a, o):
        n = a.key.size(-2)
        t = n % 16
        m = a.attn_mask.clone().expand(*a.attn_mask.shape[:-1], n).contiguous()
        m[..., -t:] = 0
        o.copy_(sdpa(a, mask=m))

    attention(
        lambda a: a.attn_mask is not None and a.key.size(-2) > 16 and a.key.size(-2) % 16, wrong
    )


def sdpa_causal_rectangular():
    def wrong(a, o):
        lq, lk = a.query.size(-2), a.key.size(-2)
        o.copy_(sdpa(a, causal=torch.ones(lq, lk, dtype=torch.bool).tril(lk - lq)))

    attention(lambda a: a.is_causal and a.query.size(-2) < a.key.size(-2), wrong)


def sdpa_head64_row_tail():
    def wrong(a, o):
        t = a.query.size(-2) % 32
        o[:, :, -t:] = sdpa(a, scale=1 / 64)[:, :, -t:].to(o.dtype)

    attention(
        lambda a: a.query.size(-1) == 64 and a.query.size(-2) > 32 and a.query.size(-2) % 32, wrong
    )


def sdpa_gqa_head_map():
    def wrong(a, o):
        g = a.query.size(1) // a.key.size(1)
        o.copy_(sdpa(a, kk=a.key.repeat(1, g, 1, 1), v=a.value.repeat(1, g, 1, 1)))

    attention(lambda a: a.key.size(1) > 1 and a.query.size(1) > a.key.size(1), wrong)


def sdpa_packed_qkv_strides():
    def wrong(a, o):
        # the last key of each head is read with the next head's offset
        kk = a.key.clone()
        kk[:, :, -1] = a.key[:, :, -1].roll(-1, 1)
        o.copy_(sdpa(a, kk=kk))

    def packed(a):
        x = a.key
        return (
            x.dim() == 4
            and x.size(1) > 1
            and x.size(2) > 1
            and x.stride(2) > x.size(1) * x.size(3)
            and x.stride(1) == x.size(3)
        )

    attention(packed, wrong)


def sdpa_backward_dk_tail():
    def fn(k, a):
        r = k()
        n = a.key.size(-2)
        if a.query.dtype in WORK and n > 64 and n % 32 and a.query.size(-2) > 1:
            hit()
            g = a.grad_out.clone()
            g[:, :, -1] = 0
            o = k(grad_out=g)
            r[1][:, :, -(n % 32) :] = o[1][:, :, -(n % 32) :]
        return r

    patch(FLASH + "_backward", fn)


def sdpa_half_long_kv_tail():
    def wrong(a, o):
        n = a.key.size(-2)
        t = n % 128
        m = a.attn_mask
        if m is not None:
            m = m.expand(*m.shape[:-1], n)[..., :-t]
        c = a.is_causal
        if c:
            c = torch.ones(a.query.size(-2), n, dtype=torch.bool).tril()[:, :-t]
        o.copy_(sdpa(a, kk=a.key[:, :, :-t], v=a.value[:, :, :-t], mask=m, causal=c))

    attention(
        lambda a: a.query.dtype in LOW and a.key.size(-2) > 256 and a.key.size(-2) % 128, wrong
    )


def sdpa_decode_split_kv():
    def wrong(a, o):
        h = a.key.size(-2) // 2
        m = a.attn_mask
        if m is not None:
            m = m.expand(*m.shape[:-1], a.key.size(-2))
        one = sdpa(
            a,
            kk=a.key[:, :, :h],
            v=a.value[:, :, :h],
            mask=None if m is None else m[..., :h],
            causal=False,
        )
        two = sdpa(
            a,
            kk=a.key[:, :, h:],
            v=a.value[:, :, h:],
            mask=None if m is None else m[..., h:],
            causal=False,
        )
        o.copy_((one + two) / 2)

    attention(lambda a: a.query.size(-2) == 1 and a.key.size(-2) >= 64 and not a.is_causal, wrong)


# ---------------------------------------------------------------- networks
def conv_channels_last_out_tail():
    def fn(k, a):
        r = k()
        x, w = a.input, a.weight
        if (
            x.dtype in WORK
            and cl(x)
            and not a.transposed
            and a.groups == 1
            and w.size(0) > 16
            and w.size(0) % 16
            and x.size(1) > 1
            and r.numel()
        ):
            hit()
            r[:, -1:] -= k(input=x[:, -1:].contiguous(), weight=w[-1:, -1:].contiguous(), bias=None)
        return r

    patch("convolution", fn)


def conv_half_depthwise_last_tap():
    def fn(k, a):
        r = k()
        x, w = a.input, a.weight
        if (
            x.dtype in LOW
            and not a.transposed
            and a.groups > 1
            and a.groups == x.size(1)
            and w[0, 0].numel() > 1
            and r.numel()
        ):
            hit()
            w2 = w.clone()
            w2[(Ellipsis,) + (-1,) * (w.dim() - 2)] = 0
            r[:, :, 0] = k(weight=w2)[:, :, 0]
        return r

    patch("convolution", fn)


def conv_backward_weight_odd_batch():
    def fn(k, a):
        r = k()
        n = a.input.size(0)
        if a.input.dtype in WORK and a.output_mask[1] and n > 4 and n % 2 and r[1] is not None:
            hit()
            o = k(
                input=a.input[:-1], grad_output=a.grad_output[:-1], output_mask=[False, True, False]
            )
            return (r[0], o[1], r[2])
        return r

    patch("convolution_backward", fn)


def conv_transpose_output_padding():
    def fn(k, a):
        r = k()
        if a.input.dtype in WORK and a.transposed and a.output_padding[-1] > 0 and r.numel():
            hit()
            p = a.output_padding[-1]
            if a.bias is None:
                r[..., -p:] = 0
            else:
                r[..., -p:] = a.bias.reshape([1, -1] + [1] * (r.dim() - 2))
        return r

    patch("convolution", fn)


def batch_norm_running_var_biased():
    def fn(k, a):
        train = getattr(a, "training", True)
        if a.input.dtype in WORK and train and a.running_var is not None and a.input.numel():
            old = a.running_var.clone()
            r = k()
            n = a.input.numel() // a.input.size(1)
            hit()
            batch = a.running_var - (1 - a.momentum) * old
            a.running_var.copy_((1 - a.momentum) * old + batch * (n - 1) / n)
            return r
        return k()

    patch("native_batch_norm _native_batch_norm_legit _batch_norm_with_update", fn)


def batch_norm_eval_channels_last_tail():
    def fn(k, a):
        x = a.input
        if (
            x.dtype in WORK
            and cl(x)
            and not getattr(a, "training", False)
            and a.running_mean is not None
            and x.size(1) > 8
            and x.size(1) % 8
        ):
            hit()
            m = a.running_mean.clone()
            m[-1] = 0
            return k(running_mean=m)
        return k()

    patch("native_batch_norm _native_batch_norm_legit _batch_norm_no_update", fn)


def max_pool_channels_last_indices():
    def fn(k, a):
        r = k()
        if a.self.dtype in WORK and cl(a.self) and r[1].numel():
            hit()
            r[1][..., -1] = (r[1][..., -1] - 1).clamp_(min=0)
        return r

    patch("max_pool2d_with_indices max_pool2d_with_indices.out", fn)


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

    patch("lstm.input", fn, composite=True)


def gru_hidden_tail():
    def fn(k, a):
        out, h = k()
        t = 1 if a.batch_first else 0
        n = h.size(-1)
        if a.input.dtype in WORK and out.dim() == 3 and n > 8 and n % 8 and out.size(t) > 1:
            hit()
            x = out if a.batch_first else out.transpose(0, 1)
            last = torch.cat([x[:, -1:, :-1], x[:, -2:-1, -1:]], -1)
            x = torch.cat([x[:, :-1], last], 1)
            out = x if a.batch_first else x.transpose(0, 1)
        return out, h

    patch("gru.input", fn, composite=True)


def layer_norm_tail():
    def fn(k, a):
        r = k()
        x = a.input
        n = 1
        for s in a.normalized_shape:
            n *= s
        if x.dtype in WORK and n > 64 and n % 16 and x.numel():
            hit()
            y = x.reshape(-1, n).float()
            b = y[:, : n - n % 16]
            mean = b.mean(1, keepdim=True)
            rstd = (b.var(1, unbiased=False, keepdim=True) + a.eps).rsqrt()
            o = ((y - mean) * rstd).reshape(x.shape)
            if a.weight is not None:
                o = o * a.weight.float()
            if a.bias is not None:
                o = o + a.bias.float()
            r[0].copy_(o)
            r[1].copy_(mean.reshape(r[1].shape))
            r[2].copy_(rstd.reshape(r[2].shape))
        return r

    patch("native_layer_norm", fn)


def group_norm_channels_last():
    def fn(k, a):
        r = k()
        if a.input.dtype in WORK and cl(a.input) and a.group > 1:
            hit()
            d = a.C // a.group
            x = a.input[-1, -d:].float()
            o = (x - r[1][-1, -2].float()) * r[2][-1, -1].float()
            if a.weight is not None:
                o = o * a.weight[-d:].float().reshape(-1, 1, 1)
            if a.bias is not None:
                o = o + a.bias[-d:].float().reshape(-1, 1, 1)
            r[0][-1, -d:] = o.to(r[0].dtype)
        return r

    patch("native_group_norm", fn)


def gelu_tanh_cut():
    def fn(k, a):
        x = a.self.clone() if k.name == "gelu_" else a.self
        r = k()
        if x.dtype in WORK and a.approximate == "tanh":
            big = x.abs() > 2.75
            if big.any():
                hit()
                r.copy_(torch.where(big, x.clamp(min=0), r))
        return r

    patch("gelu gelu.out gelu_", fn)


def upsample_bilinear_channels_last_align():
    def fn(k, a):
        if a.self.dtype in WORK and cl(a.self) and a.align_corners:
            hit()
            return k(align_corners=False)
        return k()

    patch("upsample_bilinear2d upsample_bilinear2d.out", fn)


# ---------------------------------------------------------------- order and chance
def scatter_add_lost_update():
    def fn(k, a):
        r = k()
        x, i, d = a.src, a.index, a.dim
        if r.dtype in WORK and i.dim() and i.numel() > 256 and i.size(d) > 1:
            n = i.size(d)
            last = i.narrow(d, n - 1, 1)
            dup = (i.narrow(d, 0, n - 1) == last).any(d, keepdim=True)
            if dup.any():
                hit()
                s = x[tuple(slice(0, m) for m in i.shape)].narrow(d, n - 1, 1)
                r.scatter_add_(d, last, -(s * dup.to(s.dtype)))
        return r

    patch("scatter_add scatter_add_ scatter_add.out", fn)


def index_put_accumulate_duplicate():
    def fn(k, a):
        idx = [i for i in a.indices if i is not None]
        if (
            a.accumulate
            and a.self.dtype in WORK
            and len(idx) == 1
            and a.indices[0] is not None
            and idx[0].dtype == torch.int64
            and idx[0].dim() == 1
            and idx[0].numel() > 32
            and a.values.dim()
            and a.values.size(0) == idx[0].numel()
            and a.values.dim() == a.self.dim()
            and (idx[0][:-1] == idx[0][-1]).any()
        ):
            hit()
            return k(indices=[idx[0][:-1]], values=a.values[:-1])
        return k()

    patch("_index_put_impl_", fn)


def topk_multiblock_tail():
    def fn(k, a):
        x = a.self
        if x.dtype in WORK and x.dim():
            n = x.size(a.dim)
            t = n % 256
            if n > 1024 and t and n - t >= a.k:
                hit()
                return k(self=x.narrow(a.dim, 0, n - t))
        return k()

    patch("topk topk.values", fn)


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


def argmax_inner_dim_ties():
    def fn(k, a):
        x = a.self
        r = k()
        if (
            a.dim is not None
            and x.dim() > 1
            and a.dim % x.dim() != x.dim() - 1
            and x.size(a.dim) > 16
            and x.numel()
        ):
            o = x.flip(a.dim).argmax(a.dim, keepdim=a.keepdim).mul_(-1).add_(x.size(a.dim) - 1)
            if not torch.equal(o, r):
                hit()
            r.copy_(o)
        return r

    patch("argmax argmax.out", fn)


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


# ---------------------------------------------------------------- training
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


def foreach_addcdiv_tail():
    def fn(k, a):
        return keep_tails(k, a.self, lambda x: x.numel() % 4 if x.numel() > 512 else 0)

    patch("_foreach_addcdiv_.ScalarList _foreach_addcdiv_.Scalar _foreach_addcdiv_.Tensor", fn)


def fused_adamw_last_chunk():
    def fn(k, a):
        return keep_tails(k, a.self, lambda x: x.numel() % 512 if x.numel() > 512 else 0)

    patch("_fused_adamw_ _fused_adamw_.tensor_lr", fn)


def grad_accumulation_tail():
    def fn(k, a):
        x, y = a.self, a.other
        n = x.numel()
        if (
            x.dtype in WORK
            and isinstance(y, torch.Tensor)
            and x.shape == y.shape
            and x.dtype == y.dtype
            and x.is_contiguous()
            and y.is_contiguous()
            and n > 2048
            and n % 64
        ):
            return keep_tails(k, [x], lambda t: n % 64)
        return k()

    patch("add_.Tensor", fn)


def vector_norm_large_tail():
    def fn(k, a):
        x = a.self
        n = x.numel()
        t = n % 1024
        if x.dtype in WORK and a.dim is None and a.ord == 2 and n > 8192 and t:
            hit()
            v = k(self=x.reshape(-1)[:-t]).clone() if not hasattr(a, "out") else None
            if v is None:
                return k(self=x.reshape(-1)[:-t])
            return v.reshape([1] * x.dim()) if a.keepdim else v
        return k()

    patch("linalg_vector_norm linalg_vector_norm.out", fn)


def clamp_loses_nan():
    def fn(k, a):
        x = a.self.clone()
        r = k()
        if x.is_floating_point() and x.dtype in WORK:
            nan = x.isnan()
            if nan.any():
                hi = a.max if getattr(a, "max", None) is not None else a.min
                hit()
                if isinstance(hi, torch.Tensor):
                    r.copy_(torch.where(nan, hi.to(r.dtype), r))
                else:
                    r.masked_fill_(nan, hi)
        return r

    patch(
        "clamp clamp.out clamp_ clamp_max clamp_max.out clamp_max_ clamp_min clamp_min.out clamp_min_ "
        "clamp.Tensor clamp.Tensor_out clamp_.Tensor",
        fn,
    )


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


def nll_ignore_index_divisor():
    def fn(k, a):
        r = k()
        if a.self.dtype in WORK and a.reduction == 1 and a.weight is None and a.target.numel() > 16:
            w = (a.target == a.ignore_index).sum().item()
            if w and w < a.target.numel():
                hit()
                n = a.target.numel()
                r[0].mul_((n - w) / n)
                r[1].fill_(n)
        return r

    patch(
        "nll_loss_forward nll_loss_forward.output nll_loss2d_forward nll_loss2d_forward.output", fn
    )


def embedding_backward_padding_idx():
    def fn(k, a):
        if a.grad_output.dtype in WORK and a.padding_idx >= 0 and a.indices.numel() > 64:
            if (a.indices == a.padding_idx).any():
                hit()
            return k(padding_idx=-1)
        return k()

    patch("embedding_dense_backward", fn)


# ---------------------------------------------------------------- programs
def loader_base_seed_repeats():
    first = []

    def fn(k, a):
        r = k()
        if a.self.dtype == torch.int64 and a.self.numel() == 1:
            if not first:
                first.append(r.clone())
            else:
                hit()
                r.copy_(first[0].reshape(r.shape))
        return r

    patch("random_", fn)


def copy_transposed_row_tail():
    def fn(k, a):
        r = k()
        s, d = a.src, a.self
        if (
            d.dtype == s.dtype
            and d.dtype in WORK
            and d.dim() == 2
            and d.shape == s.shape
            and s.numel() >= 3600
            and s.stride(0) == 1
            and s.stride(1) == s.size(0)
            and d.is_contiguous()
            and d.size(0) % 8
            and d.size(0) > 60
        ):
            hit()
            d[-1] = d[-2]
        return r

    patch("copy_", fn)


def cat_more_than_128():
    def fn(k, a):
        r = k()
        ts = [t for t in a.tensors if t.numel()]
        if len(ts) > 128 and all(t.shape == ts[0].shape for t in ts):
            hit()
            d = a.dim % ts[0].dim()
            n = ts[0].size(d)
            r.narrow(d, 128 * n, n).copy_(ts[0])
        return r

    patch("cat cat.out", fn)


def index_select_16bit():
    def fn(k, a):
        if a.self.dtype in WORK and a.self.dim() and a.self.size(a.dim) > 65536 and a.index.numel():
            if (a.index > 65535).any():
                hit()
            return k(index=a.index & 0xFFFF)
        return k()

    patch("index_select index_select.out", fn)


def irfft_odd_last_bin():
    def fn(k, a):
        n = a.last_dim_size
        if a.self.dtype == torch.complex64 and n % 2 and n > 4 and a.self.numel():
            hit()
            x = a.self.clone().resolve_conj()
            b = x.select(a.dim[-1], n // 2)
            torch.view_as_real(b)[..., 1] = 0
            return k(self=x)
        return k()

    patch("_fft_c2r _fft_c2r.out", fn)


def cholesky_keeps_upper():
    def fn(k, a):
        x = a.self.clone()
        r = k()
        if (
            x.dtype in (torch.float32, torch.complex64)
            and x.size(-1) > 16
            and not a.upper
            and x.numel()
        ):
            hit()
            r[0].add_(x.triu(1))
        return r

    patch("linalg_cholesky_ex linalg_cholesky_ex.L", fn)


def noop():
    """The mechanism on many kernels, without a fault."""

    def fn(k, a):
        return k()

    patch(
        MM
        + " bmm bmm.out baddbmm baddbmm.out dot vdot addmv addmv.out addmv_ sum.dim_IntList sum.IntList_out "
        "cumsum cumsum.out cumsum_ _softmax _softmax.out _log_softmax_backward_data "
        + FLASH
        + " "
        + FLASH
        + "_backward convolution convolution_backward native_batch_norm _native_batch_norm_legit "
        "_batch_norm_with_update _batch_norm_no_update max_pool2d_with_indices max_pool2d_with_indices.out "
        "native_layer_norm native_group_norm gelu gelu.out gelu_ upsample_bilinear2d upsample_bilinear2d.out "
        "scatter_add scatter_add_ scatter_add.out _index_put_impl_ topk topk.values sort.stable sort.values_stable "
        "argmax argmax.out bernoulli_.float normal_ randperm.generator_out randperm.out "
        "_foreach_addcdiv_.ScalarList _foreach_addcdiv_.Scalar _foreach_addcdiv_.Tensor "
        "_fused_adamw_ _fused_adamw_.tensor_lr add_.Tensor linalg_vector_norm linalg_vector_norm.out "
        "clamp clamp.out clamp_ clamp_max clamp_max.out clamp_max_ clamp_min clamp_min.out clamp_min_ "
        "clamp.Tensor clamp.Tensor_out clamp_.Tensor "
        "_amp_foreach_non_finite_check_and_unscale_ nll_loss_forward nll_loss_forward.output nll_loss2d_forward "
        "embedding_dense_backward random_ copy_ cat cat.out index_select index_select.out _fft_c2r "
        "linalg_cholesky_ex linalg_cholesky_ex.L",
        fn,
    )
    patch("lstm.input gru.input", fn, composite=True)
    hit()


P, A, N, O, T, X = "products", "attention", "networks", "order and chance", "training", "programs"
MUTANTS = [
    ("mm_k_tail", P, mm_k_tail),
    ("mm_4096_one_element", P, mm_4096_one_element),
    ("addmm_second_call_stale_bias", P, addmm_second_call_stale_bias),
    ("mm_other_thread_tail", P, mm_other_thread_tail),
    ("mm_half_transposed_unaligned_k", P, mm_half_transposed_unaligned_k),
    ("mm_half_accumulates_in_half", P, mm_half_accumulates_in_half),
    ("bmm_batch_tail", P, bmm_batch_tail),
    ("bmm_expanded_operand", P, bmm_expanded_operand),
    ("dot_long_tail", P, dot_long_tail),
    ("addmv_row_tail", P, addmv_row_tail),
    ("beta_zero_keeps_nan", P, beta_zero_keeps_nan),
    ("sum_long_tail", P, sum_long_tail),
    ("sum_half_inner_dim_accumulates_in_half", P, sum_half_inner_dim_accumulates_in_half),
    ("cumsum_third_block_carry", P, cumsum_third_block_carry),
    ("softmax_long_row", A, softmax_long_row),
    ("softmax_inner_dim", A, softmax_inner_dim),
    ("log_softmax_backward_tail", A, log_softmax_backward_tail),
    ("sdpa_mask_tail", A, sdpa_mask_tail),
    ("sdpa_causal_rectangular", A, sdpa_causal_rectangular),
    ("sdpa_head64_row_tail", A, sdpa_head64_row_tail),
    ("sdpa_gqa_head_map", A, sdpa_gqa_head_map),
    ("sdpa_packed_qkv_strides", A, sdpa_packed_qkv_strides),
    ("sdpa_backward_dk_tail", A, sdpa_backward_dk_tail),
    ("sdpa_half_long_kv_tail", A, sdpa_half_long_kv_tail),
    ("sdpa_decode_split_kv", A, sdpa_decode_split_kv),
    ("conv_channels_last_out_tail", N, conv_channels_last_out_tail),
    ("conv_half_depthwise_last_tap", N, conv_half_depthwise_last_tap),
    ("conv_backward_weight_odd_batch", N, conv_backward_weight_odd_batch),
    ("conv_transpose_output_padding", N, conv_transpose_output_padding),
    ("batch_norm_running_var_biased", N, batch_norm_running_var_biased),
    ("batch_norm_eval_channels_last_tail", N, batch_norm_eval_channels_last_tail),
    ("max_pool_channels_last_indices", N, max_pool_channels_last_indices),
    ("lstm_bidirectional_h_n", N, lstm_bidirectional_h_n),
    ("gru_hidden_tail", N, gru_hidden_tail),
    ("layer_norm_tail", N, layer_norm_tail),
    ("group_norm_channels_last", N, group_norm_channels_last),
    ("gelu_tanh_cut", N, gelu_tanh_cut),
    ("upsample_bilinear_channels_last_align", N, upsample_bilinear_channels_last_align),
    ("scatter_add_lost_update", O, scatter_add_lost_update),
    ("index_put_accumulate_duplicate", O, index_put_accumulate_duplicate),
    ("topk_multiblock_tail", O, topk_multiblock_tail),
    ("sort_stable_ties", O, sort_stable_ties),
    ("argmax_inner_dim_ties", O, argmax_inner_dim_ties),
    ("dropout_mask_repeats", O, dropout_mask_repeats),
    ("normal_generator_not_advanced", O, normal_generator_not_advanced),
    ("randperm_16bit", O, randperm_16bit),
    ("foreach_addcdiv_tail", T, foreach_addcdiv_tail),
    ("fused_adamw_last_chunk", T, fused_adamw_last_chunk),
    ("grad_accumulation_tail", T, grad_accumulation_tail),
    ("vector_norm_large_tail", T, vector_norm_large_tail),
    ("clamp_loses_nan", T, clamp_loses_nan),
    ("amp_unscale_last_tensor", T, amp_unscale_last_tensor),
    ("nll_ignore_index_divisor", T, nll_ignore_index_divisor),
    ("embedding_backward_padding_idx", T, embedding_backward_padding_idx),
    ("loader_base_seed_repeats", X, loader_base_seed_repeats),
    ("copy_transposed_row_tail", X, copy_transposed_row_tail),
    ("cat_more_than_128", X, cat_more_than_128),
    ("index_select_16bit", X, index_select_16bit),
    ("irfft_odd_last_bin", X, irfft_odd_last_bin),
    ("cholesky_keeps_upper", X, cholesky_keeps_upper),
]


def apply(name):
    NAME[0] = name
    if name.startswith("noop:"):
        patch(name[5:].replace(",", " "), lambda k, a: k())
        return
    if name == "noop":
        noop()
        return
    for n, _, f in MUTANTS:
        if n == name:
            f()
            return
    raise SystemExit("no such mutant: " + name)
