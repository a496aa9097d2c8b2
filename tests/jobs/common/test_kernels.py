"""The kernel table: device rows alone, families that are all of the captured time, kernels of older architectures."""

from __future__ import annotations

import json
import math
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from jobs.common.kernels import (
    UNATTRIBUTED,
    KernelsError,
    Row,
    attribution,
    built_for,
    busy_s,
    capture_status,
    check_total,
    is_older,
    make_table,
)

FAMILIES = {"model": "other", "model.attention": "attention", "model.mlp": "dense GEMM"}
PUBLISHED_MS = {"attention": 22_835.8, "dense GEMM": 2_774.0, "other": 5_739.0}
"""A published table of one step, in which 3,675 ms of 35,023.8 ms stand nowhere."""
CAPTURED_S = 35.0238


def _row(name: str, ms: float, *modules: str, **changed: Any) -> Row:
    given: dict[str, Any] = {"name": name, "device_s": ms / 1000, "calls": 1, "is_device": True, "modules": modules}
    return Row(**given | changed)


def _published() -> list[Row]:
    return [
        _row("fmha_cutlassF_bf16_aligned_64x128_gmem_sm80", 9_000.0, "model", "model.attention"),
        _row("fmha_cutlassB_bf16_aligned_64x64_k64_sm80", 13_835.8, "model", "model.attention"),
        _row("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN", 2_774.0, "model", "model.mlp"),
        _row("vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add>", 5_739.0, "model"),
    ]


def test_a_published_table_that_leaves_a_tenth_of_the_time_out_is_refused() -> None:
    with pytest.raises(KernelsError, match=r"3,675\.0 ms \(10\.5%\) stand nowhere"):
        check_total({name: ms / 1000 for name, ms in PUBLISHED_MS.items()}, CAPTURED_S)
    with pytest.raises(KernelsError, match=r"3,675\.0 ms"):
        make_table(_published(), families=FAMILIES, captured_s=CAPTURED_S, capability=(12, 0))


def test_what_belongs_to_no_family_stands_in_the_table() -> None:
    rows = [*_published(), _row("Memcpy HtoD (Pinned -> Device)", 3_675.0)]
    table = make_table(rows, families=FAMILIES, captured_s=CAPTURED_S, capability=(12, 0))
    assert [(share.name, round(share.device_s * 1000, 1), round(share.share * 100, 1)) for share in table.families] == [
        ("attention", 22_835.8, 65.2),
        ("other", 5_739.0, 16.4),
        ("dense GEMM", 2_774.0, 7.9),
        (UNATTRIBUTED, 3_675.0, 10.5),
    ]
    assert math.fsum(share.device_s for share in table.families) == pytest.approx(CAPTURED_S, rel=1e-3)


def test_kernels_of_an_older_architecture_and_the_slow_tier_are_named() -> None:
    rows = [*_published(), _row("Memset (Device)", 3_675.0)]
    table = make_table(rows, families=FAMILIES, captured_s=CAPTURED_S, capability=(12, 0))
    assert [share.name for share in table.older] == [
        "fmha_cutlassB_bf16_aligned_64x64_k64_sm80",
        "fmha_cutlassF_bf16_aligned_64x128_gmem_sm80",
    ]
    assert [(share.name, share.device_s) for share in table.fallbacks] == [
        ("attention that keeps its sums in global memory (gmem)", 9.0)
    ]


def test_an_operator_and_its_kernel_count_once() -> None:
    kernel = _row("sm90_xmma_gemm_bf16", 10.0, "model")
    operator = _row("aten::mm", 10.0, "model", is_device=False)
    label = _row("forward", 10.0, is_annotation=True)
    table = make_table([operator, kernel, label], families=FAMILIES, captured_s=0.010, capability=(9, 0))
    assert [(share.name, share.device_s) for share in table.kernels] == [("sm90_xmma_gemm_bf16", 0.010)]
    assert [(share.name, share.device_s) for share in table.families] == [("other", 0.010)]


def test_rows_that_make_more_than_the_captured_time_are_refused() -> None:
    rows = [_row("aten::mm", 10.0), _row("gemm", 10.0)]
    with pytest.raises(KernelsError, match="counts twice"):
        make_table(rows, families={}, captured_s=0.010, capability=None)


@pytest.mark.parametrize(("ms", "is_whole"), [(9.9901, True), (9.9899, False), (10.0099, True), (10.0101, False)])
def test_a_thousandth_may_be_missing_or_too_much(ms: float, is_whole: bool) -> None:
    if is_whole:
        check_total({"other": ms / 1000}, 0.010)
    else:
        with pytest.raises(KernelsError):
            check_total({"other": ms / 1000}, 0.010)


@pytest.mark.parametrize("captured_s", [0.0, -1.0, math.nan, math.inf])
def test_nothing_captured_is_no_table(captured_s: float) -> None:
    with pytest.raises(KernelsError, match="no device time"):
        make_table([], families={}, captured_s=captured_s, capability=None)


