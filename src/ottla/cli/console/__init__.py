"""`ottla console`: `command` has its options, `settings` what they say, `process` starts it; `alone` is the tree of commands
without the others. The console itself is above the commands, in `ottla.console`, which imports `settings`."""
