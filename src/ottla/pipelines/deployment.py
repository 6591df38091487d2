"""What runs a pipeline elsewhere: a unit for systemd, a manifest for Spark's operator on Kubernetes.

Neither holds a setting or a secret: both name the pipeline's own files, which are read where it runs.
"""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path

KINDS = ("systemd", "spark-operator")
_FOLDER = "/pipelines"


def _spark_version() -> str:
    """The version of the Spark that is installed here: the image should have the same."""
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return "4.3.0"


def systemd(file: Path, pipeline: str, command: list[str], env: str | None, user: str) -> str:
    """`command` is what starts `ottla` on this machine."""
    file = file.resolve()
    words = [*command, "pipeline", "run", str(file), *(["--env", env] if env else [])]
    name = unit_name(pipeline)
    return f"""# /etc/systemd/system/{name}.service
#
# systemctl daemon-reload && systemctl enable --now {name}
# Variables for ${{NAME}} in the settings: NAME=value lines in /etc/ottla/{name}.env, readable by root only.

[Unit]
Description=Ottla pipeline {_escaped(pipeline)}
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
User={user}
WorkingDirectory={_escaped(str(file.parent))}
EnvironmentFile=-/etc/ottla/{name}.env
ExecStart={" ".join(_quoted(word) for word in words)}
Restart=on-failure
RestartSec=10
# The running batch may finish. A signal to Spark's workers would cut it short.
KillMode=mixed
TimeoutStopSec=180

[Install]
WantedBy=multi-user.target
"""


def spark_operator(file: Path, pipeline: str, image: str, env: str | None, namespace: str) -> str:
    """A SparkApplication (v1beta2). The pipeline's files come from a ConfigMap of the same name."""
    name = unit_name(pipeline)
    arguments = ["pipeline", "run", f"{_FOLDER}/{file.name}", "--master", "k8s://https://kubernetes.default.svc"]
    arguments += ["--env", env] if env else []
    files = sorted({file.name, *(path.name for path in file.resolve().parent.glob(f"{file.stem}*.toml"))})
    made = " ".join([*(f"--from-file={file}" for file in files), "--from-literal=run.py='from ottla.cli import main; main()'"])
    mount = f"""    volumeMounts:
      - name: pipeline
        mountPath: {_FOLDER}
    envFrom:
      - secretRef:
          name: {name}
          optional: true"""
    return f"""# kubectl -n {namespace} create configmap {name} {made}
# kubectl -n {namespace} create secret generic {name} --from-literal=NAME=value   # for ${{NAME}} in the settings
# kubectl apply -f {name}.yaml
#
# The image needs Spark, Python and ottla[spark]; the storage of the settings must be one that all pods reach.
apiVersion: sparkoperator.k8s.io/v1beta2
kind: SparkApplication
metadata:
  name: {name}
  namespace: {namespace}
spec:
  type: Python
  pythonVersion: "3"
  mode: cluster
  image: {json.dumps(image)}
  sparkVersion: "{_spark_version()}"
  mainApplicationFile: local://{_FOLDER}/run.py
  arguments: {json.dumps(arguments)}
  sparkConf:
    "spark.speculation": "false"
    "spark.stage.maxConsecutiveAttempts": "1"
  restartPolicy:
    type: OnFailure
    onFailureRetries: 2147483647
    onFailureRetryInterval: 10
  volumes:
    - name: pipeline
      configMap:
        name: {name}
  driver:
    cores: 1
    memory: 2g
    serviceAccount: spark-operator-spark
{mount}
  executor:
    instances: 2
    cores: 1
    memory: 2g
{mount}
"""


def unit_name(pipeline: str) -> str:
    return "ottla-" + re.sub(r"[^a-z0-9-]+", "-", pipeline.lower()).strip("-")


def _escaped(text: str) -> str:
    """systemd replaces words that begin with %."""
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    word = _escaped(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{word}"' if re.search(r"[^A-Za-z0-9_./:=,@%+-]", word) else word