@pytest.mark.parametrize("device_s", [math.nan, math.inf, -1.0])
def test_a_time_that_is_none_is_refused(device_s: float) -> None:
    with pytest.raises(KernelsError, match="is no time"):
        make_table([_row("gemm", 0.0, device_s=device_s)], families={}, captured_s=1.0, capability=None)


def test_a_family_cannot_take_the_name_of_what_has_none() -> None:
    with pytest.raises(KernelsError, match="cannot be the name"):
        make_table([_row("gemm", 1.0)], families={"model": UNATTRIBUTED}, captured_s=0.001, capability=None)


def test_the_innermost_module_with_a_family_decides() -> None:
    rows = [_row("softmax", 1.0, "model", "model.attention", "model.attention.inner")]
    table = make_table(rows, families=FAMILIES, captured_s=0.001, capability=None)
    assert table.families[0].name == "attention"


@hypothesis.given(
    times_ms=st.lists(st.floats(min_value=0.001, max_value=1e6), min_size=1, max_size=30),
    places=st.lists(st.sampled_from([(), ("model",), ("model", "model.mlp")]), min_size=30, max_size=30),
)
def test_families_are_all_of_the_time_whatever_the_rows(times_ms: list[float], places: list[tuple[str, ...]]) -> None:
    rows = [_row(f"kernel {index}", ms, *places[index]) for index, ms in enumerate(times_ms)]
    captured_s = math.fsum(row.device_s for row in rows)
    table = make_table(rows, families=FAMILIES, captured_s=captured_s, capability=None)
    assert math.fsum(share.device_s for share in table.families) == pytest.approx(captured_s, rel=1e-9)
    assert sum(share.calls for share in table.families) == len(rows)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", (8, 0)),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn", (8, 0)),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_64x2_nn_align8>", (8, 0)),
        ("volta_sgemm_128x64_nt", (7, 0)),
        ("turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_tn", (7, 5)),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", (9, 0)),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128", (9, 0)),
        ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<...>>>", (9, 0)),
        ("cutlass3x_sm100_tensorop_s256x128x16gemm_bf16", (10, 0)),
        ("kernel_cutlass_sm_120a", (12, 0)),
        ("cutlass_tensorop_bf16_s16816gemm_bf16_256_64_nn", None),
        ("capturing_volta", (7, 0)),
        ("capturing", None),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNN", None),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>", None),
        ("triton_poi_fused_add_64", None),
        ("softmax_warp_forward<float, float, float, 10, false>", None),
        ("sm16_something", None),
    ],
)
def test_an_architecture_is_read_from_a_kernels_name(name: str, version: tuple[int, int] | None) -> None:
    assert built_for(name) == version


@pytest.mark.parametrize(
    ("capability", "is_old"), [((12, 0), True), ((9, 0), True), ((8, 9), True), ((8, 0), False), (None, False)]
)
def test_older_is_older_than_the_device(capability: tuple[int, int] | None, is_old: bool) -> None:
    assert is_older("fmha_cutlassF_f32_aligned_64x64_rf_sm80", capability) == is_old


def test_plain_attention_is_found_by_its_operator() -> None:
    rows = [
        _row("aten::_scaled_dot_product_attention_math", 5.0, is_device=False, calls=12),
        _row("softmax_warp_forward", 5.0),
    ]
    table = make_table(rows, families={}, captured_s=0.005, capability=None)
    assert [(share.name, share.calls, share.device_s) for share in table.fallbacks] == [
        ("attention as plain products (math)", 12, 0.0)
    ]


def test_replayed_graphs_degrade_the_attribution() -> None:
    kernel = _row("gemm", 1.0)
    assert attribution([kernel]) == "complete"
    assert attribution([kernel, _row("cudaGraphLaunch", 0.0, is_device=False)]) == "degraded"


@pytest.mark.parametrize(
    ("has_begun", "has_ended", "status"),
    [(False, False, "no_capture"), (False, True, "no_capture"), (True, False, "partial"), (True, True, "complete")],
)
def test_a_capture_says_how_far_it_came(has_begun: bool, has_ended: bool, status: str) -> None:
    assert capture_status(has_begun=has_begun, has_ended=has_ended) == status


@pytest.mark.parametrize(
    ("intervals", "seconds"),
    [
        ([], 0.0),
        ([(0.0, 1.0), (2.0, 3.0)], 2.0),
        ([(0.0, 2.0), (1.0, 3.0)], 3.0),
        ([(0.0, 9.0), (1.0, 2.0), (8.0, 10.0)], 10.0),
        ([(5.0, 6.0), (0.0, 1.0)], 2.0),
    ],
)
def test_overlapping_kernels_keep_the_device_busy_once(intervals: list[tuple[float, float]], seconds: float) -> None:
    assert busy_s(intervals) == pytest.approx(seconds)


def test_a_kernel_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(KernelsError):
        busy_s([(1.0, 0.5)])


def test_the_table_can_be_written() -> None:
    table = make_table([_row("gemm", 1.0)], families={}, captured_s=0.001, capability=None)
    found = json.loads(json.dumps(table.as_json(), allow_nan=False))
    assert found["families"] == [{"name": UNATTRIBUTED, "device_s": 0.001, "share": 1.0, "calls": 1}]
    assert found["attribution"] == "complete"
