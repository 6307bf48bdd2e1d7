"""Build, size, recall and throughput of an index, and of the server with and without batching.

    python benchmarks/retrieval.py [--sizes 100000 1000000] [--factories Flat HNSW32] [--seconds 6] [--json FILE]

The corpus is the embedded encyclopedia in the wiki-18 layout, a query names an article and asks for a date. Each index
is built by `mas-envs index build` and served by `mas-envs serve` in processes of their own; recall@3 is against exact
search over the same vectors, hit@3 is the share of queries whose article is among the three. Two servers, one that
searches together what has come in meanwhile and one that searches every request alone (`--max-batch 1`), take turns
under the same load: every client sends its next query when it has its answer. Servers and clients share the machine.
"""

import argparse
import asyncio
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from mas_envs.retrieval.encoders import TfidfSvdEncoder
from mas_envs.retrieval.index_folder import open_index, read_manifest
from mas_envs.retrieval.index_size import default_factory, human_bytes
from mas_envs.retrieval.passages import PassageStore
from mas_envs.search.world import World

COMMAND = (sys.executable, "-c", "from mas_envs.cli import main; main()")
CLIENTS = (1, 64)
TOPK = 3
NUM_RECALL_QUERIES = 200
ROUNDS = 3


@dataclass(frozen=True)
class Figures:
    """What one index reached."""

    num_passages: int
    factory: str
    build_s: float
    index_bytes: int
    resident_bytes: int
    recall_at_3: float
    hit_at_3: float
    batched_qps: dict[int, float]
    single_qps: dict[int, float]


