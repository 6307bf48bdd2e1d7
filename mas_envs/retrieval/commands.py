"""`mas-envs index` and `mas-envs serve`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from mas_envs.retrieval.index_size import human_bytes

__all__ = ["index_app", "serve"]

console = Console()

index_app = typer.Typer(help="Build and look at indexes that environments search in.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="Index folder.")]


@index_app.command()
def build(
    corpus: Annotated[Path, typer.Argument(help="A .jsonl or .jsonl.gz file: 'id' and 'contents' in every line.")],
    out: Annotated[Path, typer.Option(help="Folder the index goes to.")],
    encoder: Annotated[
        str, typer.Option(help="tfidf, or a sentence encoder (e5, bge, MiniLM ...) by folder or hub name.")
    ] = "tfidf",
    factory: Annotated[
        str | None,
        typer.Option(
            help="What faiss calls the index: such as Flat, HNSW32 or IVF4096,PQ96x4fs,RFlat; default by size."
        ),
    ] = None,
    num_probes: Annotated[int | None, typer.Option(help="Lists of an IVF index that a search looks through.")] = None,
) -> None:
    """Build an index from a corpus; run it again after a kill, and it goes on where it was.

    Example: mas-envs index build wiki-18.jsonl --out wiki-index --encoder intfloat/e5-base-v2
    """
    from mas_envs.retrieval.index_builder import IndexBuilder

    builder = IndexBuilder(corpus, out, encoder=encoder, factory=factory, num_probes=num_probes)
    plan = builder.plan()
    console.print(
        f"{escape(str(corpus))}: about {plan.num_passages:,} passages ({human_bytes(plan.passages_bytes)}). "
        f"A {plan.factory} index takes about {human_bytes(plan.index_bytes)} on disk, and as much memory if it is not "
        f"memory-mapped; {human_bytes(plan.scratch_bytes)} of disk more while it is built.",
        highlight=False,
    )
    columns = (TextColumn("{task.description:>10}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bars: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in bars:
                bars[stage] = progress.add_task(stage, total=total)
            progress.update(bars[stage], completed=done, total=total)

        manifest = builder.build(report)
    console.print(
        f"{escape(str(out))}: {manifest.num_passages:,} passages, index {manifest.factory} of "
        f"{human_bytes(manifest.files['index.faiss'].num_bytes)}. Serve it: mas-envs serve {escape(str(out))}",
        highlight=False,
    )


@index_app.command()
def info(
    folder: Folder,
    verify: Annotated[
        bool, typer.Option("--verify", help="Hash every file; takes a while when they are large.")
    ] = False,
    query: Annotated[str | None, typer.Option(help="Also search for this.")] = None,
) -> None:
    """Show what an index holds; exit code 1 when its files do not belong together.

    Example: mas-envs index info wiki-index --verify --query "who wrote the opera?"
    """
    from mas_envs.retrieval.index_folder import open_index, read_manifest

    manifest = read_manifest(folder)
    retriever = open_index(folder, verify=verify)
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_row("corpus", escape(manifest.corpus))
    table.add_row("passages", f"{manifest.num_passages:,}")
    table.add_row("encoder", f"{escape(manifest.encoder)}, {manifest.dim} dimensions")
    table.add_row("index", manifest.factory + (f", {manifest.num_probes} probes" if manifest.num_probes else ""))
    for name, record in manifest.files.items():
        table.add_row(name, f"{human_bytes(record.num_bytes)}  sha256 {record.sha256[:16]}")
    console.print(table)
    for passage in retriever.search([query], 3)[0] if query else []:
        console.print(f"[bold]{passage.score:.3f}  {escape(passage.title)}[/bold]\n{escape(passage.text[:300])}")


def serve(  # noqa: PLR0913  # one argument an option
    folder: Folder,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 opens it to the network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")] = 8000,
    num_probes: Annotated[int | None, typer.Option(min=1, help="Lists that a search looks through.")] = None,
    topk: Annotated[int, typer.Option(min=1, help="Passages for a request that names no topk.")] = 3,
    max_batch: Annotated[int, typer.Option(min=1, help="Most queries searched together; 1 batches nothing.")] = 256,
    memory_map: Annotated[
        bool, typer.Option("--memory-map/--in-memory", help="Leave the index on disk, or load it.")
    ] = True,
    verify: Annotated[bool, typer.Option("--verify", help="Hash large files too before serving.")] = False,
) -> None:
    """Serve an index over HTTP: POST /retrieve as Search-R1 clients expect it, GET /health, GET /metrics.

    Example: mas-envs serve wiki-index --port 0
    """
    from mas_envs.retrieval.index_folder import open_index, read_manifest
    from mas_envs.retrieval.server import Limits, build_server, listen, serve_forever

    manifest = read_manifest(folder)
    size = human_bytes(manifest.files["index.faiss"].num_bytes)
    console.print(
        f"{escape(str(folder))}: {manifest.num_passages:,} passages, index of {size} "
        f"{'memory-mapped' if memory_map else 'being loaded into memory'}",
        highlight=False,
    )
    retriever = open_index(folder, num_probes=num_probes, memory_map=memory_map, verify=verify)
    app = build_server(retriever, Limits(default_topk=topk, max_batch=max_batch))
    listener = listen(host, port)
    bound = listener.getsockname()
    shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
    console.print(
        f"Serving on http://{shown}:{bound[1]}; stop with Ctrl-C", markup=False, highlight=False, soft_wrap=True
    )
    serve_forever(app, listener)
    console.print("Stopped.")
