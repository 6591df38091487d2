"""A seeded, virtual world for whole brokers. docs/simulator.md shows how to use and extend it.

Owns: a loop in virtual time, disks that lose what was not flushed, networks in memory, a metadata store, the clients
that use them, and the checks of what must hold. The brokers inside are the product's own, unchanged: only their ports differ.
Never: imported by the product, nor part of the wheel. No real clock, file, socket or thread is touched during a run.

    kernel     the virtual machines: process, loop, disk, network, metadata store, node, trace
    actors     the clients: producers, consumers, members of groups, administrators
    models     what must hold: models, histories, rules
    worlds     what happens: each world runs logs or brokers through seeded faults
    bugs       bugs planted on purpose: the proof that the checkers see
    violation  how a broken rule is reported: `require`, `Violation`
    run        `python -m ottla.sim`: runs seeds, replays one, plants bugs
"""
