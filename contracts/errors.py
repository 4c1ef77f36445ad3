"""Everything that Headrace raises on purpose.

HeadraceError
 ├─ ContractError             a contract file breaks a rule
 ├─ SchemaIncompatible        a schema may not follow the ones before it
 ├─ NotAProducer              a topic's contract does not list this service
 ├─ EncodeError               an event does not fit its schema
 ├─ DecodeError               a record's bytes are not an event; the record is bad, not the program
 │   ├─ Truncated             ends too early
 │   ├─ WrongMagic            does not begin with the byte 0x00
 │   ├─ ForeignBody           another format altogether: text, JSON, an Avro file
 │   ├─ UnknownSchemaId       the registry itself says that the schema id does not exist, or is none of the topic's
 │   ├─ TrailingBytes         goes on after the last field
 │   ├─ TooLong               larger than the limit, or declares more than it could hold
 │   ├─ Malformed             bytes that no value of the schema has: no such enum symbol or branch, not UTF-8
 │   └─ Unresolvable          fits its writer's schema, which the reader's schema does not understand
 ├─ RegistryError
 │   ├─ RegistryUnavailable   no answer, or none that makes sense: says nothing about schemas
 │   ├─ RegistryRefused       the registry understood and said no: credentials, an invalid schema
 │   ├─ RegistryMadeAnew      what the registry says contradicts what it said before
 │   └─ UnknownSubject        the registry itself says that it has no such subject
 ├─ DeliveryError             the broker did not take a record
 ├─ ConsumeError              the broker does not let the subscriber go on
 ├─ TopicUnfit                a topic is not there, or takes less than its contract says
 └─ SettlementError           dead letters can't be redriven or purged now
"""

from __future__ import annotations

__all__ = [
    "ConsumeError",
    "ContractError",
    "DecodeError",
    "DeliveryError",
    "EncodeError",
    "ForeignBody",
    "HeadraceError",
    "Malformed",
    "NotAProducer",
    "RegistryError",
    "RegistryMadeAnew",
    "RegistryRefused",
    "RegistryUnavailable",
    "SchemaIncompatible",
    "SettlementError",
    "TooLong",
    "TopicUnfit",
    "TrailingBytes",
    "Truncated",
    "UnknownSchemaId",
    "UnknownSubject",
    "Unresolvable",
    "WrongMagic",
]


class HeadraceError(Exception):
    """The root: one sentence that says what is wrong and where."""


class ContractError(HeadraceError):
    """A contract file (topic, schema, dimension or example) breaks a rule."""


class SchemaIncompatible(HeadraceError):
    """A schema may not follow the versions before it; the text names field, rule and both versions."""


class NotAProducer(HeadraceError):
    """A service wants to publish to a topic whose contract does not list it as a producer."""


class EncodeError(HeadraceError):
    """An event does not fit its schema: a field is missing, unknown or of another type."""


class DecodeError(HeadraceError):
    """A record's bytes are not an event. The class names the reason; retrying cannot help."""


class Truncated(DecodeError):
    """The bytes end before the last field does."""


class WrongMagic(DecodeError):
    """The first byte is not 0x00, the mark of the Confluent wire format."""


class ForeignBody(DecodeError):
    """Another format: text such as JSON, or an Avro container file."""


class UnknownSchemaId(DecodeError):
    """The registry answered that the schema id does not exist, or is in no version of the topic's subject. Never raised because it did not answer."""


class TrailingBytes(DecodeError):
    """Bytes follow the last field."""


class TooLong(DecodeError):
    """The record is larger than the limit, or declares more elements than its bytes could hold."""


class Malformed(DecodeError):
    """Bytes that no value of the schema has: an enum symbol or union branch out of range, text that is not UTF-8."""


class Unresolvable(DecodeError):
    """The body fits its writer's schema, but the reader's schema cannot take it."""


class RegistryError(HeadraceError):
    """Anything about the schema registry."""


class RegistryUnavailable(RegistryError):
    """The registry did not answer, or not sensibly, after every retry. Says nothing about the schema asked for."""


class RegistryRefused(RegistryError):
    """The registry answered no: wrong credentials, an invalid schema, a forbidden operation."""


class RegistryMadeAnew(RegistryError):
    """The registry gives other ids than before: its data were lost, and the contracts registered again."""


class UnknownSubject(RegistryError):
    """The registry answered that it has no such subject."""


class DeliveryError(HeadraceError):
    """The broker did not take a record, after the client's own retries.

    `topic` and `event_id` say which one; `code` is Kafka's name of the error, such as `MSG_SIZE_TOO_LARGE`.
    """

    def __init__(self, topic: str, event_id: str | None, code: str, message: str) -> None:
        super().__init__(topic, event_id, code, message)
        self.topic = topic
        self.event_id = event_id
        self.code = code
        self.message = message

    def __str__(self) -> str:
        what = "not everything was" if self.event_id is None else f"event {self.event_id} was not"
        return f"{self.topic}: {what} delivered: {self.code}: {self.message}"


class ConsumeError(HeadraceError):
    """The broker does not let the subscriber go on: no such topic, not authorised, a fatal client error."""


class TopicUnfit(HeadraceError):
    """A topic is not there, or takes less than the contracts say."""


class SettlementError(HeadraceError):
    """A redrive or purge of dead letters can't go on; what was settled until then is, and no more."""
