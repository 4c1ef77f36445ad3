"""Values for Java's properties files."""

from __future__ import annotations


def property_value(text: str) -> str:
    """`text` as Java reads it back: from ASCII, where a backslash begins an escape (java.util.Properties.load)."""
    units = text.encode("utf-16-be", errors="surrogatepass")
    each = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
    return "".join("\\\\" if unit == 0x5C else chr(unit) if 0x20 < unit < 0x7F else f"\\u{unit:04x}" for unit in each)
