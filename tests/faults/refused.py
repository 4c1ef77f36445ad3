"""Good records that a pipeline here refuses: they fit their schema, and what it computes of them is too long."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from contracts.records.dead_letter_headers import ERRORS
from contracts.records.headers import header_of, headers_of
from contracts.records.limits import COMPUTED_TEXT_BYTES
from contracts.servers.registry import Registry
from tests.faults.stage.cast import COMPUTES
from tests.faults.stage.stage import Stage
from tests.system.verify import coordinate, decoded, records

_DEAD_LETTER = re.compile(r"((\S+)/\d+/\d+) is a dead letter of it, which can be read")


def unexpected(stage: Stage, findings: Iterable[Mapping[str, str]]) -> list[str]:
    """The audit's findings in words, without those of records that `poison_records` has sent, and that are to be refused. The audit names each until the
    function is mended.
    """
    findings = list(findings)
    found = [_DEAD_LETTER.match(each["detail"]) for each in findings if each["kind"] == "set aside"]
    topics = {match[2] for match in found if match is not None}
    refused = {place for topic in topics for place in _refused(stage, topic)}
    return [
        f"audit: {each['kind']}: {each['coordinate']}: {each['detail']}"
        for each in findings
        if each["kind"] != "set aside" or each["detail"].split()[0] not in refused
    ]


def _refused(stage: Stage, dead_letters: str) -> Iterator[str]:
    """The places of dead letters that are right, by the texts in their events."""
    settings = stage.stack.settings()
    with Registry(settings.registry) as registry:
        for letter in records(settings, dead_letters):
            headers = headers_of(letter)
            writer = (header_of(headers, f"{ERRORS}connector.name") or b"").decode(errors="replace")
            if writer not in COMPUTES or header_of(headers, f"{ERRORS}exception.class.name") != b"TooLong":
                continue
            # Above 1 MiB it has no body any more.
            if letter.value() is None:
                continue
            event = decoded(letter, registry, {})
            if COMPUTES[writer](event) > COMPUTED_TEXT_BYTES:
                yield coordinate(letter)
