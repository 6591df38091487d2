"""The log of a partition on disk, in Apache Kafka's file formats.

`DataDir` is one of `log.dirs`. A `Log` has the watermarks, leader epochs (`EpochCache`), producer state (`LogProducers`) and
recovery point (`LogFlushes`) of the records in its `LocalLog`, which is a list of `Segment`s. Only the last segment is written. A
segment is a .log file of record batches with an offset, a time and a transaction index.

Everything is synchronous and goes through `ports.Disk`. An append ends in the page cache; a worker thread runs a `FlushPlan` to
make it durable. The current time is a parameter, `now_ms`.

Deliberate differences from Apache Kafka (the files are equal after a clean shutdown):

* Index files are not preallocated. The entries of the active segment are in memory and are written at a roll, a flush and at
  close. A crash loses only what recovery rebuilds.
* The .log file of the active segment may have blocks reserved behind its end (`reservation`). Its size does not show them, and
  they are released at the roll, at close, or at the next start. `log.preallocate` is accepted and has no effect.
* Indexes of sealed segments are loaded on demand and evicted (`SegmentCache` bounds them and the open files).
* leader-epoch-checkpoint is written before the recovery point passes the records of an epoch, not with each new epoch. Recovery
  finds later epochs in the batches.
* A log that no producer with an id wrote to has no `.snapshot` at its end.
* After a restart the last five batches of a producer are known, from the log: a snapshot has only one.
* A batch that is older than these five but known to be in the log gets DUPLICATE_SEQUENCE_NUMBER, which clients treat as success.
  Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER.
"""
