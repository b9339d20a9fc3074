"""`zoo doctor`."""

from __future__ import annotations

import click

from .output import table, write, write_json
from .parameters import json_option


@click.command("doctor")
@json_option
def doctor(as_json: bool) -> None:
    """Try what this machine does well, and show which fast paths follow.

    Times products of matrices for about a second: full and half precision, on the processor and on every GPU.
    """
    from zoo.comparison.doctor import examine

    findings = examine()
    if as_json:
        write_json([finding.to_dict() for finding in findings])
        return
    write(table(("", "", ""), [(finding.topic, finding.found, finding.advice) for finding in findings]))
