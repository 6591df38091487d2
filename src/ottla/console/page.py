"""Writes docs/http-api.md from the endpoints: `python -m ottla.console.page > docs/http-api.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from ottla.console.api import ENDPOINTS
from ottla.console.endpoint import Endpoint
from ottla.console.openapi import plain_path

_HEAD = """# The HTTP interface

What the console serves beneath `/api`: to produce, to read and to administer any Kafka cluster without a Kafka client. The same
as OpenAPI 3.1, with the schema of each body and answer, is at `/api/openapi.json`. This page is generated from the endpoints by
`python -m ottla.console.page`; a test checks that it is current. How a console is started and secured: [console.md](console.md).

- A change needs `Content-Type: application/json`, also with an empty body, and the role of the table. With tokens, each request
  has `Authorization: Bearer TOKEN`.
- An error is `{"error": {"message": "…", "hint": "…", "code": "UNKNOWN_TOPIC_OR_PARTITION"}}`. The status is 400 for a wrong
  request, 401 without a login, 403 without the right, 404, 409 for a conflict, 413, 429, 502 if a broker refuses, 503 if none
  answers.
- What deletes or resets much is a preview unless the body has `"execute": true`.
- Times are milliseconds since 1970, sizes bytes. A value that is not known is `null`.
- A stream is of server-sent events, at most four a second. Close it at `end`: a browser would ask again.

```console
$ curl -s localhost:8080/api/topics
$ curl -s localhost:8080/api/topics/orders/records -H 'Content-Type: application/json' -d '{"key": "k", "value": {"n": 1}}'
$ curl -sN 'localhost:8080/api/topics/orders/records?from=10m&where=value.n>0'
```

"""
_SECTIONS = {
    "session": "Session", "login": "Session", "logout": "Session", "audit": "Session",
    "overview": "Cluster", "brokers": "Cluster",
    "topics": "Topics", "records": "Records", "filters": "Records", "trace": "Records", "groups": "Groups",
    "transactions": "Transactions", "acls": "Security", "users": "Security", "quotas": "Security", "pipelines": "Pipelines",
    "dead-letters": "Dead letters", "jobs": "Dead letters", "schemas": "Schemas", "metrics": "Cluster",
}  # fmt: skip
_OF_RECORDS = ("records", "copy", "export", "histogram", "snippets")


def render() -> str:
    sections: dict[str, list[Endpoint]] = {}
    for endpoint in ENDPOINTS:
        sections.setdefault(_section(endpoint), []).append(endpoint)
    return _HEAD + "\n".join(line for name, endpoints in sections.items() for line in _lines(name, endpoints))


def _section(endpoint: Endpoint) -> str:
    words = [word for word in endpoint.path.split("/") if word not in ("", "api", "live")]
    if words[0] == "topics" and any(word in _OF_RECORDS for word in words):
        return "Records"
    return _SECTIONS[words[0]]


def _lines(name: str, endpoints: list[Endpoint]) -> Iterator[str]:
    yield f"## {name}\n"
    yield "| call | role | what it does |"
    yield "|---|---|---|"
    for each in endpoints:
        role = "–" if each.public else each.role.word
        stream = ", as a stream" if each.media_type == "text/event-stream" else ""
        yield f"| `{each.method} {plain_path(each.path)}` | {role} | {each.summary}{stream}{_parameters(each)} |"
    yield ""


def _parameters(endpoint: Endpoint) -> str:
    return f". Parameters: {', '.join(f'`{each.name}`' for each in endpoint.params)}" if endpoint.params else ""


if __name__ == "__main__":
    sys.stdout.write(render())
