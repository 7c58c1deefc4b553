"""Writes what is generated of the chart: ``python -m charts.render --write``.

Run it in the project's folder; ``--check`` writes nothing and fails when a file is out of date. The
schema and the README come from ``values.yaml``, where a comment ``# -- ...`` stands before each
value; rules and dashboard are copies, since a chart cannot reach beyond its folder.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CHART = Path("charts/pgoutbox")
COPIES = {
    CHART / "files/pgoutbox.rules.yml": Path("monitoring/pgoutbox.rules.yml"),
    CHART / "files/pgoutbox.dashboard.json": Path("monitoring/pgoutbox.dashboard.json"),
}
LINE = re.compile(r"^( *)([A-Za-z]\w*):(.*)$")
COMMENT = re.compile(r"^ *# -- (.*)$")
CHOICES = {
    "autoscaling.type": ["operator", "keda", "none"],
    "image.pullPolicy": ["IfNotPresent", "Always", "Never"],
}
# What is empty by default says nothing about what it may hold.
ITEMS = {
    "imagePullSecrets": {"type": "string"},
    "workers.extraEnv": {"type": "object", "required": ["name"]},
}
VALUES = {
    "workers.settings": {"type": ["string", "number", "boolean"]},
    "workers.secrets": {"type": "string"},
}
SETTING = "^[A-Z][A-Z0-9_]*$"
HEADER = """\
# pgoutbox

A transactional outbox for PostgreSQL on Kubernetes: workers, the migrations before them, the
operator that scales them, alerts and a dashboard. [docs/kubernetes.md](../../docs/kubernetes.md)
tells how to use it.

```sh
kubectl create secret generic outbox-dsn --from-literal=dsn='postgresql://...'
helm install outbox charts/pgoutbox \\
  --set database.existingSecret=outbox-dsn \\
  --set workers.settings.DESTINATIONS__DEFAULT__URL=https://consumer.example/events
```

## Values

| Value | Default | Meaning |
|---|---|---|
"""


class Value(NamedTuple):
    """One that can be set."""

    path: str
    default: Any
    meaning: str


def values() -> list[Value]:
    """All of them, in the order of the file. Raises ValueError where nothing is said about one."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    tree = yaml.safe_load(text)
    meanings = dict(_meanings(text))
    found = list(_leaves(tree, meanings))
    if silent := [value.path for value in found if not value.meaning]:
        raise ValueError(f"values.yaml says nothing about {', '.join(silent)}")
    return found


def schema() -> Mapping[str, Any]:
    """What Helm holds the values against. Closed, so that a misspelt name is an error."""
    root: dict[str, Any] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart pgoutbox",
        **_closed(),
    }
    # Whatever chart this one is a part of hands its own down.
    root["properties"]["global"] = {"type": "object"}
    for value in values():
        *above, name = value.path.split(".")
        place = root
        for part in above:
            place = place["properties"].setdefault(part, _closed())
        place["properties"][name] = {"description": value.meaning, **_kind(value)}
    return root


def readme() -> str:
    """The chart's README."""
    rows = [
        f"| `{each.path}` | {_shown(each.default)} | {each.meaning.replace('|', chr(92) + '|')} |"
        for each in values()
    ]
    return HEADER + "\n".join(rows) + "\n"


def rendered() -> dict[Path, str]:
    """Each generated file with its text."""
    copies = {to: source.read_text(encoding="utf-8") for to, source in COPIES.items()}
    return copies | {
        CHART / "values.schema.json": json.dumps(schema(), indent=2) + "\n",
        CHART / "README.md": readme(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check; 1 when a file is out of date."""
    parser = argparse.ArgumentParser(prog="python -m charts.render")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="bring the files up to date")
    action.add_argument("--check", action="store_true", help="fail when one is out of date")
    options = parser.parse_args(arguments)
    stale = {
        path: text
        for path, text in rendered().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }
    for path, text in stale.items():
        if options.write:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        else:
            sys.stderr.write(f"{path} is out of date; run this with --write\n")
    return 1 if stale and options.check else 0


def _meanings(text: str) -> Iterator[tuple[str, str]]:
    """The comment before each value that has one, by the value's path."""
    above: list[tuple[int, str]] = []
    said: list[str] = []
    for line in text.splitlines():
        if comment := COMMENT.match(line):
            said.append(comment[1])
        elif key := LINE.match(line):
            depth = len(key[1])
            above = [(each, name) for each, name in above if each < depth]
            above.append((depth, key[2]))
            if said:
                yield ".".join(name for _, name in above), " ".join(said)
            said = []


def _leaves(
    tree: Mapping[str, Any], meanings: Mapping[str, str], above: str = ""
) -> Iterator[Value]:
    for name, value in tree.items():
        path = f"{above}{name}"
        inside = [each for each in meanings if each.startswith(f"{path}.")]
        if isinstance(value, dict) and inside:
            yield from _leaves(value, meanings, f"{path}.")
        else:
            yield Value(path, value, meanings.get(path, "") or _customary(path))


def _customary(path: str) -> str:
    return "Requests and limits of the container." if path.endswith(".resources") else ""


def _closed() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _kind(value: Value) -> Mapping[str, Any]:
    """What may stand in its place."""
    if value.path in CHOICES:
        return {"type": "string", "enum": CHOICES[value.path]}
    if value.path in VALUES:
        kind: dict[str, Any] = {"type": "object", "additionalProperties": VALUES[value.path]}
        names = {"propertyNames": {"pattern": SETTING}}
        return kind | (names if value.path == "workers.settings" else {})
    if isinstance(value.default, list):
        return {"type": "array", "items": ITEMS.get(value.path, {})}
    kinds = {bool: "boolean", int: "integer", dict: "object", str: "string"}
    least = {"minimum": 0} if type(value.default) is int else {}
    return {"type": kinds[type(value.default)], **least}


def _shown(default: object) -> str:
    return f"`{json.dumps(default)}`" if default not in ("", None) else ""


if __name__ == "__main__":
    sys.exit(main())
