"""The hot modules run compiled or interpreted, all of them in the same form."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from ottla.records import compiled

ROOT = Path(__file__).parents[3]


def hot_modules() -> list[str]:
    tree = ast.parse((ROOT / "setup.py").read_text())
    [paths] = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "HOT_MODULES"
    ]
    return list(paths)


@pytest.mark.parametrize("path", hot_modules())
def test_one_form_for_all(path: str) -> None:
    assert (ROOT / path).is_file()
    module = importlib.import_module(path.removeprefix("src/").removesuffix(".py").replace("/", "."))
    assert module.__file__ is not None
    assert module.__file__.endswith(".py") is not compiled()
