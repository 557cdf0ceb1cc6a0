"""What the GPU path does on a real card, step by step; benchmarks/gpu.sh runs the steps, each with a time limit of its own.

    python benchmarks/gpu.py STEP --out DIR [--encoder FOLDER] [--data DIR] [--work DIR] [--cpu]
    python benchmarks/gpu.py table --out DIR

Each measurement appends a JSON line to DIR/results.jsonl, with the card's name; `table` prints them all beside what was
predicted. One that fails leaves its error there, and the next one begins. With --cpu everything runs in small on the CPU.

    probe     driver, torch, what Ray and NVML see, the two ceilings (copy, matrix product), what a launch costs
    import    seconds of the imports, alone and sixteen at once; what a context takes
    methods   every method for 20 steps: loss on the CPU, on the card in float32 and in bfloat16; the export read on the CPU
    encode    `encode` beside `SentenceTransformer.encode` at its best batch, in float32, TF32 and bfloat16
    train     HPD of two layers beside `SentenceTransformerTrainer`, random and grouped by length, and kernels a step
    share     the same training in 1, 4, 8 and 16 processes at once; once more under MPS where its daemon is installed
    search    Quora's documents: FAISS on the CPU and the GPU beside torch's product and topk
    headline  `sweep --method hpd` from start to leaderboard
    scores    what the same trials score on dev, trained on the CPU, and on the card in float32 and in bfloat16
    oom       a training whose memory another process takes: it goes on in halves, or fails and the next one does not
    sticky    an error after which the card is lost to a worker: its process ends, and the training goes on in another
    kill      a sweep whose driver is killed and that is started again, beside one that was not

FOLDER is an encoder; one without weights gets random ones, which are as fast. DIR of --data is a data folder; without it
the text is the built-in corpus. A ratio is of medians over rounds in which all take turns, after a warm-up; the clock is
read when the card has finished.
"""

from __future__ import annotations

import argparse
import copy
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_bench import (
    BEGAN,
    IMPORTS_S,
    RESULTS,
    Bench,
    column,
    gpu_processes,
    in_turn,
    lines,
    seconds,
    shown,
    used_mb,
)
from gpu_faults import oom, sticky
from gpu_sweeps import headline, kill, scores
from gpu_training import methods, share, train
from numpy.typing import NDArray

PEER_BATCHES = (32, 64, 128, 256, 512, 1024, 2048, 4096)
SHARD = 8192
"""Sentences that the product encodes in one call on a GPU."""
RANKS = 10

PREDICTED = {
    ("probe", "copy"): "3.0 TB/s (H100), 4.3 (H200)",
    ("probe", "product of matrices, bf16"): "790-800 TFLOP/s",
    ("encode", "distilbench"): "19,000 sentences/s a thread (tokenizer), at most 0.35-0.4 M/s",
    ("train", "distilbench, batch 128"): "750 steps/s; step by step 220-330",
    ("train", "kernels of a step"): "141; step by step 240-340",
    ("share", "1 process"): "750 steps/s",
    ("share", "4 processes"): "1,000-1,200 steps/s",
    ("share", "8 processes"): "1,000-1,240 steps/s",
    ("share", "16 processes"): "1,000-1,240 steps/s",
    ("share", "16 processes, MPS"): "up to 1.2 times as many",
    ("search", "torch fp32, d=384"): "15-20 ms",
    ("search", "FAISS flat, CPU, d=384"): "about 1,000 ms",
    ("headline", "start to leaderboard"): "3.4-3.9 minutes",
    ("scores", "hpd"): "at most 0.3",
    ("scores", "hpd, again"): "at most 0.1",
    ("oom", "with 70 % of the memory"): "below 0.01, micro_batches 2",
    ("oom", "with little memory"): "out of memory on the device",
    ("sticky", "once, process 1"): "the process ended",
    ("sticky", "once, process 2"): "it ended well",
    ("sticky", "twice, process 3"): "a CUDA error, at once",
    ("kill", "records of before as they were"): "True",
    ("kill", "records (killed, whole)"): "[12, 12]",
    ("kill", "objectives"): "False: sums come in another order, and trials end in another",
}
"""Worked out before the first run on a card; of training after the second, which had replayed steps and no such step."""


