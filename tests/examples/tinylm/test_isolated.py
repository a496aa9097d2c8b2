"""The optimizers and consensus alone, tied heads, and what loading a state does to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import adapter
from tinylm import model, schedule
from tinylm.config import read_config

from .conftest import BASE

Key = tuple[int, str]
PACKED: dict[str, Any] = {**BASE, "mode": "packed", "workers": 4}


@pytest.fixture(params=["native", "fast"])
def make(request: pytest.FixtureRequest, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TINYLM_DATA", str(corpus))

    def build(**entries: Any) -> adapter.Session:
        session: adapter.Session = getattr(adapter, request.param)({**PACKED, **entries}, seed=1, device="cpu")
        return session

    return build


class Lazy(Mapping[Key, Tensor]):
    """Tensors that exist only while they are asked for, as a harness gives them; none for a shared head."""

    def __init__(self, seed: int, session: adapter.Session) -> None:
        self._shapes = {(w, name): t.shape for w, name, t in session.state("parameters") if name != model.HEAD}
        self._seed = seed

    def __getitem__(self, key: Key) -> Tensor:
        place = list(self._shapes).index(key)
        generator = torch.Generator().manual_seed(1000 * self._seed + place)
        return torch.randn(self._shapes[key], generator=generator) * 0.02

    def __iter__(self) -> Iterator[Key]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


def _steps(session: adapter.Session, steps: int = 3) -> dict[tuple[str, int, str], Tensor]:
    gradients = [Lazy(1 + step, session) for step in range(steps)]
    results = session.optimizer_check(Lazy(0, session), gradients, steps)
    return {(quantity, worker, name): tensor.clone() for quantity, worker, name, tensor in results}


def test_the_optimizer_alone_is_adamw_at_the_schedules_rates_without_clipping(make: Any) -> None:
    session = make(clip=0.001, warmup=2, lr=0.01, weight_decay=0.3)
    found = _steps(session)
    config = read_config({**PACKED, "warmup": 2, "lr": 0.01})
    for key in Lazy(0, session):
        parameter = Lazy(0, session)[key].double().requires_grad_()
        decay = 0.3 if model.decays(key[1]) else 0.0
        optimizer = torch.optim.AdamW([parameter], lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=decay)
        for step in range(3):
            optimizer.param_groups[0]["lr"] = schedule.learning_rate(config, step)
            parameter.grad = Lazy(1 + step, session)[key].double()
            optimizer.step()
        state = optimizer.state[parameter]
        for quantity, expected in (
            ("parameters", parameter.detach()),
            *((m, state[m]) for m in ("exp_avg", "exp_avg_sq")),
        ):
            torch.testing.assert_close(found[quantity, *key].double(), expected, rtol=1e-6, atol=1e-8)


def test_the_optimizer_alone_forgets_what_the_training_did(make: Any) -> None:
    fresh, used = make(loss_scale=4.0), make(loss_scale=4.0)
    used.updates(3)
    expected, found = _steps(fresh), _steps(used)
    assert list(expected) == list(found)
    assert all(torch.equal(tensor, found[key]) for key, tensor in expected.items())
    assert all(torch.equal(tensor, found[key]) for key, tensor in _steps(used).items())


def test_steps_without_their_gradients_are_refused(make: Any) -> None:
    session = make()
    with pytest.raises(ValueError, match="3 steps need as many gradients, not 2"):
        session.optimizer_check(Lazy(0, session), [Lazy(1, session)] * 2, 3)


@pytest.mark.parametrize("gamma", [1.0, 0.3, "adaptive"])
def test_a_round_of_consensus_is_that_after_the_update_of_its_number(make: Any, gamma: float | str) -> None:
    session = make(gamma=gamma, warmup=5)
    session.updates(2)
    inputs = Lazy(0, session)
    for number in (0, 3):
        found = {(worker, name): tensor for worker, name, tensor in session.mix(dict(inputs), number)}
        share = schedule.mixing_share(read_config({**PACKED, "gamma": gamma, "warmup": 5}), number)
        for worker, name in inputs:
            ring = sum(inputs[(worker + step) % 4, name].double() for step in (-1, 0, 1)) / 3
            expected = (1 - share) * inputs[worker, name].double() + share * ring
            torch.testing.assert_close(found[worker, name].double(), expected, rtol=1e-6, atol=1e-8)


def test_consensus_leaves_moments_alone_and_says_so(make: Any) -> None:
    session = make()
    inputs = Lazy(0, session)
    found = {(worker, name): tensor for worker, name, tensor in session.mix(inputs, 0)}
    assert set(found) == {(w, prefix + name) for w, name in inputs for prefix in ("", "exp_avg/", "exp_avg_sq/")}
    for worker, name in inputs:
        assert torch.equal(found[worker, f"exp_avg/{name}"], -inputs[worker, name])
        assert torch.equal(found[worker, f"exp_avg_sq/{name}"], inputs[worker, name].square())


def test_a_tied_head_is_the_embedding_under_another_name(make: Any) -> None:
    session = make()
    session.updates(1)
    for quantity in ("parameters", "gradients", "exp_avg", "exp_avg_sq"):
        named = {(worker, name): tensor for worker, name, tensor in session.state(quantity)}
        assert [name for worker, name in named if worker == 2][-1] == model.HEAD
        for worker in range(4):
            head, embedding = named[worker, model.HEAD], named[worker, model.EMBEDDING]
            assert (head.data_ptr(), head.shape, head.stride()) == (
                embedding.data_ptr(),
                embedding.shape,
                embedding.stride(),
            )
        assert len({tensor.data_ptr() for tensor in named.values()}) == len(named) - 4


def test_a_tied_head_may_be_given_or_not_but_not_differently(make: Any) -> None:
    session = make()
    session.updates(2)
    state = {
        (quantity, worker, name): tensor.clone()
        for quantity in ("parameters", "exp_avg", "exp_avg_sq")
        for worker, name, tensor in session.state(quantity)
    }
    without = {key: tensor for key, tensor in state.items() if key[2] != model.HEAD}
    for given in (state, without):
        session.updates(1)
        session.load_state(given, 2)
        for (quantity, worker, name), tensor in state.items():
            live = {(w, n): t for w, n, t in session.state(quantity)}
            assert torch.equal(live[worker, name], tensor)
    state["exp_avg", 1, model.HEAD] = state["exp_avg", 1, model.HEAD] + 1
    with pytest.raises(ValueError, match="shares its storage"):
        session.load_state(state, 2)


def test_an_untied_head_is_a_parameter_of_its_own_that_does_not_decay(make: Any) -> None:
    session = make(tied=False)
    session.updates(1)
    named = {(worker, name): tensor for worker, name, tensor in session.state("parameters")}
    assert len({tensor.data_ptr() for tensor in named.values()}) == len(named)
    assert not torch.equal(named[0, model.HEAD], named[0, model.EMBEDDING])
    assert not model.decays(model.HEAD)
    nats, targets = session.evaluate()
    assert 5 < nats / targets < 6
