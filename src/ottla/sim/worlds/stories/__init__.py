"""Stories: one thing happens to a quiet cluster, and what must follow is known.

A story is a function that takes a `StoryStage`. To add one, write it into the file of its subject and add it to the end of
`story_world.STORIES`.

    leadership     leaders that stop, die, return, or lose a disk
    in_sync        the ISR: too few in it, who may join, lost answers, diverging logs
    metadata       topics and settings that change while a broker is away or the controller is replaced
    readers        the closest replica, the latest offset of a new leader, a coordinator that moves
    late_messages  messages that arrive late, each refused by a fence (the world `late`)
"""
