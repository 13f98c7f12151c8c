"""The language of tables: every query is what it says it is, by brute force over the cells."""

import itertools

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.matrix import Kronecker, Stack
from hdmm_bf.workload.columns import column_words
from hdmm_bf.workload.records import from_records, table_records
from tests.support.mistakes import _as_users_run_it, assert_refused, table  # noqa: F401

PEOPLE = bf.domain.of(
    age=bf.domain.whole(18, 22, unit="years"),
    region=["north", "south", "west"],
    pay=bf.domain.bins([0, 10, 25.5, 40], unit="euros"),
)
ASKED = (
    bf.table("age", "region")
    + bf.ranges("age", by="region", weight=2)
    + bf.prefixes("pay", by=["region"], groups={"region": {"coast": ["north", "west"]}})
    + bf.table("region", groups={"coast": ["north", "west"], "all": ["north", "south", "west"]}, stddev=3)
    + bf.total(where={"age": (19, 21), "region": ["north", "west"]})
    + bf.table("region", where={"pay": (10, 40)})
    + bf.ranges("age", where={"age": (20, 22)})
    + bf.table("age", where={"age": [18, 22]}, stddev=0.5)
    + bf.total()
)
GROUPS = {"coast": {"north", "west"}, "all": {"north", "south", "west"}, "north or west": {"north", "west"}}


def holds(said, domain, cell):
    """Whether a cell is one that a description counts; written apart from the package."""
    for name, value in zip(domain.names, domain.unravel(cell), strict=True):
        wanted = said.get(name)
        edges = domain.bins[domain.attribute(name)]
        if wanted is None:
            continue
        if edges is not None:
            if not (wanted[0] <= edges[value] and edges[value + 1] <= wanted[1]):
                return False
            continue
        own = domain.value_name(domain.attribute(name), value)
        own = int(own) if own.isdigit() else own
        if isinstance(wanted, tuple):
            if not wanted[0] <= own <= wanted[1]:
                return False
        elif own not in GROUPS.get(wanted, {wanted}):
            return False
    return True


def counted(workload):
    """The matrix that the descriptions define, query by query and cell by cell."""
    rows = range(workload.num_queries)
    return np.array(
        [[holds(workload.query(i), workload.domain, c) for c in range(workload.num_cells)] for i in rows], float
    )


def test_every_query_counts_the_cells_that_it_says():
    workload = ASKED.on(PEOPLE)
    assert np.array_equal(workload.matrix.dense(), counted(workload))
    assert len(set(zip(*workload.columns().values(), strict=True))) == workload.num_queries


@pytest.mark.parametrize("spec", ["identity", "prefix", "all-range", "marginals:all", "random-range:50:seed=3"])
def test_workloads_of_spec_strings_say_what_they_ask_too(spec):
    domain = bf.Domain((3, 4), ("a", "b"))
    workload = bf.workload.parse(spec, domain=domain)
    assert np.array_equal(workload.matrix.dense(), counted(workload))


def test_columns_hold_what_each_query_says():
    workload = ASKED.on(PEOPLE)
    columns = workload.columns()
    assert list(columns) == ["table", "age_lo", "age_hi", "region", "pay_lo", "pay_hi"]
    for i in range(workload.num_queries):
        said = workload.query(i)
        age, pay = said.get("age"), said.get("pay", (None, None))
        low, high = age if isinstance(age, tuple) else (age, age)
        row = [said["table"], low, high, said.get("region"), *pay]
        assert [column[i] for column in columns.values()] == row


def test_what_a_table_sums_over_is_empty_and_a_range_of_all_is_not():
    asked = (bf.table("region") + bf.ranges("age") + bf.table("pay") + bf.total()).on(PEOPLE)
    rows = [dict(zip(asked.columns(), row, strict=True)) for row in zip(*asked.columns().values(), strict=True)]
    empty = {"region": None, "age_lo": None, "age_hi": None, "pay_lo": None, "pay_hi": None}
    assert rows[0] == {**empty, "table": "region", "region": "north"}
    assert {**empty, "table": "ranges of age", "age_lo": 18, "age_hi": 22} in rows
    assert {**empty, "table": "pay", "pay_lo": 10, "pay_hi": 25.5} in rows
    assert rows[-1] == {**empty, "table": "total"}


