"""Runs a pipeline's file and returns the flows it declares. Starts no Spark. Errors name the user's line."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

from ottla.pipelines.declare import collecting
from ottla.pipelines.definitions import Flow
from ottla.pipelines.failure import PipelineError, Place

_MODULE = "ottla_pipeline_"
_NO_SPARK_YET = "the file is loaded before Spark starts: call functions of pyspark.sql inside of a flow"


def load(path: str | Path) -> list[Flow]:
    """The flows of the file, in the order of their declaration. PipelineError if the file does not run."""
    file = Path(path)
    if not file.is_file():
        raise PipelineError(f"{file}: {'not a file' if file.exists() else 'no such file'}")
    name = _MODULE + "".join(letter if letter.isalnum() else "_" for letter in file.stem)
    if file.suffix != ".py":
        raise PipelineError(f"{file} is not a Python file")
    loader = _SourceLoader(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # It may import modules beside it, like a script.
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    sys.modules[name] = module
    try:
        with collecting() as flows:
            loader.exec_module(module)
    except PipelineError:
        raise
    except SyntaxError as error:
        raise PipelineError(f"{error.msg}", Place(error.filename or str(file), error.lineno or 0)) from error
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        place = where_in(error, file) or Place(str(file), 0)
        raise PipelineError(text, place, hint=_NO_SPARK_YET if _is_of_pyspark(error) else _known_argument(error)) from error
    finally:
        # Workers cannot import this module. Spark pickles functions and classes by value only if it cannot find their module.
        sys.modules.pop(name, None)
        if folder in sys.path:
            sys.path.remove(folder)
    if not flows:
        raise PipelineError(f"{file} declares no flow", hint="declare one with @p.flow(…) or p.sql(…)")
    return flows


class _SourceLoader(SourceFileLoader):
    """Compiles the file each time: Python takes kept bytecode for that of an edit in the same second with as many bytes."""

    def get_code(self, fullname: str) -> CodeType | None:
        return self.source_to_code(self.get_data(self.path), self.path)


def refuse_shared_modules(files: Sequence[Path]) -> None:
    """PipelineError if one pipeline may have imported a module of another: Python knows modules by their names only."""
    folders = {file.resolve().parent for file in files}
    for name, module in list(sys.modules.items()):
        file = Path(getattr(module, "__file__", None) or "")
        if "." in name or file.suffix != ".py" or file.resolve().parent not in folders:
            continue
        others = [folder / file.name for folder in folders - {file.resolve().parent} if (folder / file.name).exists()]
        if others:
            raise PipelineError(f"{file} and {others[0]} have the same name", hint="rename one, or run the pipelines apart")


def _is_of_pyspark(error: BaseException) -> bool:
    """Whether PySpark raised it, most often without a word: its columns and functions need a session."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and "pyspark" in Path(frames[-1].filename).parts


def _known_argument(error: BaseException) -> str | None:
    """The argument that a function of this package has instead of an unknown one."""
    found = re.search(r"(\w+)\(\) got an unexpected keyword argument '(\w+)'", str(error))
    function = getattr(sys.modules["ottla.pipelines"], found[1], None) if found is not None else None
    if found is None or not inspect.isfunction(function):
        return None
    known = list(inspect.signature(function).parameters)
    near = get_close_matches(found[2], known, 1)
    return f"did you mean {near[0]}=?" if near else f"the arguments are {', '.join(known)}"


def where_in(error: BaseException, file: str | Path) -> Place | None:
    """The innermost line of the user's own files in the traceback of the error."""
    near = str(Path(file).resolve().parent)
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if str(Path(frame.filename).resolve()).startswith(near) and "site-packages" not in frame.filename
    ]
    return Place(own[-1].filename, own[-1].lineno or 0) if own else None
