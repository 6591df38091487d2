"""What this broker reads of a certificate: subject, subject alternative names, end of validity.

OpenSSL has checked the certificate before. The subject is written as Java's `X500Principal.getName()` writes it, because Kafka's
principals are those names (TL03):

1. RFC 2253: the last relative name first, `,` between them, `+` inside of one, in the order of the certificate.
2. Only CN, C, L, ST, O, OU, STREET, DC and UID have names. Other attributes are `OID=#hex`, with the whole DER of the value.
3. `,=+<>#;"\\` and blanks at both ends are escaped with a backslash, NUL as `\\00`. Other characters stay as they are.
4. The bytes of a string are read as UTF-8 whatever its type; a value that is no string is `#hex` too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_BLANKS: Final = " \r"
_UTF8, _PRINTABLE, _T61, _IA5, _GENERAL, _BMP = 0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E
_STRINGS: Final = frozenset({_UTF8, _PRINTABLE, _T61, _IA5, _GENERAL, _BMP})
_UTC_TIME: Final = 0x17
_SUBJECT_ALT_NAME: Final = "2.5.29.17"


class BadCertificate(ValueError):
    """Not a certificate in DER."""


class _Element(NamedTuple):
    tag: int
    content: bytes
    whole: bytes
    """With tag and length."""


@dataclass(frozen=True, slots=True)
class Certificate:
    subject: str
    """As Kafka names principals."""
    alternative_names: frozenset[bytes]
    """In DER."""
    not_after_ms: int


def read_certificate(der: bytes) -> Certificate:
    try:
        return _certificate(der)
    except (IndexError, ValueError, OverflowError, StopIteration) as error:
        raise BadCertificate(str(error) or "it is cut short") from None


def subject_of(der: bytes) -> str:
    """The subject of a certificate as Kafka names principals."""
    return read_certificate(der).subject


def rfc2253_name(der: bytes) -> str:
    """A DER-encoded name as Java's X500Principal prints it."""
    names = [
        "+".join(_attribute(each) for each in _elements(relative.content)) for relative in _elements(_element(der, 0).content)
    ]
    return ",".join(reversed(names))


def _certificate(der: bytes) -> Certificate:
    to_be_signed = next(_elements(_element(der, 0).content))
    fields = list(_elements(to_be_signed.content))
    start = 1 if fields[0].tag == 0xA0 else 0  # the version
    _serial, _algorithm, _issuer, validity, subject = fields[start : start + 5]
    alternative: frozenset[bytes] = frozenset()
    for field in fields[start + 6 :]:
        if field.tag == 0xA3:
            alternative = _alternative_names(field)
    _begin, end = _elements(validity.content)
    return Certificate(rfc2253_name(subject.whole), alternative, _time_ms(end))


def _alternative_names(extensions: _Element) -> frozenset[bytes]:
    for extension in _elements(next(_elements(extensions.content)).content):
        parts = list(_elements(extension.content))
        if _oid(parts[0].content) == _SUBJECT_ALT_NAME:
            # The last part is an octet string around the value; `critical` may be before it.
            return frozenset(name.whole for name in _elements(_element(parts[-1].content, 0).content))
    return frozenset()


def _time_ms(time: _Element) -> int:
    text = time.content.decode("ascii")
    if time.tag == _UTC_TIME:
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    return int(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp() * 1000)


def _attribute(attribute: _Element) -> str:
    kind, value = _elements(attribute.content)
    oid = _oid(kind.content)
    keyword = _KEYWORDS.get(oid)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or oid}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    escaped = "".join("\\" + char if char in _ESCAPED else "\\00" if char == "\0" else char for char in text)
    begin = len(escaped) - len(escaped.lstrip(_BLANKS))
    end = len(escaped.rstrip(_BLANKS))
    return "".join("\\" + char if place < begin or place >= end else char for place, char in enumerate(escaped))


def _oid(content: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _elements(content: bytes) -> Iterator[_Element]:
    at = 0
    while at < len(content):
        element = _element(content, at)
        yield element
        at += len(element.whole)


def _element(content: bytes, at: int) -> _Element:
    start = at
    tag, size = content[at], content[at + 1]
    at += 2
    if size & 0x80:
        count = size & 0x7F
        if not 1 <= count <= 4:
            raise ValueError("a length of unknown form")
        size = int.from_bytes(content[at : at + count], "big")
        at += count
    if at + size > len(content):
        raise IndexError("it is cut short")
    return _Element(tag, content[at : at + size], content[start : at + size])
