"""Run Apache Kafka's own integration tests on Ottla (`make compat CLIENT=kafka_suite`).

Their published test jars start brokers through four classes: SharedServer, ControllerServer, BrokerServer, and KafkaServer with
ZooKeeper. `shim/` has classes of these names, first on the class path, which start `ottla serve` with the settings of the test.
Harness, clients and tests are Kafka's. A test that needs another object of the broker's JVM fails, and its failure says which.

Jars are fetched with Maven and the shim is compiled once; later runs need no network. Usage:

    python -m tests.compat.kafka_suite.run [-k REGEX] [--suite NAME]... [CLASS]...

Without CLASS and --suite it runs the tests of tests.allow. A CLASS is `PlaintextConsumerTest`, of the newest Kafka that has it,
`3.9.2/PlaintextConsumerTest`, or `PlaintextConsumerTest#testHeaders`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.kit import ROOT
from tests.kit.peers import KAFKA_3, KAFKA_4, fetching, kafka_jars, maven_jars, popen, program
from tests.kit.ratchet import allowed, judge
from tests.kit.zookeeper import ZooKeeper

HERE = Path(__file__).parent
ALLOW = HERE / "tests.allow"

SUITES = {
    "consumer": [
        *(f"{KAFKA_3}/PlaintextConsumer{part}Test" for part in ("Assign", "Callback", "Commit", "Fetch", "Poll", "Subscription")),
        *(f"{KAFKA_4}/PlaintextConsumer{part}Test" for part in ("", "Assignors")),
    ],
    "admin": [f"{KAFKA_4}/PlaintextAdminIntegrationTest", f"{KAFKA_3}/PlaintextAdminIntegrationTest"],
    "producer": [f"{KAFKA_4}/PlaintextProducerSendTest", f"{KAFKA_3}/ProducerFailureHandlingTest"],
    "transactions": [
        f"{KAFKA_4}/TransactionsTest",
        f"{KAFKA_3}/TransactionsExpirationTest",
        f"{KAFKA_3}/TransactionsWithMaxInFlightOneTest",
        f"{KAFKA_4}/AddPartitionsToTxnRequestServerTest",
        f"{KAFKA_4}/WriteTxnMarkersRequestTest",
        f"{KAFKA_4}/TxnOffsetCommitRequestTest",
    ],
    "groups": [
        f"{KAFKA_4}/{api}RequestTest"
        for api in (
            "ConsumerGroupDescribe",
            "ConsumerGroupHeartbeat",
            "DeleteGroups",
            "DescribeGroups",
            "Heartbeat",
            "JoinGroup",
            "LeaveGroup",
            "ListGroups",
            "OffsetCommit",
            "OffsetDelete",
            "OffsetFetch",
            "SyncGroup",
        )
    ]
    + [f"{KAFKA_4}/ConsumerProtocolMigrationTest"],
    "requests": [
        f"{KAFKA_4}/{api}Test"
        for api in (
            "ApiVersionsRequest",
            "CreateTopicsRequest",
            "DeleteRecordsRequest",
            "DeleteTopicsRequest",
            "DescribeClusterRequest",
            "DescribeLogDirsRequest",
            "EdgeCaseRequest",
            "FetchRequest",
            "FetchRequestMaxBytes",
            "ListOffsetsRequest",
            "OffsetsForLeaderEpochRequest",
            "ProduceRequest",
        )
    ]
    + [f"{KAFKA_3}/MetadataRequestTest"],
    "acls": [
        f"{KAFKA_4}/AuthorizerIntegrationTest",
        f"{KAFKA_3}/AuthorizerIntegrationTest",
        f"{KAFKA_3}/GroupAuthorizerIntegrationTest",
        f"{KAFKA_3}/DescribeAuthorizedOperationsTest",
        f"{KAFKA_4}/PlaintextEndToEndAuthorizationTest",
    ],
    "security": [
        f"{KAFKA_4}/SslEndToEndAuthorizationTest",
        f"{KAFKA_4}/SaslScramSslEndToEndAuthorizationTest",
        f"{KAFKA_4}/SaslPlainSslEndToEndAuthorizationTest",
        f"{KAFKA_4}/SaslOAuthBearerSslEndToEndAuthorizationTest",
        f"{KAFKA_4}/SaslSslAdminIntegrationTest",
        f"{KAFKA_4}/SslAdminIntegrationTest",
        f"{KAFKA_4}/SaslClientsWithInvalidCredentialsTest",
        f"{KAFKA_4}/SaslMultiMechanismConsumerTest",
        f"{KAFKA_4}/SaslPlaintextConsumerTest",
        f"{KAFKA_3}/SaslPlainPlaintextConsumerTest",
        f"{KAFKA_4}/SaslSslConsumerTest",
        f"{KAFKA_4}/SslConsumerTest",
        f"{KAFKA_4}/SslProducerSendTest",
        f"{KAFKA_4}/SaslApiVersionsRequestTest",
        f"{KAFKA_4}/DelegationTokenEndToEndAuthorizationTest",
        f"{KAFKA_4}/DelegationTokenRequestsTest",
        f"{KAFKA_4}/DelegationTokenRequestsOnPlainTextTest",
        f"{KAFKA_4}/DelegationTokenRequestsWithDisableTokenFeatureTest",
        f"{KAFKA_4}/AlterUserScramCredentialsRequestTest",
        f"{KAFKA_4}/AlterUserScramCredentialsRequestNotAuthorizedTest",
        f"{KAFKA_4}/DescribeUserScramCredentialsRequestTest",
        f"{KAFKA_4}/DescribeUserScramCredentialsRequestNotAuthorizedTest",
        f"{KAFKA_4}/MultipleListenersWithDefaultJaasContextTest",
        f"{KAFKA_4}/MultipleListenersWithAdditionalJaasContextTest",
    ],
    "quotas": [
        f"{KAFKA_3}/ClientQuotasRequestTest",
        f"{KAFKA_4}/RequestQuotaTest",
        f"{KAFKA_4}/ControllerMutationQuotaTest",
        f"{KAFKA_4}/UserQuotaTest",
        f"{KAFKA_4}/ClientIdQuotaTest",
        f"{KAFKA_4}/UserClientIdQuotaTest",
        f"{KAFKA_4}/DynamicConnectionQuotaTest",
    ],
}
"""What `--suite` runs. A class that Kafka 4.3 has is taken from there; others moved to a module without a published test jar."""

# Kafka's modules with test jars, and the versions of the test libraries that its own build uses.
_MODULES = ("kafka-clients", "kafka-server-common", "kafka-server", "kafka-tools", "kafka-group-coordinator", "kafka-metadata")
_TEST_JARS = ("kafka_2.13", *_MODULES, "kafka-raft", "kafka-storage", "kafka-storage-api")
_TEST_MODULES = ("kafka-test-common-runtime", "kafka-test-common-internal-api", "kafka-test-common-util")
_JUNIT = {KAFKA_3: ("5.10.2", "1.10.2"), KAFKA_4: ("5.13.1", "1.13.1")}
_MOCKITO = {KAFKA_3: "5.14.2", KAFKA_4: "5.20.0"}
_APACHEDS = (
    *("core-api", "interceptor-kerberos", "protocol-shared", "protocol-kerberos", "protocol-ldap"),
    *("ldif-partition", "mavibot-partition", "jdbm-partition"),
)

_OPENED = ("java.security.jgss/sun.security.krb5", "java.base/java.lang", "java.base/java.util", "java.base/java.util.concurrent")
"""Packages of Java that the KDC and mocks of the tests use."""


def _pom(version: str) -> str:
    jupiter, platform = _JUNIT[version]
    artifacts = [f"org.apache.kafka:{name}:{version}" for name in ("kafka_2.13", "kafka-tools")]
    artifacts += [f"org.apache.kafka:{name}:{version}:test" for name in _TEST_JARS]
    if version == KAFKA_4:
        artifacts += [f"org.apache.kafka:{name}:{version}" for name in _TEST_MODULES]
        artifacts += [f"org.apache.kafka:kafka-coordinator-common:{version}:test"]
        artifacts += ["org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"]
    artifacts += [
        f"org.junit.jupiter:junit-jupiter:{jupiter}",
        f"org.junit.platform:junit-platform-launcher:{platform}",
        f"org.mockito:mockito-junit-jupiter:{_MOCKITO[version]}",
        "org.hamcrest:hamcrest:2.2",
        "org.bouncycastle:bcpkix-jdk18on:1.78.1",
        "org.bitbucket.b_c:jose4j:0.9.6",
        *(f"org.apache.directory.server:apacheds-{name}:2.0.0-M24" for name in _APACHEDS),
        "org.apache.directory.api:api-all:1.0.2",
    ]
    dependencies = ""
    for artifact in artifacts:
        tags = zip(("groupId", "artifactId", "version", "classifier"), artifact.split(":"), strict=False)
        dependencies += "<dependency>" + "".join(f"<{tag}>{text}</{tag}>" for tag, text in tags) + "</dependency>"
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>ottla</groupId><artifactId>judge</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


@cache
def jars(version: str) -> Path:
    """The folder of Kafka's jars, its test jars, and the libraries of its tests."""

    def complete(folder: Path) -> bool:
        return (folder / f"kafka_2.13-{version}-test.jar").exists() and any(folder.glob("junit-platform-launcher-*.jar"))

    return maven_jars(f"kafka-{version}-tests", _pom(version), complete)


