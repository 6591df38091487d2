"""The forms in which a document is printed: JSON, JSON lines, YAML, CSV, a wide table, names. Pure functions from values to text.

A document is what `--json` prints. Its rows are the objects of a list; an object with partitions (or one other list of objects)
has a row for each of them, with its own fields before. Objects in a row become fields with dots in their names.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Any


class Form(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    CSV = "csv"
    NAMES = "names"


def json_text(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def json_line(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"


def jsonl_text(document: Any) -> str:
    return "".join(map(json_line, elements_of(document)))


def names_text(document: Any) -> str:
    """The first field of each object, which is its name. Objects of one name, such as partitions of a topic, are one line."""
    names = [cell_text(next(iter(each.values()), None)) for each in elements_of(document) if isinstance(each, dict)]
    return "".join(f"{name}\n" for name in dict.fromkeys(names))


def csv_text(document: Any) -> str:
    columns, rows = table_of(document)
    if not columns:
        return ""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([[cell_text(row.get(column)) for column in columns] for row in rows])
    return out.getvalue()


def elements_of(document: Any) -> list[Any]:
    """The elements of a list; of an object that only wraps a list of objects, those."""
    if isinstance(document, list):
        return document
    if isinstance(document, dict) and len(document) == 1:
        (only,) = document.values()
        if _is_list_of_objects(only):
            return list(only)
    return [document]


def table_of(document: Any) -> tuple[list[str], list[dict[str, Any]]]:
    """The columns, in order of first appearance, and the rows."""
    rows = [row for each in elements_of(document) for row in _rows(each)]
    return list(dict.fromkeys(column for row in rows for column in row)), rows


def cell_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and not any(isinstance(each, (list, dict)) for each in value):
        return ",".join(map(cell_text, value))
    return json.dumps(value, ensure_ascii=False)


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _rows(element: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(element, dict):
        yield {"value": element}
        return
    lists = [name for name, value in element.items() if _is_list_of_objects(value)]
    chosen = "partitions" if "partitions" in lists else lists[0] if len(lists) == 1 else None
    own = {name: value for name, value in element.items() if name not in lists}
    if chosen is None:
        yield _flat({**own, **{name: element[name] for name in lists}})
        return
    for inner in element[chosen]:
        clashing = {f"{chosen}.{name}" if name in own else name: value for name, value in inner.items()}
        yield _flat({**own, **clashing})


def _flat(fields: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = None if value in ({}, []) else value
    return flat


def yaml_text(document: Any) -> str:
    return "".join(f"{line}\n" for line in _yaml_lines(document))


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
"""What YAML 1.1 or 1.2 does not read as text."""
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def _yaml_lines(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _yaml_entry(f"{_yaml_scalar(str(name))}:", inner)
    elif isinstance(value, list) and value:
        for each in value:
            first, *more = _yaml_lines(each)
            yield f"- {first}"
            yield from (f"  {line}" for line in more)
    else:
        yield "{}" if value == {} else "[]" if value == [] else _yaml_scalar(value)


def _yaml_entry(head: str, value: Any) -> Iterator[str]:
    if isinstance(value, (dict, list)) and value:
        yield head
        yield from (f"  {line}" for line in _yaml_lines(value))
    else:
        yield f"{head} {next(_yaml_lines(value))}"


def _yaml_scalar(value: Any) -> str:
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return value
        # A text of JSON is one of YAML, but for characters that YAML wants escaped.
        return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
    if isinstance(value, float):
        return _yaml_float(value)
    return json.dumps(value)


def _yaml_float(value: float) -> str:
    text = {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(repr(value), repr(value))
    # YAML 1.1 takes 1e+16 for a text.
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa}.0e{exponent}" if e and "." not in mantissa else text
