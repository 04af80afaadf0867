"""Properties files as Java reads them, and the settings in them that are about connections."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.cli.properties import NotUsable, options_of, properties_of

PLAIN = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zs", "Zl", "Zp")), min_size=1, max_size=20)


def written(text: str) -> str:
    """As Java's Properties.store does it."""
    return "".join("\\" + each if each in "\\=:#! " else each for each in text)


@given(st.dictionaries(PLAIN, PLAIN), st.sampled_from(["=", ":", " = ", " : "]), st.integers(0, 3))
def test_what_java_writes_is_read_again(settings: dict[str, str], between: str, indent: int) -> None:
    lines = ["# a comment", "! another", "", "   "]
    for name, value in settings.items():
        folded = written(value)
        lines += [" " * indent + written(name) + between + "\\", "   " + folded + "\n"]
    assert properties_of(lines) == settings


@pytest.mark.parametrize(
    ("lines", "settings"),
    [
        (["a=1", "b=2", "a=3"], {"a": "3", "b": "2"}),
        (["# one that goes on \\", "a=1", "! so does this one \\", "b=2"], {"a": "1", "b": "2"}),
        (["a=1\\\\", "b=2"], {"a": "1\\", "b": "2"}),
        (["a=1\\", "  # of it", "b=2\\"], {"a": "1# of it", "b": "2"}),
    ],
    ids=["the last value counts", "no comment goes on", "a backslash of its own", "no comment in a line that goes on"],
)
def test_lines_are_read_as_java_reads_them(lines: list[str], settings: dict[str, str]) -> None:
    assert properties_of(lines) == settings


@given(st.lists(st.text(max_size=30), max_size=5))
def test_any_text_is_read(lines: list[str]) -> None:
    assert all(isinstance(value, str) for value in properties_of(lines).values())


def test_each_setting_of_a_connection_becomes_that_of_a_client() -> None:
    said = """
        security.protocol=SASL_SSL
        sasl.mechanism=SCRAM-SHA-512
        sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
            username="ali\\\\"ce" password="se=cr;et";
        ssl.truststore.type=pem
        ssl.truststore.location=/ca.pem
        ssl.endpoint.identification.algorithm=
        request.timeout.ms=1000
        acks=all
    """
    assert options_of(properties_of(said.splitlines())) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": 'ali"ce',
        "sasl_plain_password": "se=cr;et",
        "ssl_cafile": "/ca.pem",
        "ssl_check_hostname": False,
        "request_timeout_ms": 1000,
    }


def test_certificates_and_keys_may_stand_in_the_file_itself() -> None:
    said = """
        client.id=me
        default.api.timeout.ms=5000
        security.protocol=SSL
        ssl.truststore.certificates=CA
        ssl.keystore.certificate.chain=CHAIN
        ssl.keystore.key=KEY
        ssl.key.password=secret
    """
    assert options_of(properties_of(said.splitlines())) == {
        "client_id": "me",
        "max_block_ms": 5000,
        "security_protocol": "SSL",
        "ssl_cadata": "CA",
        "ssl_certdata": "CHAIN\nKEY",
        "ssl_password": "secret",
    }


@pytest.mark.parametrize(
    ("written", "password"),
    [
        ("'se cret'", "se cret"),
        ("'it\\\\'s \"it\"'", 'it\'s "it"'),
        ('"it\'s"', "it's"),
        ("plain", "plain"),
        ("''", ""),
        ('""', ""),
    ],
)
def test_a_password_may_be_quoted_as_java_takes_it(written: str, password: str) -> None:
    """Its StreamTokenizer knows both quotes; many examples for Spark have single ones."""
    config = f"sasl.jaas.config=a.PlainLoginModule required username='alice' password={written};"
    assert options_of(properties_of([config])) == {"sasl_plain_username": "alice", "sasl_plain_password": password}


def test_an_escaped_blank_at_the_end_of_a_line_does_not_join_the_next_one_to_it() -> None:
    assert properties_of(["a=1\\ ", "b=2 \t", "c=3\\", "  4 \\", "5"]) == {"a": "1", "b": "2", "c": "34 5"}


def test_a_last_line_that_would_go_on_is_a_setting_all_the_same() -> None:
    assert properties_of(["a=1", "b=2\\"]) == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("ssl.truststore.location=/store.jks", "ssl.truststore.location is of type JKS: give a PEM file"),
        ("ssl.keystore.key=secret", "ssl.keystore.key is given alone"),
        ("sasl.jaas.config=OAuthBearerLoginModule required;", "sasl.jaas.config has no username"),
        ("sasl.login.class=X", "sasl.login.class is not known here"),
        ("request.timeout.ms=soon", "it must be a number of milliseconds"),
    ],
)
def test_what_cannot_be_used_is_named_without_its_secret(line: str, why: str) -> None:
    with pytest.raises(NotUsable, match=why) as refused:
        options_of(properties_of([line]))
    assert "secret" not in str(refused.value)
