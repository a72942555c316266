"""Scalars are those of YAML 1.2's core schema, in files, on the command line and in --over, and none is taken that
YAML 1.1 reads as another number."""

import dataclasses
import math
import operator
import re

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from jdfl.cli import parse
from jdfl.config import RunConfig, from_yaml, yaml_text
from jdfl.lab.points import field_of
from tests.refused import refused

WRITTEN = [
    *("0100", "-0100", "+010", "007", "0o17", "0x1F", "+0x1F", "0b11", "08", "1:30", "190:20:30", "1_000", "1__0"),
    *("yes", "no", "on", "off", "y", "N", "Yes", "OFF", "true", "True", "TRUE", "false", "~", "null", "None", "none"),
    *("1e3", "1E3", "-2E+05", "12e03", ".5", "5.", "+1", "-0", "+.5e1", ".inf", "-.INF", ".nan", "inf", "nan", "1."),
    *("Infinity", "2024-01-01", "2001-12-14t21:59:43.1-05:00", "=", "<<", "1,000", "0x1_F", "0o8", "0O17", "0X1F"),
    *("1.5_0", "0100.", "0100e0", "00", "-00", "1e400", "9" * 400, "'7'", "!!int 7", "!!int 0100", "!!float 0100"),
]
CHARACTERS = st.sampled_from("0123456789+-._eExXoObB:~truefalsnyYNO")
TEXTS = st.text(CHARACTERS, min_size=1, max_size=6) | st.sampled_from(WRITTEN)
NAN = "nan"


def outcome(read):
    """What is read, a NaN as one value; `ValueError` where it is refused."""
    try:
        found = read()
    except ValueError:
        return ValueError
    return NAN if isinstance(found, float) and math.isnan(found) else found


def same(one, other) -> bool:
    """Whether two outcomes are equal and of one type."""
    return one == other and type(one) is type(other)


def flag_of(text: str, field: str):
    """What the command line makes of a value of `steps` or of `privacy.epsilon`."""
    return outcome(lambda: operator.attrgetter(field)(parse("run", [f"--{field}={text}"])[1]["config"]))


CORE = {  # YAML 1.2.2, section 10.3.2, in its order
    "null": "null|Null|NULL|~|",
    "bool": "true|True|TRUE|false|False|FALSE",
    "int": "[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN",
    "str": ".*",
}


@given(TEXTS | st.just(""))
def test_the_types_are_those_of_the_core_schema(text):
    kind = next(kind for kind, pattern in CORE.items() if re.fullmatch(pattern, text))
    assert yaml_text._Loader("").resolve(yaml.ScalarNode, text, (True, False)) == f"tag:yaml.org,2002:{kind}"


def test_a_number_that_versions_of_yaml_read_differently_is_refused_with_both():
    for text in ("-0100", "!!int 0100"):
        number = text.split()[-1]
        for read, written in (
            (from_yaml, f"steps: {text}"),
            (yaml_text.scalar, text),
            (field_of, f"steps={text},7"),
            (from_yaml, f"problem: {{noise: {text}}}"),
        ):
            with refused(str(int(number)), str(int(number, 8))):
                read(written)
        assert flag_of(text, "steps") is flag_of(text, "privacy.epsilon") is ValueError


FREE = {"None", "none"}  # words for nothing on the command line, which a file writes as null or ~
NULLS = {"~", "null"}  # which the command line takes as texts


@given(st.sampled_from(["steps", "privacy.epsilon"]), TEXTS)
@example("steps", "1_000")
@example("privacy.epsilon", "inf")
@example("privacy.epsilon", "0x1F")
def test_flags_and_over_read_numbers_as_files_do(field, text):
    written = f"steps: {text}" if field == "steps" else f"privacy:\n  epsilon: {text}"
    in_file = outcome(lambda: operator.attrgetter(field)(from_yaml(written)))
    if text in FREE | NULLS or " #" in text:
        return
    assert same(flag_of(text, field), in_file)
    values = outcome(lambda: field_of(f"{field}={text}")[1])
    if in_file is not ValueError and isinstance(values, list):
        assert values == [in_file] or in_file == NAN


def test_texts_that_look_like_numbers_stay_texts():
    config = dataclasses.replace(RunConfig(), metrics=tuple(WRITTEN))
    assert yaml_text.load(RunConfig, yaml_text.dump(config)).metrics == tuple(WRITTEN)
