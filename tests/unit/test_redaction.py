"""What a path hides of a payload, and what it leaves."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, strategies as st

from pgoutbox.database.redaction import REDACTED, redact

ORDER = {
    "id": 7,
    "card": {"number": "4111", "holder": {"name": "Ann"}},
    "items": [{"sku": "a", "secret": 1}, {"sku": "b", "secret": [2]}],
    "password": "x",
}


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        ("password", {"password": REDACTED}),
        ("card", {"card": REDACTED}),
        ("card.number", {"card": {"number": REDACTED, "holder": {"name": "Ann"}}}),
        ("CARD.Number", {"card": {"number": REDACTED, "holder": {"name": "Ann"}}}),
        ("card.*", {"card": {"number": REDACTED, "holder": REDACTED}}),
        ("*.number", {"card": {"number": REDACTED, "holder": {"name": "Ann"}}}),
        ("**.name", {"card": {"number": "4111", "holder": {"name": REDACTED}}}),
        ("**.password", {"password": REDACTED}),
        ("card.**.name", {"card": {"number": "4111", "holder": {"name": REDACTED}}}),
        ("card.**", {"card": {"number": REDACTED, "holder": REDACTED}}),
        *(
            (
                path,
                {"items": [{"sku": "a", "secret": REDACTED}, {"sku": "b", "secret": REDACTED}]},
            )
            for path in ("items.*.secret", "items.secret", "items.0.secret", "**.secret")
        ),
        ("items.*", {"items": [REDACTED, REDACTED]}),
        ("absent", {}),
        ("password.deeper", {}),
        ("number", {}),
        ("", {}),
    ],
)
def test_a_path_hides_what_it_leads_to_and_nothing_else(path: str, hidden: object) -> None:
    assert isinstance(hidden, dict)
    assert redact(ORDER, [path]) == ORDER | hidden


def test_several_paths_hide_all_that_each_of_them_hides() -> None:
    assert redact({"a": {"b": 1, "c": 2}, "d": 3}, ["a.b", "d"]) == {
        "a": {"b": REDACTED, "c": 2},
        "d": REDACTED,
    }


def test_everything_can_be_hidden() -> None:
    assert redact(ORDER, ["*"]) == dict.fromkeys(ORDER, REDACTED)
    assert redact([1, [2]], ["**"]) == [REDACTED, REDACTED]


NAMES = st.sampled_from(["a", "b", "secret"])
VALUES = st.recursive(
    st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner)
)


def secrets(value: object) -> list[object]:
    """What is left below a name that was to be hidden."""
    if isinstance(value, list):
        return [found for item in value for found in secrets(item)]
    if isinstance(value, dict):
        below = [found for name, item in value.items() for found in secrets(item)]
        return [*below, *([value["secret"]] if "secret" in value else [])]
    return []


@given(VALUES)
def test_what_is_hidden_at_any_depth_is_found_nowhere(value: object) -> None:
    before = copy.deepcopy(value)
    assert set(map(str, secrets(redact(value, ["**.secret"])))) <= {REDACTED}
    assert value == before


@given(VALUES)
def test_without_paths_nothing_is_hidden(value: object) -> None:
    assert redact(value, []) == value
