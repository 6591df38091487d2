"""Worlds: each runs logs or brokers through seeded faults and checks what must hold.

A world is a class with `__init__(seed, *, echo)`, `trace` and `run()`, which raises `Violation`. `run.WORLDS` names them.

    log_world          LogWorld: one data directory and its logs under crashes, without a broker
    broker_world       BrokerWorld: one broker through several lives, with all kinds of requests
    transaction_world  TransactionWorld: idempotence and transactions on one broker
    cluster_world      ClusterWorld: three to five brokers and whatever the nemesis does to them
    late_world         LateWorld: messages that arrive late, one story a seed
    story_world        StoryWorld: what a cluster promises, one story a seed

What they share:

    harness            how a world with a loop is run and buried
    cluster_harness    ClusterHarness: brokers, network, store, clients and rules of a cluster
    nemesis            Nemesis: what goes wrong in a cluster
    story_stage        StoryStage: a quiet cluster with one topic, and the steps of a story
    stories            the stories
"""
