"""The one source of the varint reads that stand inline in the loops over records.

    python tests/unit/records/inline_varint.py     # rewrite the regions after a change of the templates

A region begins with `# varint NAME: …` or `# varlong NAME: …` and ends with `# end`. The text between is a template from below.
Why inline, and why committed: docs/adr/0008-inline-varints.md.
"""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent

RECORDS = Path(__file__).parents[3] / "src/ottla/records"
FILES = [RECORDS / name for name in ("clean.py", "columns.py", "walk.py")]

TEMPLATES = {
    # The unsigned varint at `position` into NAME: a zigzag value, not decoded. One and two bytes are read in place.
    "varint": """\
b = data[position]
position += 1
NAME = b
if b >= 128:
    b = data[position]
    if b < 128:
        position += 1
        NAME += (b << 7) - 128
    else:
        packed = varint_at(data, position - 1)
        NAME = packed >> 3
        position += (packed & 7) - 1
""",
    # The zigzag varlong at `position` into NAME, decoded. One and two bytes are read in place.
    "varlong": """\
b = data[position]
if b < 128:
    position += 1
    NAME = b >> 1
    if b & 1 != 0:
        NAME = ~NAME
elif data[position + 1] < 128:
    b += (data[position + 1] << 7) - 128
    position += 2
    NAME = b >> 1
    if b & 1 != 0:
        NAME = ~NAME
else:
    NAME = varlong_at(data, position)
    position = varlong_end(data, position)
""",
}

_REGION = re.compile(r"^(?P<margin> *)(?P<head># (?P<kind>varint|varlong) (?P<name>\w+): .*\n)(?:.*\n)*?(?P=margin)# end\n", re.M)


def render(source: str) -> str:
    """The source with every region filled from its template."""

    def fill(region: re.Match[str]) -> str:
        margin, body = region["margin"], TEMPLATES[region["kind"]].replace("NAME", region["name"])
        return f"{margin}{region['head']}{indent(body, margin)}{margin}# end\n"

    return _REGION.sub(fill, source)


if __name__ == "__main__":
    for path in FILES:
        path.write_text(render(path.read_text()))
