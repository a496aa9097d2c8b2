"""What a side offers, read strictly, and how two sides differ, in words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from jobs.common.strict import Fields
from jobs.tensors.catalog import (
    Catalog,
    Tensor,
    find_difference,
    find_missing,
    find_reserved,
    find_unfit,
    read_catalog,
)

NAMES = ("baseline", "candidate")


def tensor(name: str = "w", worker: int = 0, dtype: str = "float32", shape: tuple[int, ...] = (2, 3)) -> Tensor:
    return Tensor(worker=worker, name=name, dtype=dtype, shape=shape)


def catalog(*tensors: Tensor, tied: tuple[tuple[int, str, str], ...] = ()) -> Catalog:
    return Catalog(tensors=tensors, tied=tied)


def test_an_answer_is_read_as_it_is() -> None:
    answer = {"tensors": [[0, "w", "float32", [2, 3]], [0, "s", "int64", []]], "tied": [[0, "head", "w"]]}
    found = read_catalog(Fields(answer, "parameters"))
    assert found == catalog(tensor(), tensor("s", dtype="int64", shape=()), tied=((0, "head", "w"),))
    assert (found.num_bytes, found.workers) == (32, (0,))


@pytest.mark.parametrize(
    ("tensors", "tied", "message"),
    [
        ([[0, "w", "float32"]], [], "not worker, name, dtype and shape"),
        ([[0, "w", "complex64", [1]]], [], "no file of tensors can hold"),
        ([[0, "a,b", "float32", [1]]], [], "no table can hold"),
        ([[0, "", "float32", [1]]], [], "no table can hold"),
        ([[0, 5, "float32", [1]]], [], "no table can hold"),
        ([[0, "w", "float32", [-1]]], [], "not a size"),
        ([[0, "w", "float32", [True]]], [], "not a size"),
        ([[0, "w", "float32", 1]], [], "not a shape"),
        ([[0, "w", "float32", [10**17, 10**17]]], [], "not a number of bytes"),
        ([[-1, "w", "float32", [1]]], [], "not a worker"),
        ([[0, "w", "float32", [1]], [0, "w", "float32", [1]]], [], "offers w twice"),
        ([[0, "w", "float32", [1]]], [[0, "w", "w"]], "offers w twice"),
        ([[0, "w", "float32", [1]]], [[0, "head"]], "not worker, alias and name"),
        ({}, [], "not a list"),
    ],
)
def test_an_answer_that_is_malformed_is_refused(tensors: Any, tied: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        read_catalog(Fields({"tensors": tensors, "tied": tied}, "parameters"))


def test_catalogs_that_are_alike_do_not_differ() -> None:
    assert find_difference(catalog(tensor()), catalog(tensor()), names=NAMES) == ""


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (catalog(tensor(), tensor("b")), catalog(tensor()), "baseline has b of worker 0, candidate has not"),
        (catalog(tensor()), catalog(tensor(), tensor("b")), "candidate has b of worker 0, baseline has not"),
        (
            catalog(tensor(), tensor("b"), tensor("c")),
            catalog(tensor()),
            "baseline has b of worker 0, candidate has not (and 1 more)",
        ),
        (
            catalog(tensor()),
            catalog(tensor(shape=(3, 2))),
            "w of worker 0 is float32 [2, 3] in baseline and float32 [3, 2] in candidate",
        ),
        (
            catalog(tensor()),
            catalog(tensor(dtype="float64")),
            "w of worker 0 is float32 [2, 3] in baseline and float64 [2, 3] in candidate",
        ),
        (
            catalog(tensor("a"), tensor("b")),
            catalog(tensor("b"), tensor("a")),
            "the order differs: place 0 has a of worker 0 in baseline, b of worker 0 in candidate",
        ),
        (
            catalog(tensor(), tied=((0, "head", "w"),)),
            catalog(tensor()),
            "baseline has head tied to w in worker 0, candidate has not",
        ),
        (
            catalog(tensor(), tied=((0, "head", "w"),)),
            catalog(tensor(), tensor("head")),
            "baseline has head tied to w in worker 0, candidate has not",
        ),
        (
            catalog(tensor()),
            catalog(tensor(), tied=((0, "head", "w"),)),
            "candidate has head tied to w in worker 0, baseline has not",
        ),
    ],
)
def test_a_difference_names_what_and_where(first: Catalog, second: Catalog, message: str) -> None:
    assert find_difference(first, second, names=NAMES) == message


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int64", "bool"])
def test_what_is_compared_is_float32(dtype: str) -> None:
    assert f"elements of type {dtype}" in find_unfit(catalog(tensor(dtype=dtype)))
    assert find_unfit(catalog(tensor(dtype="float32"))) == ""


def test_names_that_stand_for_something_else_are_found() -> None:
    for name, of_state, of_batch in (
        ("__metadata__", "keeps for itself", "keeps for itself"),
        ("exp_avg/w", "exp_avg/w has a slash", ""),
        ("w.exp_avg", "", ""),
    ):
        found = catalog(tensor("a"), tensor(name))
        assert of_state in find_reserved(found, is_state=True)
        assert (find_reserved(found, is_state=True) == "") == (of_state == "")
        assert of_batch in find_reserved(found, is_state=False)
        assert (find_reserved(found, is_state=False) == "") == (of_batch == "")


@pytest.mark.parametrize("workers", [(), (1,), (0, 2)])
def test_workers_are_numbered_without_gaps(workers: tuple[int, ...]) -> None:
    assert "numbered from 0 without gaps" in find_unfit(catalog(*(tensor(worker=worker) for worker in workers)))


def test_a_quantity_has_the_tensors_of_the_parameters_in_any_order() -> None:
    a, b, c = (tensor(name) for name in "abc")
    names = ("parameters", "gradients")
    assert find_missing([a, b], [b, a], names) == ""
    assert find_missing([a, b], [b], names) == "parameters has a of worker 0, gradients has not"
    assert find_missing([a, b], [a, b, c], names) == "gradients has c of worker 0, parameters has not"
