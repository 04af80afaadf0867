"""The outputs of one partition of the input are in the order of its records."""

from __future__ import annotations

from fencepost.simulation.group_notes import Truth


def transformed_out_of_order(truth: Truth, output: str) -> list[str]:
    """Outputs that are not in the order of the records in their partition of the input, in sentences."""
    last: dict[tuple[str, str], int] = {}
    faults = []
    for at in truth.records:
        for record in truth.committed(at) if at.topic == output else ():
            topic, partition, offset, _ = record.value.split("/", 3)
            if int(offset) <= last.get((topic, partition), -1):
                faults.append(f"{record.value} comes after the output of {last[topic, partition]}")
            last[topic, partition] = int(offset)
    return faults
