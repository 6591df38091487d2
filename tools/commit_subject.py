"""Check the subject of a commit message: `python tools/commit_subject.py FILE` (the commit-msg hook of pre-commit).

`area: imperative`, at most 72 characters, no full stop: "storage: split Log into LocalLog and UnifiedLog". The area is a package,
a folder or a page; several are separated by commas. A blank line follows the subject.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SUBJECT_MAX = 72
SUBJECT = re.compile(r"(?P<area>[a-z0-9][\w./-]*(, [a-z0-9][\w./-]*)*): (?P<what>\S.*)")
MADE_BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")
IMPERATIVES = {"bring", "discuss", "embed", "exceed", "feed", "focus", "need", "proceed", "seed", "shed", "speed", "bias"}
"""Verbs in the imperative that end like another form."""


def problems(message: str) -> list[str]:
    """What is wrong with a message; empty if nothing is."""
    lines = [line for line in message.split("\n") if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if subject.startswith(MADE_BY_GIT):
        return []
    found = []
    if len(subject) > SUBJECT_MAX:
        found.append(f"the subject has {len(subject)} characters, at most {SUBJECT_MAX} are allowed")
    if subject.endswith("."):
        found.append("the subject ends with a full stop")
    if len(lines) > 1 and lines[1].strip():
        found.append("a blank line is missing after the subject")
    match = SUBJECT.fullmatch(subject)
    if match is None:
        found.append("the subject is not `area: imperative`")
        return found
    verb = re.split(r"[\s,:]", match["what"])[0]
    is_verb = verb.isalpha() and verb.islower()
    if is_verb and verb not in IMPERATIVES and re.search(r"(ed|ing|[^s]s)$", verb):
        found.append(f"`{verb}` is not imperative: add, not added, adding or adds")
    return found


def main() -> int:
    message = Path(sys.argv[1]).read_text()
    found = problems(message)
    for problem in found:
        print(f"commit message: {problem}", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
