"""`ottla cluster`: `up` starts one on this machine (`processes`, `zookeeper`), `status` shows any (`view`)."""
