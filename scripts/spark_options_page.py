"""Write docs/reference/spark_options.md from the options of the source and the fields of the sink.

python scripts/spark_options_page.py
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import MISSING, fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.page import Cell, Pages, table, write

from fencepost.spark.option_table import REFUSED, SINK, SOURCE
from fencepost.spark.security import KNOWN as SECURITY
from fencepost.spark.security import REFUSED as SECURITY_REFUSED
from fencepost.spark.sink import Sink


def sink_default(default: object) -> str:
    return "must be given" if default is MISSING else f"`{default}`"


def page() -> str:
    options: list[list[Cell]] = [
        [f"`{name}`", where, values, meaning, in_spark] for name, where, values, meaning, in_spark in SOURCE
    ]
    not_here: list[list[Cell]] = [[f"`{name}`", why] for name, why in REFUSED.items()]
    not_there: list[list[Cell]] = [[f"`{name}`", why] for name, why in SINK.items()]
    of_security: list[list[Cell]] = [[f"`{name}`", meaning] for name, meaning in SECURITY.items()]
    refused: list[list[Cell]] = [[f"`{name}`", why] for name, why in SECURITY_REFUSED.items()]
    of_sink: list[list[Cell]] = [
        [f"`{field.name}`", f"`{field.type}`", sink_default(field.default)] for field in fields(Sink) if field.init
    ]
    lines = [
        "# Options of the Spark source and sink",
        "",
        '## Of the source, `format("fencepost")`',
        "",
        "Names are those of Spark's own Kafka source where it has the option, in upper or lower case. The last column "
        "says how that has it, where it differs. An option that is not here is refused, and the nearest one named; "
        "so is one of a batch in a stream, and the reverse.",
        "",
        *table(["option", "for", "values", "what it does", "in Spark's own source"], options),
        "",
        "Options of Spark's own source that are refused:",
        "",
        *table(["option", "why"], not_here),
        "",
        "## Of TLS and SASL",
        "",
        "For the source as options, for the sink and `resume_offsets` as a mapping, `kafka_options`. "
        "[Security](../security.md) has examples.",
        "",
        *table(["option", "what it does"], of_security),
        "",
        "Refused by name:",
        "",
        *table(["option", "why"], refused),
        "",
        "## Of the sink, `write_stream`, `write` and `Sink`",
        "",
        *table(["option", "type", "default"], of_sink),
        "",
        inspect.cleandoc(Sink.__doc__ or ""),
        "",
        "Options of Spark's own sink are none of this one's; in `kafka_options` each is refused with what there is "
        "instead:",
        "",
        *table(["option", "instead"], not_there),
    ]
    return "\n".join(lines) + "\n"


PAGES: Pages = {"reference/spark_options.md": page}

if __name__ == "__main__":
    write(PAGES)
