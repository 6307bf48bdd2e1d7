"""The teaching notebooks run, and print what is stored in them."""

from pathlib import Path

import pytest

from tests.docs.notebooks import FOLDER, run_cells, stored


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook_prints_what_is_stored(path: Path) -> None:
    notebook = stored(path)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell, outputs in zip(cells, run_cells(notebook), strict=True):
        texts = [output["text"] for output in outputs if output["output_type"] == "stream"]
        kept = [output["text"] for output in cell["outputs"] if output["output_type"] == "stream"]
        assert texts == kept, "run python -m tests.docs.notebooks"
        assert len(outputs) == len(cell["outputs"])
