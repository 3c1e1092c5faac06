"""Compare a member's canaries with a pack, and name the likely cause of a difference.

Features are scaled to length 1, as sums take them, and compared row by row. A cause is likely if undoing it leaves at most the tolerance, or a
quarter of the largest difference. Two causes are named if undoing both leaves at most the tolerance, or a quarter of what the likeliest one
leaves. Everything shown is of public inputs.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from veilsum.calibration.rows import unit_rows, usable_rows
from veilsum.protocol.study import Question
from veilsum.study.canaries import CanaryPack
from veilsum.study.canary_slips import PAIR_MARK

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

TOLERANCE_MOST = 0.01
"""Of a draft: machines, libraries and half precision differ by about a tenth of it."""
_CANARIES_SHOWN_MAX = 5
_LEFT_SHARE_MAX = 0.25
"""Most of the largest difference that a likely cause leaves."""
_SAME_DIGITS = 5
"""Causes that leave as much to so many digits fit equally well; slips that the pack carries come first."""
_MOMENTS_CANARIES_MIN = 6
"""Fewest canaries from which a column's stretch and shift are told from chance."""
_COLUMN_BLOCK_ELEMENTS = 1 << 22


class Slip(StrEnum):
    """What is wrong with a member's canaries. Slips that the pack carries have names of their own."""

    MISSING = "missing"
    UNKNOWN_ID = "unknown-id"
    REPEATED = "repeated"
    UNUSABLE = "unusable"
    COLUMNS = "columns"
    ROWS = "rows"
    MOMENTS = "own-moments"
    LABELS = "labels"
    OTHER = "other"


SLIP_WORDS: dict[str, str] = {
    "transposed": "rows and columns of the images are exchanged",
    "rotated": "the images are turned by a quarter",
    "flipped": "the images are mirrored, left to right",
    "upside-down": "the images are upside down",
    "inverted": "black and white are exchanged",
    "bgr": "the colour channels are in the order blue, green, red instead of red, green, blue",
    "nearest": "the images are resized by the nearest pixel",
    "bilinear": "the images are resized by bilinear interpolation",
    "bilinear-aliased": "the images are resized by bilinear interpolation without antialiasing",
    "bicubic": "the images are resized by bicubic interpolation",
    "not-normalised": "the pixels are not normalised by the study's mean and deviation",
}
"""What is meant by the slips that `image_slips` makes, and by names that authors of packs should use for the same."""


@dataclass(frozen=True)
class CanaryFinding:
    """One difference.

    Attributes:
        slip: a `Slip`, or the name of one that the pack carries.
        detail: what is wrong and what to do, one sentence or more.
    """

    slip: str
    detail: str


@dataclass(frozen=True)
class CanaryCheck:
    """How a member's canaries compare with a pack's.

    Attributes:
        canaries: in the pack.
        largest: the largest difference of two rows of length 1; None if no row could be compared.
        canary: where it is.
        findings: empty if the canaries agree.
    """

    canaries: int
    largest: float | None
    canary: str
    findings: tuple[CanaryFinding, ...]

    def describe(self) -> str:
        """Describe the outcome in a line."""
        if self.findings:
            return " ".join(each.detail for each in self.findings)
        return (
            f"{self.canaries} canaries agree with the study's; the largest difference is {self.largest:.2g}"
        )


