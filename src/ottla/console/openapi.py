"""The OpenAPI 3.1 description of the endpoints. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ottla import __version__
from ottla.console.endpoint import Endpoint
from ottla.console.schema import STRING, document

ERROR = document(error=document(message=STRING, hint_=STRING, code_=STRING))
_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")


def description(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(plain_path(endpoint.path), {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ottla console",
            "version": __version__,
            "summary": "A Kafka cluster over HTTP: topics, records, groups, transactions, pipelines, security",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "ottla_console"},
            },
        },
    }


def plain_path(path: str) -> str:
    """`/api/topics/{topic:path}` as OpenAPI writes it."""
    return _PARAMETER.sub(r"{\1}", path)


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    error = {"description": "What is wrong", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    operation: dict[str, Any] = {
        "operationId": endpoint.operation_id,
        "summary": endpoint.summary,
        "tags": [endpoint.path.split("/")[2]],
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in _PARAMETER.findall(endpoint.path)
            ),
            *({"name": each.name, "in": "query", "description": each.what, "schema": each.schema} for each in endpoint.params),
        ],
        "responses": {
            str(endpoint.status): {
                "description": endpoint.summary,
                "content": {
                    media_type: {"schema": endpoint.answer} for media_type in (endpoint.media_type, *endpoint.other_media_types)
                },
            },
            "default": error,
        },
        "x-role": endpoint.role.word,
    }
    if not endpoint.public:
        operation["security"] = [{"token": []}, {"cookie": []}]
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": endpoint.body}}}
    return operation
