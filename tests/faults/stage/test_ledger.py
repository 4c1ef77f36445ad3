"""The ledger: what stands in it counts, also while it is written."""

from __future__ import annotations

from pathlib import Path

from tests.faults.stage.ledger import Ledger, LedgerWriter


def test_what_was_attempted_and_never_acknowledged_is_in_doubt(tmp_path: Path) -> None:
    writer, ledger = LedgerWriter(tmp_path / "load1.ledger"), Ledger(tmp_path)
    writer.attempted("UA1#load1-0")
    writer.attempted("UA1#load1-1")
    writer.acknowledged("UA1#load1-0", "parcels/0/7")
    ledger.renew()
    assert (ledger.acknowledged, ledger.in_doubt()) == ({"UA1#load1-0": "parcels/0/7"}, 1)
    writer.acknowledged("UA1#load1-1", "parcels/0/8")
    ledger.renew()
    assert ledger.in_doubt() == 0


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    file, ledger = tmp_path / "load1.ledger", Ledger(tmp_path)
    file.write_text("attempted one\nattem")
    ledger.renew()
    assert ledger.attempted == {"one"}
    file.write_text("attempted one\nattempted two\n")
    ledger.renew()
    assert ledger.attempted == {"one", "two"}