# --- probe, import


def probe(bench: Bench) -> None:
    """What the machine is, and its ceilings."""
    bench.note("start of Python and torch, the first on this machine", IMPORTS_S, "s")
    import sentence_transformers
    import transformers

    versions = {"transformers": transformers.__version__, "sentence_transformers": sentence_transformers.__version__}
    bench.note("versions", sys.version.split()[0], "python", cpus=os.cpu_count(), **versions)
    bench.note("MPS control program", shutil.which("nvidia-cuda-mps-control") or "none")
    with bench.attempt("nvidia-smi"):
        fields = "name,driver_version,memory.total,clocks.sm,clocks.mem,compute_mode,mig.mode.current,power.limit"
        asked = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
        bench.note("nvidia-smi", subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    with bench.attempt("processes by NVML"):
        bench.note("processes by NVML", len(gpu_processes()), "", processes=gpu_processes())
    ceilings(bench)
    with bench.attempt("launch"):
        one = torch.zeros(1, device=bench.device)

        def launches() -> None:
            for _ in range(2000):
                one.add_(1)

        launches()
        bench.note("launch", statistics.median(seconds(launches) for _ in range(5)) / 2000 * 1e6, "us")
    with bench.attempt("FAISS"):
        said = "import faiss; print(faiss.__version__, getattr(faiss, 'get_num_gpus', lambda: 'no')(), 'GPUs')"
        done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, timeout=60)
        bench.note("FAISS", (done.stdout or done.stderr)[-300:].strip())
    with bench.attempt("GPUs of Ray"):
        ray_sees(bench)


def ceilings(bench: Bench) -> None:
    """The rate of a device copy, and of a product of matrices of random numbers in each precision."""
    with bench.attempt("copy"):
        source = torch.empty(bench.size(2**30, 2**22), device=bench.device).normal_()
        target = torch.empty_like(source)
        target.copy_(source)
        took = statistics.median(seconds(partial(target.copy_, source)) for _ in range(20))
        bench.note("copy", 2 * source.numel() * 4 / took / 1e12, "TB/s")
        del source, target
    n = bench.size(8192, 512)
    for name, dtype, allowed in (
        ("bf16", torch.bfloat16, "highest"),
        ("tf32", None, "high"),
        ("fp32", None, "highest"),
    ):
        with bench.attempt(f"product of matrices, {name}"):
            torch.set_float32_matmul_precision(allowed)
            a, b = (torch.randn(n, n, device=bench.device, dtype=dtype) for _ in range(2))
            for _ in range(3):
                a @ b
            took = statistics.median(seconds(partial(torch.matmul, a, b)) for _ in range(10))
            bench.note(f"product of matrices, {name}", 2 * n**3 / took / 1e12, "TFLOP/s")
    torch.set_float32_matmul_precision("highest")


def ray_sees(bench: Bench) -> None:
    """What Ray counts, and what a worker with a share of a GPU and one without see."""
    from distilbench.cluster.resources import ray_cluster, trial_resources

    began = time.perf_counter()
    with ray_cluster(None, os.cpu_count(), dashboard=False):
        import ray

        started = time.perf_counter() - began
        counted = ray.cluster_resources().get("GPU", 0.0)
        resources = trial_resources().explanation

        def looks() -> tuple[bool, str | None]:
            import torch

            return torch.cuda.is_available(), os.environ.get("CUDA_VISIBLE_DEVICES")

        shares = [0.0] if counted == 0 else [0.0, 0.25]
        seen = [ray.get(ray.remote(num_cpus=1, num_gpus=share)(looks).remote()) for share in shares]
        bench.note("GPUs of Ray", counted, f"of {torch.cuda.device_count()}", start_s=started, resources=resources)
        bench.note("a worker sees the GPU (without, with a share)", str(seen), "", shares=shares)