def test_every_column_of_an_attribute_is_described():
    said = column_words(ASKED.on(PEOPLE))
    assert list(said) == list(ASKED.on(PEOPLE).columns())[1:]
    assert said["age_lo"] == "first value of age, in years; empty: all of age"
    assert said["pay_hi"] == "upper edge of pay, in euros; empty: all of pay"
    assert said["region"] == "region; empty: all of region"
    assert column_words(bf.workload.from_matrix(np.eye(3))) == {}
    assert column_words(bf.table("age").on(PEOPLE)) == {"age": "age, in years"}


def test_an_empty_end_may_mean_a_group_or_no_limit():
    ages = bf.domain.of(age=bf.domain.bins([0, 18, 65, float("inf")]))
    asked = (bf.ranges("age") + bf.table("age", groups={"adults": (18, float("inf"))})).on(ages)
    assert column_words(asked) == {
        "age": "group of age; empty: no group",
        "age_lo": "lower edge of age; empty: a group",
        "age_hi": "upper edge of age; empty: a group or no limit",
    }


def test_groups_are_lists_of_values_and_intervals_or_one_interval():
    bands = {"young": (18, 20), "ends": [18, (21, 22)], "all": [(18, 22), 20]}
    asked = bf.table("age", groups=bands).on(PEOPLE.only("age"))
    assert asked.matrix.dense().tolist() == [[1, 1, 1, 0, 0], [1, 0, 0, 1, 1], [1, 1, 1, 1, 1]]
    assert asked.columns()["age"] == ["young", "ends", "all"]
    pay = bf.table("pay", groups={"low": (0, 25.5), "high": [(25.5, 40)]}).on(PEOPLE.only("pay"))
    assert pay.matrix.dense().tolist() == [[1, 1, 0], [0, 0, 1]]


def test_a_column_never_has_the_name_of_another():
    domain = bf.domain.of(table=2, estimate=["x", "y"], low=3)
    workload = bf.table("table", "estimate", "low").on(domain)
    assert list(workload.columns()) == ["table", "table_", "estimate_", "low_"]


def test_tables_are_products_and_are_never_written_out():
    domain = bf.Domain((1000, 1000, 1000), ("x", "y", "z"))
    workload = (bf.table("x", "y") + bf.ranges("z", by="x")).on(domain)
    assert isinstance(workload.matrix, Stack)
    assert all(isinstance(block, Kronecker) for block in workload.matrix.blocks)
    assert workload.num_queries == 10**6 + 500_500 * 1000
    assert workload.query(10**6 + 500_500) == {"table": "ranges of z by x", "x": 1, "z": (0, 0)}
    assert workload.name(5) == "x=0, y=5"


def test_weights_steer_and_targets_are_kept_for_the_search():
    workload = ASKED.on(PEOPLE)
    weights, targets = workload.weights(), workload.targets
    names = np.array(workload.columns()["table"])
    assert set(weights[names == "ranges of age by region"]) == {2.0}
    assert set(weights[names != "ranges of age by region"]) == {1.0}
    assert set(targets[names == "region"]) == {3.0}
    assert set(targets[names == "age"]) == {0.5}
    assert np.isnan(targets[~np.isin(names, ["region", "age"])]).all()
    assert workload.has_targets
    assert not bf.table("age").on(PEOPLE).has_targets
    assert np.isnan(bf.workload.identity(3).targets).all()


def test_tables_of_one_name_are_numbered():
    workload = (bf.table("age") + bf.table("age", where={"region": "north"})).on(PEOPLE)
    assert set(workload.columns()["table"]) == {"age", "age (2)"}


