"""Write docs/reference/transactions/clients_after_a_timeout.md from what the clients do.

    python -m stock_clients                   all clients
    python -m stock_clients kafkajs java      these; the others' rows stay

Without Java and Maven, Go, or Node and npm, the rows that need them are kept from the run before.
"""

from __future__ import annotations

import argparse

from benchmarks.apache_kafka import NoPeer

from stock_clients.page import NOTES, PAGE, TARGETS, Section, Target, on_page, write
from stock_clients.programs import NoToolChain, program, program_version
from stock_clients.python_clients import PYTHON_CLIENTS, quiet, version
from stock_clients.scenario import fencepost, kafka, play


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clients", nargs="*", metavar="client", help=f"of {', '.join(NOTES)}")
    asked = parser.parse_args().clients or list(NOTES)
    quiet()
    sections = on_page()
    for client in asked:
        sections.setdefault(client, Section(client)).kept = ""
    for target in TARGETS:
        try:
            run_on(target, [sections[client] for client in asked])
        except NoPeer as reason:
            for client in asked:
                sections[client].kept = str(reason)
    PAGE.write_text(write([sections.get(client, Section(client)) for client in NOTES]))
    print(f"wrote {PAGE}")


def run_on(target: Target, sections: list[Section]) -> None:
    """All the clients on one broker."""
    broker, level = target
    with (fencepost if broker == "fencepost" else kafka)(level) as peer:
        for section in sections:
            try:
                if section.client in PYTHON_CLIENTS:
                    found = play(PYTHON_CLIENTS[section.client], peer)
                    section.version = version(section.client)
                else:
                    with program(section.client) as client:
                        found = play(client, peer)
                    section.version = program_version(section.client)
            except NoToolChain as reason:
                section.kept = str(reason)
                continue
            section.take(target, found)
            for call, cell in found.items():
                print(f"{TARGETS[target]} | {section.client} | {call} | {cell}", flush=True)


if __name__ == "__main__":
    main()
