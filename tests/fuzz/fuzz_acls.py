"""Coverage-guided fuzzing of what is parsed of ACLs: nodes, notifications, acknowledgements, super.users. With atheris.

    python tests/fuzz/fuzz_acls.py [seconds]

A parser may return a value, which must survive to be written and read again, or say that it cannot; anything else stops the run
and leaves the input in a `crash-...` file.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["ottla.security.acl_nodes", "ottla.security.authorizer"]):
    from ottla.security.acl_nodes import (
        decode_acknowledged,
        decode_acl_change,
        decode_acls,
        encode_acl_change,
        encode_acls,
    )
    from ottla.security.authorizer import Authorizer, parse_super_users

from ottla.ports import StoreError
from ottla.security.acl import TOPIC, ResourcePattern

SEEDS = (
    b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"}]}',
    b'{"version":1,"acls":[{"host":"10.0.0.1","permissionType":"DENY","operation":"DESCRIBE_CONFIGS","principal":"User:CN=a,O=b"}]}',
    b"TOPIC:orders",
    b"TransactionalId:a:b",
    b'{"version":1,"resourceType":"GROUP","name":"g","patternType":"PREFIXED"}',
    b'{"version": 1, "literal": 3, "prefixed": -1}',
    b"User:admin;User:CN=broker,O=example; Group:x",
)


def one_input(data: bytes) -> None:
    try:
        entries = decode_acls("/kafka-acl/Topic/t", data)
    except StoreError:
        entries = frozenset()
    assert decode_acls("/again", encode_acls(entries)) == entries
    authorizer = Authorizer()
    authorizer.set(ResourcePattern(TOPIC, "t"), entries)
    for entry in entries:
        authorizer.explain(entry.principal, entry.host, 3, ResourcePattern(TOPIC, "t"))
        authorizer.index.operations(entry.principal, entry.host, TOPIC, "t")
    resource = decode_acl_change(data)
    if resource is not None:
        assert decode_acl_change(encode_acl_change(resource)) == resource
    decode_acknowledged(data)
    try:
        parse_super_users(data.decode())
    except ValueError:
        pass


def main(argv: list[str]) -> None:
    seconds = int(argv[1]) if len(argv) > 1 else 60
    corpus = Path(tempfile.mkdtemp(prefix="ottla-fuzz-acls-"))
    for number, seed in enumerate(SEEDS):
        (corpus / str(number)).write_bytes(seed)
    options = [f"-max_total_time={seconds}", "-max_len=1024", "-rss_limit_mb=1024", "-print_final_stats=1"]
    atheris.Setup([argv[0], *options, str(corpus)], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
