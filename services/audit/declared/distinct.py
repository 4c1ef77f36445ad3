"""`Distinct`: what tells the events of a topic apart, and what they carry, by the contracts."""

from __future__ import annotations

from dataclasses import dataclass

from services.audit.declared.brings import Brings


@dataclass(frozen=True, slots=True)
class Distinct:
    """Records of one raw topic are of one event if the fields `named_by` are equal. `fields` are those that both topics have, and `where`, in CEL,
    says which raw records are let through, if not all are. Of a sequence no fields are named: each record is an event of its own.
    """

    named_by: tuple[str, ...]
    fields: tuple[str, ...]
    where: str | None = None

    @property
    def brings(self) -> Brings:
        """Of a raw record."""
        return Brings({name: name for name in self.named_by}, {name: name for name in self.fields}, self.where)

    @property
    def says(self) -> Brings:
        """Of a record that was let through: the same, for it has the fields."""
        return Brings({name: name for name in self.named_by}, {name: name for name in self.fields})
