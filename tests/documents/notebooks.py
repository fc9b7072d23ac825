"""Runs the notebooks as a reader would, and stores what they print: `python -m tests.documents.notebooks`.

Owns: running cells in one namespace, and the outputs in the form of Jupyter's files (nbformat 4.5). Does not own: what
the cells say. Invariants: no Jupyter is needed; a cell's last expression is its result, as in Jupyter.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import tempfile
from typing import Any

from tests.documents.blocks import HOUSE

NOTEBOOKS = HOUSE / "docs" / "notebooks"
Cell = dict[str, Any]


def run_cells(notebook: dict[str, Any]) -> list[list[Cell]]:
    """The outputs of each cell of code, in the present folder."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    return [
        _outputs("".join(cell["source"]), number, namespace)
        for number, cell in enumerate((cell for cell in notebook["cells"] if cell["cell_type"] == "code"), start=1)
    ]


def _outputs(source: str, number: int, namespace: dict[str, object]) -> list[Cell]:
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(tree, f"cell {number}", "exec"), namespace)
        result = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), namespace) if last else None
    outputs: list[Cell] = []
    if said.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(said.getvalue())})
    if result is not None:
        data = {"text/plain": _lines(repr(result))}
        if hasattr(result, "_repr_svg_"):
            data = {"image/svg+xml": _lines(result._repr_svg_()), **data}
        outputs.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def with_outputs(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook as it is after a run of all of its cells."""
    ran = iter(enumerate(run_cells(notebook), start=1))
    cells = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number, outputs = next(ran)
            cell = {**cell, "execution_count": number, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


def main() -> None:
    """Run every notebook in a folder of its own, and write it down with its outputs."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            ran = with_outputs(json.loads(path.read_text()))
        path.write_text(json.dumps(ran, indent=1, ensure_ascii=False) + os.linesep)


if __name__ == "__main__":
    main()
