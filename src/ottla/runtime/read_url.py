"""Reads a document from a file or over HTTPS, without following redirects. Blocks: call it in a worker thread."""

from __future__ import annotations

import http.client
import ssl
from pathlib import Path
from urllib.parse import unquote, urlsplit

_BYTES_MAX = 1 << 20


def read_url(url: str, timeout_s: float) -> bytes:
    """OSError if it cannot be read. A redirect is an error: it would lead to a URL that nobody allowed."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        data = Path(unquote(parts.path)).read_bytes()
        if len(data) > _BYTES_MAX:
            raise OSError(f"{url} is larger than {_BYTES_MAX} bytes")
        return data
    assert parts.scheme == "https", url
    connection = http.client.HTTPSConnection(
        parts.hostname or "", parts.port, timeout=timeout_s, context=ssl.create_default_context()
    )
    try:
        connection.request("GET", f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}", headers={"Accept": "*/*"})
        response = connection.getresponse()
        if response.status != 200:
            raise OSError(f"{url} answered {response.status}")
        data = response.read(_BYTES_MAX + 1)
    except http.client.HTTPException as error:
        raise OSError(f"{url}: {type(error).__name__}") from error
    finally:
        connection.close()
    if len(data) > _BYTES_MAX:
        raise OSError(f"{url} is larger than {_BYTES_MAX} bytes")
    return data
