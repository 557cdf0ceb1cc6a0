"""Seconds of the MCR2 loss, forward and backward, beside its direct formula, on the same batch, in the same run.

    python benchmarks/mcr2_loss.py [--memberships gumbel|even] [--dimensions 50 100 ...] [--json FILE]

Two peers compute the same loss by autograd through `torch.logdet` of d x d matrices: "loop", one cluster after another,
and "batched", all clusters at once, as published codes do. One thread, in processor time; the ways take turns, `rounds`
times after a warm-up; the ratio of the medians is the result, the times are not. The exponent e is fitted to
time ~ K^e. How much ours saves depends on the memberships: "gumbel" are those a training begins with (Gumbel-softmax at
temperature 0.2, mean of two views), "even" are its worst case, every row a member of every cluster. A run that would
exceed `limit` seconds, by its time at fewer clusters, is not run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from distilbench.methods.parts.coding_rate import mcr2_loss

DIMENSIONS = (50, 100, 200, 300)
CLUSTERS = (8, 32, 128, 512)
OURS_ALONE = (2048, 8192)
BATCH = 256
LAMBDA, EPS2, TEMPERATURE = 2000.0, 0.01, 0.2  # the paper's

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def ours(z1_Bd: Tensor, z2_Bd: Tensor, p_BK: Tensor) -> Tensor:
    return mcr2_loss(z1_Bd, z2_Bd, p_BK, lam=LAMBDA, eps2=EPS2, gamma=1.0)


def direct(rates: Callable[[Tensor, Tensor], Tensor]) -> Loss:
    """Equation 5 with the clusters' rates by `rates`."""

    def loss(z1_Bd: Tensor, z2_Bd: Tensor, p_BK: Tensor) -> Tensor:
        z_Bd = functional.normalize(z1_Bd + z2_Bd, dim=-1)
        count, d = z_Bd.shape
        whole = 0.5 * torch.logdet(torch.eye(d) + d / (count * EPS2) * z_Bd.T @ z_Bd)
        return -whole + rates(z_Bd, p_BK) - LAMBDA * (z1_Bd * z2_Bd).sum(dim=-1).mean()

    return loss


def loop(z_Bd: Tensor, p_BK: Tensor) -> Tensor:
    count, d = z_Bd.shape
    total = z_Bd.new_zeros(())
    for p_B in p_BK.T:
        size = p_B.sum()
        inner = torch.eye(d) + d / (size * EPS2) * z_Bd.T @ (p_B[:, None] * z_Bd)
        total = total + size / (2 * count) * torch.logdet(inner)
    return total


def batched(z_Bd: Tensor, p_BK: Tensor) -> Tensor:
    count, d = z_Bd.shape
    size_K = p_BK.sum(dim=0)
    scaled_KB = (p_BK * (d / (size_K * EPS2))).T
    inner_Kdd = torch.eye(d) + (scaled_KB[:, None, :] * z_Bd.T) @ z_Bd
    return (size_K / (2 * count) * torch.logdet(inner_Kdd)).sum()


WAYS: dict[str, Loss] = {"ours": ours, "loop": direct(loop), "batched": direct(batched)}


def batch(d: int, clusters: int, memberships: str) -> tuple[Tensor, Tensor, Tensor]:
    """Two views of random unit rows, a little apart, and their memberships."""
    torch.manual_seed(0)
    z_Bd = torch.randn(BATCH, d)
    views = [functional.normalize(z_Bd + 0.1 * torch.randn(BATCH, d), dim=-1) for _ in range(2)]
    if memberships == "even":
        p_BK = torch.softmax(0.1 * torch.randn(BATCH, clusters), dim=-1)
    else:
        draws = [functional.gumbel_softmax(torch.zeros(BATCH, clusters), tau=TEMPERATURE) for _ in range(2)]
        p_BK = torch.stack(draws).mean(dim=0)
    return views[0], views[1], p_BK