@cache
def _class_path(version: str) -> str:
    found = sorted(jars(version).glob("*.jar"))
    # The KDC's dependencies bring an old copy of one library, and its schema twice.
    found = [jar for jar in found if not jar.name.startswith(("bcprov-jdk15on-", "api-ldap-schema-data-"))]
    # The shim prepares ZooKeeper, whose client Kafka 4 does not have.
    return ":".join(map(str, [*found, *sorted(kafka_jars(KAFKA_3).glob("zookeeper*.jar"))]))


def shim(version: str) -> Path:
    """The folder of the compiled shim."""
    sources = sorted([*(HERE / "shim" / "common").rglob("*.java"), *(HERE / "shim" / version).rglob("*.java")])
    key = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    with fetching(f"kafka-{version}-shim-{key}") as folder:
        if not folder.exists():
            javac = program("javac", "install a Java 17 JDK (Debian: `apt-get install openjdk-17-jdk-headless`)")
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as scratch:
                new = Path(scratch, "classes")
                command = [javac, "-nowarn", "-proc:none", "-d", str(new), "-cp", _class_path(version), *map(str, sources)]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode:
                    raise RuntimeError(f"the shim for Kafka {version} does not compile:\n{done.stderr[-6000:]}")
                shutil.copytree(HERE / "shim" / "common" / "META-INF", new / "META-INF")
                new.rename(folder)
        return folder