def test_tables_come_back_from_their_records():
    workload = ASKED.on(PEOPLE)
    again = from_records(table_records(workload), PEOPLE)
    assert np.array_equal(again.matrix.dense(), workload.matrix.dense())
    assert np.array_equal(again.objective.dense(), workload.objective.dense())
    assert again.columns() == workload.columns()
    assert np.array_equal(again.targets, workload.targets, equal_nan=True)


BLOCK = {"name": "t", "axes": [{"kind": "values"}], "weight": 1.0, "stddev": None}


@pytest.mark.parametrize(
    "record",
    [
        [],
        {},
        [3],
        [{**BLOCK, "more": 1}],
        [{**BLOCK, "name": "a\nb"}],
        [{**BLOCK, "axes": []}],
        [{**BLOCK, "weight": 0}],
        [{**BLOCK, "weight": True}],
        [{**BLOCK, "stddev": -1.0}],
        [{**BLOCK, "axes": [{"kind": "cubes"}]}],
        [{**BLOCK, "axes": [{"kind": "values", "chosen": [2, 1]}]}],
        [{**BLOCK, "axes": [{"kind": "values", "chosen": [3]}]}],
        [{**BLOCK, "axes": [{"kind": "ranges", "chosen": [0, 2]}]}],
        [{**BLOCK, "axes": [{"kind": "values", "groups": [["a", [0]]]}]}],
        [{**BLOCK, "axes": [{"kind": "groups"}]}],
        [{**BLOCK, "axes": [{"kind": "groups", "groups": [["a", []]]}]}],
        [{**BLOCK, "axes": [{"kind": "groups", "groups": [["a\n", [0]]]}]}],
        [{**BLOCK, "axes": [{"kind": "groups", "groups": [["a", [True]]]}]}],
    ],
)
def test_a_damaged_record_is_refused(record):
    with pytest.raises(InputError, match="Write the bundle again"):
        from_records(record, bf.Domain((3,)))


def test_a_bundle_keeps_tables_with_weights_targets_and_units(tmp_path):
    tables = bf.table("age", "region", stddev=4) + bf.ranges("age", weight=3)
    policy = bf.policies(age="threshold 2", region="bounded")
    domain = bf.domain.of(age=bf.domain.whole(1, 4, unit="years"), region=["n", "s"])
    fit = bf.fit(tables, policy, domain=domain, max_steps=3)
    fit.save(tmp_path / "t.bf")
    again = bf.load(tmp_path / "t.bf")
    assert again.problem.workload.columns() == fit.problem.workload.columns()
    assert np.array_equal(again.problem.workload.targets, fit.problem.workload.targets, equal_nan=True)
    assert again.problem.policy.domain == domain
    assert again.problem.workload.title == 'tables "age x region; ranges of age", 18 queries'
    assert not (tmp_path / "t.bf" / "workload.npz").exists()


def test_a_bundle_of_a_large_domain_keeps_tables(tmp_path):
    domain = bf.domain.of(x=80, y=[f"r{i}" for i in range(70)], pay=bf.domain.bins([0, 1, float("inf")]))
    fit = bf.fit(bf.table("x", "pay") + bf.table("y", weight=2), bf.policies(y="bounded"), domain=domain)
    fit.save(tmp_path / "t.bf")
    again = bf.load(tmp_path / "t.bf")
    assert again.problem.workload.columns() == fit.problem.workload.columns()
    assert again.problem.policy.domain == domain
    assert again.problem.workload.weights()[-1] == 2


def test_the_domain_is_taken_from_the_other_argument():
    policy = bf.policies(age="line").on(PEOPLE)
    assert bf.problem(bf.table("age"), policy).workload.num_queries == 5
    assert bf.problem(bf.table("age").on(PEOPLE), bf.policies(age="line")).policy.num_edges == 4 * 9


def test_a_spec_may_leave_its_size_out_where_a_domain_is_given():
    assert bf.problem("all-range", "threshold:2", domain=6).workload.num_queries == 21


