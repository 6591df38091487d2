"""One ZooKeeper for the whole run, a chroot for each test. `cluster(3)` gives three brokers that are up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.cluster import Cluster, clusters
from tests.kit.zookeeper import ZooKeeper, served


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeper]:
    yield from served()


@pytest.fixture
def own_zookeeper() -> Iterator[ZooKeeper]:
    """One for a test that ends or stops it."""
    yield from served()


@pytest.fixture
def cluster(zookeeper: ZooKeeper, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Cluster]]:
    """`cluster(3, min_insync_replicas="2")`: as many brokers, with settings they share."""
    with clusters(zookeeper, tmp_path) as make:
        yield make
        if getattr(request.node, "failed_call", False):
            for each in make.made:  # type: ignore[attr-defined]
                for broker in each.brokers.values():
                    print(f"--- broker {broker.number}\n{broker.output()[-4000:]}")


@pytest.fixture(scope="module")
def three(zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers for the tests of a file that leave them as they were."""
    with clusters(zookeeper, tmp_path_factory.mktemp("three")) as make:
        yield make(3)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if report.when == "call":
        item.failed_call = report.failed  # type: ignore[attr-defined]
    return report
