from __future__ import annotations

from pathlib import Path
from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.types import TopicPartition
from tests.kit.handlers import every_version
from tests.kit.wait import until_async


@every_version("alter_replica_log_dirs")
def test_a_replica_moves_and_an_unknown_directory_is_refused(play: Any, tmp_path: Path, version: int) -> None:
    paths = [str(tmp_path / name) for name in ("one", "two")]

    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        await stage.produce(connection, stage.batch(b"x"))
        partition = stage.broker.partitions.get(TopicPartition("t", 0))
        target = next(path for path in paths if path != partition.data_dir.path)

        async def move(path: str, index: int = 0) -> int:
            topic = AlterReplicaLogDirTopic(name="t", partitions=[index])
            request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
            response = await connection.call("alter_replica_log_dirs", version, request)
            code: int = response.results[0].partitions[0].error_code
            return code

        assert await move("/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
        assert await move(target, index=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await move(target) == 0
        await until_async(lambda: partition.data_dir.path == target)
        assert partition.log.log_end_offset == 1

    play(case, log_dirs=",".join(paths))
