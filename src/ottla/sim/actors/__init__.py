"""Clients of the simulated brokers. Each has seeded habits, and notes what it asked and what it was told.

Of one broker (the world `broker`):

    workload                what all clients share: topics, and the model of each partition
    client                  Client: produces and consumes
    topic_admin             TopicAdmin: creates, alters and deletes topics
    member, groups          Member of a group; Groups: which there are, and how they are judged

Of one broker or a cluster (the worlds `transactions` and `cluster`):

    play                    Play: what all actors know and note; Actor: finds brokers, asks again, asks twice
    cast                    Cast: which actors are started, again and after whom
    scene                   Scene: which topics and actors there are, and the judgement at the end
    idempotent_producer     IdempotentProducer
    transactional_producer  TransactionalProducer, of both generations of the protocol
    copier                  Copier: consume, transform, produce
    readers                 Reader, Watcher: of both isolation levels, and of committed positions
    cluster_admin           Administrator, Visitor: reassignments, settings, topics that come and go
    acl_admin               Keeper, Suitor: principals whose ACLs change, and who ask what they may do
    cluster_groups          members of groups whose coordinators move
"""
