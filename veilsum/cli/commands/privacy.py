"""`veilsum privacy`: estimate the cost of differential privacy before a study is signed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilsum.cli.console import print_note, print_values
from veilsum.cli.options import Standardise, add_table_options
from veilsum.protocol.errors import Misuse

if TYPE_CHECKING:
    from veilsum.calibration.privacy.plan import Plan
    from veilsum.calibration.rows import Floats, Integers
    from veilsum.cli.tables import TableFormat

_FEATURES_MIN = 500
_END_SENTENCES = {
    "first": "The expected loss is from the first row of a table of measurements: studies with more noise get the same figures, and may lose more.",
    "last": "The expected loss is from the last row of a table of measurements: studies with less noise get the same figures, and may lose less.",
}


@add_table_options
def privacy(
    records: Annotated[int, typer.Option(help="Rows of all members together.", min=1)],
    dim: Annotated[int, typer.Option(help="Features per record.", min=1)],
    classes: Annotated[int, typer.Option(help="Number of classes.", min=2)],
    members: Annotated[int, typer.Option(help="Members of a run.", min=3)],
    epsilon: Annotated[float, typer.Option(help="ε of the whole study.")],
    form: "TableFormat",
    delta: Annotated[float, typer.Option(help="δ; well below 1 / records.")] = 1e-7,
    largest: Annotated[
        float | None,
        typer.Option(
            help="Share of the largest class.", show_default="that of --features, else classes of one size"
        ),
    ] = None,
    recipe: Annotated[
        str, typer.Option(help="mean+sum+16-gradients, mean+sum+6-gradients, mean+sum or sum.")
    ] = "mean+sum+16-gradients",
    features: Annotated[
        Path | None,
        typer.Option(help="Labelled features like the study's, to try the recipe on.", show_default="none"),
    ] = None,
    standardise: Standardise = None,
    rows: Annotated[
        int, typer.Option(help="Rows of a unit: `rows_per_id`, or `most` to protect a member.", min=1)
    ] = 1,
    colluders: Annotated[
        int | None, typer.Option(help="Members that may collude.", min=0, show_default="a quarter")
    ] = None,
) -> None:
    """Estimate what a noisy study of FFC costs: noise, bytes and accuracy, and what would help.

    Points of accuracy come from measurements on other data and are no bound; below 0, accuracy rises. Your own features give a closer estimate.
    """
    from collections import Counter

    from veilsum.calibration.privacy.plan import plan
    from veilsum.calibration.privacy.trial import TRIAL_OFF_BY, try_recipe
    from veilsum.protocol.sizing import size_cohort
    from veilsum.protocol.study import (
        NOISE_DELTA_MAX,
        NOISE_EPSILON_MAX,
        NOISY_BITS,
        NOISY_RECORDS_MAX,
        RECIPES,
    )

    if recipe not in RECIPES:
        raise Misuse(f"unknown recipe {recipe!r}: expected {', '.join(RECIPES)}")
    if delta * records > 1:
        raise Misuse(
            f"δ = {delta:g} is above 1/{records}: a mechanism that publishes one record at random would pass. "
            f"Expected at most {1 / records:.1g}; a tenth of that is usual"
        )
    if not 0 < epsilon <= NOISE_EPSILON_MAX or not 0 < delta <= NOISE_DELTA_MAX:
        raise Misuse(
            f"ε = {epsilon:g} and δ = {delta:g}: a study takes ε above 0 and up to {NOISE_EPSILON_MAX}, and δ above 0 and up to "
            f"{NOISE_DELTA_MAX:g}"
        )
    if records >= NOISY_RECORDS_MAX:
        raise Misuse(f"{records:,} rows: a study with noise takes fewer than {NOISY_RECORDS_MAX:,}")
    if standardise is not None and features is None:
        raise Misuse("--standardise is for the features to try the recipe on: pass --features too")
    read, tried = list[dict[str, Any]](), None
    if features is not None:
        read, tried = _read_features(features, form, standardise, dim, classes)
        if largest is None:
            largest = max(Counter(tried[1].tolist()).values()) / len(tried[1])
    against = members // 4 if colluders is None else colluders
    quorum = size_cohort(members, None, roster=members, colluders=against).quorum
    shares = dict(RECIPES[recipe])
    made = plan(
        records,
        dim,
        classes,
        recipe=recipe,
        shares=shares,
        epsilon=epsilon,
        delta=delta,
        constant=True,  # as in the studies that `veilsum admin study new` drafts
        largest=largest,
        rows_per_unit=rows,
        members=members,
        survivors_min=quorum.survivors_min,
        colluders=against,
    )
    median, least, most = made.expected_loss()
    values: dict[str, Any] = {"recipe": recipe, "epsilon": epsilon, "delta": delta, "mu": made.mu}
    verdict = made.outlook
    if tried is not None:
        seen = try_recipe(*tried, classes, shares, made.effective_mu * records / len(tried[1]))
        verdict = seen.judge_loss(made.headroom)
        values |= {
            "points_lost_on_these_features": [
                round(seen.lost + off, 1) for off in (-TRIAL_OFF_BY, 0.0, TRIAL_OFF_BY)
            ],
            "accuracy_on_these_features": seen.noisy / 100,
            "balanced_accuracy_on_these_features": seen.balanced / 100,
        }
    values |= {
        "largest_class": made.largest,
        "verdict": verdict.value,
        "expected_points_lost": median,
        "points_lost_in_95_percent": [least, most],
        "what_would_help": list(made.list_remedies()),
        "sigma_of_the_sum": made.sums.mechanism.sigma,
        "sigma_when_all_are_summed": made.sums.deviation,
        "expected_error_of_the_mean": made.mean_error,
        "steps": {step: each.epsilon for step, each in made.rounds.items()},
        "upload_bytes": sum(each.elements for each in made.rounds.values()) * NOISY_BITS // 8,
        "needed_for_a_sum": quorum.survivors_min,
        "may_collude": against,
    }
    shown = {**values, "steps": {step: f"ε = {each.epsilon:.3g}" for step, each in made.rounds.items()}}
    print_values(shown, "A noisy study", scripts={"read": read, **values} if read else values)
    _note_limits(made)


def _note_limits(made: "Plan") -> None:
    """Say where the estimate, or accuracy itself, tells little."""
    from veilsum.calibration.privacy.plan import RARE_HEADROOM

    if made.table_end is not None:
        print_note(_END_SENTENCES[made.table_end])
    if made.headroom < RARE_HEADROOM:
        print_note(
            f"Always answering the largest class is right in {made.largest:.1%} of these records, so accuracy says little. Look at the recall of "
            "each class, and choose a threshold on hold-out records."
        )


def _read_features(
    path: Path, form: "TableFormat", standardise: Path | None, dim: int, classes: int
) -> "tuple[list[dict[str, Any]], tuple[Floats, Integers]]":
    """Return a report on the file, and its usable rows of length 1 with their labels."""
    from veilsum.calibration.rows import unit_rows
    from veilsum.cli.features import class_keys, make_records, of_file, read_table
    from veilsum.cli.moments import moments_in
    from veilsum.cli.read_report import report_files

    table = read_table(path, form)
    moments = None if standardise is None else moments_in(standardise, [table])
    with of_file(path):
        records = make_records(table if moments is None else moments.standardise_table(table))
        keys = class_keys([records])
    read = report_files([path], [records], keys)
    labels, usable = records.find_usable_rows(keys)
    features, labels = records.features[usable], labels[usable]
    if features.shape[1] != dim or len(keys) > classes or len(features) < _FEATURES_MIN:
        raise Misuse(
            f"{path} has {len(features)} usable records of {features.shape[1]} features in {len(keys)} classes: "
            f"expected at least {_FEATURES_MIN} of {dim}, in at most {classes}"
        )
    return read, (unit_rows(features)[0], labels)
