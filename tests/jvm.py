"""`SHORT_LIVED`: what a JVM of Spark is given that ends with its test."""

from __future__ import annotations

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:SweeperThreshold=100"
"""C1 alone: each test brings new code, which C2 optimises for nothing, a quarter of the processor time. C1 has a small code cache, and whenever
that grew by 15 %, everything was collected: another fifth."""

SHORT_LIVED_ENV = {"JAVA_TOOL_OPTIONS": SHORT_LIVED}
"""The same for whole processes, whose command line says nothing of it."""
