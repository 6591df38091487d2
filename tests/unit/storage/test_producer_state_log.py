"""The state of producers through a log's life: appends, rolls, restarts, crashes, damage, truncation (L05, I01-I06, T02).

The model is the list of what is in the log, and each answer is worked out from it anew, by the rules as one would say them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import RECORDS_AT, SEQUENCE_MAX, scan_batches
from ottla.records.record import build_batch
from ottla.records.validate import check
from ottla.storage.config import LogConfig
from ottla.storage.log import AppendInfo, Log
from ottla.storage.snapshot import CorruptSnapshot, decode, encode
from ottla.storage.txn_index import AbortedTxn
from tests.kit.producer import refused
from tests.kit.storage import NOW_MS, RULES, TP, MemoryDisk, PowerLoss, new_log, reopen

DIR = f"/data/{TP}"
SMALL = LogConfig(segment_bytes=900, index_interval_bytes=200)


def send(log: Log, producer: int, epoch: int, sequence: int, count: int = 1, *, transactional: bool = False) -> AppendInfo:
    fields = [(b"k", b"v" * 20, (), NOW_MS) for _ in range(count)]
    batch = build_batch(fields, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=transactional)
    info = log.append(check(bytearray(batch), RULES, NOW_MS), 0, NOW_MS, verified=True)
    log.high_watermark = log.log_end_offset
    return info


def end_txn(log: Log, producer: int, epoch: int, *, commit: bool, coordinator_epoch: int = 0) -> int:
    info = log.append_marker(producer, epoch, commit=commit, coordinator_epoch=coordinator_epoch, leader_epoch=0, now_ms=NOW_MS)
    log.high_watermark = log.log_end_offset
    return info.first_offset


def crashed(disk: MemoryDisk, config: LogConfig = SMALL) -> Log:
    disk.die()
    log = reopen(disk, config)[1]
    log.high_watermark = log.log_end_offset
    return log


def snapshots(disk: MemoryDisk) -> list[int]:
    return [int(name.split(".")[0]) for name in disk.list(DIR) if name.endswith(".snapshot")]


def test_i01_a_duplicate_is_not_written_and_has_its_first_answer() -> None:
    _, log = new_log(MemoryDisk())
    first = [send(log, 1, 0, sequence, 2) for sequence in (0, 2, 4)]
    size = log.size_bytes
    again = send(log, 1, 0, 2, 2)
    assert (again.first_offset, again.last_offset) == (first[1].first_offset, first[1].last_offset) == (2, 3)
    assert [info.duplicate for info in (*first, again)] == [False, False, False, True]
    assert (log.size_bytes, log.log_end_offset) == (size, 6)


def test_i02_what_is_refused_leaves_no_byte() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk)
    send(log, 1, 0, 0)
    steps = len(disk.steps)
    assert refused(send, log, 1, 0, 5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(disk.steps) == steps


def test_l05_a_failed_write_changes_nothing_a_producer_may_try_again() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk)
    send(log, 1, 0, 0)
    before = log.producers.facts()
    disk.fail(0, OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space"):
        send(log, 1, 0, 1)
    assert log.producers.facts() == before
    assert send(log, 1, 0, 1).first_offset == 1


def test_snapshots_are_taken_at_each_roll_and_at_the_end_and_go_with_their_segments() -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk, SMALL)
    for sequence in range(40):
        send(log, 1, 0, sequence)
    assert snapshots(disk) == log.local.bases[1:]
    log.advance_log_start(log.local.bases[2])
    assert snapshots(disk) == log.local.bases
    data_dir.close()
    assert snapshots(disk) == [*log.local.bases, 40]
    _, log = reopen(disk, SMALL)
    for sequence in range(40, 80):
        send(log, 1, 0, sequence)
    log = crashed(disk)
    assert snapshots(disk) == [*log.local.bases, 80], "of those between segments only the last is of use"


def test_a_log_nobody_wrote_to_with_a_producer_id_needs_no_snapshot() -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk)
    log.append(check(bytearray(build_batch([(b"k", b"v", (), NOW_MS)])), RULES, NOW_MS), 0, NOW_MS)
    data_dir.close()
    crashed(disk, LogConfig())
    assert snapshots(disk) == []


@pytest.mark.parametrize("clean", [True, False])
def test_l05_without_snapshots_the_log_tells_all(clean: bool) -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk, SMALL)
    for sequence in range(30):
        send(log, sequence % 3, 0, sequence // 3)
    before = log.producers.facts()
    if clean:
        data_dir.close()
    damaged = snapshots(disk)
    for offset in damaged[:-1] if clean else damaged:
        disk.put(f"{DIR}/{offset:020d}.snapshot", b"\0\1damage")
    if clean:
        disk.put(f"{DIR}/{damaged[-1]:020d}.snapshot", disk.content(f"{DIR}/{damaged[-1]:020d}.snapshot")[:-1])
    assert crashed(disk).producers.facts() == before


@pytest.mark.parametrize("batches", [2, 30])
def test_l05_snapshots_taken_away_after_a_clean_stop_are_missed(batches: int) -> None:
    """In one segment and in several. Otherwise an open transaction would be read, and a duplicate stored."""
    disk = MemoryDisk()
    data_dir, log = new_log(disk, SMALL)
    for sequence in range(batches):
        send(log, 1, 0, sequence)
    send(log, 2, 0, 0, transactional=True)
    before, stable = log.producers.facts(), log.last_stable_offset
    data_dir.close()
    for offset in snapshots(disk):
        disk.remove(f"{DIR}/{offset:020d}.snapshot")
    log = crashed(disk)
    assert log.producers.facts() == before
    assert log.last_stable_offset == stable == batches
    assert send(log, 1, 0, batches - 1).duplicate


def test_l05_an_older_snapshot_will_do() -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk, SMALL)
    for sequence in range(30):
        send(log, 1, 0, sequence)
    before = log.producers.facts()
    data_dir.close()
    disk.put(f"{DIR}/{snapshots(disk)[-1]:020d}.snapshot", b"")
    log = crashed(disk)
    assert log.producers.facts() == before
    assert refused(send, log, 1, 0, 31) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_i01_all_five_in_flight_are_known_after_a_clean_stop() -> None:
    """The snapshot has one batch of each producer; the log has the others (Kafka forgets them)."""
    disk = MemoryDisk()
    data_dir, log = new_log(disk)
    for sequence in range(0, 20, 2):
        send(log, 1, 0, sequence, 2)
        send(log, 2, 5, sequence, 2)
    data_dir.close()
    log = crashed(disk, LogConfig())
    for producer, epoch in ((1, 0), (2, 5)):
        for sequence in range(10, 20, 2):
            assert send(log, producer, epoch, sequence, 2).duplicate
    assert refused(send, log, 1, 0, 8, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "nobody knows any more"
    assert not send(log, 1, 0, 20).duplicate


def test_i02_a_batch_that_wraps_is_known_after_a_clean_stop() -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk)
    send(log, 1, 0, SEQUENCE_MAX - 1, 4)
    data_dir.close()
    log = crashed(disk, LogConfig())
    assert send(log, 1, 0, SEQUENCE_MAX - 1, 4).duplicate
    assert refused(send, log, 1, 0, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not send(log, 1, 0, 2).duplicate


def test_i05_a_retry_of_what_was_truncated_is_taken() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, SMALL)
    for sequence in range(30):
        send(log, 1, 0, sequence)
    log.truncate_to(17)
    assert refused(send, log, 1, 0, 30) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 1, 0, 16).duplicate
    retried = send(log, 1, 0, 17)
    assert (retried.first_offset, retried.duplicate) == (17, False)
    log.truncate_to(0)
    assert len(log.producers) == 0
    assert snapshots(disk) == []


def test_i05_truncation_opens_a_transaction_again_and_takes_aborted_ones_back() -> None:
    _, log = new_log(MemoryDisk(), SMALL)
    send(log, 1, 0, 0, transactional=True)
    marker = end_txn(log, 1, 0, commit=False)
    assert [txn.first_offset for txn in log.aborted(0, 10)] == [0]
    log.truncate_to(marker)
    assert log.aborted(0, 10) == []
    assert log.last_stable_offset == 0
    log.truncate_to(0)
    assert log.last_stable_offset == log.high_watermark == 0


def test_t02_aborted_transactions_are_found_by_range_over_segments_and_restarts() -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk, SMALL)
    expected: list[AbortedTxn] = []
    sequences = [0] * 4
    dice = random.Random(3)
    started: dict[int, int] = {}
    for _ in range(120):
        producer = dice.randrange(4)
        if producer in started and dice.random() < 0.4:
            commit = dice.random() < 0.5
            first = started.pop(producer)
            offset = end_txn(log, producer, 0, commit=commit)
            if not commit:
                expected.append(AbortedTxn(producer, first, offset, min(started.values(), default=offset + 1)))
        else:
            info = send(log, producer, 0, sequences[producer], 1 + dice.randrange(3), transactional=True)
            sequences[producer] += info.last_offset - info.first_offset + 1
            started.setdefault(producer, info.first_offset)
    assert len(expected) > 8
    assert len(log.segments) > 5

    def check_all(log: Log) -> None:
        assert log.last_stable_offset == min(started.values(), default=log.high_watermark)
        for start in range(0, log.log_end_offset, 3):
            for end in (start + 1, start + 7, log.log_end_offset):
                found = log.aborted(start, end)
                overlapping = [txn for txn in expected if txn.last_offset >= start and txn.first_offset < end]
                assert found == overlapping

    check_all(log)
    log = crashed(disk)
    check_all(log)
    for name in disk.list(DIR):
        if name.endswith(".txnindex"):
            disk.put(f"{DIR}/{name}", b"\0\0damage" if name < disk.list(DIR)[20] else b"")
    disk.remove("/data/recovery-point-offset-checkpoint") if disk.exists("/data/recovery-point-offset-checkpoint") else None
    log = crashed(disk)
    check_all(log)
    data_dir = reopen_dir(disk)  # type: ignore[assignment]
    data_dir.close()
    log = crashed(disk)
    check_all(log)


def reopen_dir(disk: MemoryDisk) -> object:
    disk.die()
    return reopen(disk, SMALL)[0]


@pytest.mark.parametrize("damage", ["short", "emptied", "gone with the others"])
def test_a_damaged_transaction_index_is_mended_after_a_clean_stop_too(damage: str) -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk, SMALL)
    for sequence in range(12):
        send(log, 1, 0, sequence, transactional=True)
        end_txn(log, 1, 0, commit=sequence % 2 == 0)
    aborted = log.aborted(0, log.log_end_offset)
    data_dir.close()
    names = [name for name in disk.list(DIR) if name.endswith(".txnindex")]
    assert len(names) > 1
    if damage == "gone with the others":  # as by `rm *index`
        for name in disk.list(DIR):
            if name.endswith("index"):
                disk.remove(f"{DIR}/{name}")
    else:
        disk.put(f"{DIR}/{names[1]}", disk.content(f"{DIR}/{names[1]}")[:-1] if damage == "short" else b"")
    assert crashed(disk).aborted(0, 1000) == aborted


def test_a_marker_that_cannot_be_read_does_not_keep_a_log_from_being_opened() -> None:
    """Found by reading: with the indexes gone too, a broker did not start for one marker in one partition."""
    disk = MemoryDisk()
    data_dir, log = new_log(disk, SMALL)
    for sequence in range(12):
        send(log, 1, 0, sequence, transactional=True)
        end_txn(log, 1, 0, commit=False)
    aborted = log.aborted(0, log.log_end_offset)
    data_dir.close()
    data = bytearray(disk.content(f"{DIR}/{0:020d}.log"))
    marker = scan_batches(data)[0][1]
    assert (marker.is_control, marker.base_offset) == (True, 1)
    data[marker.position + RECORDS_AT] ^= 0xFF
    disk.put(f"{DIR}/{0:020d}.log", bytes(data))
    for name in disk.list(DIR):
        if name.endswith("index"):
            disk.remove(f"{DIR}/{name}")
    found = crashed(disk).aborted(0, 1000)
    assert found[1:] == aborted[2:]
    assert found[0]._replace(first_offset=2) == aborted[1], "what the lost marker ended goes on to the next"


def test_a_segment_whose_records_are_lost_names_no_aborted_transaction() -> None:
    """Its marker is lost too: whoever reads on would take all that the producer wrote later for aborted."""
    disk = MemoryDisk()
    data_dir, log = new_log(disk, SMALL)
    for sequence in range(12):
        send(log, 1, 0, sequence, transactional=True)
        end_txn(log, 1, 0, commit=sequence % 2 == 0)
    data_dir.close()
    first, second, *_ = list(log.local.bases)
    assert disk.exists(f"{DIR}/{first:020d}.txnindex")
    disk.put(f"{DIR}/{first:020d}.log", b"")
    aborted = crashed(disk).aborted(0, 1000)
    assert aborted
    assert all(txn.last_offset >= second for txn in aborted)


def test_a_snapshot_is_believed_only_as_a_whole() -> None:
    _, log = new_log(MemoryDisk())
    send(log, 1, 3, 7, 4)
    send(log, 2, 0, 0, transactional=True)
    end_txn(log, 3, 1, commit=True, coordinator_epoch=6)
    send(log, 4, 0, SEQUENCE_MAX, 3)
    data = encode(log.producers)
    assert [producer.facts() for producer in decode(data)] == [producer.facts() for producer in log.producers]
    for size in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            decode(data[:size])
    for at in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            decode(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(CorruptSnapshot):
        decode(data + b"\0")


def test_l05_the_power_fails_at_every_step_and_the_state_is_that_of_the_records() -> None:
    """Whatever is lost of the files, what is known is what is in the log."""
    for step in range(0, 150, 3):
        disk = MemoryDisk()
        data_dir, log = new_log(disk, SMALL)
        disk.fail(step, PowerLoss())
        sequence = 0
        try:
            for number in range(40):
                send(log, 1, 0, sequence, transactional=True)
                sequence += 1
                if number % 3 == 0:
                    end_txn(log, 1, 0, commit=number % 2 == 0)
                if number % 7 == 0:
                    log.flush(NOW_MS)
                    data_dir.write_checkpoints()
            data_dir.close()
        except PowerLoss:
            pass
        disk.lose_power()
        log = reopen(disk, SMALL)[1] if disk.exists(DIR) and TP in reopen_logs(disk) else None  # type: ignore[assignment]
        if log is None:
            continue
        log.high_watermark = log.log_end_offset
        assert facts_of(log) == replayed(disk)


def reopen_logs(disk: MemoryDisk) -> dict[object, Log]:
    logs = reopen_any(disk)
    disk.die()
    return logs


def reopen_any(disk: MemoryDisk) -> dict[object, Log]:
    from tests.kit.storage import open_dir

    data_dir = open_dir(disk)
    data_dir.load(lambda topic: SMALL, NOW_MS)
    return dict(data_dir.logs)  # type: ignore[arg-type]


def facts_of(log: Log) -> tuple[object, ...]:
    return (*log.producers.facts(), log.aborted(0, log.log_end_offset))


def replayed(disk: MemoryDisk) -> tuple[object, ...]:
    """The state from nothing but the records."""
    disk.die()
    for name in disk.list(DIR):
        if name.endswith((".snapshot", ".txnindex")):
            disk.remove(f"{DIR}/{name}")
    for name in ("recovery-point-offset-checkpoint", ".kafka_cleanshutdown"):
        if disk.exists(f"/data/{name}"):
            disk.remove(f"/data/{name}")
    log = reopen(disk, SMALL)[1]
    log.high_watermark = log.log_end_offset
    return facts_of(log)


# --- any history, against the model


@dataclass
class Entry:
    producer: int
    epoch: int
    sequence: int
    count: int
    offset: int
    transactional: bool = False
    commit: bool | None = None
    """Of a marker."""

    @property
    def last_sequence(self) -> int:
        return self.sequence + self.count - 1


class Model:
    def __init__(self) -> None:
        self.entries: list[Entry] = []

    @property
    def end(self) -> int:
        return self.entries[-1].offset + self.entries[-1].count if self.entries else 0

    def of(self, producer: int) -> list[Entry]:
        return [entry for entry in self.entries if entry.producer == producer]

    def open_since(self, producer: int) -> int | None:
        first = None
        for entry in self.of(producer):
            if entry.commit is not None:
                first = None
            elif entry.transactional and first is None:
                first = entry.offset
        return first

    def stable(self) -> int:
        return min((first for p in range(4) if (first := self.open_since(p)) is not None), default=self.end)

    def aborted(self) -> list[tuple[int, int, int]]:
        found = []
        for at, entry in enumerate(self.entries):
            if entry.commit is False:
                before = Model()
                before.entries = self.entries[:at]
                first = before.open_since(entry.producer)
                if first is not None:
                    found.append((entry.producer, first, entry.offset))
        return found

    def answer(self, epoch: int, producer: int, sequence: int, count: int, transactional: bool) -> object:
        """What a client must hear: an offset, or the codes of which one."""
        history = self.of(producer)
        if not history:
            return self.end
        current = history[-1].epoch
        batches = [entry for entry in history if entry.epoch == epoch and entry.commit is None]
        if epoch == current:
            for entry in batches[-5:]:
                if (entry.sequence, entry.count) == (sequence, count):
                    return entry.offset
        if epoch < current:
            return {ErrorCode.INVALID_PRODUCER_EPOCH}
        expected = batches[-1].last_sequence + 1 if epoch == current and batches else 0
        if sequence != expected:
            codes = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
            if epoch == current and sequence + count <= expected:
                codes.add(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
            return codes
        if not transactional and self.open_since(producer) is not None:
            return {ErrorCode.INVALID_TXN_STATE}
        return self.end


def drive(seed: int, steps: int) -> None:
    dice = random.Random(seed)
    disk, model = MemoryDisk(), Model()
    data_dir, log = new_log(disk, SMALL)
    for _ in range(steps):
        action = dice.random()
        producer = dice.randrange(4)
        history = model.of(producer)
        epoch = history[-1].epoch if history else 0
        if action < 0.70:
            data = [entry for entry in history if entry.commit is None and entry.epoch == epoch]
            sequence = data[-1].last_sequence + 1 if data else 0
            count, transactional = 1 + dice.randrange(3), dice.random() < 0.5
            twist = dice.random()
            if twist < 0.2 and data:
                again = dice.choice(data[-7:])
                sequence, count, transactional = again.sequence, again.count, again.transactional
            elif twist < 0.3:
                sequence = max(0, sequence + dice.choice([-3, -1, 1, 2, 10]))
            elif twist < 0.4:
                epoch = max(0, epoch + dice.choice([-1, 1, 1]))
                sequence = dice.choice([0, 0, sequence])
            expected = model.answer(epoch, producer, sequence, count, transactional)
            try:
                info = send(log, producer, epoch, sequence, count, transactional=transactional)
            except KafkaError as error:
                answered = error.code
                assert isinstance(expected, set)
                assert answered in expected
                continue
            assert info.first_offset == expected
            assert info.duplicate == (expected != model.end)
            if not info.duplicate:
                model.entries.append(Entry(producer, epoch, sequence, count, info.first_offset, transactional))
        elif action < 0.82:
            commit = dice.random() < 0.5
            offset = end_txn(log, producer, epoch, commit=commit)
            model.entries.append(Entry(producer, epoch, -1, 1, offset, True, commit))
        elif action < 0.88:
            log.flush(NOW_MS)
        elif action < 0.92:
            log = crashed(disk)
        elif action < 0.95:
            disk.die()
            data_dir, log = reopen(disk, SMALL)
            data_dir.close()
            log = crashed(disk)
        elif model.entries:
            cut = dice.choice(model.entries[-8:]).offset
            log.truncate_to(cut)
            model.entries = [entry for entry in model.entries if entry.offset < cut]
            log.high_watermark = log.log_end_offset
        assert log.log_end_offset == model.end
        assert log.last_stable_offset == model.stable()
        found = [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in log.aborted(0, model.end + 1)]
        assert found == model.aborted()
    before = facts_of(log)
    disk.die()
    assert replayed(disk) == before


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30))
def test_any_history_is_answered_by_the_rules_and_replay_equals_the_live_state(seed: int) -> None:
    drive(seed, 80)


def test_i04_a_follower_knows_what_the_leader_knew() -> None:
    """A retry that goes to the new leader finds its batch: the state comes with the records."""
    _, leader = new_log(MemoryDisk(), SMALL)
    for sequence in range(12):
        send(leader, 1, 0, sequence, transactional=True)
        if sequence % 3 == 2:
            end_txn(leader, 1, 0, commit=sequence % 2 == 0, coordinator_epoch=sequence)
        send(leader, 2, 4, 3 * sequence, 3)
    send(leader, 3, 0, 0, transactional=True)
    _, follower = new_log(MemoryDisk(), LogConfig(segment_bytes=2000))
    while follower.log_end_offset < leader.log_end_offset:
        (part,) = leader.read(follower.log_end_offset, 500, leader.log_end_offset, True).ranges
        follower.append_as_follower(part.file.read(part.position, part.size), NOW_MS)
    assert follower.last_stable_offset == 0, "nothing is below its high watermark yet"
    follower.high_watermark = follower.log_end_offset
    assert facts_of(follower) == facts_of(leader)
    assert follower.last_stable_offset == leader.last_stable_offset
    assert send(follower, 2, 4, 33, 3).duplicate
    assert refused(send, follower, 2, 4, 39, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_i03_a_follower_takes_what_its_leader_took() -> None:
    """Also a lower epoch: on replication that is no error."""
    _, log = new_log(MemoryDisk())
    for epoch, offset in ((3, 0), (1, 1)):
        batch = build_batch(
            [(b"k", b"v", (), NOW_MS)], base_offset=offset, producer_id=1, producer_epoch=epoch, base_sequence=7, leader_epoch=0
        )
        log.append_as_follower(batch, NOW_MS)
    producer = log.producers.get(1)
    assert producer is not None
    assert (producer.epoch, log.log_end_offset) == (1, 2)
