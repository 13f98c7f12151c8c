"""Workloads: every spec string against its definition, Grams in closed form, files, names."""

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from hdmm_bf import workload
from hdmm_bf.domain import Domain
from tests.support import oracles

DEFINITIONS = {
    "identity:5": np.eye(5),
    "identity:2x3": np.eye(6),
    "prefix:5": oracles.prefix_rows((5,)),
    "prefix:2x3": oracles.prefix_rows((2, 3)),
    "all-range:5": oracles.all_range_rows((5,)),
    "all-range:1": np.ones((1, 1)),
    "all-range:2x3": oracles.all_range_rows((2, 3)),
    "all-range:2x2x3": oracles.all_range_rows((2, 2, 3)),
    "marginals:2x3x2:2": oracles.marginal_rows((2, 3, 2), 2),
    "marginals:2x3x2:0": np.ones((1, 12)),
    "marginals:2x3x2:all": np.vstack([oracles.marginal_rows((2, 3, 2), w) for w in range(4)]),
}


@pytest.mark.parametrize("spec", DEFINITIONS)
def test_spec_strings_give_the_queries_of_their_definition(spec):
    made = workload.parse(spec)
    np.testing.assert_array_equal(made.matrix.dense(), DEFINITIONS[spec])
    assert (made.num_queries, made.num_cells) == DEFINITIONS[spec].shape
    assert made.spec == spec


@pytest.mark.parametrize("spec", [*DEFINITIONS, "random-range:9:40:seed=3", "random-range:4x5:40:seed=3"])
def test_closed_form_grams_equal_the_product_of_the_rows(spec):
    made = workload.parse(spec)
    W = made.matrix.sparse().toarray()
    np.testing.assert_allclose(made.gram, W.T @ W, rtol=1e-14)


@pytest.mark.parametrize("spec", [*DEFINITIONS, "random-range:9:40:seed=3", "random-range:4x5:40:seed=3"])
def test_a_spec_made_from_a_spec_gives_the_same_matrix(spec):
    """Quotes parse: `parse(workload.spec)` gives the same matrix, for every workload made from a spec string."""
    made = workload.parse(spec)
    again = workload.parse(made.spec)
    assert (again.matrix.sparse() != made.matrix.sparse()).nnz == 0


@pytest.mark.parametrize("spec", ["random-range:9:40:seed=3", "random-range:4x5:40:seed=3"])
def test_random_ranges_are_ranges_and_depend_on_the_seed_alone(spec):
    rows = workload.parse(spec).matrix.dense()
    known = {tuple(row) for row in oracles.all_range_rows(workload.parse(spec).domain.sizes)}
    assert all(tuple(row) in known for row in rows)
    assert len({tuple(row) for row in rows}) > 15
    assert not np.array_equal(rows, workload.parse(spec.replace("seed=3", "seed=4")).matrix.dense())


def test_gram_of_all_ranges_needs_no_rows():
    made = workload.all_range(2048)
    assert made.num_queries == 2048 * 2049 // 2
    i, j = 100, 1999
    assert made.gram[i, j] == (min(i, j) + 1) * (2048 - max(i, j))


def test_weights_and_unions_act_on_rows():
    first, second = workload.prefix(4), workload.from_matrix([[1.5, 0, -2, 0]], names=["contrast"])
    both = workload.union(workload.weighted(first, 2.0), workload.weighted(second, [0.1]))
    expected = np.vstack([2 * np.tri(4), 0.1 * np.array([[1.5, 0, -2, 0]])])
    np.testing.assert_allclose(both.matrix.dense(), np.vstack([np.tri(4), [[1.5, 0, -2, 0]]]))
    np.testing.assert_allclose(both.objective.dense(), expected)
    np.testing.assert_allclose(both.weights(), [2, 2, 2, 2, 0.1])
    np.testing.assert_allclose(both.gram, expected.T @ expected)
    assert both.names() == ["a0=0", "a0=0..1", "a0=0..2", "total", "contrast"]
    each = workload.weighted(first, [1e-8, 1.0, 1e8, 3.0])
    np.testing.assert_allclose(each.gram, each.objective.dense().T @ each.objective.dense())
    tables = workload.product(each, workload.weighted(workload.identity(2), 5))
    np.testing.assert_allclose(tables.weights(), np.repeat([5e-8, 5, 5e8, 15], 2))
    np.testing.assert_array_equal(tables.matrix.dense(), np.kron(np.tri(4), np.eye(2)))


