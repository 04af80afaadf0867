"""TLS and SASL by the options of Spark's own `kafka` format, down to records; and no secret is shown anywhere."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.sasl.servers import PASSWORD as HERS
from tests.client.sasl.servers import USERNAME
from tests.client.secured import CERTIFICATES, Front, listening_in_a_thread, server_tls

from fencepost.broker import Broker, running_broker
from fencepost.client.blocking import Consumer, Producer
from fencepost.spark import Sink, local_session, resume_offsets, write_stream
from fencepost.spark.options import BadOption, parse
from fencepost.spark.security import KNOWN, REFUSED, TokenFunction, check_names, parse_jaas, parse_security
from fencepost.spark.tasks import Task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
SECRET = "t0p-secret"
KEY = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n"
CA, OWN = str(CERTIFICATES / "ca.pem"), str(CERTIFICATES / "client.pem")
MODULES = "org.apache.kafka.common.security"
PLAIN_MODULE, SCRAM_MODULE = f"{MODULES}.plain.PlainLoginModule", f"{MODULES}.scram.ScramLoginModule"
PEM = {name: (CERTIFICATES / f"{name}.pem").read_text() for name in ("ca", "client-key", "client-certificate")}


def jaas(module: str = PLAIN_MODULE, username: str = "alice", password: str = SECRET) -> str:
    return f'{module} required username="{username}" password="{password}";'


SSL = {"kafka.security.protocol": "SSL"}
SASL = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": jaas(),
}
TRUST = {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": CA}


def token() -> str:
    return "alices.token"


TAKEN: dict[str, dict[str, str]] = {
    "nothing": {},
    "PLAIN": SASL,
    "SCRAM": SASL | {"kafka.sasl.mechanism": "SCRAM-SHA-256", "kafka.sasl.jaas.config": jaas(SCRAM_MODULE)},
    "a vendor's package": SASL | {"kafka.sasl.jaas.config": jaas(f"kafkashaded.{PLAIN_MODULE}")},
    "upper case": {name.upper(): value for name, value in SASL.items()},
    "a token": {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "tokenProvider": "tests.spark.test_security:token",
    },
    "TLS": SSL,
    "TLS, trusting a file": SSL | TRUST,
    "TLS, trusting text": SSL | {"kafka.ssl.truststore.type": "pem", "kafka.ssl.truststore.certificates": PEM["ca"]},
    "TLS, any name": SSL | {"kafka.ssl.endpoint.identification.algorithm": ""},
    "TLS, its own file": SSL | {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.location": OWN},
    "TLS, its own text": SSL
    | {
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.key": PEM["client-key"],
        "kafka.ssl.keystore.certificate.chain": PEM["client-certificate"],
        "kafka.ssl.key.password": "opens-it",
    },
}


@pytest.mark.parametrize("what", TAKEN)
def test_what_the_client_has_is_taken_and_goes_to_executors(what: str) -> None:
    security = pickle.loads(pickle.dumps(parse_security(TAKEN[what])))
    assert security.protocol == TAKEN[what].get("kafka.security.protocol", security.protocol)
    context = security.tls()
    assert (context is not None) == security.uses_tls
    if context is not None:
        assert context.check_hostname == (what != "TLS, any name")
    if security.mechanism == "OAUTHBEARER":
        assert security.token_provider() == "alices.token"
    elif security.uses_sasl:
        assert (security.username, security.password) == ("alice", SECRET)
    least = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    assert repr(parse(least | TAKEN[what], streaming=True).security) == repr(security)


#: What could be a token that was taken for its function is not repeated.
NO_FUNCTION = "tokenProvider must be package.module:function, the name of a function that returns a token"

WRONG: list[tuple[dict[str, str], str]] = [
    ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol='TLS': it must be one of"),
    ({"kafka.sasl.jaas.config": jaas()}, "kafka.sasl.jaas.config is given, but kafka.security.protocol is PLAINTEXT"),
    (TRUST, "kafka.ssl.truststore.location is given, but kafka.security.protocol is PLAINTEXT"),
    (
        {"kafka.ssl.endpoint.identification.algorithm": ""},
        "kafka.ssl.endpoint.identification.algorithm is given, but kafka.security.protocol is PLAINTEXT",
    ),
    ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism=None: it must be one of PLAIN"),
    (
        SASL | {"kafka.sasl.mechanism": "GSSAPI", "kafka.sasl.jaas.config": "x y;"},
        "kafka.sasl.jaas.config names a login",
    ),
    (
        {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"},
        "kafka.sasl.jaas.config is missing: kafka.sasl.mechanism PLAIN needs it",
    ),
    (SASL | {"kafka.sasl.mechanism": "SCRAM-SHA-256"}, "PlainLoginModule, which is not for kafka.sasl.mechanism SCRAM"),
    (SASL | {"kafka.sasl.jaas.config": jaas("com.sun.Krb5LoginModule")}, "a login module that is not there"),
    (SASL | {"kafka.sasl.jaas.config": f"{PLAIN_MODULE} required;"}, "must give username and password"),
    (SASL | {"kafka.sasl.jaas.config": jaas().replace(";", f' token="{SECRET}";')}, "and nothing else"),
    (SASL | {"kafka.sasl.jaas.config": jaas()[:-1]}, "kafka.sasl.jaas.config cannot be read"),
    (SASL | {"kafka.sasl.jaas.config": jaas().replace(";", "=")}, "kafka.sasl.jaas.config cannot be read"),
    (SASL | {"kafka.sasl.jaas.config": ""}, "kafka.sasl.jaas.config cannot be read"),
    (SASL | {"kafka.sasl.jaas.config": SECRET}, "kafka.sasl.jaas.config cannot be read"),
    (
        SASL | {"tokenProvider": "json:loads"},
        "tokenProvider is given, but kafka.sasl.mechanism PLAIN has no use for it",
    ),
    (SASL | {"tokenProvider": "not.there:f"}, "tokenProvider=not.there:f: it must be package.module:function"),
    (SASL | {"tokenProvider": "json:nothing"}, "tokenProvider=json:nothing"),
    *((SASL | {"tokenProvider": text}, NO_FUNCTION) for text in ("json", ":loads", "", "json:", "a b:c", SECRET)),
    *((SASL | {"tokenProvider": f"{text}:{SECRET}"}, NO_FUNCTION) for text in ("a", "a.b", "a:b")),
    (
        SSL | {"kafka.ssl.truststore.location": CA},
        "kafka.ssl.truststore.type is JKS, which is the default: only PEM can be read",
    ),
    (
        SSL | TRUST | {"kafka.ssl.truststore.type": "PKCS12"},
        "kafka.ssl.truststore.type is PKCS12: only PEM can be read",
    ),
    (SSL | {"kafka.ssl.keystore.location": OWN}, "kafka.ssl.keystore.type is JKS, which is the default"),
    (SSL | TRUST | {"kafka.ssl.truststore.location": "not/there"}, "kafka.ssl.truststore.location='not/there'"),
    (
        SSL | {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.key": SECRET},
        "keystore.key and kafka.ssl.keystore.certificate.chain must be given together",
    ),
    (
        SSL
        | {
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.key": PEM["client-key"],
            "kafka.ssl.keystore.certificate.chain": PEM["client-certificate"],
        },
        "is encrypted: set kafka.ssl.key.password",
    ),
    *(
        (
            SSL | {f"kafka.ssl.{store}.type": "PEM", f"kafka.ssl.{store}.location": KEY},
            f"kafka.ssl.{store}.location must",
        )
        for store in ("truststore", "keystore")
    ),
    (SSL | {"kafka.ssl.endpoint.identification.algorithm": "LDAPS"}, "algorithm='LDAPS': it must be https, or empty"),
    # A password that stands where another option's value should be.
    *(
        (SASL | more | {name: SECRET}, f"{name} {sentence}")
        for name, more, sentence in (
            ("kafka.security.protocol", {}, "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL; what was"),
            ("kafka.sasl.mechanism", {}, "must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER; what"),
            ("kafka.ssl.endpoint.identification.algorithm", SSL, "must be https, or empty; what was given is not"),
            ("kafka.ssl.truststore.type", SSL, "is another type, not repeated as it may be a secret: only PEM"),
            ("kafka.ssl.keystore.type", SSL, "is another type, not repeated as it may be a secret: only PEM"),
        )
    ),
    *(({name: SECRET}, f"option {name} cannot be used") for name in REFUSED),
    ({"kafka.SASL.Login.Class": SECRET}, "option kafka.sasl.login.class cannot be used: classes of Java"),
]


@pytest.mark.parametrize(("options", "sentence"), WRONG, ids=[sentence[:50] for _, sentence in WRONG])
def test_what_cannot_be_used_is_named_as_it_was_given(options: dict[str, str], sentence: str) -> None:
    told = []
    for use in (
        parse_security,
        lambda given: Sink("a", "h:1", ["t"], kafka_options=given),
        lambda given: parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t"} | given, streaming=False),
        lambda given: resume_offsets("a", "h:1", kafka_options=given),
    ):
        with pytest.raises(BadOption) as refused:
            use(options)
        told.append(str(refused.value))
    assert len(set(told)) == 1 and sentence in told[0]
    assert SECRET not in told[0] and "\n" not in told[0]
    assert "sasl_" not in told[0] and "ssl_" not in told[0], "these are the client's names"


def test_the_sink_takes_options_of_security_and_no_others() -> None:
    with pytest.raises(BadOption, match=r"option kafka\.linger\.ms of Spark's own sink cannot be used here"):
        Sink("a", "h:1", ["t"], kafka_options={"kafka.linger.ms": "5"})


QUOTED = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(st.from_regex(r"[A-Za-z_.]+", fullmatch=True), QUOTED, max_size=4))
def test_what_is_quoted_in_a_login_module_is_taken_as_it_is(options: dict[str, str]) -> None:
    def quote(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    text = f"a.B required {' '.join(f'{name} = {quote(value)}' for name, value in options.items())} ;"
    assert parse_jaas(text) == ("a.B", options)


@given(st.text(alphabet="ab \"'\\=;\n", max_size=25))
def test_any_other_text_is_read_or_refused(text: str) -> None:
    try:
        module, options = parse_jaas(text)
    except ValueError:
        return
    assert module or options is not None


def test_nothing_shows_a_secret() -> None:
    sink = Sink("a", "h:1", ["t"], kafka_options=SASL)
    options = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t"} | SASL, streaming=True)
    plan: Any = None
    shown = [repr(sink), repr(options), repr(Task("h:1", parse_security(SASL), plan))]
    assert not any(SECRET in text for text in shown)


def test_every_option_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "spark_options.md").read_text()
    assert [name for name in (*KNOWN, *REFUSED) if f"`{name}`" not in page] == []
    assert TokenFunction("tests.spark.test_security:token")() == token()


# Through Spark

LOG4J = """
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c: %m%n%ex
"""


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark keeps its log, of level INFO, and the log of its events."""
    return tmp_path_factory.mktemp("logged")


