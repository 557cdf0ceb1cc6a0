"""What the steps of benchmarks/gpu.py share: where results go, what they read, and how they are timed."""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import random
import shutil
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

RESULTS = "results.jsonl"
IMPORTS_S = time.time() - psutil.Process().create_time()
"""From the start of this process until torch was there."""
BEGAN = time.perf_counter()


@dataclass(frozen=True)
class Bench:
    """One step of a run: where its results go and what it reads. `cpu` is the small form without a card."""

    step: str
    out: Path
    work: Path
    encoder: str
    data: Path | None
    cpu: bool
    trials: int

    @property
    def device(self) -> str:
        """The device of this run."""
        return "cpu" if self.cpu else "cuda"

    def size(self, full: Any, small: Any) -> Any:
        """What is done on a card, or in small."""
        return small if self.cpu else full

    def note(self, what: str, value: float | str | None, unit: str = "", **more: Any) -> None:
        """Append a measurement, and print it."""
        card = "CPU" if self.cpu else torch.cuda.get_device_name()
        line = {"step": self.step, "what": what, "value": value, "unit": unit, **more}
        line |= {"card": card, "torch": torch.__version__, "at_s": round(time.perf_counter() - BEGAN, 1)}
        with (self.out / RESULTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=str) + "\n")
        print(f"{self.step}: {what}: {shown(value)} {unit}", flush=True)

    @contextlib.contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """What fails in the block is noted, and the next measurement begins."""
        try:
            yield
        except Exception as error:
            traceback.print_exc()
            self.note(what, None, "failed", error=f"{type(error).__name__}: {error}"[:1500])
            if not self.cpu:
                torch.cuda.empty_cache()

    def sentences(self, count: int) -> list[str]:
        """`count` different sentences drawn from the data's unlabelled text, or from the demonstration."""
        if self.data is None:
            from distilbench.data.about import DEMONSTRATION
            from distilbench.data.folder import Limits, folder_corpus

            rows = list(folder_corpus(DEMONSTRATION, Limits()).sentences)
        else:
            rows = column(self.data / "unlabeled" / "sentences.tsv.gz", "text")
        rows = list(dict.fromkeys(rows))
        return random.Random(0).sample(rows, min(count, len(rows)))

    def encoder_folder(self) -> Path:
        """The encoder's folder; a copy with random weights where it has none, and those of a smaller one with `cpu`."""
        from distilbench.encoders.encoder import EncoderSpec

        given = Path(self.encoder)
        if not given.is_dir():
            given = EncoderSpec(self.encoder).folder() or given
        if (given / "model.safetensors").exists() and not self.cpu:
            return given
        made = self.work / "random-encoder"
        if not made.exists():
            from transformers import AutoConfig, AutoModel

            partial_folder = made.with_name("random-encoder-partial")
            shutil.rmtree(partial_folder, ignore_errors=True)
            shutil.copytree(given, partial_folder, ignore=shutil.ignore_patterns("*.safetensors", "*.bin"))
            config = AutoConfig.from_pretrained(partial_folder)
            if self.cpu:
                config.update({"num_hidden_layers": 4, "hidden_size": 48, "intermediate_size": 96})
                pooling = partial_folder / "1_Pooling" / "config.json"
                said = json.loads(pooling.read_text())
                pooling.write_text(json.dumps({k: 48 if k.endswith("dimension") else v for k, v in said.items()}))
            torch.manual_seed(0)
            AutoModel.from_config(config).save_pretrained(partial_folder)
            partial_folder.rename(made)
        return made


def shown(value: float | str | None) -> str:
    """A number with four digits."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "-" if value is None else str(value)


def column(path: Path, name: str) -> list[str]:
    """A column of a TSV file, which may be gzipped."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        return [row[name] for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def sync() -> None:
    """Wait for the card."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(run: Callable[[], Any]) -> float:
    """Wall seconds of `run()`, the card's work included."""
    sync()
    began = time.perf_counter()
    run()
    sync()
    return time.perf_counter() - began


def in_turn(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each way in each round; they take turns."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            took[name].append(seconds(run))
    return took


def gpu_processes() -> dict[int, float]:
    """MB of the processes on the card, by their id, as NVML tells them."""
    import pynvml

    pynvml.nvmlInit()
    running = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(0))
    return {process.pid: (process.usedGpuMemory or 0) / 1e6 for process in running}


def used_mb() -> float:
    """MB in use on the card, of all processes."""
    free, total = torch.cuda.mem_get_info()
    return (total - free) / 1e6


def lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file of JSON lines."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line[-1] == "\n"]
