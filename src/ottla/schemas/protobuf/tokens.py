"""Words, numbers, strings and signs of a .proto file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ottla.schemas.model import InvalidSchema

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>0[xX][0-9A-Fa-f]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<sign>[-+={}\[\]()<>,;:./])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|[xX][0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}

LOOK_AHEAD = 4


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    line: int


def tokens(text: str) -> list[Token]:
    """The tokens of a file without spaces and comments, then as many ends as a parser looks ahead."""
    found: list[Token] = []
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise InvalidSchema(f"{text[position : position + 20]!r} is no Protobuf", f"line {line}")
        if match.lastgroup != "space":
            found.append(Token(match.lastgroup, match[0], line))
        line += match[0].count("\n")
        position = match.end()
    return found + [Token("end", "", line)] * LOOK_AHEAD


def unquoted(token: Token) -> bytes:
    """The bytes that a string token stands for."""

    def plain(found: re.Match[bytes]) -> bytes:
        code = found[1]
        if code[:1] in b"01234567":
            return bytes([int(code, 8) & 0xFF])
        if code[:1] in b"xX" and len(code) > 1:
            return bytes([int(code[1:], 16)])
        if code[:1] in b"uU" and len(code) > 1:
            return chr(int(code[1:], 16)).encode("utf-8", "surrogatepass")
        return _LETTERS.get(code, code)

    try:
        return _ESCAPE.sub(plain, token.text[1:-1].encode())
    except ValueError:
        raise InvalidSchema(f"{token.text} has a wrong escape", f"line {token.line}") from None


def quoted(value: bytes) -> str:
    """A string token for bytes; those that are UTF-8 stay readable."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return '"' + escaped(value) + '"'
    out = []
    for character in text:
        if character in '"\\':
            out.append("\\" + character)
        elif character < " " or character == "\x7f":
            out.append(escaped(character.encode()))
        else:
            out.append(character)
    return '"' + "".join(out) + '"'


def escaped(value: bytes) -> str:
    """Bytes as a descriptor has the default of a bytes field."""
    short = {0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t", 0x22: '\\"', 0x27: "\\'", 0x5C: "\\\\"}
    return "".join(short.get(each) or (chr(each) if 0x20 <= each < 0x7F else f"\\{each:03o}") for each in value)