@table(
    (lambda: bf.problem(bf.table("age"), "line:3"), "tables", "Give domain="),
    (lambda: bf.problem("identity:3", bf.policies(age="line")), "by attribute", "Give domain="),
    (lambda: bf.table("agee").on(PEOPLE), "'agee'", "Did you mean 'age'?"),
    (lambda: bf.table(), "attributes=()", "Write it like"),
    (lambda: bf.table(3), "attributes=(3,)", "Write it like"),
    (lambda: bf.table("age", "age"), "twice", "Name each once"),
    (lambda: bf.table("age", weight=0), "weight=0", "positive"),
    (lambda: bf.table("age", stddev=float("nan")), "stddev=nan", "positive"),
    (lambda: bf.table("age", where=[1]), "where=[1]", "Write it like"),
    (lambda: bf.table("age", "region", groups={"a": ["north"]}), "which of the 2 attributes", "by attribute"),
    (lambda: bf.table("age", groups={"region": {"a": ["north"]}}), "no such attribute", "groups="),
    (lambda: bf.table("age", groups={}), "groups={}", "groups="),
    (lambda: bf.table("age", groups={"young": []}), "no member", "List at least one"),
    (lambda: bf.table("age", groups={"young": 3}), "must be a list", "groups="),
    (lambda: bf.table("age", groups={"y": (18, 19, 20)}).on(PEOPLE), "two ends", "Use a list for single values"),
    (lambda: bf.table("age", groups={"y": (21, 19)}).on(PEOPLE), "is empty", "lower end first"),
    (lambda: bf.table("age", groups={"y": [[18, 19]]}), "a list for a member", "as (20, 29)"),
    (lambda: bf.table("pay", groups={"y": (0, 12)}).on(PEOPLE), "pay=12", "The nearest: 10 and 25.5."),
    (lambda: bf.table("age", groups={"y": [18]}, where={"age": 18}), "where and groups", "Leave out"),
    (lambda: bf.table("region", groups={"a": ["North"]}).on(PEOPLE), "'North'", "capitals and spaces count"),
    (lambda: bf.table("region", groups={"a": ["nort"]}).on(PEOPLE), "'nort'", "Did you mean 'north'?"),
    (lambda: bf.total(where={"age": 17}).on(PEOPLE), "age=17", "Labels go from 18 to 22."),
    (lambda: bf.total(where={"age": (21, 19)}).on(PEOPLE), "is empty", "lower end first"),
    (lambda: bf.total(where={"age": (1, 2, 3)}).on(PEOPLE), "two ends", "Use a list"),
    (lambda: bf.total(where={"age": []}).on(PEOPLE), "leaves no value", "List at least one"),
    (lambda: bf.total(where={"pay": (0, 12)}).on(PEOPLE), "pay=12", "The nearest: 10 and 25.5."),
    (lambda: bf.total(where={"pay": 10}).on(PEOPLE), "intervals and have no labels", "from one edge to another"),
    (lambda: bf.total(where={"x": 9}).on(bf.domain.of(x=3)), "x=9", "Correct the number"),
    (lambda: bf.ranges("age", where={"age": [18, 20]}).on(PEOPLE), "follow one another", "(first, last)"),
    (lambda: bf.domain.of(), "no attributes", "Write it like"),
    (lambda: bf.domain.of(age=range(0, 10, 2)), "run of whole numbers", "bins(range(...))"),
    (lambda: bf.domain.of(age=[1, 2]), "labels are texts", "Write it like"),
    (lambda: bf.domain.bins([0]), "number of intervals=0", "two edges"),
    (lambda: bf.domain.whole(5, 4), "last=4", "larger number second"),
    (lambda: bf.Domain((2,), bins=((0, 1),)), "2 edges", "rising numbers"),
    (lambda: bf.Domain((2,), bins=((0, 1, 2), None)), "2 lists of bins", "one list"),
    (lambda: bf.Domain((2,), units=(3,)), "units=(3,)", "units="),
)
def test_mistakes_are_refused_in_a_sentence(case):
    assert_refused(*case)


