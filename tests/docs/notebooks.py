"""Runs the notebooks of docs/notebooks and stores what they print: python -m tests.docs.notebooks."""

import base64
import contextlib
import io
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"


def run_cells(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The outputs of each code cell, run in order in one namespace: printed text, and figures as PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names: dict[str, Any] = {"__name__": "__main__"}
    outputs: list[list[dict[str, Any]]] = []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("".join(cell["source"]), f"cell {len(outputs) + 1}", "exec"), names)
        found: list[dict[str, Any]] = []
        if printed.getvalue():
            text = printed.getvalue().splitlines(keepends=True)
            found.append({"output_type": "stream", "name": "stdout", "text": text})
        for number in plt.get_fignums():
            image = io.BytesIO()
            plt.figure(number).savefig(image, format="png", dpi=80, bbox_inches="tight", metadata={"Software": None})
            data = {"image/png": base64.b64encode(image.getvalue()).decode(), "text/plain": ["<figure>"]}
            found.append({"output_type": "display_data", "metadata": {}, "data": data})
        plt.close("all")
        outputs.append(found)
    return outputs


def stored(path: Path) -> dict[str, Any]:
    """A notebook as it is in the repository."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.ipynb")):
        notebook = stored(path)
        results = iter(run_cells(notebook))
        for number, cell in enumerate(cell for cell in notebook["cells"] if cell["cell_type"] == "code"):
            cell["outputs"], cell["execution_count"] = next(results), number + 1
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
