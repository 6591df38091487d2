"""`ottla group` (`command`, `reset`, `plan`, `offsets`, `view`) and `ottla consume --group` (`consume`)."""