def test_adding_something_else_is_a_type_error():
    with pytest.raises(TypeError):
        bf.table("age") + 3


sqlglot = pytest.importorskip("sqlglot", reason="needs the extra `sql`")

SAME = [
    ("SELECT age, region, COUNT(*) FROM people GROUP BY age, region", bf.table("age", "region")),
    (
        "SELECT age, region, COUNT(*) FROM people WHERE age BETWEEN 19 AND 21 GROUP BY region",
        bf.table("region", where={"age": (19, 21)}),
    ),
    ("SELECT COUNT(*) AS n FROM people", bf.total()),
    (
        "SELECT COUNT(*) FROM p WHERE region IN ('north', 'west') AND age > 19",
        bf.total(where={"region": ["north", "west"], "age": (20, 22)}),
    ),
    ("SELECT COUNT(*) FROM p WHERE 19 <= age AND age < 21", bf.total(where={"age": (19, 20)})),
    ("SELECT COUNT(*) FROM p WHERE pay >= 10 AND pay < 25.5", bf.total(where={"pay": (10, 25.5)})),
    ("SELECT COUNT(*) FROM p WHERE pay >= -3 AND pay <= 40", bf.total(where={"pay": (0, 40)})),
    (
        "SELECT COUNT(*) FROM p WHERE age = 20 UNION ALL SELECT COUNT(*) FROM p",
        bf.total(where={"age": 20}) + bf.total(),
    ),
]


@pytest.mark.parametrize(("text", "tables"), SAME)
def test_sql_says_the_same_as_the_language(text, tables):
    by_sql, by_words = bf.sql(text).on(PEOPLE), tables.on(PEOPLE)
    assert np.array_equal(by_sql.matrix.dense(), by_words.matrix.dense())
    assert by_sql.columns() == by_words.columns()


def test_sql_agrees_with_a_database_that_runs_it():
    """DuckDB runs the statements, on records, that are otherwise only read."""
    duckdb = pytest.importorskip("duckdb")
    rng = np.random.default_rng(5)
    rows = 500
    age, region = rng.integers(18, 23, rows), rng.choice(["north", "south", "west"], rows)
    pay = rng.choice([0, 3, 10, 17.5, 25.5, 39, 40], rows)
    people = {"age": age.tolist(), "region": region.tolist(), "pay": pay.tolist()}
    connection = duckdb.connect()
    connection.execute("CREATE TABLE people (age BIGINT, region VARCHAR, pay DOUBLE)")
    connection.executemany("INSERT INTO people VALUES (?, ?, ?)", list(zip(*people.values(), strict=True)))
    counts = bf.histogram(connection.table("people"), PEOPLE)
    texts = [text for text, _ in SAME if " people" in text and "age, region, COUNT(*) FROM people WHERE" not in text]
    texts += ["SELECT region, COUNT(*) FROM people WHERE pay >= 10 AND age <= 20 GROUP BY region"]
    for text in texts:
        *keys, counted = zip(*connection.execute(text).fetchall(), strict=True)
        workload = bf.sql(text).on(PEOPLE)
        answers = workload.matrix.mv(counts)
        ours = {tuple(v for k, v in workload.query(i).items() if k in _grouped(text)): a for i, a in enumerate(answers)}
        assert {k: v for k, v in ours.items() if v} == dict(
            zip(itertools.zip_longest(*keys) if keys else [()], counted, strict=True)
        )
    connection.close()


def _grouped(text):
    return text.partition("GROUP BY ")[2].replace(" ", "").split(",")


