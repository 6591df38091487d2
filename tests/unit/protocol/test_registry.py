"""The table of APIs agrees with the messages it names, and costs little."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla.protocol.registry import API_BY_KEY, API_BY_NAME, Api
from ottla.wire.schema import definition_of


@pytest.mark.parametrize("api", API_BY_KEY.values(), ids=lambda api: api.name)
def test_the_table_agrees_with_the_messages(api: Api) -> None:
    for cls in (api.request, api.response):
        definition = definition_of(cls)
        assert definition.versions == (api.min_version, api.max_version)
        flexible_from = definition.flexible.first if definition.flexible.last >= 0 else None
        assert flexible_from == api.flexible_from
    assert api.request.__name__.removesuffix("Request") == api.response.__name__.removesuffix("Response")


def test_keys_and_names_are_unique() -> None:
    assert len(API_BY_KEY) == len(API_BY_NAME)
    assert all(API_BY_NAME[api.name] is api for api in API_BY_KEY.values())


def test_knowing_the_table_imports_no_message() -> None:
    script = "import sys, ottla.protocol.registry; print([m for m in sys.modules if m.startswith('ottla.protocol.messages')])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