def test_product_asks_all_conjunctions():
    made = workload.product(workload.prefix(2), workload.identity(3))
    np.testing.assert_array_equal(made.matrix.dense(), np.kron(np.tri(2), np.eye(3)))
    assert made.domain.sizes == (2, 3)
    assert made.name(4) == "total and cell 1"


def test_queries_are_named_by_what_they_count():
    people = Domain((3, 2), names=("age", "sex"), labels=(("young", "middle", "old"), ("F", "M")))
    named = {
        workload.identity(people): "age=young, sex=M",
        workload.all_range(people): "age=young, sex=M",
        workload.marginals(people, 1): "age=middle",
    }
    positions = [1, 2, 1]
    for (made, name), position in zip(named.items(), positions, strict=True):
        assert made.name(position) == name
    W = workload.all_range(people)
    for query, name in enumerate(W.names()):
        wanted = [p.split("=") for p in name.split(", ")] if name != "total" else []
        row = np.ones((3, 2))
        for attribute, values in wanted:
            axis = people.attribute(attribute)
            ends = [people.labels[axis].index(v) for v in values.split("..")]
            outside = [v for v in range(people.sizes[axis]) if not ends[0] <= v <= ends[-1]]
            row[(slice(None),) * axis + (outside,)] = 0
        np.testing.assert_array_equal(W.matrix.row(query), row.ravel())


@pytest.mark.parametrize("n", [1, 2, 3, 50, 1000])
def test_bounds_of_every_range_follow_the_row_order(n):
    ranges = workload.AllRange(n)
    low, high = np.triu_indices(n)
    step = max(1, low.size // 5000)
    for i in range(0, low.size, step):
        assert ranges.bounds(i) == (low[i], high[i])


def test_every_file_format_reads_the_same_matrix(tmp_path):
    W = np.array([[1.0, 0.0, -2.5], [0.0, 0.0, 0.0], [1e-8, 1e8, 3.0]])
    np.save(tmp_path / "W.npy", W)
    np.savez(tmp_path / "plain.npz", W=W)
    sp.save_npz(tmp_path / "sparse.npz", sp.csr_array(W))
    scipy.io.mmwrite(tmp_path / "sparse.mtx", sp.coo_array(W))
    scipy.io.mmwrite(tmp_path / "dense.mtx", W)
    rows = "\n".join(",".join(repr(float(v)) for v in row) for row in W)
    (tmp_path / "W.csv").write_text(rows)
    (tmp_path / "header.csv").write_text("young,middle,old\n" + rows + "\n")
    for name in ("W.npy", "plain.npz", "sparse.npz", "sparse.mtx", "dense.mtx", "W.csv", "header.csv"):
        made = workload.parse(str(tmp_path / name))
        np.testing.assert_array_equal(made.matrix.dense(), W, err_msg=name)
        assert made.num_cells == 3


@pytest.mark.parametrize(
    "text",
    [
        "all,1,1\nfirst,1,0\n",
        "query,young,old\nall,1,1\nfirst,1,0\n",
        "query,0,1\nall,1,1\nfirst,1,0\n",
        ",0,1\nall,1,1\nfirst,1,0\n",
        "\ufeffall,1,1\r\nfirst ,1,0\r\n",
    ],
)
def test_a_first_column_of_words_names_the_queries(text, tmp_path):
    (tmp_path / "W.csv").write_text(text, encoding="utf-8", newline="")
    made = workload.read(tmp_path / "W.csv")
    np.testing.assert_array_equal(made.matrix.dense(), [[1, 1], [1, 0]])
    assert made.names() == ["all", "first"]


def test_names_of_queries_are_kept_on_a_domain_and_in_a_bundle(tmp_path):
    import hdmm_bf as bf

    (tmp_path / "W.csv").write_text("all,1,1\nfirst,1,0\n")
    made = workload.parse(str(tmp_path / "W.csv"), domain=Domain((2,), ("age",)))
    assert made.names() == ["all", "first"]
    assert bf.load(bf.fit(made, "bounded:2").save(tmp_path / "n.bf")).problem.workload.names() == ["all", "first"]