@pytest.fixture(scope="module")
def spark(logged: Path) -> Iterator[SparkSession]:
    (logged / "log4j2.properties").write_text(LOG4J.format(log=logged / "driver.log"))
    config = {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": str(logged),
    }
    session = local_session("secrets", 2, config)
    jvm: Any = session.sparkContext._jvm  # it may be there since other tests, and go on after these
    context = jvm.org.apache.logging.log4j.LogManager.getContext(False)
    before = context.getConfigLocation()
    context.setConfigLocation(jvm.java.net.URI(f"file:{logged}/log4j2.properties"))
    session.sparkContext.setLogLevel("INFO")
    yield session
    context.setConfigLocation(before)
    session.stop()


def written_down(logged: Path) -> str:
    return "".join(file.read_text("latin-1") for file in logged.rglob("*") if file.is_file())


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with running_broker(settings={"transaction.state.log.num.partitions": 1}) as broker:
        yield broker


@pytest.fixture
def front(broker: Broker) -> Iterator[Front]:
    """TLS with client certificates, and SASL, at once."""
    with listening_in_a_thread(broker, server_tls(wants="ca"), with_sasl=True) as found:
        yield found


def secured(password: str = HERS) -> dict[str, str]:
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": jaas(SCRAM_MODULE, USERNAME, password),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": CA,
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.location": OWN,
    }