def check_canaries(
    pack: CanaryPack,
    question: Question,
    tolerance: float,
    ids: Sequence[str],
    features: npt.NDArray[Any],
    labels: Integers,
) -> CanaryCheck:
    """Compare canaries with a pack.

    Args:
        pack: as `CanaryPack.check_question` takes it for the question.
        question: of the study.
        tolerance: the largest difference allowed between two rows of length 1.
        ids: of the member's canaries.
        features: (k, dim), in the order of the question's columns.
        labels: (k,) class indices; −1 for a missing or unknown label.
    """
    places = {each: place for place, each in enumerate(pack.ids)}
    findings = list[CanaryFinding]()
    if strange := sorted({*ids} - {*places}):
        findings.append(
            CanaryFinding(
                Slip.UNKNOWN_ID,
                f"The study's pack has no {_list_names(strange)}. Ids that begin with canary- are for its canaries alone: remove other rows.",
            )
        )
    if repeated := sorted(each for each, count in Counter(ids).items() if count > 1):
        findings.append(CanaryFinding(Slip.REPEATED, f"Several rows have the id {_list_names(repeated)}."))
    if missing := [each for each in pack.ids if each not in {*ids}]:
        findings.append(
            CanaryFinding(
                Slip.MISSING,
                f"Missing {len(missing)} of {len(pack.ids)} canaries: {_list_names(missing)}. Run the pack's inputs through your pipeline "
                "together with your data, and keep their ids: `veilsum member canaries` writes them.",
            )
        )
    known = [row for row, each in enumerate(ids) if each in places]
    given, own = np.asarray(features)[known], np.asarray(labels)[known]
    order = [places[ids[row]] for row in known]
    usable = usable_rows(given, np.zeros(len(given), np.int64), 1)
    if not usable.all():
        wrong = [pack.ids[place] for place, fine in zip(order, usable, strict=True) if not fine]
        findings.append(
            CanaryFinding(
                Slip.UNUSABLE, f"The features of {_list_names(wrong)} hold NaN or infinity, or are all zeros."
            )
        )
    compared = _Rows.of_pack(
        pack, question, np.array(order, np.int64)[usable], given[usable].astype(np.float64)
    )
    largest, canary = None, ""
    if len(compared.own):
        distances = _distances(compared.own, compared.reference)
        worst = int(distances.argmax())
        largest, canary = float(distances[worst]), compared.ids[worst]
        if largest > tolerance:
            findings += compared.explain_difference(tolerance, largest, canary)
    classes = {key: place for place, key in enumerate(question.classes)}
    expected = np.array([classes[pack.labels[place]] for place in order], np.int64)
    findings += _check_labels(question.classes, [pack.ids[place] for place in order], expected, own)
    return CanaryCheck(len(pack.ids), largest, canary, tuple(findings))


def measure_slips(pack: CanaryPack) -> dict[str, float]:
    """Return the largest difference of each slip from the reference: below the smallest of them no slip passes."""
    return {name: _largest_distance(each, pack.features) for name, each in pack.slips.items()}


def suggest_tolerance(pack: CanaryPack) -> float:
    """Return a tolerance for a pack: half of its smallest slip, to one digit, and at most `TOLERANCE_MOST`."""
    return float(f"{min([TOLERANCE_MOST, *(change / 2 for change in measure_slips(pack).values())]):.1g}")


_Explanation: TypeAlias = tuple[float, tuple[CanaryFinding, ...]]
"""What undoing a cause or two leaves of the largest difference, and the causes."""
_REVERSED_COLUMNS = "the columns stand in reverse order"


def _choose_likeliest(found: Iterable[_Explanation]) -> _Explanation:
    """Return the explanation that leaves least; one that leaves everything if there is none."""
    return min(found, key=lambda each: round(each[0], _SAME_DIGITS), default=(np.inf, ()))


