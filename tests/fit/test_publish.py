"""`[[publish]]` in problem files: tables in the words of their attributes, mistakes with the line."""

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.fit.problem_file import read
from tests.support.mistakes import THREE_PARTS, table

DOMAIN = """\
[[domain.attribute]]
name = "age"
first = 18
last = 21
unit = "years"
[[domain.attribute]]
name = "region"
labels = ["north", "south"]
[[domain.attribute]]
name = "pay"
bins = [0, 10, inf]
[policy]
attribute.age = "threshold 2"
attribute.region = "bounded"
attribute.pay = "public"
"""
PUBLISHED = """\
[[publish]]
table = ["age", "region"]
weight = 2
stddev = 4
[[publish]]
ranges = "age"
by = "region"
where = {age = {from = 19, to = 21}, pay = {from = 0, to = 10}}
[[publish]]
prefixes = "age"
name = "so young"
[[publish]]
table = "region"
groups = {"the land" = ["north", "south"]}
[[publish]]
table = ["age", "region"]
groups = {age = {young = {from = 18, to = 20}, others = [18, {from = 20, to = 21}]}}
[[publish]]
total = true
where = {region = ["north"]}
"""
PEOPLE = bf.domain.of(
    age=bf.domain.whole(18, 21, unit="years"), region=["north", "south"], pay=bf.domain.bins([0, 10, float("inf")])
)


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "problem.toml"
        path.write_text(text)
        return path

    return write


def test_a_file_says_the_same_as_python(written):
    asked = (
        bf.table("age", "region", weight=2, stddev=4)
        + bf.ranges("age", by="region", where={"age": (19, 21), "pay": (0, 10)})
        + bf.prefixes("age", name="so young")
        + bf.table("region", groups={"the land": ["north", "south"]})
        + bf.table("age", "region", groups={"age": {"young": [18, 19, 20], "others": [18, 20, 21]}})
        + bf.total(where={"region": ["north"]})
    ).on(PEOPLE)
    made = read(written(DOMAIN + PUBLISHED))
    assert made.workload.domain == made.policy.domain == PEOPLE
    assert made.workload.columns() == asked.columns()
    assert np.array_equal(made.workload.objective.dense(), asked.objective.dense())
    assert np.array_equal(made.workload.targets, asked.targets, equal_nan=True)
    policy = bf.policies(age="threshold 2", region="bounded", pay="public").on(PEOPLE)
    assert np.array_equal(made.policy.edges, policy.edges)


def test_a_file_may_say_it_in_sql(written):
    pytest.importorskip("sqlglot")
    text = '[[publish]]\nsql = "SELECT region, COUNT(*) FROM people WHERE age >= 20 GROUP BY region"\n'
    asked = bf.table("region", where={"age": (20, 21)}).on(PEOPLE)
    assert read(written(DOMAIN + text)).workload.columns() == asked.columns()


@table(
    ('[[publish]]\ntable = "agee"\n', 16, "Did you mean 'age'?"),
    ('[[publish]]\ntabel = "age"\n', 17, "Did you mean 'table'?"),
    ("[[publish]]\ntable = 3\n", 17, "Write it like table ="),
    ('[[publish]]\nby = "age"\n', 16, "exactly one of table"),
    ('[[publish]]\ntable = "age"\ntotal = true\n', 16, "exactly one of table"),
    ('[[publish]]\ntable = "age"\nby = "region"\n', 16, "do not go together"),
    ("[[publish]]\ntotal = false\n", 17, "must be true"),
    ("[[publish]]\ntotal = true\nwhere = {age = {from = 19}}\n", 16, "an interval has from and to"),
    ('[[publish]]\ntable = "age"\n[[publish]]\ntable = "age"\nwhere = {age = 99}\n', 18, "no such label"),
    ('[[publish]]\ntable = "age"\n[workload]\nspec = "identity"\n', 18, "either as [workload] or as [[publish]]"),
)
def test_a_mistake_names_the_line(case, written):
    text, line, advice = case
    with pytest.raises(InputError) as caught:
        read(written(DOMAIN + text))
    assert f"problem.toml: line {line}: " in str(caught.value)
    assert advice in str(caught.value)
    assert THREE_PARTS.search(str(caught.value))


@table(
    ('[[domain.attribute]]\nname = "a"\nfirst = 1\n', "has one of first and last"),
    ('[[domain.attribute]]\nname = "a"\nbins = [1, 0]\n', "edges must be rising numbers"),
    ('[[domain.attribute]]\nname = "a"\nsize = 3\nbins = [0, 1]\n', "there are 1 values"),
    ('[[domain.attribute]]\nname = "a"\n', "needs a name, and a size, labels, bins, or first and last"),
    ('[policy]\nspec = "line:3"\n[[publish]]\ntotal = true\n', "Add a [domain] table"),
)
def test_tables_need_sound_attributes(case, written):
    text, problem = case
    with pytest.raises(InputError, match="line 1|line 3") as caught:
        read(written(text))
    assert problem in str(caught.value)