def measure(way: Loss, inputs: tuple[Tensor, ...]) -> tuple[float, float, list[Tensor]]:
    """Processor seconds (of one thread: what others do on the machine is not counted), the loss and its gradients."""
    leaves = [v.clone().requires_grad_() for v in inputs]
    began = time.process_time()
    loss = way(*leaves)
    gradients = torch.autograd.grad(loss, leaves)
    return time.process_time() - began, loss.item(), list(gradients)


def exponent(seconds: dict[int, float]) -> float | None:
    """The slope of log seconds over log K; None of fewer than two."""
    if len(seconds) < 2:
        return None
    return float(np.polyfit(np.log(list(seconds)), np.log(list(seconds.values())), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memberships", choices=("gumbel", "even"), default="gumbel")
    parser.add_argument("--dimensions", type=int, nargs="+", default=DIMENSIONS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print(f"B = {BATCH}, memberships: {chosen.memberships}, one thread, medians of {chosen.rounds}, ms")
    print("   d     K |       ours       loop    batched | loop/ours batched/ours | gradient differs")
    cells: list[dict[str, object]] = []
    exponents: list[dict[str, object]] = []
    for d in chosen.dimensions:
        medians: dict[str, dict[int, float]] = {name: {} for name in WAYS}
        for way in WAYS.values():
            measure(way, batch(d, CLUSTERS[0], chosen.memberships))
        for clusters in (*CLUSTERS, *OURS_ALONE):
            inputs = batch(d, clusters, chosen.memberships)
            running = [n for n in WAYS if n == "ours" or clusters in CLUSTERS]
            for name in list(running):
                known = medians[name]
                if known and known[max(known)] * clusters / max(known) > chosen.limit:
                    running.remove(name)
            seconds: dict[str, list[float]] = {name: [] for name in running}
            found: dict[str, list[Tensor]] = {}
            for _ in range(chosen.rounds):
                for name in running:
                    taken, _, found[name] = measure(WAYS[name], inputs)
                    seconds[name].append(taken)
            for name in running:
                medians[name][clusters] = statistics.median(seconds[name])
            cell = {name: medians[name].get(clusters) for name in WAYS}
            mine = medians["ours"].get(clusters)
            ratios = {
                name: theirs / mine if mine and (theirs := medians[name].get(clusters)) else None
                for name in ("loop", "batched")
            }
            differs = None
            if {"ours", "batched"} <= found.keys():
                pairs = zip(found["ours"], found["batched"], strict=True)
                differs = max(((one - two).norm() / two.norm()).item() for one, two in pairs)
            cells.append({"d": d, "K": clusters, "seconds": cell, "ratio_to_ours": ratios, "gradient_differs": differs})
            times = "".join("    not run" if s is None else f"{1e3 * s:11.1f}" for s in cell.values())
            shares = " ".join(
                f"{'-' if r is None else f'{r:.1f}':>{w}}" for r, w in zip(ratios.values(), (9, 12), strict=True)
            )
            print(
                f"{d:4d} {clusters:5d} |{times} | {shares} | {'-' if differs is None else f'{differs:.0e}'}", flush=True
            )
        fitted = {name: exponent(values) for name, values in medians.items()}
        shared = {k: s for k, s in medians["ours"].items() if k in CLUSTERS}
        fitted["ours, up to the peers' K"] = exponent(shared)
        exponents.append({"d": d, "exponents": fitted})
        told = ", ".join(f"{name} {'-' if e is None else f'{e:.2f}'}" for name, e in fitted.items())
        print(f"{d:4d}     e | {told}", flush=True)
    if chosen.json:
        settings = {"batch": BATCH, "eps2": EPS2, "memberships": chosen.memberships, "rounds": chosen.rounds}
        versions = {"torch": torch.__version__, "threads": torch.get_num_threads()}
        chosen.json.write_text(json.dumps({**settings, **versions, "cells": cells, "exponents": exponents}, indent=1))


if __name__ == "__main__":
    main()
