from __future__ import annotations

import asyncio

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.kit.admin import MetadataBroker, on_broker
from tests.kit.handlers import every_version

IDEMPOTENT = InitProducerIdRequest(transactional_id=None)


@every_version("init_producer_id")
def test_every_producer_gets_an_id_of_its_own(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        responses = [await broker.ask("init_producer_id", version, IDEMPOTENT) for _ in range(3)]
        assert [(found.error_code, found.producer_id, found.producer_epoch) for found in responses] == [
            (0, 0, 0),
            (0, 1, 0),
            (0, 2, 0),
        ]

    on_broker(test)


def test_f63_ids_are_unique_across_blocks_and_restarts() -> None:
    async def test(broker: MetadataBroker) -> None:
        first = {(await broker.ask("init_producer_id", 4, IDEMPOTENT)).producer_id for _ in range(1500)}
        assert first == set(range(1500))
        await broker.store.close()
        again = MetadataBroker({}, broker.tree)
        await again.controller.start()
        second = {(await again.ask("init_producer_id", 4, IDEMPOTENT)).producer_id for _ in range(10)}
        assert not first & second
        assert min(second) == 2000, "the rest of a block is lost with the process that held it"

    on_broker(test)


def test_many_at_once_get_different_ids() -> None:
    async def test(broker: MetadataBroker) -> None:
        responses = await asyncio.gather(*(broker.ask("init_producer_id", 4, IDEMPOTENT) for _ in range(50)))
        assert len({response.producer_id for response in responses}) == 50

    on_broker(test)


@every_version("init_producer_id")
def test_an_empty_transactional_id_is_refused(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        response = await broker.ask("init_producer_id", version, InitProducerIdRequest(transactional_id=""))
        assert (response.error_code, response.producer_id, response.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)

    on_broker(test)


@every_version("init_producer_id")
def test_a_fenced_producer_hears_it_in_words_of_its_version(version: int) -> None:
    class Transactions:
        def ask(self, transactional_id: str, reply: object, question: object) -> object:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)

    async def test(broker: MetadataBroker) -> None:
        broker.transactions = Transactions()
        response = await broker.ask("init_producer_id", version, InitProducerIdRequest(transactional_id="t"))
        assert response.error_code == (ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH)

    on_broker(test)


def test_an_id_without_its_epoch_is_refused() -> None:
    async def test(broker: MetadataBroker) -> None:
        for producer_id, epoch, code in ((5, -1, ErrorCode.INVALID_REQUEST), (-1, 5, ErrorCode.INVALID_REQUEST), (5, 5, 0)):
            request = InitProducerIdRequest(transactional_id=None, producer_id=producer_id, producer_epoch=epoch)
            assert (await broker.ask("init_producer_id", 3, request)).error_code == code

    on_broker(test)