@table(
    (lambda: bf.sql("SELECT AVG(age) FROM p"), "AVG(age)", "Only COUNT(*)"),
    (lambda: bf.sql("SELECT age FROM p GROUP BY age"), "0 counts", "Write it like"),
    (lambda: bf.sql("SELECT COUNT(DISTINCT age) FROM p"), "does not count records", "Write COUNT(*)"),
    (lambda: bf.sql("SELECT COUNT(age) FROM p"), "does not count records", "Write COUNT(*)"),
    (lambda: bf.sql("SELECT region, COUNT(*) FROM p"), "not grouped by", "Add it to GROUP BY"),
    (lambda: bf.sql("SELECT COUNT(*) FROM p HAVING COUNT(*) > 3"), "HAVING", "Leave HAVING out"),
    (lambda: bf.sql("SELECT COUNT(*) FROM p LIMIT 3"), "LIMIT", "Leave LIMIT out"),
    (lambda: bf.sql("SELECT COUNT(*) FROM a JOIN b ON a.x = b.x"), "JOINS", "out"),
    (lambda: bf.sql("SELECT COUNT(*)"), "one table", "Write it like"),
    (lambda: bf.sql("SELECT COUNT(*) FROM (SELECT 1)"), "one table", "Write it like"),
    (lambda: bf.sql("SELECT COUNT(*) FROM p GROUP BY age + 1"), "is no column", "Group by attributes"),
    (lambda: bf.sql("SELECT COUNT(*) FROM p GROUP BY ROLLUP (age)"), "ROLLUP", "attributes"),
    (lambda: bf.sql("SELECT COUNT(*) FROM p UNION SELECT COUNT(*) FROM p"), "UNION", "Write UNION ALL"),
    (lambda: bf.sql("DELETE FROM p"), "is no SELECT", "Write it like"),
    (lambda: bf.sql("SELEC COUNT(*) FROM"), "SQL", "Write it like"),
    (lambda: bf.sql(""), "no statement", "Write it like"),
    (lambda: bf.sql("SELECT COUNT(*) FROM p WHERE a = 1 OR b = 2"), "cannot have", "by AND"),
    (lambda: bf.sql("SELECT COUNT(*) FROM p WHERE NOT a = 1"), "cannot have", "by AND"),
    (lambda: bf.sql("SELECT COUNT(*) FROM p WHERE a + 1 = 2"), "compares no column", "attribute"),
    (lambda: bf.sql("SELECT COUNT(*) FROM p WHERE a = 1 AND a = 2"), "second condition", "one condition"),
    (lambda: bf.sql("SELECT COUNT(*) FROM p WHERE a > 'x'"), "is no number", "= or IN"),
    (lambda: bf.sql("SELECT COUNT(*) FROM p WHERE region > 1").on(PEOPLE), "have no order", "Use = or IN"),
    (lambda: bf.sql("SELECT COUNT(*) FROM p WHERE age > 90").on(PEOPLE), "no value of the domain", "Widen"),
    (lambda: bf.sql("SELECT COUNT(*) FROM p WHERE pay > 10").on(PEOPLE), "cuts an interval", "pay >= 10"),
    (lambda: bf.sql("SELECT COUNT(*) FROM p WHERE pay <= 10").on(PEOPLE), "cuts an interval", "pay < 10"),
    (lambda: bf.sql("SELECT COUNT(*) FROM p WHERE pay < 40").on(PEOPLE), "cuts an interval", "pay >= 0"),
    (lambda: bf.sql("SELECT COUNT(*) FROM p WHERE pay < 12").on(PEOPLE), "pay=12", "The nearest"),
    (lambda: bf.sql("SELECT COUNT(*) FROM p", weight=-1), "weight=-1", "positive"),
)
def test_sql_that_is_no_count_is_refused_in_a_sentence(case):
    assert_refused(*case)


def test_a_csv_workload_may_carry_a_column_of_query_names(tmp_path):
    (tmp_path / "W.csv").write_text("query,c0,c1\nyoung,1,0\nall,1,1\n")
    workload = bf.workload.parse(str(tmp_path / "W.csv"))
    assert workload.names() == ["young", "all"]
    assert workload.columns() == {"query": ["young", "all"]}
    assert workload.query(1) == {"query": "all"}
