"""Tables of costs match their result files."""

import json
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "benchmarks" / "figures"
VECTOR_BYTES = 947_940 * 4


def rounds(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FIGURES / name).read_text("utf-8"))["rounds"]
    return found


def test_the_benchmarks_own_table_of_costs() -> None:
    rows = []
    for each in (*rounds("bench.json"), *rounds("bench_thousand.json")):
        ours, floor, ctr = each["systems"]["ours"], each["ours_over_floor"], each["ours_over_floor_ctr"]
        graph = ours["graph"] if ours["graph"] == "complete" else f"sparse, {ours['shares'] - 1}"
        rows.append(
            f"| {each['members']:,} | {graph} | {each['lost']} | {each['ring_bits']} bits "
            f"| {1e3 * ours['client_cpu_s']:.0f} | {floor['client_cpu_s']:.2f} | {ctr['client_cpu_s']:.2f} "
            f"| {1e3 * ours['server_cpu_s']:,.0f} | {floor['server_cpu_s']:.2f} | {ctr['server_cpu_s']:.2f} |"
        )
    shown = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    assert [row for row in rows if row not in shown] == []


def test_what_the_page_beside_others_has_of_the_same_run() -> None:
    of = {(each["lost"], each["ring_bits"]): each["systems"] for each in rounds("bench_flower.json")[-4:]}
    kept, lost = of[0, 32], of[10, 32]
    ours, flower = lost["ours"], lost["flower_sparse"]
    shown = (ROOT / "docs" / "concepts" / "comparison.md").read_text("utf-8")
    theirs = (
        f"| Flower 1.41 SecAgg+, 20 neighbours | {flower['client_cpu_s']:.2g} | {flower['client_upload_bytes'] / 1e6:.2f} "
        f"| {kept['flower_sparse']['server_cpu_s']:.1f} / {flower['server_cpu_s']:.1f} | `make bench` |"
    )
    own = (
        f"| veilsum, all pairs, 32 bits | {ours['client_cpu_s']:.2g} | {ours['client_upload_bytes'] / 1e6:.1f} "
        f"| {kept['ours']['server_cpu_s']:.2g} / {ours['server_cpu_s']:.2g} | `make bench` |"
    )
    over = ours["client_upload_bytes"] / VECTOR_BYTES
    assert [row for row in (theirs, own, f"| {over:.2f} for 100 members") if row not in shown] == []


def test_what_a_member_installs() -> None:
    found = json.loads((FIGURES / "dist.json").read_text("utf-8"))
    shown = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    for promise in found["promises"]:
        assert promise["kept"]
        if promise["bound"]:
            named = f"{promise['measured']:g} {promise['unit'].split()[0]} | {promise['bound']:g} {promise['unit'].split()[0]} |"
            assert named in shown, promise["name"]
    assert f"| {found['from client_sdk import Member']['processor_s']:g} s | – |" in shown
    for version, said in found["suite_against_the_wheel"].items():
        assert f"{version}: {said.partition(',')[0]}" in shown


def test_the_table_of_noisy_recipes() -> None:
    from benchmarks.noisy_recipes import Figure, page  # noqa: PLC0415 - imports all that training needs

    figures = json.loads((FIGURES / "noisy_recipes.json").read_text("utf-8"))
    rows = page([Figure.of_json(row) for row in figures])
    shown = (ROOT / "docs" / "privacy.md").read_text("utf-8").splitlines()
    start = shown.index(rows[0])
    assert shown[start : start + len(rows)] == rows


def test_how_often_heads_are_right() -> None:
    reported = json.loads((FIGURES / "heads.json").read_text("utf-8"))["reported"]
    shown = (ROOT / "docs" / "heads.md").read_text("utf-8")
    rows = {
        "ridge; λ by GCV": ["ridge, λ by GCV"],
        "ridge, unit columns": ["ridge, unit columns"],
        "nearest class mean": ["nearest class mean"],
        "LDA": ["LDA"],
        "CCVR, 300 virtual features a class, with / without ReLU and Tukey": [
            "CCVR, 300 a class",
            "CCVR, 300 a class, no ReLU, no Tukey",
        ],
        "ridge on 512 / 2048 random features": ["512 random features", "2048 random features"],
    }
    for row, names in rows.items():
        assert f"| {row} | {' / '.join(f'{100 * reported[name]:.1f}' for name in names)} |" in shown


def test_the_table_of_which_head_to_take() -> None:
    from benchmarks.head_choice import page  # noqa: PLC0415 - as above

    means = json.loads((FIGURES / "head_choice.json").read_text("utf-8"))["means"]
    shown = (ROOT / "docs" / "heads.md").read_text("utf-8").splitlines()
    rows = page(means)
    start = shown.index(rows[0])
    assert shown[start : start + len(rows)] == rows


def test_snapshots_and_training_beside_flower() -> None:
    shown = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    written = json.loads((FIGURES / "snapshots.json").read_text("utf-8"))
    assert f"{written['megabytes']} MB in {median(written['seconds']):.1f} s" in shown
    apart = json.loads((FIGURES / "training_speed.json").read_text("utf-8"))["largest_difference_of_a_weight"]
    assert f"within {apart * 1e6:.1f}·10⁻⁶" in shown


def test_the_sizes_of_sums() -> None:
    from veilsum.calibration.layout import ccvr_layout, ffc_layout  # noqa: PLC0415 - as above
    from veilsum.calibration.privacy.release import gradient_release, mean_release  # noqa: PLC0415 - as above

    shown = (ROOT / "docs" / "heads.md").read_text("utf-8")
    layouts = [ffc_layout(1280, 100), ffc_layout(4096, 100), ccvr_layout(1280, 100)]
    for layout in (*layouts, mean_release(1280).layout, gradient_release(1280, 100).layout):
        assert f"| {layout.elements:,} |" in shown
