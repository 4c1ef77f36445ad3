"""What the benchmarks draw is a picture with every point on it."""

from __future__ import annotations

from xml.etree import ElementTree

from tests.bench.measuring.plot import delays_svg, growth_svg


def test_a_point_of_growth_is_drawn_higher_the_more_it_is() -> None:
    picture = ElementTree.fromstring(
        growth_svg("events/s against rows", [(16, 80_000.0), (1_000, 70_000.0), (10, 5.0)])
    )
    heights = [float(circle.attrib["cy"]) for circle in picture.iter("{http://www.w3.org/2000/svg}circle")]
    assert len(heights) == 3
    assert heights[0] < heights[1] < heights[2]


def test_seconds_without_a_delay_are_left_out_of_a_line() -> None:
    picture = ElementTree.fromstring(delays_svg("delays", {"one": [3.0, 0.0, 100.0], "two": [1.0]}))
    lines = [line.attrib["points"].split() for line in picture.iter("{http://www.w3.org/2000/svg}polyline")]
    assert [len(line) for line in lines] == [2, 1]
