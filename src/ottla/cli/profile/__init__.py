"""`ottla profile`: named clusters. `file` is the file, `profile` what it says, `chosen` the one that a command uses."""