def _describe_slip(name: str) -> CanaryFinding:
    said = SLIP_WORDS.get(name, f"the pipeline has the slip that the pack calls {name!r}")
    return CanaryFinding(name, f"{said}.")


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows that are compared, (k, dim) each, in one order of canaries and columns."""

    ids: tuple[str, ...]
    columns: tuple[str, ...]
    reference: Floats
    own: Floats
    slips: Mapping[str, Floats]

    @classmethod
    def of_pack(cls, pack: CanaryPack, question: Question, order: Integers, own: Floats) -> "_Rows":
        named = {name: place for place, name in enumerate(pack.columns)}
        columns = [named[name] for name in question.columns] if named and question.columns else slice(None)

        def take(features: npt.NDArray[Any]) -> Floats:
            return features[order][:, columns].astype(np.float64)

        slips = {name: take(each) for name, each in pack.slips.items()}
        ids = tuple(pack.ids[place] for place in order)
        return cls(ids, question.columns or tuple(pack.columns), take(pack.features), own, slips)

    def explain_difference(self, tolerance: float, largest: float, canary: str) -> list[CanaryFinding]:
        """Return the likeliest cause, or two. A second cause must explain what the first leaves; a mean and scale fit much, and come last."""
        where = f"The largest difference of rows of length 1 is {largest:.2g}, at {canary}; the study allows {tolerance:g}."
        bound = max(tolerance, _LEFT_SHARE_MAX * largest)
        left, found = _choose_likeliest(self._try_causes(bound))
        if left > tolerance:
            bound_of_two = max(tolerance, _LEFT_SHARE_MAX * min(left, largest))
            left_by_two, two = _choose_likeliest(self._try_pairs(bound_of_two))
            if left_by_two <= bound_of_two:
                left, found = left_by_two, two
        if left > bound:
            left, found = _choose_likeliest(self.try_moments(bound))
        if left > bound:
            left, found = _choose_likeliest(self._try_moments_with_another(tolerance))
        if left > bound:
            return [CanaryFinding(Slip.OTHER, f"Features differ for an unknown reason. {where}")]
        begins = ["Likely cause:"] if len(found) == 1 else ["Two likely causes. One:", "The other:"]
        said = [
            replace(each, detail=f"{begin} {each.detail}") for begin, each in zip(begins, found, strict=True)
        ]
        return [*said[:-1], replace(said[-1], detail=f"{said[-1].detail} {where}")]

    def _try_causes(self, bound: float) -> Iterator[_Explanation]:
        """Undo one cause: a slip of the pack, or permuted columns or rows."""
        for name, features in self.slips.items():
            if PAIR_MARK not in name:
                yield _largest_distance(features, self.own), (_describe_slip(name),)
        yield from self.try_columns(bound)
        yield from self.try_rows()

    def _try_pairs(self, bound: float) -> Iterator[_Explanation]:
        """Undo two causes: two slips of the pack, or one under permuted columns or rows; or reversed columns under permuted rows."""
        for name, features in self.slips.items():
            if PAIR_MARK in name:
                both = tuple(map(_describe_slip, name.split(PAIR_MARK)))
                yield _largest_distance(features, self.own), both
                continue
            under = replace(self, reference=features)
            for left, found in (*under.try_columns(bound), *under.try_rows()):
                yield left, (_describe_slip(name), *found)
        for left, found in replace(self, reference=self.reference[:, ::-1]).try_rows():
            yield left, (CanaryFinding(Slip.COLUMNS, f"{_REVERSED_COLUMNS}."), *found)

    def try_columns(self, bound: float) -> Iterator[_Explanation]:
        """Undo a permutation of columns: pair each column with the nearest one of the reference."""
        own, reference = unit_rows(self.own)[0], unit_rows(self.reference)[0]
        nearest = _nearest_columns(own, reference)
        if (
            _largest_distance(reference[:, nearest], own) > bound
            or _largest_distance(own[:, _nearest_columns(reference, own)], reference) > bound
        ):
            return
        moved = np.abs(own - reference).max(axis=0) > np.abs(own - reference[:, nearest]).max(axis=0)
        if moved.any():
            is_reversed = bool((np.abs(own - reference[:, ::-1]).max(axis=1) <= bound).all())
            finding = self._describe_columns(nearest, np.flatnonzero(moved), is_reversed=is_reversed)
            yield _largest_distance(reference[:, nearest], own), (finding,)

    def _describe_columns(self, nearest: Integers, moved: Integers, *, is_reversed: bool) -> CanaryFinding:
        if is_reversed:
            return CanaryFinding(Slip.COLUMNS, f"{_REVERSED_COLUMNS}.")
        pairs = [
            f"{self._name_column(int(nearest[place]))} is in the place of {self._name_column(place)}"
            for place in moved.tolist()
        ]
        more = f", and {len(pairs) - _CANARIES_SHOWN_MAX:,} more" if len(pairs) > _CANARIES_SHOWN_MAX else ""
        said = f"{', '.join(pairs[:_CANARIES_SHOWN_MAX])}{more}"
        return CanaryFinding(
            Slip.COLUMNS, f"{moved.size:,} of {len(nearest):,} columns are permuted: {said}."
        )

    def try_rows(self) -> Iterator[_Explanation]:
        """Undo a permutation of rows: features that stand at another canary's id."""
        own, reference = unit_rows(self.own)[0], unit_rows(self.reference)[0]
        nearest = (own @ reference.T).argmax(axis=1)
        moved = np.flatnonzero(nearest != np.arange(len(own)))
        if not moved.size or len({*nearest.tolist()}) < len(own):
            return
        pairs = [
            f"{self.ids[row]} has those of {self.ids[nearest[row]]}"
            for row in moved[:_CANARIES_SHOWN_MAX].tolist()
        ]
        detail = f"the features of {moved.size} canaries are under another id: {', '.join(pairs)}."
        yield (_largest_distance(self.reference[nearest], self.own), (CanaryFinding(Slip.ROWS, detail),))

    def try_moments(self, bound: float) -> Iterator[_Explanation]:
        """Undo a stretch and shift of each column, as a mean and scale of the site's own give it."""
        if len(self.own) < _MOMENTS_CANARIES_MIN:
            return
        centred = self.reference - self.reference.mean(axis=0)
        spread = (centred**2).sum(axis=0)
        slope = np.divide(
            (centred * self.own).sum(axis=0), spread, out=np.ones_like(spread), where=spread > 0
        )
        shift = self.own.mean(axis=0) - slope * self.reference.mean(axis=0)
        fitted = slope * self.reference + shift
        if not fitted.any(axis=1).all() or (left := _largest_distance(fitted, self.own)) > bound:
            return
        scale = np.abs(self.reference).max()
        changed = np.flatnonzero((np.abs(slope - np.median(slope)) > 1e-3) | (np.abs(shift) > 1e-3 * scale))
        names = _list_names([self._name_column(place) for place in changed.tolist()])
        detail = f"columns are stretched and shifted ({names}): the mean and scale are this site's own, or missing, instead of the study's."
        yield left, (CanaryFinding(Slip.MOMENTS, detail),)

    def _try_moments_with_another(self, tolerance: float) -> Iterator[_Explanation]:
        """Undo a mean and scale of the site's own under a slip of the pack or permuted columns, if they leave no more than the tolerance."""
        for name, features in self.slips.items():
            if PAIR_MARK not in name:
                for left, found in replace(self, reference=features).try_moments(tolerance):
                    yield left, (_describe_slip(name), *found)
        likest = _following_columns(self.own, self.reference)
        moved = np.flatnonzero(likest != np.arange(len(likest)))
        if moved.size:
            is_reversed = bool((likest[moved] == len(likest) - 1 - moved).all())
            columns = self._describe_columns(likest, moved, is_reversed=is_reversed)
            for left, found in replace(self, reference=self.reference[:, likest]).try_moments(tolerance):
                yield left, (columns, *found)

    def _name_column(self, place: int) -> str:
        return self.columns[place] if self.columns else f"column {place + 1}"


