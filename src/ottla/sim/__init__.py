"""A seeded, virtual world for a whole broker.

Owns: a loop whose clock jumps, a disk that loses what was not flushed, a network in memory, a metadata tree, workloads that
use them, and checkers that say what must hold. The broker inside is the product's own, unchanged: only its ports differ.
Never: imported by the product; no real clock, file, socket or thread is touched during a run.

Read it in this order:

    process    what may die, and how nothing of the dead runs on
    loop       virtual time; the same seed gives the same order
    disk       what survives a crash, a kill, a full or a broken volume
    network    transports that drive asyncio protocols the way real ones do
    metadata   ZooKeeper's rules in memory
    trace      what happened, as lines and as one hash
    machine    clock, chance, disk, workers and network of one computer, as ports
    log_world  one data directory and its logs under crashes, without a broker
    world      a broker on a machine, through several lives
    workload   producers, consumers, administrators, all seeded; partition_model, keyed_model: what they know of a partition
    members    members of groups; group_play, group_model: what becomes of them, and what must hold of them
    play       clients that find their brokers, ask again and twice, and note what they heard
    producers  idempotent, transactional, copying; readers: of both isolation levels; cast: who is started after whom
    node       one broker through its lives; txn_world: transactions on one; scene: what it shares with a cluster
    cluster_world   three to five brokers and what befalls them; cluster_admin, cluster_groups: who is at work meanwhile
    story_world     what a cluster promises, one story at a time; late_world: why each fence is there
    history    what clients did and heard, and what in it must not be
    checkers   what must hold, and the words in which its breach is reported; cluster_rules: at every moment of a cluster
    bugs       faults planted on purpose: the proof that the checkers see; group_, txn_, cluster_, replica_, controller_bugs: more
    run        `python -m ottla.sim --seed N`
"""