def test_a_stream_reads_and_writes_through_tls_and_sasl_and_shows_no_secret(
    spark: SparkSession,
    front: Front,
    broker: Broker,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    logged: Path,
) -> None:
    servers = f"127.0.0.1:{front.port}"
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(30):
            producer.send("plain-in", b"%d" % number).result()
        producer.send("plain-out", b"-1").result()
    rows = (
        spark.readStream.format("fencepost")
        .options(**secured())
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.group.id", "lag")
        .option("subscribe", "plain-in")
        .option("startingOffsets", "earliest")
        .load()
    )
    query = write_stream(
        rows.select("key", "value"),
        topic="plain-out",
        application_id="secured",
        bootstrap_servers=servers,
        checkpoint_location=str(tmp_path / "checkpoint"),
        kafka_options=secured(),
        attempts=1,
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    query.explain(extended=True)
    with Consumer("plain-out", bootstrap_servers=broker.bootstrap_servers) as consumer:
        found = [int(next(consumer).value or b"") for _ in range(31)]
    assert found[0] == -1 and sorted(found[1:]) == list(range(30))
    assert front.logins >= 4 and front.refusals == []
    told = resume_offsets("secured", servers, kafka_options=secured())
    batch = spark.read.format("fencepost").options(**secured()).option("kafka.bootstrap.servers", servers)
    counted = batch.option("subscribe", "plain-out").load()
    assert counted.count() == 31
    counted.explain(extended=True)
    checkpoint = "".join(file.read_text("latin-1") for file in (tmp_path / "checkpoint").rglob("*") if file.is_file())
    output = "".join(capfd.readouterr())
    assert "Physical Plan" in output
    logs = written_down(logged)
    assert "SparkListenerSQLExecutionStart" in logs and "INFO org.apache.spark" in logs
    for text in (output, repr(query.lastProgress), repr(query.recentProgress), checkpoint, told, logs):
        assert HERS not in text


@pytest.mark.parametrize("what", ["PLAIN", "TLS, its own text"])
def test_a_view_shows_no_secret_in_the_log_of_events(spark: SparkSession, logged: Path, what: str) -> None:
    """Spark shows the options in its plan, but for what `spark.redaction.regex` matches."""
    least = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"} | TAKEN[what]
    name = "view_" + "".join(filter(str.isalpha, what))
    for made in (spark.read, spark.readStream):
        made.format("fencepost").options(**least).load().createOrReplaceTempView(name)
    scala: Any = spark.sparkContext._jsc.sc()
    scala.listenerBus().waitUntilEmpty()
    logs = written_down(logged)
    assert name in logs and "kafka.security.protocol=" in logs
    for secret in (SECRET, "opens-it", *PEM["client-key"].splitlines()[1:-1]):
        assert secret not in logs


def test_the_pipeline_of_the_page_copies_the_rows(
    spark: SparkSession, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", HERS)
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("debits", b"-10").result()
        producer.send("copied", b"first").result()
    with listening_in_a_thread(broker, server_tls(), with_sasl=True) as front:
        example = next(
            each for each in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "spark" in each
        )
        for name, place in {"broker:9093": f"127.0.0.1:{front.port}", "/etc/kafka": str(CERTIFICATES)}.items():
            example = example.replace(name, place)
        exec(example, {})
        assert front.logins > 0 and front.refusals == []
    assert spark.sparkContext is not None, "the example took the session that was there"
    with Consumer("copied", bootstrap_servers=broker.bootstrap_servers) as consumer:
        assert {next(consumer).value for _ in range(2)} == {b"first", b"-10"}


def test_a_query_that_is_not_let_in_says_so_with_the_options_name(
    spark: SparkSession, front: Front, logged: Path
) -> None:
    wrong = secured("no secret of hers")
    reader = (
        spark.read.format("fencepost").options(**wrong).option("kafka.bootstrap.servers", f"127.0.0.1:{front.port}")
    )
    with pytest.raises(Exception, match=r"check kafka\.sasl\.jaas\.config") as refused:
        reader.option("subscribe", "plain-in").load().collect()
    assert "AuthenticationError" in str(refused.value) and "no secret of hers" not in str(refused.value)
    logs = written_down(logged)
    assert "AuthenticationError" in logs and "no secret of hers" not in logs
    assert len(front.refusals) <= 2


def test_a_write_that_is_not_let_in_fails_at_once(spark: SparkSession, front: Front) -> None:
    sink = Sink("refused", f"127.0.0.1:{front.port}", ["plain-out"], kafka_options=secured("no secret of hers"))
    with pytest.raises(Exception, match=r"check kafka\.sasl\.jaas\.config") as refused:
        sink.write(spark.sql("select 'x' as value"), 0, "q", topic="plain-out")
    sink.close()
    assert "no secret of hers" not in str(refused.value)
    assert len(front.refusals) <= 3


@pytest.mark.parametrize("options", ["kafka.security.protocol=SSL", ["kafka.security.protocol"], {"a": 1}, {1: "a"}])
def test_options_that_are_no_texts_by_name_are_refused(options: Any) -> None:
    with pytest.raises(BadOption, match="kafka_options"):
        check_names(options)
