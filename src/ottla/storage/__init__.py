"""A partition's log on disk, in Apache Kafka's own files.

`DataDir` is one of `log.dirs`: its lock, its identity, its checkpoints, and the `Log`s below it. A `Log` is a row of `Segment`s;
only the newest is written. A segment is `.log` (record batches as the producer sent them), `.index` (offset to position, sparse)
and `.timeindex` (timestamp to offset, sparse), and, where transactions were aborted in it, `.txnindex`; an `EpochCache` remembers
where each leader epoch began, `ProducerStates` who wrote what last, with `.snapshot` files of it.

Everything is synchronous and goes through `ports.Disk`. An append ends in the page cache; making it durable is a `FlushPlan`,
which a worker thread may run. Nothing here knows a clock: time comes in as `now_ms`.

Where we differ from Apache Kafka on purpose, with equal files after a clean stop:

* index files are not preallocated: entries are kept in memory while their segment is active, and written at a roll, a flush, a
  checkpoint and at close. A crash loses only what recovery rebuilds anyway;
* the log file of an active segment may have room reserved behind its end (`reservation`), which its size does not show, and which
  goes back when the segment is sealed or closed, or at the next start. That is not `log.preallocate`, which is known and unused;
* indexes of sealed segments are loaded on demand and forgotten again (`SegmentCache` bounds them and the open files);
* the leader-epoch-checkpoint is written before a recovery point may pass the data it speaks of, not at each new epoch: epochs of
  data behind the recovery point are found again in the batches;
* a log that no producer with an id ever wrote to has no `.snapshot` at its end;
* after a restart all five last batches of a producer are known again, from the log itself: a snapshot holds one;
* a batch that is too old for the five, but known to be in the log, is a DUPLICATE_SEQUENCE_NUMBER, which clients take for
  success; Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER.
"""