@cache
def full_names(version: str) -> dict[str, str]:
    """The full names of the test classes, by simple name."""
    found: dict[str, str] = {}
    # A few names exist twice: the class of the broker's own tests comes first.
    for jar in sorted(jars(version).glob("kafka*-test.jar"), key=lambda path: not path.name.startswith("kafka_")):
        with zipfile.ZipFile(jar) as entries:
            for entry in entries.namelist():
                if entry.endswith("Test.class") and "$" not in entry:
                    name = entry.removesuffix(".class").replace("/", ".")
                    found.setdefault(name.rpartition(".")[2], name)
    return found


def located(name: str) -> tuple[str, str]:
    """Split `4.3.0/ClassTest`. Without a version: the newest Kafka whose jars have the class."""
    version, slash, rest = name.rpartition("/")
    for each in [version] if slash else [KAFKA_4, KAFKA_3]:
        if rest.split("#")[0] in full_names(each):
            return each, rest
    raise SystemExit(f"no test jar has a class {name}")


@dataclass(frozen=True)
class Judge:
    """Runs tests of one version of Kafka in a JVM."""

    version: str
    zookeeper: str
    logs: Path
    """Where the logs of the brokers of failed tests are kept."""
    never: str
    """No tests whose name matches this."""
    timeout_s: int
    lines: int
    """How many lines of a failure are shown."""

    def run(self, classes: list[str], only: str) -> Iterator[tuple[str, str]]:
        """The outcome of each test of these classes whose name matches `only`."""
        names = full_names(self.version)
        words = [names[name.split("#")[0]] + name[len(name.split("#")[0]) :] for name in classes]
        with tempfile.TemporaryDirectory(prefix="ottla-judge-") as scratch:
            report = Path(scratch, "report")
            report.touch()
            properties = {
                "zookeeper": self.zookeeper,
                "dir": str(self.logs),
                "report": str(report),
                "only": only,
                "never": self.never,
                "timeout": str(self.timeout_s),
                "command": f"{sys.executable} -P -m ottla serve",
            }
            command = [
                *("nice", program("java", "install a Java 17 runtime"), "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
                *(f"-Dottla.judge.{name}={value}" for name, value in properties.items()),
                *("-cp", f"{shim(self.version)}:{_class_path(self.version)}", "ottla.judge.Judge", *words),
            ]
            # Brokers start in half the time with bytecode.
            environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
            with (self.logs / f"java-{self.version}.log").open("ab") as output:
                process = popen(command, stdout=output, stderr=output, cwd=scratch, env=environment)
            try:
                yield from self._outcomes(report, process)
            finally:
                process.kill()
                process.wait()

    def _outcomes(self, report: Path, process: subprocess.Popen[bytes]) -> Iterator[tuple[str, str]]:
        running = "the start"
        for line in _lines_of(report, process):
            outcome, took, name, failure = line.split("\t", 3)
            if outcome == "done":
                return
            if outcome == "running":
                running = name
                continue
            name = f"{self.version}/{name}"
            print(f"{outcome:7} {int(took) / 1000:6.1f} s  {name}", flush=True)
            if outcome == "failed":
                for told in _telling(failure.replace("\\n", "\n").splitlines())[: self.lines]:
                    print(f"        {told[:1200]}", flush=True)
            yield name, outcome
        print(f"failed         the JVM ended with {process.returncode}: {self.version}/{running}", flush=True)
        yield f"{self.version}/{running}", "failed"


def _lines_of(report: Path, process: subprocess.Popen[bytes]) -> Iterator[str]:
    """The lines of a file that the process writes, as they come."""
    with report.open() as file:
        text = ""
        while True:
            has_ended = process.poll() is not None
            more = file.readline()
            text += more
            if text.endswith("\n"):
                yield text.rstrip("\n")
                text = ""
            elif not more:
                if has_ended:
                    return
                try:
                    process.wait(0.2)
                except subprocess.TimeoutExpired:
                    continue


def _telling(lines: list[str]) -> list[str]:
    """The exception, its causes, then the lines of the stack that name a test or a class of Kafka."""
    causes = [line for line in lines[1:] if line.lstrip().startswith("Caused by: ")]
    more = [line for line in lines[1:] if not line.lstrip().startswith(("at ", "Caused by: ", "... ", "Suppressed: "))]
    places = [line for line in lines if line.startswith((" at kafka.", " at org.apache.kafka."))]
    return [*lines[:1], *more[:3], *causes, *places]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("classes", nargs="*", metavar="CLASS")
    parser.add_argument("-k", dest="only", default="", help="only tests whose name matches this regular expression")
    parser.add_argument("--suite", action="append", default=[], choices=sorted(SUITES))
    parser.add_argument("--never", default="quorum=zk|Type=ZK", help="no tests whose name matches this")
    parser.add_argument("--timeout", type=int, default=180, help="seconds for each test")
    parser.add_argument("--lines", type=int, default=6, help="lines of a failure that are shown")
    parser.add_argument("--logs", type=Path, default=ROOT / "build" / "kafka_suite", help="logs of brokers whose test failed")
    options = parser.parse_args()
    shutil.rmtree(options.logs, ignore_errors=True)
    options.logs.mkdir(parents=True)
    must = allowed(ALLOW)
    classes = [located(name) for name in [*options.classes, *(name for suite in options.suite for name in SUITES[suite])]]
    if not classes:
        classes = list(dict.fromkeys((name.split("/")[0], name.split("/", 1)[1].split(".")[0]) for name in must))
        must = [name for name in must if re.search(options.only, name)]
        options.only = "^(" + "|".join(re.escape(name.split("/", 1)[1]) for name in must) + ")$"
    elif options.only or any("#" in name for _, name in classes):
        must = []
    else:
        must = [name for name in must if (name.split("/")[0], name.split("/", 1)[1].split(".")[0]) in classes]
    outcomes: dict[str, str] = {}
    zookeeper = ZooKeeper()
    try:
        zookeeper.start()
        for version in dict.fromkeys(version for version, _ in classes):
            judge_of = Judge(version, zookeeper.address, options.logs, options.never, options.timeout, options.lines)
            outcomes.update(judge_of.run([name for each, name in classes if each == version], options.only))
            again = [name for name in must if name.startswith(f"{version}/") and outcomes.get(name) != "passed"]
            if again:
                print(f"\nonce more, alone: {', '.join(again)}", flush=True)
                pattern = "^(" + "|".join(re.escape(name.split("/", 1)[1]) for name in again) + ")$"
                failed = sorted({name.split("/", 1)[1].split(".")[0] for name in again})
                outcomes.update(judge_of.run(failed, pattern))
    finally:
        zookeeper.close()
    with tempfile.NamedTemporaryFile("w", prefix="tests.", suffix=".allow") as part:
        part.write("\n".join(must))
        part.flush()
        return judge(outcomes, Path(part.name))


if __name__ == "__main__":
    sys.exit(main())
