"""The metrics listener (`metrics.listener`): what a broker tells about itself over HTTP.

`endpoint` knows the pages, which `runtime.http_server` serves. `monitor` has the collectors, each of which reads one kind of
parts: `requests`, `clients`, `connections`, `traffic`, `replicas`, `storage`, `controller`, `coordinators`, `zookeeper`,
`process`, `telemetry`. `loop_watch` measures the event loop. Nothing here runs without a metrics listener.
"""