def write_corpus(size: int, path: Path) -> list[tuple[str, str]]:
    """Write the encyclopedia; returns queries from all over it, each with the id of the article it means."""
    queries: list[tuple[str, str]] = []
    with path.open("w", encoding="utf-8") as file:
        for number, passage in enumerate(World(size, seed=0).passages()):
            file.write(json.dumps({"id": passage.id, "contents": passage.contents}, ensure_ascii=False) + "\n")
            if number % max(1, size // 2000) == 0:
                queries.append((f"birth of {passage.title}", passage.id))
    return queries


def build(corpus: Path, folder: Path, factory: str) -> float:
    """Seconds that the command took."""
    started = time.perf_counter()
    arguments = ["index", "build", str(corpus), "--out", str(folder), "--factory", factory]
    subprocess.run([*COMMAND, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def found_share(folder: Path, queries: Sequence[tuple[str, str]]) -> tuple[float, float]:
    """Share of the exact three best that the index finds, and of the articles meant."""
    texts = [query for query, _ in queries]
    found = [{passage.id for passage in row} for row in open_index(folder).search(texts, TOPK)]
    exact = exact_search(PassageStore(folder), TfidfSvdEncoder.load(folder), texts)
    recall = np.mean([len(ours & best) / len(best) for ours, best in zip(found, exact, strict=True)])
    return float(recall), float(np.mean([id in ours for ours, (_, id) in zip(found, queries, strict=True)]))


def exact_search(passages: PassageStore, encoder: TfidfSvdEncoder, queries: Sequence[str]) -> list[set[str]]:
    """Ids of the three passages with the largest inner product."""
    vectors = encoder.encode_queries(queries)
    best_scores = np.full((len(queries), TOPK), -np.inf, np.float32)
    best = np.zeros((len(queries), TOPK), np.int64)
    for start in range(0, len(passages), 20_000):
        stop = min(start + 20_000, len(passages))
        scores = vectors @ encoder.encode_passages([passages[at] for at in range(start, stop)]).T
        scores = np.concatenate([best_scores, scores], axis=1)
        ids = np.concatenate([best, np.tile(np.arange(start, stop), (len(queries), 1))], axis=1)
        top = np.argpartition(-scores, TOPK, axis=1)[:, :TOPK]
        best_scores, best = np.take_along_axis(scores, top, 1), np.take_along_axis(ids, top, 1)
    return [{passages[int(at)].id for at in row} for row in best]


@contextmanager
def server(folder: Path, max_batch: int) -> Iterator[tuple[str, int]]:
    """A serving process; gives its address and process id."""
    arguments = ["serve", str(folder), "--port", "0", "--in-memory", "--max-batch", str(max_batch)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    printed = ""
    while not (address := re.search(r"http://[\d.]+:\d+", printed)):
        printed += process.stdout.readline()
    try:
        yield address[0], process.pid
    finally:
        process.terminate()
        process.wait()


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in use."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return 1024 * int(re.findall(r"VmRSS:\s+(\d+)", status)[0])


async def load(url: str, queries: Sequence[str], num_clients: int, seconds: float) -> float:
    """Answers per second to clients that each send one query at a time over a connection of their own."""
    host, port = urlsplit(url).hostname, urlsplit(url).port
    bodies = [json.dumps({"query": query, "topk": TOPK, "return_scores": True}).encode() for query in queries]
    head = f"POST /retrieve HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: "
    requests = [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies]
    until = time.perf_counter() + seconds
    answered = 0

    async def client(number: int) -> None:
        nonlocal answered
        reader, writer = await asyncio.open_connection(host, port)
        at = number * 31
        while time.perf_counter() < until:
            writer.write(requests[at % len(requests)])
            header = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", header)
            if not header.startswith(b"HTTP/1.1 200") or length is None:
                raise RuntimeError(f"the server answered {header!r}")
            await reader.readexactly(int(length[1]))
            answered += 1
            at += 1
        writer.close()
        await writer.wait_closed()

    started = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(num_clients)))
    return answered / (time.perf_counter() - started)


def throughput(folder: Path, queries: Sequence[str], seconds: float) -> tuple[dict[int, float], dict[int, float], int]:
    """Queries per second by number of clients: batched, one by one; and memory of the server."""
    rates: dict[str, dict[int, list[float]]] = {kind: {n: [] for n in CLIENTS} for kind in ("batched", "single")}
    with server(folder, 256) as (batched, pid), server(folder, 1) as (single, _):
        for url in (batched, single):
            asyncio.run(load(url, queries, 1, 0.5))
        for _ in range(ROUNDS):
            for clients in CLIENTS:
                for kind, url in (("batched", batched), ("single", single)):
                    rates[kind][clients].append(asyncio.run(load(url, queries, clients, seconds / ROUNDS)))
        memory = resident_bytes(pid)
    medians = {kind: {n: statistics.median(values) for n, values in by.items()} for kind, by in rates.items()}
    return medians["batched"], medians["single"], memory


def measure(size: int, factories: Sequence[str], seconds: float) -> Iterator[Figures]:
    """Figures of every kind of index over one corpus."""
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(scratch) / "corpus.jsonl"
        queries = write_corpus(size, corpus)
        for number, factory in enumerate(factories):
            folder = Path(scratch) / f"index-{number}"
            build_s = build(corpus, folder, factory)
            batched, single, resident = throughput(folder, [query for query, _ in queries], seconds)
            recall, hits = found_share(folder, queries[:: len(queries) // NUM_RECALL_QUERIES])
            yield Figures(
                num_passages=read_manifest(folder).num_passages,
                factory=factory,
                build_s=build_s,
                index_bytes=(folder / "index.faiss").stat().st_size,
                resident_bytes=resident,
                recall_at_3=recall,
                hit_at_3=hits,
                batched_qps=batched,
                single_qps=single,
            )


def show(figures: Figures) -> None:
    """One row a number of clients."""
    print(
        f"{figures.num_passages:>9,} {figures.factory:<16} build {figures.build_s:6.1f} s   index "
        f"{human_bytes(figures.index_bytes):>8}   resident {human_bytes(figures.resident_bytes):>8}   recall@3 "
        f"{figures.recall_at_3:.3f}   hit@3 {figures.hit_at_3:.3f}"
    )
    for clients in CLIENTS:
        batched, single = figures.batched_qps[clients], figures.single_qps[clients]
        print(
            f"{'':>12}{clients:>3} clients: {batched:8.0f} queries/s batched, {single:8.0f} one by one, "
            f"{batched / single:5.2f}x"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--factories", nargs="+", help="faiss factory strings; default by size")
    parser.add_argument("--seconds", type=float, default=6.0, help="load on each server and number of clients")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, {platform.python_implementation()} {platform.python_version()}"
    )
    rows: list[dict[str, Any]] = []
    for size in arguments.sizes:
        factories = arguments.factories or [default_factory(size, 384)]
        for figures in measure(size, factories, arguments.seconds):
            show(figures)
            rows.append(asdict(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
