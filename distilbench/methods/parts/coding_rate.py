"""Coding rates and the MCR2 loss (CIT 2024, equations 3 to 5), for thousands of clusters in bounded memory.

Axes: B batch, d output dimension, K clusters, C clusters of one chunk, R members of a cluster.
With t = d / eps^2, weights w_kb = t p_kb / n_k and q_kb = z_b^T H_k^-1 z_b,

    R_k = n_k / (2B) logdet H_k,    H_k = I + sum_b w_kb z_b z_b^T,    dR_k / dz_b = t / B p_kb H_k^-1 z_b,
    dR_k / dp_kb = (logdet H_k + t q_kb - sum_b' w_kb' q_kb') / (2B).

So the gradient needs no more than H_k^-1 z_b. It is found with the value, chunk by chunk, and only its B x d and B x K
sums are kept: the backward pass multiplies.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

WORKSPACE = {"cpu": 16 * 2**20, "cuda": 2**30}
"""Bytes for the matrices of one chunk of clusters: a CPU's cache, enough matrices at once for a GPU."""
REPLAYED_OPERATIONS = 5 * 10**10
"""Of a step with clusters of all rows, at most: a few milliseconds of a GPU, which the launches of one take otherwise."""
PRECISION = 0.1
"""Rounding error of a coding rate's matrix, beside its smallest eigenvalue (1), above which float64 is used."""


def working_dtype(dtype: torch.dtype, terms: int, trace: float) -> torch.dtype:
    """The type in which to factorise I + G: float32, or float64 where float32 is too coarse or `dtype` is float64.

    G is positive semi-definite of trace `trace`, so the eigenvalues of I + G lie between 1 and 1 + trace. Its entries
    are sums of `terms` products; rounding moves its eigenvalues by about sqrt(terms) u trace, u the unit roundoff
    (Higham and Mary, 2019). Once that nears the smallest eigenvalue, 1, Cholesky fails. The trace of a coding rate's
    matrix is d / eps^2, whatever the memberships, since rows have norm 1. So with B = 256 float32 holds up to d = 655
    at eps^2 = 0.01, and for no d at eps^2 = 1e-6.
    """
    coarse = terms**0.5 * torch.finfo(torch.float32).eps / 2 * trace > PRECISION
    return torch.float64 if coarse or dtype == torch.float64 else torch.float32


def can_replay(clusters: int, count: int, d: int) -> bool:
    """Whether a step without `wait` is worth its arithmetic: it takes all rows of a batch for members of each cluster."""
    return clusters * min(_cost_by_rows(count, count, d), _cost_by_features(count, d)) <= REPLAYED_OPERATIONS


def coding_rate(z_Bd: Tensor, eps2: float, *, wait: bool = True) -> Tensor:
    """R(Z) = 1/2 logdet(I + d / (B eps^2) Z^T Z) in nats, rows of norm 1 (MCR2, equation 3): all are one cluster."""
    return cluster_coding_rates(z_Bd, z_Bd.new_ones(len(z_Bd), 1), eps2, wait=wait)


def cluster_coding_rates(
    z_Bd: Tensor, p_BK: Tensor, eps2: float, *, workspace: int | None = None, wait: bool = True
) -> Tensor:
    """Sum over k of R_k = n_k / (2B) logdet(I + d / (n_k eps^2) Z^T diag(p_k) Z) in nats (MCR2, equation 4).

    Rows of `z_Bd` have norm 1; `p_BK` are memberships, not negative; n_k is the sum of p_k. The determinants are
    batched Cholesky factors of the cheaper form: d x d or, by Sylvester's identity, R x R over a cluster's members, at
    most B. A row is no member when its share p_kb / n_k is below u / B, u the unit roundoff: all such rows together
    change H_k by less than its rounding does. With the paper's Gumbel-softmax R falls as K grows, and with it the time
    of a cluster.

    An empty cluster has rate 0 and, since R_k has only one-sided derivatives there, these as its gradient. Half
    precision is computed in float32, any type in float64 where `working_dtype` says so. The result is float32, or
    float64 if an input is. It can be differentiated once.

    Memory: `workspace` bytes (None: `WORKSPACE`) for a chunk of clusters, or one cluster where that is more
    (5 m^2 + 3 m (B + d) numbers, m = d or R); beside it a fixed number of B x K, B x B and B x d arrays, never any of
    K x d x d.

    Without `wait` nothing is read back from the device, so that a GPU can replay the step: R is B for each cluster, and a
    matrix that is not positive definite has a determinant that is not a number, instead of an error.
    """
    count, d = z_Bd.shape
    input_dtype = torch.promote_types(torch.promote_types(z_Bd.dtype, p_BK.dtype), torch.float32)
    dtype = working_dtype(input_dtype, max(count, d), d / eps2)
    needs_gradient = torch.is_grad_enabled() and (z_Bd.requires_grad or p_BK.requires_grad)
    allowed = workspace or WORKSPACE.get(z_Bd.device.type, WORKSPACE["cpu"])
    with torch.autocast(z_Bd.device.type, enabled=False):
        inputs = (z_Bd.to(dtype), p_BK.to(dtype), eps2, allowed, needs_gradient, wait)
        rate: Tensor = _ClusterCodingRates.apply(*inputs)  # type: ignore[no-untyped-call]
    return rate.to(input_dtype)


