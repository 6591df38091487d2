"""A file of the user's becomes the flows it declares.

Owns: running the file, and saying in one line with file and line what stops it. Starts no Spark.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path

from ottla.pipelines.definitions import Flow, _declared
from ottla.pipelines.failure import PipelineError, Place

_MODULE = "ottla_pipeline_"


def load(path: str | Path) -> list[Flow]:
    """The flows of the file, in the order they are declared. PipelineError for anything that stops it."""
    file = Path(path)
    if not file.is_file():
        raise PipelineError(f"{file}: {'this is no file' if file.exists() else 'there is no such file'}")
    name = _MODULE + "".join(letter if letter.isalnum() else "_" for letter in file.stem)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise PipelineError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    flows: list[Flow] = []
    token = _declared.set(flows)
    # What it imports may lie beside it, as when it is run as a script.
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except PipelineError:
        raise
    except SyntaxError as error:
        raise PipelineError(f"{error.msg}", Place(error.filename or str(file), error.lineno or 0)) from error
    except (Exception, SystemExit) as error:
        raise PipelineError(f"{type(error).__name__}: {error}", where_in(error, file) or Place(str(file), 0)) from error
    finally:
        _declared.reset(token)
        # Known by name only while it runs: Spark sends functions and classes of modules it cannot find by value, and workers
        # cannot import this one.
        sys.modules.pop(name, None)
        if folder in sys.path:
            sys.path.remove(folder)
    if not flows:
        raise PipelineError(f"{file} declares no flow", hint="@p.flow(…) or p.sql(…) declares one")
    return flows


def where_in(error: BaseException, file: str | Path) -> Place | None:
    """The last line of the user's own files that the error passed: what libraries did below it does not matter."""
    near = str(Path(file).resolve().parent)
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if str(Path(frame.filename).resolve()).startswith(near) and "site-packages" not in frame.filename
    ]
    return Place(own[-1].filename, own[-1].lineno or 0) if own else None