def import_step(bench: Bench) -> None:
    """Seconds of fresh processes that import, and what the first tensor takes."""
    what = {
        "torch": "import torch",
        "sentence_transformers": "import sentence_transformers",
        "the command line": "import distilbench.cli",
        "a trial's worker": "import distilbench.search.trial, distilbench.methods.hpd, sentence_transformers",
    }
    for name, code in what.items():
        with bench.attempt(name):
            run = partial(subprocess.run, [sys.executable, "-c", code], check=True, capture_output=True)
            took = [seconds(run) for _ in range(bench.size(2, 1))]
            bench.note(f"import {name}", min(took), "s", first_s=took[0])
    count = bench.size(16, 2)
    with bench.attempt("at once"):
        began = time.perf_counter()
        code = [sys.executable, "-c", what["a trial's worker"]]
        for process in [subprocess.Popen(code, stdout=subprocess.DEVNULL) for _ in range(count)]:
            process.wait()
        bench.note(f"import a trial's worker, {count} at once", time.perf_counter() - began, "s")
    if not bench.cpu:
        torch.cuda.init()
        before = used_mb()
        code = "import torch; torch.zeros(1, device='cuda'); print('up', flush=True); input()"
        other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert other.stdin and other.stdout
        other.stdout.readline()
        bench.note("a context", used_mb() - before, "MB")
        other.communicate("\n")


# --- encode


def encode_step(bench: Bench) -> None:
    """Ours as the product calls it, beside sentence-transformers' own at its best batch, in three precisions."""
    from distilbench.encoders.encoder import EncoderSpec
    from distilbench.encoders.encoding import encode, encode_ids, token_ids

    texts = bench.sentences(bench.size(20_000, 200))
    model = EncoderSpec(str(bench.encoder_folder())).load(bench.device)
    shards = [texts[start : start + SHARD] for start in range(0, len(texts), SHARD)]
    vectors: dict[str, NDArray[np.float32]] = {}

    def ours() -> None:
        vectors["distilbench"] = np.concatenate([encode(model, shard) for shard in shards])

    ways: dict[str, Callable[[], Any]] = {"distilbench": ours}
    half = copy.deepcopy(model).to(torch.bfloat16)
    for precision, peer in {"fp32": model, "tf32": model, "bf16": half}.items():
        with bench.attempt(f"peer, {precision}"):

            def theirs(batch: int, to: str = "", peer: Any = peer, precision: str = precision) -> None:
                torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
                read = peer.encode(texts if to else shards[0], batch_size=batch, show_progress_bar=False)
                torch.set_float32_matmul_precision("highest")
                if to:
                    vectors[to] = np.asarray(read, dtype=np.float32)

            theirs(64)
            tried = {batch: seconds(partial(theirs, batch)) for batch in bench.size(PEER_BATCHES, (32, 64))}
            best = min(tried, key=tried.__getitem__)
            name = f"SentenceTransformer.encode, {precision}"
            ways[name] = partial(theirs, best, name)
            bench.note(f"best batch of {name}", best, "", seconds_by_batch=tried, of=len(shards[0]))
    for run in ways.values():
        run()
    took = in_turn(ways, bench.size(3, 2))
    median = {name: statistics.median(times) for name, times in took.items()}
    exact = vectors.get("SentenceTransformer.encode, fp32", vectors["distilbench"])
    for name, time_s in median.items():
        apart = np.abs(vectors[name] - exact).max() / np.linalg.norm(exact, axis=1).mean()
        rate, ratio = len(texts) / time_s, time_s / median["distilbench"]
        bench.note(name, rate, "sentences/s", seconds=took[name], times_ours=ratio, largest_difference=float(apart))
    parts = {"tokenizer": partial(token_ids, model, texts)}
    ids = token_ids(model, texts)
    parts["forward from ids"] = partial(encode_ids, model, ids)
    for name, times in in_turn(parts, 3).items():
        bench.note(name, len(texts) / statistics.median(times), "sentences/s", seconds=times)