def mcr2_loss(  # noqa: PLR0913 - the paper's
    z1_Bd: Tensor, z2_Bd: Tensor, p_BK: Tensor, *, lam: float, eps2: float, gamma: float, wait: bool = True
) -> Tensor:
    """-R(Z) + gamma sum_k R_k(Z) - lambda mean cos(z, z') (MCR2, equation 5), Z the renormalised mean of two views.

    Both views have rows of norm 1; types and memory as in `cluster_coding_rates`. Equation 5 prints R_c for the first
    term; the text and the released code mean R.
    """
    with torch.autocast(z1_Bd.device.type, enabled=False):
        z1_Bd, z2_Bd = (z.to(torch.promote_types(z.dtype, torch.float32)) for z in (z1_Bd, z2_Bd))
        z_Bd = functional.normalize(z1_Bd + z2_Bd, dim=-1)
        similarity = (z1_Bd * z2_Bd).sum(dim=-1).mean()
        rates = cluster_coding_rates(z_Bd, p_BK, eps2, wait=wait)
        return -coding_rate(z_Bd, eps2, wait=wait) + gamma * rates - lam * similarity


class _ClusterCodingRates(torch.autograd.Function):
    """The sum of rates, in the inputs' type; with it the gradient, when `wanted`."""

    @staticmethod
    def forward(  # noqa: PLR0913 - torch passes all of them by place
        ctx: Any, z_Bd: Tensor, p_BK: Tensor, eps2: float, workspace: int, needs_gradient: bool, wait: bool
    ) -> Tensor:
        count, d = z_Bd.shape
        trace, finfo = d / eps2, torch.finfo(z_Bd.dtype)
        p_KB = p_BK.T.contiguous()
        total, dz_Bd, dp_KB = z_Bd.new_zeros(()), torch.zeros_like(z_Bd), torch.empty_like(p_KB)
        n_K = p_KB.sum(dim=1)
        members_K, order_K = (p_KB > (n_K * (finfo.eps / 2 / count))[:, None]).sum(dim=1).sort(descending=True)
        sizes = members_K.clamp_min(1).tolist() if wait else [count] * len(n_K)
        factors = _Factors(needs_gradient, wait)
        gram_BB: Tensor | None = None
        start = 0
        while start < len(sizes):
            size = sizes[start]
            by_rows = _cost_by_rows(size, count, d) < _cost_by_features(count, d)
            m = size if by_rows else d
            at_once = max(1, workspace // ((5 * m**2 + 3 * m * (count + d)) * z_Bd.element_size()))
            chosen_C = order_K[start : start + at_once]
            start += len(chosen_C)
            p_CB, n_C = p_KB[chosen_C], n_K[chosen_C]
            w_CB = p_CB / n_C.clamp_min(finfo.tiny)[:, None] * trace
            if by_rows:
                gram_BB = z_Bd @ z_Bd.T if gram_BB is None else gram_BB
                logdet_C, q_CB, part_Bd = _by_rows(z_Bd, gram_BB, p_CB, w_CB, size, factors)
            else:
                logdet_C, q_CB, part_Bd = _by_features(z_Bd, p_CB, w_CB, factors)
            total += n_C @ logdet_C / (2 * count)
            if needs_gradient:
                slope_CB = trace * q_CB + (logdet_C - (w_CB * q_CB).sum(dim=1))[:, None]
                alone_B = torch.log1p(trace * torch.linalg.vecdot(z_Bd, z_Bd))
                dp_KB[chosen_C] = torch.where(n_C[:, None] > 0, slope_CB, alone_B) / (2 * count)
                dz_Bd += part_Bd * (trace / count)
        if needs_gradient:
            ctx.save_for_backward(dz_Bd, dp_KB.T)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        dz_Bd, dp_BK = ctx.saved_tensors
        return upstream * dz_Bd, upstream * dp_BK, None, None, None, None


class _Factors(NamedTuple):
    """How matrices are factorised: whether their inverses are wanted too, and whether to wait for what went wrong."""

    invert: bool
    wait: bool

    def of(self, h_Cmm: Tensor) -> Tensor:
        """Their Cholesky factors."""
        if self.wait:
            return torch.linalg.cholesky(h_Cmm)
        factor_Cmm, wrong_C = torch.linalg.cholesky_ex(h_Cmm)
        return factor_Cmm.masked_fill(wrong_C[:, None, None] != 0, torch.nan)

    def inverse(self, factor_Cmm: Tensor) -> Tensor:
        """The inverses of the matrices of these factors."""
        if self.wait:
            return torch.cholesky_inverse(factor_Cmm)
        one_mm = torch.eye(factor_Cmm.shape[-1], dtype=factor_Cmm.dtype, device=factor_Cmm.device)
        root_Cmm = torch.linalg.solve_triangular(factor_Cmm, one_mm.expand_as(factor_Cmm), upper=False)
        return root_Cmm.mT @ root_Cmm


def _cost_by_rows(size: int, count: int, d: int) -> int:
    """Operations for a cluster of `size` members, LAPACK's counted three times: it is slower than products."""
    return 3 * size**3 + 2 * size**2 * d + (4 * size**2 * count + 10 * size * count if size < count else 0)


def _cost_by_features(count: int, d: int) -> int:
    """The same for a matrix of d x d."""
    return 3 * d**3 + 4 * count * d**2


def _by_features(z_Bd: Tensor, p_CB: Tensor, w_CB: Tensor, factors: _Factors) -> tuple[Tensor, Tensor, Tensor]:
    """logdet H, q and sum_k p_kb H_k^-1 z_b, from H = I + Z^T diag(w) Z.

    In place where it can be: on a CPU touching fresh memory costs up to 20 times the arithmetic.
    """
    h_Cdd = (w_CB[:, None, :] * z_Bd.T.contiguous()) @ z_Bd
    h_Cdd.diagonal(dim1=-2, dim2=-1).add_(1)
    factor_Cdd = factors.of(h_Cdd)
    del h_Cdd
    if not factors.invert:
        return _logdet(factor_Cdd), p_CB, z_Bd
    solved_CBd = z_Bd @ factors.inverse(factor_Cdd)
    q_CB = torch.linalg.vecdot(solved_CBd, z_Bd)
    return _logdet(factor_Cdd), q_CB, solved_CBd.mul_(p_CB[:, :, None]).sum(dim=0)


def _by_rows(
    z_Bd: Tensor, gram_BB: Tensor, p_CB: Tensor, w_CB: Tensor, size: int, factors: _Factors
) -> tuple[Tensor, Tensor, Tensor]:
    """The same from H' = I + S Y Y^T S over a cluster's `size` heaviest rows Y, S = diag(sqrt(w)).

    H'^-1 S Y = S Y H^-1, whose rows are s_b H^-1 z_b; the floor of S, far below rounding, lets us divide by s_b also
    where a membership is 0. Of the other rows only q = |z_b|^2 - g^T H'^-1 g is needed, g = S Y z_b. With a, the
    computed H'^-1 g, we take |z_b|^2 - 2 a^T g + a^T H' a, which has its minimum there: its error is the square of a's.
    """
    w_CR, row_CR = w_CB.topk(size, dim=1)
    s_CR = w_CR.clamp_min(1e-20).sqrt()
    g_CRB = gram_BB[row_CR].mul_(s_CR[:, :, None])
    h_CRR = g_CRB.gather(2, row_CR[:, None, :].expand(-1, size, -1)).mul_(s_CR[:, None, :])
    h_CRR.diagonal(dim1=-2, dim2=-1).add_(1)
    factor_CRR = factors.of(h_CRR)
    if not factors.invert:
        return _logdet(factor_CRR), p_CB, z_Bd
    inverse_CRR = factors.inverse(factor_CRR)
    q_CB = torch.empty_like(p_CB)
    if size < len(z_Bd):
        a_CRB = inverse_CRR @ g_CRB
        twice_CRB = g_CRB.mul_(2).baddbmm_(h_CRR, a_CRB, alpha=-1)
        q_CB = (gram_BB.diagonal() - a_CRB.mul_(twice_CRB).sum(dim=1)).clamp_min_(0)
    z_CRd = z_Bd[row_CR]
    solved_CRd = inverse_CRR.mul_(s_CR[:, None, :]).div_(s_CR[:, :, None]) @ z_CRd
    q_CB.scatter_(1, row_CR, torch.linalg.vecdot(solved_CRd, z_CRd))
    solved_CRd.mul_(p_CB.gather(1, row_CR)[:, :, None])
    part_Bd = torch.zeros_like(z_Bd).index_add_(0, row_CR.flatten(), solved_CRd.flatten(0, 1))
    return _logdet(factor_CRR), q_CB, part_Bd


def _logdet(factor: Tensor) -> Tensor:
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
