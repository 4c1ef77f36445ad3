"""The Python that is generated from the contracts: `events/` (one model per schema) and `topics/` (typed handles).

Needs the package datamodel-code-generator; the generated files need only pydantic.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from contracts.checks.schema_rules import type_names
from contracts.definitions.catalog import Catalog
from contracts.definitions.topic import TopicContract
from contracts.documents.generated_files import GeneratedFiles

_HEADER = '"""Generated from the contracts by `headrace contracts generate`; do not edit."""'


def generate(catalog: Catalog) -> GeneratedFiles:
    """Every generated Python file, relative to the contracts' folder."""
    topics = sorted(catalog.topics.values(), key=lambda topic: topic.constant)
    files = {Path("events") / f"{_module(topic)}.py": _event_module(catalog.schema(topic.name)) for topic in topics}
    files[Path("events/__init__.py")] = _events_package(catalog, topics)
    files[Path("topics/__init__.py")] = _topics_package(catalog, topics)
    texts = {path: _formatted(text) for path, text in files.items()}
    return GeneratedFiles(catalog.root, texts, ("events/*.py", "topics/*.py"))


def _formatted(text: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "120", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _module(topic: TopicContract) -> str:
    return topic.constant.lower()


def _event_module(schema: str) -> str:
    # Imported here because only development installs it.
    from datamodel_code_generator import Formatter, GenerateConfig, InputFileType, PythonVersion
    from datamodel_code_generator import generate as generate_models
    from datamodel_code_generator.enums import DataModelType
    from datamodel_code_generator.format import DatetimeClassType

    config = GenerateConfig(
        input_file_type=InputFileType.Avro,
        output_model_type=DataModelType.PydanticV2BaseModel,
        target_python_version=PythonVersion.PY_311,
        output_datetime_class=DatetimeClassType.Awaredatetime,
        enable_faux_immutability=True,
        extra_fields="forbid",
        use_annotated=True,
        use_union_operator=True,
        use_standard_collections=True,
        use_schema_description=True,
        use_field_description=True,
        use_single_line_docstring=True,
        use_double_quotes=True,
        disable_timestamp=True,
        # A field's doc is one line, however long.
        custom_file_header=f"# ruff: noqa\n{_HEADER}",
        formatters=[Formatter.BUILTIN],
    )
    text = generate_models(schema, config=config)
    if not isinstance(text, str):
        raise TypeError(f"the generator made {type(text).__name__}, not one module")
    return text


def _record_name(catalog: Catalog, topic: TopicContract) -> str:
    name: str = catalog.parsed_schema(topic.name)["name"]
    return name


def _events_package(catalog: Catalog, topics: list[TopicContract]) -> str:
    names = {_module(topic): sorted(type_names(catalog.parsed_schema(topic.name))) for topic in topics}
    imports = [f"from contracts.events.{module} import {', '.join(classes)}" for module, classes in names.items()]
    exported = [f'    "{name}",' for name in sorted(name for classes in names.values() for name in classes)]
    return "\n".join([_HEADER, "", *imports, "", "__all__ = [", *exported, "]", ""])


def _topics_package(catalog: Catalog, topics: list[TopicContract]) -> str:
    events = {topic.constant: _record_name(catalog, topic) for topic in topics}
    lines = [_HEADER, "", "from typing import Final", "", "from contracts import events"]
    lines += ["from contracts.handle import Topic", ""]
    for topic in topics:
        event = events[topic.constant]
        lines.append(f'{topic.constant}: Final[Topic[events.{event}]] = Topic("{topic.name}", events.{event})')
        lines.append(_docstring(topic.description))
    return "\n".join([*lines, ""])


def _docstring(text: str) -> str:
    # What JSON escapes, and how, Python reads alike; and no quote is left bare.
    return f'""{json.dumps(text, ensure_ascii=False)}""'
