"""OpenSSL's read-ahead, switched for one connection: one system call then reads as many TLS records as its buffer holds (16 KB).

Without it OpenSSL asks the socket twice for each record, for its header and for the rest. With it, records may be left in its
buffer that neither the socket nor `pending` tells of: who switches it on reads until OpenSSL wants to read.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import cache, partial
from typing import Any


def read_ahead_of(sock: ssl.SSLSocket) -> Callable[[int], object] | None:
    """Switches it on (1) and off (0). None: this Python does not let us."""
    library = _library()
    inside = getattr(sock, "_sslobj", None)
    if library is None or inside is None:
        return None
    import ctypes

    # Python has no call for it, OpenSSL has. The first fields of a connection are the socket, OpenSSL's connection, the context.
    fields = [
        ctypes.c_void_p.from_address(id(inside) + object.__basicsize__ + at * ctypes.sizeof(ctypes.c_void_p)).value
        for at in range(3)
    ]
    if fields[1] is None or fields[2] != id(sock.context):
        return None
    return partial(library.SSL_set_read_ahead, fields[1])


@cache
def _library() -> Any:
    """The OpenSSL of this Python; None if its calls cannot be reached."""
    import _ssl
    import ctypes

    try:
        library = ctypes.CDLL(_ssl.__file__)
        library.SSL_set_read_ahead.argtypes = [ctypes.c_void_p, ctypes.c_int]
        library.SSL_set_read_ahead.restype = None
    except (AttributeError, OSError):
        return None
    return library