# --- search


def search(bench: Bench) -> None:
    """Quora's documents and dev queries, at the encoder's width and at 128 of its principal components."""
    from distilbench.encoders.encoder import EncoderSpec
    from distilbench.encoders.encoding import encode
    from distilbench.evaluation.faiss_codes import unit

    if bench.data is not None and (bench.data / "quora").is_dir():
        documents = column(bench.data / "quora" / "corpus.tsv.gz", "text")
        queries = column(bench.data / "quora" / "retrieval" / "queries.dev.tsv", "text")
    else:
        documents = bench.sentences(bench.size(200_000, 2000))
        queries = documents[::50]
    documents, queries = documents[: bench.size(None, 2000)], queries[: bench.size(None, 40)]
    model = EncoderSpec(str(bench.encoder_folder())).load(bench.device)
    encode(model, queries)
    began = time.perf_counter()
    documents_ND, queries_QD = encode(model, documents), encode(model, queries)
    took = time.perf_counter() - began
    bench.note("documents encoded in one call", (len(documents) + len(queries)) / took, "sentences/s", seconds=took)
    del model
    axes_DD = np.linalg.eigh(np.cov(documents_ND[:20_000].T))[1][:, ::-1]
    for width in (documents_ND.shape[1], min(128, documents_ND.shape[1] // 2)):
        cut = np.ascontiguousarray(axes_DD[:, :width], dtype=np.float32)
        one_width(bench, unit(documents_ND @ cut), unit(queries_QD @ cut))


def one_width(bench: Bench, documents_ND: NDArray[np.float32], queries_QD: NDArray[np.float32]) -> None:
    """Milliseconds of all queries, from an array to an array, and how many of the exact first ten were found."""
    width, exact = documents_ND.shape[1], None
    for name, make in search_ways(bench, documents_ND, queries_QD).items():
        with bench.attempt(f"{name}, d={width}"):
            made: list[Callable[[], NDArray[np.int64]]] = []
            making = seconds(lambda make=make, made=made: made.append(make()))
            run = made[0]
            found = run()
            exact = found if exact is None else exact
            took = [seconds(run) for _ in range(bench.size(5, 2))]
            kept = [len(set(a) & set(b)) for a, b in zip(found.tolist(), exact.tolist(), strict=True)]
            more = {"first_ten_found": sum(kept) / RANKS / len(kept), "all_ten": kept.count(RANKS) / len(kept)}
            more |= {"seconds": took, "making_s": making, "documents": len(documents_ND), "queries": len(kept)}
            bench.note(f"{name}, d={width}", 1000 * statistics.median(took), "ms", **more)


def search_ways(bench: Bench, documents_ND: NDArray[np.float32], queries_QD: NDArray[np.float32]) -> dict[str, Any]:
    """By name, what makes an index of the documents and returns its search; FAISS on the GPU last, should it crash."""
    import faiss

    from distilbench.evaluation.indexes import IndexSpec, document_index, ivf_setting

    count, width = documents_ND.shape
    faiss.omp_set_num_threads(min(16, os.cpu_count() or 1))

    def on_cpu(kind: str) -> Callable[[], NDArray[np.int64]]:
        index: Any = faiss.IndexFlatIP(width)
        if kind == "ivf":
            lists, probes = ivf_setting(count)
            index = faiss.index_factory(width, f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
            index.nprobe = probes
            index.train(documents_ND[: 39 * lists])
        index.add(documents_ND)
        return lambda: index.search(queries_QD, RANKS)[1]

    def in_torch(dtype: torch.dtype, allowed: str) -> Callable[[], NDArray[np.int64]]:
        on_card = torch.from_numpy(documents_ND).to(bench.device, dtype)
        return lambda: torch_search(on_card, queries_QD, allowed)

    def products(kind: Any) -> Callable[[], NDArray[np.int64]]:
        spec = IndexSpec(kind).resolved(count)
        sample = documents_ND[: max(1, spec.training_rows(count))]
        index = document_index(spec, width, count, sample, on_gpu=True)
        if index.device != "cuda":
            raise RuntimeError("FAISS sees no GPU")
        index.add(documents_ND)
        return lambda: index.search(queries_QD, RANKS)

    return {
        "FAISS flat, CPU": partial(on_cpu, "flat"),
        "torch fp32": partial(in_torch, torch.float32, "highest"),
        "torch tf32": partial(in_torch, torch.float32, "high"),
        "torch bf16": partial(in_torch, torch.bfloat16, "highest"),
        "FAISS ivf, CPU": partial(on_cpu, "ivf"),
        "FAISS flat, GPU": partial(products, "flat"),
        "FAISS ivf, GPU": partial(products, "ivf"),
    }


def torch_search(documents_ND: torch.Tensor, queries_QD: NDArray[np.float32], allowed: str) -> NDArray[np.int64]:
    """Exact search by blocks of documents: a product and its ten largest, then the ten largest of all blocks."""
    torch.set_float32_matmul_precision(allowed)
    queries = torch.from_numpy(queries_QD).to(documents_ND.device, documents_ND.dtype)
    scores, places = [], []
    for start in range(0, len(documents_ND), 65_536):
        block = queries @ documents_ND[start : start + 65_536].T
        best, place = block.topk(min(RANKS, block.shape[1]), dim=1)
        scores.append(best)
        places.append(place + start)
    torch.set_float32_matmul_precision("highest")
    order = torch.cat(scores, dim=1).topk(RANKS, dim=1).indices
    return torch.cat(places, dim=1).gather(1, order).cpu().numpy()


# --- table

STEPS: dict[str, Callable[[Bench], None]] = {
    "probe": probe,
    "import": import_step,
    "methods": methods,
    "encode": encode_step,
    "train": train,
    "share": share,
    "search": search,
    "headline": headline,
    "scores": scores,
    "oom": oom,
    "sticky": sticky,
    "kill": kill,
}


def table(path: Path) -> None:
    """All measurements as Markdown, beside what was predicted."""
    rows = lines(path)
    print(f"\n{', '.join(sorted({row['card'] for row in rows}))}; torch {rows[-1]['torch'] if rows else ''}\n")
    print("| step | what | measured | times ours | predicted |\n|---|---|---|---|---|")
    for row in rows:
        ratio = f"{row['times_ours']:.2f}" if "times_ours" in row else ""
        said = row["error"].splitlines()[0][:160] if "error" in row else f"{shown(row['value'])} {row['unit']}"
        predicted = PREDICTED.get((row["step"], row["what"]), "")
        print(f"| {row['step']} | {row['what']} | {said} | {ratio} | {predicted} |")


def main() -> None:
    """Run one step, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=(*STEPS, "table"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, help="a folder for what is made; default: in that for temporary files")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--trials", type=int, help="of headline; default: 64, with --cpu 2")
    chosen = parser.parse_args()
    if chosen.step == "table":
        return table(chosen.out / RESULTS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # out of time: what was started is ended
    out, work = chosen.out.resolve(), (chosen.work or Path(tempfile.gettempdir()) / "distilbench-gpu").resolve()
    out.mkdir(parents=True, exist_ok=True)
    work.mkdir(parents=True, exist_ok=True)
    trials = chosen.trials or (2 if chosen.cpu else 64)
    bench = Bench(chosen.step, out, work, chosen.encoder, chosen.data, chosen.cpu, trials)
    with bench.attempt("the step"):
        STEPS[chosen.step](bench)
    bench.note("seconds", time.perf_counter() - BEGAN, "s in all")


if __name__ == "__main__":
    main()
