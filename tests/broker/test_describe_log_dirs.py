from __future__ import annotations

from typing import Any

from ottla.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.kit.handlers import every_version


@every_version("describe_log_dirs")
def test_replicas_with_their_sizes(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        connection = await stage.connect()
        batch = stage.batch(b"x" * 500)
        await stage.produce(connection, batch)

        async def described(topics: list[DescribableLogDirTopic] | None) -> dict[int, int]:
            response = await connection.call("describe_log_dirs", version, DescribeLogDirsRequest(topics=topics))
            [directory] = response.results
            assert (directory.error_code, directory.log_dir) == (0, stage.broker.settings.log_dirs()[0])
            if version >= 4:
                assert 0 < directory.usable_bytes <= directory.total_bytes
            return {each.partition_index: each.partition_size for topic in directory.topics for each in topic.partitions}

        assert await described(None) == {0: len(batch), 1: 0}
        assert await described([DescribableLogDirTopic(topic="t", partitions=[1])]) == {1: 0}

    play(case)
