"""The teaching notebooks run, and print what is stored in them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.notebooks import FOLDER, stored

_RUN = "import json, sys, tests.docs.notebooks as n; json.dump(n.run_cells(json.load(sys.stdin)), sys.stdout)"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook_prints_what_is_stored(path: Path) -> None:
    root = FOLDER.parents[1]
    notebook = stored(path)
    ended = subprocess.run(
        [sys.executable, "-c", _RUN],
        input=json.dumps(notebook),
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell, outputs in zip(cells, json.loads(ended.stdout), strict=True):
        texts = [output["text"] for output in outputs if output["output_type"] == "stream"]
        kept = [output["text"] for output in cell["outputs"] if output["output_type"] == "stream"]
        assert texts == kept, "run python -m tests.docs.notebooks"
        assert len(outputs) == len(cell["outputs"])