def _largest_distance(expected: npt.NDArray[Any], own: npt.NDArray[Any]) -> float:
    """Return the largest difference between rows of length 1."""
    return float(_distances(expected, own).max())


def _distances(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> Floats:
    distances: Floats = np.linalg.norm(unit_rows(first)[0] - unit_rows(second)[0], axis=1)
    return distances


def _nearest_columns(wanted: Floats, among: Floats) -> Integers:
    """Return for each column of `wanted` the place of the nearest one in `among`; its own place if none is nearer."""
    squares = (among**2).sum(axis=0)
    return _likest_columns(wanted.shape[1], lambda block: 2 * (wanted[:, block].T @ among) - squares)


def _following_columns(own: Floats, reference: Floats) -> Integers:
    """Return for each column of `own` the place of the reference's column that it follows most closely, stretched and shifted; its own place if none is closer."""
    first, second = _centre_columns(own), _centre_columns(reference)
    return _likest_columns(own.shape[1], lambda block: np.abs(first[:, block].T @ second))


def _likest_columns(columns: int, compare: Callable[[slice], Floats]) -> Integers:
    """Return for each column the place of the likest one; `compare` returns the likeness of a block of columns to all."""
    found = np.arange(columns)
    step = max(1, _COLUMN_BLOCK_ELEMENTS // columns)
    for start in range(0, columns, step):
        likeness = compare(slice(start, start + step))
        np.fill_diagonal(likeness[:, start:], likeness.diagonal(start) + 1e-9)  # among equal columns its own
        found[start : start + step] = likeness.argmax(axis=1)
    return found


def _centre_columns(rows: Floats) -> Floats:
    """Return columns of mean 0 and length 1, and zeros for a constant column."""
    centred = rows - rows.mean(axis=0)
    lengths = np.linalg.norm(centred, axis=0)
    found: Floats = np.divide(centred, lengths, out=np.zeros_like(centred), where=lengths > 0)
    return found


def _check_labels(
    classes: Sequence[str], ids: Sequence[str], expected: Integers, own: Integers
) -> Iterator[CanaryFinding]:
    """Yield what is wrong with labels, (k,) class indices each."""
    wrong = np.flatnonzero(own != expected)
    if not wrong.size:
        return
    keys = [*classes, "not a class of the study"]  # of −1
    shifts = {int(each) for each in (own - expected) % len(classes)}
    pairs = sorted(
        {(int(before), int(after)) for before, after in zip(expected[wrong], own[wrong], strict=True)}
    )
    said = ", ".join(f"{keys[before]} became {keys[after]}" for before, after in pairs[:_CANARIES_SHOWN_MAX])
    if (own < 0).any():
        how = "labels are missing, or not class keys of the study"
    elif len(shifts) == 1:
        how = f"labels are shifted by {shifts.pop()}"
    elif len({*expected.tolist()}) == len({*zip(expected.tolist(), own.tolist(), strict=True)}):
        how = "classes are in another order"
    else:
        how = "labels differ"
    at = _list_names([ids[row] for row in wrong.tolist()])
    yield CanaryFinding(
        Slip.LABELS, f"Likely cause: {how} ({said}) at {wrong.size} of {len(own)} canaries: {at}."
    )


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _CANARIES_SHOWN_MAX:,} more" if len(names) > _CANARIES_SHOWN_MAX else ""
    return ", ".join(names[:_CANARIES_SHOWN_MAX]) + more
