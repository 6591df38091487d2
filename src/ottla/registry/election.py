"""How registries choose a leader (SR16): what they tell each other in the Kafka group, as Confluent's registry does. No I/O.

Every member names itself. The member that Kafka made leader of the group computes the assignment, which is the same for all: the
registry whose URL is smallest among those that may lead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.registry.log_format import json_bytes

PROTOCOL_TYPE: Final = "sr"
PROTOCOL_NAME: Final = "v0"
GROUP_ID: Final = "schema-registry"
_VERSION: Final = 1
NO_ERROR: Final = 0
DUPLICATE_URLS: Final = 1


@dataclass(frozen=True, slots=True)
class Identity:
    """Where a registry is reached by the others."""

    host: str
    port: int
    scheme: str = "http"
    eligible: bool = True

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def encode(self) -> bytes:
        return json_bytes(self._document())

    def _document(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.eligible,
            "scheme": self.scheme,
        }


@dataclass(frozen=True, slots=True)
class Assignment:
    error: int
    member_id: str | None
    leader: Identity | None

    def encode(self) -> bytes:
        document: dict[str, Any] = {"version": _VERSION, "error": self.error}
        if self.member_id is not None and self.leader is not None:
            document |= {"master": self.member_id, "master_identity": self.leader._document()}
        return json_bytes(document)


def decode_identity(data: bytes) -> Identity | None:
    """None if a member is no registry."""
    try:
        return _identity(json.loads(data))
    except ValueError:
        return None


def decode_assignment(data: bytes) -> Assignment | None:
    """None if it is no assignment, as that of a group whose leader is no registry."""
    try:
        document = json.loads(data)
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    error, member_id, leader = document.get("error", NO_ERROR), document.get("master"), document.get("master_identity")
    return Assignment(
        error if isinstance(error, int) else NO_ERROR, member_id if isinstance(member_id, str) else None, _identity(leader)
    )


def elect(members: Mapping[str, Identity]) -> Assignment:
    """Choose among members by their ids. Two with one URL are an error of all: a write could be forwarded to the wrong one."""
    urls = {identity.url for identity in members.values()}
    error = NO_ERROR if len(urls) == len(members) else DUPLICATE_URLS
    eligible = [(identity.url, member_id) for member_id, identity in members.items() if identity.eligible]
    if not eligible:
        return Assignment(error, None, None)
    _, member_id = min(eligible)
    return Assignment(error, member_id, members[member_id])


def _identity(document: object) -> Identity | None:
    if not isinstance(document, dict):
        return None
    host, port = document.get("host"), document.get("port")
    scheme, eligible = document.get("scheme") or "http", document.get("master_eligibility", True)
    if not (isinstance(host, str) and isinstance(port, int) and isinstance(scheme, str)):
        return None
    return Identity(host, port, scheme, eligible is True)
