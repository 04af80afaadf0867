"""Write docs/reference/metrics.md from the table of what a node measures.

python scripts/metrics_page.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.page import Cell, Pages, table, write

from fencepost.broker.metric_docs import MEANING
from fencepost.cli.exporter import exported

#: metric -> the label that its values have
LABELS = {
    "kafka.network:type=RequestMetrics,name=RequestsPerSec:Count": "request",
    "fencepost:type=TransactionalIds:Value": "state",
}


def page() -> str:
    rows: list[list[Cell]] = []
    for whole, meaning in MEANING.items():
        label = f"{{{LABELS[whole]}}}" if whole in LABELS else ""
        rows.append([f"`{exported(whole).name}{label}`", meaning, f"`{whole}`"])
    lines = [
        "# Metrics",
        "",
        "What `fencepost serve --metrics HOST:PORT` answers Prometheus at `/metrics`; it needs `fencepost[metrics]`.",
        "Where Apache Kafka has the bean it has its name, and the metric is called as exporters for Apache Kafka do.",
        "What ends in `_count` is counted from the start of the node on, what ends in `_value` is as it is now. A",
        "time is in milliseconds unless the name says otherwise. All are of the type `untyped`.",
        "",
        *table(["metric", "what it is", "bean and attribute"], rows),
        "",
        "Worth an alert: what should be 0 and is not, what should be 1 and is not, little space, and more transactions",
        "that time out than usual.",
    ]
    return "\n".join(lines) + "\n"


PAGES: Pages = {"reference/metrics.md": page}

if __name__ == "__main__":
    write(PAGES)
