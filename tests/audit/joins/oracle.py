"""What is wrong with a story of a join, found one by one: `faults`."""

from __future__ import annotations

from collections import Counter

from services.audit.records.groups import NEVER
from tests.audit.joins.story import LATE_AFTER, MOST, NOTHING, TOPICS, Letter, Made, Place, Raw, Story, is_pair


def faults(story: Story) -> set[tuple[str, str]]:
    """Kind and coordinate of each finding. For stories of one run, of which nothing was deleted."""
    everything = [*story.raw, *story.later]
    by_place = {(each.topic, each.place): each for each in everything}
    aside = {letter: {(each.topic, each.of) for each in getattr(story, letter)} for letter in ("dead", "late")}
    newest = [max([NEVER, *(e.minute for e in everything if e.topic == t and e.is_good)]) for t in (0, 1)]
    at_most = NEVER if NEVER in newest else min(newest) - LATE_AFTER

    def must(raw: Raw) -> bool:
        named = (raw.topic, raw.place)
        return raw.takes_part and raw in story.raw and named not in aside["dead"] and named not in aside["late"]

    found: set[tuple[str, str]] = set()
    found |= _of_letters(story, by_place, aside, at_most)
    held: list[tuple[Made, Raw, Raw | None]] = []
    for made in story.made:
        fault = _fault(made, by_place, aside)
        first, second = by_place.get((0, made.first)), by_place.get((1, made.second or (-1, -1)))
        if fault is not None:
            found.add((fault, str(made)))
            continue
        assert first is not None
        held.append((made, first, second))
        if made.says_first != first.says or made.says_second != (NOTHING if second is None else second.says):
            found.add(("changed", str(made)))
    found |= _of_places(story)
    paired = {first for _, first, second in held if second is not None}
    named = {(first, second) for _, first, second in held}
    partners = {
        raw: [each for each in story.raw if each.topic == 1 and must(each) and is_pair(raw, each)]
        for raw in everything
        if raw.topic == 0 and raw.takes_part
    }
    for made, first, second in held:
        if second is None:
            if story.how == "inner":
                found.add(("phantom", str(made)))
            elif first in paired:
                found.add(("doubled", str(made)))
            if story.how != "inner" and (first not in paired and partners[first] or first.minute + MOST > at_most):
                found.add(("phantom", str(made)))
    for raw in story.raw:
        if raw.topic == 0 and must(raw):
            is_over = story.watermark is not None and raw.minute + MOST < story.watermark
            has_any = any(first == raw for first, _ in named)
            lacks = any((raw, each) not in named for each in partners[raw])
            if lacks or (story.how == "left_outer" and not partners[raw] and is_over and not has_any):
                found.add(("lost", str(raw)))
    return found


def _fault(
    made: Made, by_place: dict[tuple[int, Place], Raw], aside: dict[str, set[tuple[int | None, Place]]]
) -> str | None:
    """The kind of what keeps a record from being of rightful raw records, the worst first."""
    if not made.is_readable:
        return "phantom"
    places = [(0, made.first), *([(1, made.second)] if made.second is not None else [])]
    if any(place not in by_place for place in places):
        return "phantom"
    raws = [by_place[place] for place in places]
    for raw in raws:
        if not raw.is_good:
            return "phantom"
        if (raw.topic, raw.place) in aside["dead"] | aside["late"]:
            return "doubled"
        if raw.is_left_out:
            return "phantom"
    return "phantom" if len(raws) == 2 and not is_pair(*raws) else None


def _of_places(story: Story) -> set[tuple[str, str]]:
    """Keys, and ids that came twice."""
    found = {("changed", str(made)) for made in story.made if made.is_readable and not made.has_own_key}
    homes: dict[str, int] = {}
    named: dict[tuple[Place, Place | None], Made] = {}
    for made in sorted(story.made, key=lambda each: (each.sent_ms, each.partition, each.offset)):
        if homes.setdefault(made.key, made.partition) != made.partition:
            found.add(("out of order", str(made)))
        if made.first[0] >= 0 and (made.second is None or made.second[0] >= 0):
            if (made.first, made.second) in named:
                found.add(("doubled", str(made)))
            named[made.first, made.second] = made
    return found


def _of_letters(
    story: Story,
    by_place: dict[tuple[int, Place], Raw],
    aside: dict[str, set[tuple[int | None, Place]]],
    at_most: int,
) -> set[tuple[str, str]]:
    found = {("phantom", f"made.late/0/{n}") for n in range(sum(each.topic is None for each in story.late))}
    for name in ("dead", "late"):
        letters: tuple[Letter, ...] = getattr(story, name)
        for letter, times in Counter((each.topic, each.of) for each in letters if each.topic is not None).items():
            topic, place = letter
            coordinate = f"{TOPICS[topic or 0]}/{place[0]}/{place[1]}"
            raw = by_place.get((topic or 0, place))
            if raw is None:
                found.add(("phantom", coordinate))
                continue
            if times > 1:
                found.add(("doubled", coordinate))
            if name == "dead" and raw.is_good:
                found.add(("set aside", coordinate))
            if name == "late" and letter in aside["dead"]:
                found.add(("doubled", coordinate))
            elif name == "late" and not raw.takes_part:
                found.add(("phantom", coordinate))
            elif name == "late" and raw in story.raw and raw.minute > at_most:
                # Of a later one the record that made it late may not have been read.
                found.add(("set aside", coordinate))
    for raw in story.raw:
        if not raw.is_good and (raw.topic, raw.place) not in aside["dead"] | aside["late"]:
            found.add(("lost", str(raw)))
    return found
