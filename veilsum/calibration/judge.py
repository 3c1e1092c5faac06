"""The judge: what noisy tables of right and wrong answers say about heads, and how sure it is.

Each figure has a 95 % interval for two errors: records are a sample of the members' patients, and the tables hold noise. A figure is stated
only if its standard error is small enough; else the number of records is given that would do.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Self

import numpy as np

from veilsum.calibration.judge_tables import (
    BY_CLASS,
    BY_CONFIDENCE,
    BY_SCORE,
    JOINT,
    OFFSET,
    RIGHT,
    WRONG,
    TableShapes,
)
from veilsum.calibration.rows import Floats

SHARE_LIMIT, FINE_LIMIT, TEMPERATURE_LIMIT, CHOICE_LIMIT = 0.03, 0.05, 0.1, 0.03
"""Maximum standard errors: of accuracies and calibration; of recalls and AUROC; of a temperature's logarithm; of the difference by which a head
is chosen."""
INTERVAL_ERRORS = 2.1
"""Standard errors on either side of a figure: at least 95 %, and a little more for the approximations behind them."""
_CHOICE_ERRORS = 2.0
_NOISE_SHARE_MAX = 0.2
"""Deviations of the noise on a class's records, as a share of them, up to which a mean over classes counts it."""
_NEEDED_MAX = 10**9
_HALF_NORMAL = math.sqrt(2 / math.pi)
"""Mean of |x| for a normal x of deviation 1."""
_BETA_MIN, _BETA_MAX = 1 / 64, 64.0
_NORMAL = NormalDist()
_SCORES_APART = math.sqrt(2) * _NORMAL.inv_cdf(0.9)
"""Distance of two normal scores of deviation 1 with an AUROC of .9."""


@dataclass(frozen=True)
class Figure:
    """One number with its 95 % interval, or how many records it would take.

    Attributes:
        value, low, high: the estimate and its interval.
        error: the standard error.
        limit: the largest standard error with which it is stated.
        records_needed: held-out records, with the same class shares, from which on it can be stated.
    """

    value: float
    low: float
    high: float
    error: float
    limit: float
    records_needed: int

    @property
    def is_stated(self) -> bool:
        """Whether the standard error is small enough."""
        return self.error <= self.limit


@dataclass(frozen=True)
class Level:
    """What a threshold on the score does: records at or above it are called positive.

    Attributes:
        threshold: of the positive class's score less the highest other.
        recall: share of the positives that are called positive (sensitivity).
        false_alarms: share of the others that are called positive (1 − specificity).
        precision: share of positives among those called positive.
    """

    threshold: float
    recall: Figure
    false_alarms: Figure
    precision: Figure


@dataclass(frozen=True)
class ScoreFigures:
    """How the first head's score parts the positive class from the others.

    Attributes:
        auroc: probability that a positive scores above another record.
        positives: estimated number of positives.
        levels: from the lowest threshold to the highest.
    """

    auroc: Figure
    positives: float
    levels: tuple[Level, ...]


@dataclass(frozen=True)
class CalibrationFigures:
    """Whether the first head is as often right as it is sure.

    Attributes:
        error: the expected calibration error over the bins (Guo et al. 2017, eq. 3).
        excess: mean confidence less accuracy; above 0 the head is too sure.
        temperature: τ at which the confidences fit, with its interval; the limit is on its logarithm's error.
        confidence, accuracy, records: of each bin, (B,); the diagram.
        accuracy_error: (B,) standard errors.
    """

    error: Figure
    excess: Figure
    temperature: Figure
    confidence: Floats
    accuracy: Floats
    accuracy_error: Floats
    records: Floats

    def list_stated_bins(self) -> list[tuple[float, Figure]]:
        """List the confidence and the accuracy of each bin that is known well enough; none if the calibration can't be stated."""
        if not self.excess.is_stated:
            return []
        found = list[tuple[float, Figure]]()
        bins = zip(
            self.confidence.tolist(), self.accuracy.tolist(), self.accuracy_error.tolist(), strict=True
        )
        for confidence, accuracy, error in bins:
            if error <= FINE_LIMIT:
                low, high = accuracy - INTERVAL_ERRORS * error, accuracy + INTERVAL_ERRORS * error
                found.append(
                    (confidence, Figure(accuracy, max(0.0, low), min(1.0, high), error, FINE_LIMIT, 0))
                )
        return found


@dataclass(frozen=True)
class JudgeFigures:
    """What a run of the judge says.

    Attributes:
        records: estimated held-out records.
        accuracy: of the first head.
        balanced_accuracy: of the first head: the mean recall over all classes, 0 for those that it never predicts.
        recalls: by class, of the first head; None for classes that it never predicts.
        unanswered: share of records of classes that the first head never predicts.
        head_accuracies: of each head shown, from the joint table; the intervals hold for all at once, so for the chosen one too.
        chosen: the head to use, by its place: the one with most right answers if that is sure enough, else the first.
        calibration: of the first head.
        score: of the first head; None without a positive class.
    """

    records: float
    accuracy: Figure
    balanced_accuracy: Figure
    recalls: tuple[Figure | None, ...]
    unanswered: Figure
    head_accuracies: tuple[Figure, ...]
    chosen: int
    calibration: CalibrationFigures
    score: ScoreFigures | None


NOT_SHARES = frozenset({"temperature", "AUROC"})
"""Figures of `list_figures` that are not written in percent."""


def list_figures(
    figures: JudgeFigures, names: Sequence[str], heads: Sequence[str] = ()
) -> list[tuple[str, Figure]]:
    """List a judgement's figures by name, without those of thresholds. Heads without a name are numbered from 1."""
    calibration, score = figures.calibration, figures.score
    return [
        ("accuracy", figures.accuracy),
        ("accuracy at equal class shares", figures.balanced_accuracy),
        *(
            (f"accuracy of {heads[place] if heads else f'head {place + 1}'}", each)
            for place, each in enumerate(figures.head_accuracies)
        ),
        *(
            (f"recall of {name}", each)
            for name, each in zip(names, figures.recalls, strict=True)
            if each is not None
        ),
        ("calibration error", calibration.error),
        ("excess confidence", calibration.excess),
        ("temperature", calibration.temperature),
        *(() if score is None else (("AUROC", score.auroc),)),
    ]


@dataclass(frozen=True, eq=False)
class JudgedTables:
    """The tables of a run, read from its sum.

    Attributes:
        shapes: of the study.
        counts: by table, in records, with noise.
        variance: of the noise on one cell.
        design: factor on the sampling variance: the most rows of one record, which may be alike.
    """

    shapes: TableShapes
    counts: Mapping[str, Floats]
    variance: float
    design: float = 1.0

    def judge(
        self,
        shown: int,
        *,
        empty_classes: Sequence[int] = (),
        temperature: float = 1.0,
        edges: Floats | None = None,
    ) -> JudgeFigures:
        """State what can be stated.

        Args:
            shown: number of heads that were shown.
            empty_classes: classes that the first head never predicts.
            temperature: τ of its confidences.
            edges: between the bins of its scores.
        """
        right, wrong = self._pool_answers(joint=shown == 1)
        records = max(right[0] + wrong[0], 1.0)
        recalls = self._find_recalls(frozenset(empty_classes), records)
        by_class, noise = self.counts[BY_CLASS], self.variance
        lacking = by_class[-1, WRONG]  # no record is right in the last row
        answered = by_class[:-1]
        chosen, accuracies = self._choose_head(shown)
        return JudgeFigures(
            records=records,
            accuracy=self._estimate_share(right, wrong, SHARE_LIMIT, records),
            balanced_accuracy=self._balance_recalls(frozenset(empty_classes), records),
            recalls=recalls,
            unanswered=self._estimate_share(
                (lacking, noise), (answered.sum(), answered.size * noise), SHARE_LIMIT, records
            ),
            head_accuracies=accuracies,
            chosen=chosen,
            calibration=self._find_calibration(
                self.shapes.classes - len({*empty_classes}), temperature, records
            ),
            score=None if self.shapes.positive is None else self._read_scores(edges, records),
        )

    def _pool_answers(self, *, joint: bool) -> tuple["_Noisy", "_Noisy"]:
        """Combine the tables' numbers of right and of wrong answers of the first head with least variance."""
        by_class, by_confidence = self.counts[BY_CLASS], self.counts[BY_CONFIDENCE]
        tables = [
            (by_class[:-1, RIGHT], by_class[:, WRONG]),  # no record is right in the last row
            (by_confidence[:, RIGHT], by_confidence[:, WRONG]),
        ]
        if joint:
            cells = self.counts[JOINT].reshape(-1, 2)
            # Without further heads only the first two cells hold records.
            tables.append((cells[:1, 1], cells[:1, 0]))
        right, wrong = (_combine([table[side] for table in tables], self.variance) for side in (0, 1))
        return right, wrong

    def _estimate_share(
        self, part: "_Noisy", rest: "_Noisy", limit: float, records: float, errors: float = INTERVAL_ERRORS
    ) -> Figure:
        """Estimate part/(part + rest), with the interval of Wilson and Fieller: all shares that are within so many errors of the counts."""
        (a, noise_a), (b, noise_b) = part, rest
        number = float(a + b)
        deviation = math.sqrt(noise_a + noise_b)
        floor = max(number, deviation, 1.0)
        value = min(1.0, max(0.0, float(a) / number)) if number > 0 else 0.5
        soft = (value * floor + 1) / (floor + 2)
        sampling = self.design * soft * (1 - soft)
        noise = (1 - value) ** 2 * noise_a + value**2 * noise_b
        # With fewer records by a deviation of the noise: or figures would be stated where the noise makes a small class look large.
        surely = max(floor - deviation, 1.0)
        error = math.sqrt(sampling / surely + noise / surely**2)
        low, high = _solve_share(float(a), number, self.design * floor, noise_a, noise_b, errors)
        needed = (_count_needed(sampling, noise, limit) + deviation) * records / floor
        return Figure(value, low, high, error, limit, _whole(needed))

    def _find_recalls(self, empty: frozenset[int], records: float) -> tuple[Figure | None, ...]:
        noise = self.variance
        return tuple(
            None
            if label in empty
            else self._estimate_share((row[RIGHT], noise), (row[WRONG], noise), FINE_LIMIT, records)
            for label, row in enumerate(self.counts[BY_CLASS][:-1])
        )

    def _balance_recalls(self, empty: frozenset[int], records: float) -> Figure:
        """Estimate the mean of all classes' recalls. A ratio of noisy counts is biased by (2r − 1)·s²/n², which is taken off."""
        answered = [label for label in range(self.shapes.classes) if label not in empty]
        rows = self.counts[BY_CLASS][answered]
        floor = np.maximum(rows.sum(axis=1), max(1.0, math.sqrt(2 * self.variance)))
        ratios = rows[:, RIGHT] / floor
        bias = (2 * ratios - 1) * self.variance / floor**2
        recalls = np.clip(ratios, 0, 1)
        soft = (recalls * floor + 1) / (floor + 2)
        sampling = self.design * soft * (1 - soft)
        noise = ((1 - recalls) ** 2 + recalls**2) * self.variance
        square = self.shapes.classes**2
        error = math.sqrt(float((sampling / floor + noise / floor**2).sum()) / square)
        value = float((ratios - bias).sum()) / self.shapes.classes
        rarest = float(floor.min())
        enough = math.sqrt(2 * self.variance) / _NOISE_SHARE_MAX
        # With f times as many records of each class, both parts shrink.
        shares = floor / records
        needed = _count_needed(
            float((sampling / shares).sum()) / square, float((noise / shares**2).sum()) / square, SHARE_LIMIT
        )
        needed = max(needed, records * enough / rarest)
        if rarest < enough:
            error = max(error, 1.001 * SHARE_LIMIT)
        return _figure(value, error, SHARE_LIMIT, needed, 0.0, 1.0)

    def _choose_head(self, shown: int) -> tuple[int, tuple[Figure, ...]]:
        """Choose the head with most right answers if the difference to the first is sure, and state all heads' accuracies."""
        if shown == 1:
            return 0, ()
        cells = self.counts[JOINT][: 1 << shown]
        index = np.arange(len(cells))
        bits = np.stack([index >> head & 1 for head in range(shown)])
        noise, records = len(cells) / 2 * self.variance, float(cells.sum())
        errors = (
            INTERVAL_ERRORS + {2: 0.28, 3: 0.43}[shown]
        )  # Bonferroni's normal quantiles are 2.24 and 2.39
        accuracies = tuple(
            self._estimate_share(
                (float(cells[right == 1].sum()), noise),
                (float(cells[right == 0].sum()), noise),
                SHARE_LIMIT,
                records,
                errors,
            )
            for right in bits
        )
        best = int((bits @ cells).argmax())
        if best == 0:
            return 0, accuracies
        ahead = float(cells[(bits[best] == 1) & (bits[0] == 0)].sum())
        behind = float(cells[(bits[best] == 0) & (bits[0] == 1)].sum())
        apart = max(ahead, 0.0) + max(behind, 0.0)
        error = math.sqrt(self.design * apart + noise) / max(records, 1.0)
        sure = error <= CHOICE_LIMIT or (ahead - behind) / max(records, 1.0) >= _CHOICE_ERRORS * error
        return (best if sure else 0), accuracies

    def _find_calibration(self, answered: int, temperature: float, records: float) -> CalibrationFigures:
        bins = _Bins.of_table(self.counts[BY_CONFIDENCE], answered)
        share_noise = (1 - bins.accuracy) ** 2 + bins.accuracy**2
        variance = self.design * bins.soft_accuracy * (1 - bins.soft_accuracy) / bins.held
        return CalibrationFigures(
            self._estimate_calibration_error(bins, records),
            self._estimate_excess(bins, records),
            self._fit_temperature(bins, answered, temperature, records),
            bins.confidence,
            bins.accuracy,
            np.sqrt(variance + share_noise * self.variance / bins.held**2),
            np.maximum(bins.number, 0),
        )

    def _gap_variances(self, bins: "_Bins") -> tuple[Floats, Floats]:
        """Return the (B,) variances of right answers less confidences in each bin, by sampling and by noise."""
        soft, confidence = bins.soft_accuracy, bins.confidence
        spread = soft * (1 - confidence) ** 2 + (1 - soft) * confidence**2
        noise = (1 - bins.middles) ** 2 + bins.middles**2 + bins.width**2
        return self.design * np.maximum(bins.number, 0) * spread, self.variance * noise

    def _estimate_excess(self, bins: "_Bins", records: float) -> Figure:
        sampling, noise = (float(each.sum()) for each in self._gap_variances(bins))
        error = math.sqrt(sampling + noise) / records
        needed = _count_needed(sampling / records, noise, SHARE_LIMIT)
        return _figure(-float(bins.gaps.sum()) / records, error, SHARE_LIMIT, needed, -1.0, 1.0)

    def _estimate_calibration_error(self, bins: "_Bins", records: float) -> Figure:
        """Estimate Σ|d|/N from the gaps d̂ of the bins, with an interval that holds for gaps near 0 too.

        |Σ|d̂| − Σ|d|| ≤ Σ|d̂ − d|, a sum of half-normal numbers.
        """
        deviations = np.sqrt(sum(self._gap_variances(bins)))
        mean = _HALF_NORMAL * float(deviations.sum())
        spread = math.sqrt(1 - _HALF_NORMAL**2) * float(np.linalg.norm(deviations))
        reach = (mean + INTERVAL_ERRORS * spread) / records
        value = float(np.sqrt(np.maximum(bins.gaps**2 - deviations**2, 0)).sum()) / records
        middle, error = float(np.abs(bins.gaps).sum()) / records, reach / INTERVAL_ERRORS
        low, high = max(0.0, min(value, middle - reach)), min(1.0, max(value, middle + reach))
        return Figure(value, low, high, error, SHARE_LIMIT, _whole(records * (error / SHARE_LIMIT) ** 2))

    def _fit_temperature(self, bins: "_Bins", answered: int, temperature: float, records: float) -> Figure:
        """Fit β by maximum likelihood, P(right) = σ(β·m − ln(A − 1)), m = logit(confidence) + ln(A − 1); τ is the former one over β.

        For two classes this is exact. For more it takes the other classes as equally likely.
        """
        if answered < 2:
            return Figure(temperature, temperature, temperature, math.inf, TEMPERATURE_LIMIT, _NEEDED_MAX)
        others = math.log(answered - 1)
        sure = np.clip(bins.confidence, 1e-6, 1 - 1e-6)
        margin, counted = np.maximum(np.log(sure / (1 - sure)) + others, 0.0), np.maximum(bins.number, 0)

        def chance(beta: float) -> Floats:
            return 1 / (1 + np.exp(np.clip(others - beta * margin, -700, 700)))

        low, high = math.log(_BETA_MIN), math.log(_BETA_MAX)
        for _ in range(60):
            middle = (low + high) / 2
            too_low = float(margin @ (bins.right - counted * chance(math.exp(middle)))) > 0
            low, high = (middle, high) if too_low else (low, middle)
        beta = math.exp((low + high) / 2)
        p, hits = chance(beta), (bins.right + 1) / (counted + 2)
        slope = float((margin**2 * counted * p * (1 - p)).sum()) * beta
        if slope <= 0:
            return Figure(temperature, 0.0, math.inf, math.inf, TEMPERATURE_LIMIT, _NEEDED_MAX)
        noise = self.variance * float((margin**2 * ((1 - p) ** 2 + p**2)).sum()) / slope**2
        # The model may not hold. A false member can make more answers right than there are, or fewer than none.
        residuals = np.maximum(hits * (1 - hits) + (hits - p) ** 2, 0)
        sampling = self.design * float((margin**2 * counted * residuals).sum()) / slope**2
        error = math.sqrt(sampling + noise)
        needed = _count_needed(records * sampling, records**2 * noise, TEMPERATURE_LIMIT)
        value, reach = temperature / beta, math.exp(min(INTERVAL_ERRORS * error, 700))
        return Figure(value, value / reach, value * reach, error, TEMPERATURE_LIMIT, _whole(needed))

    def _read_scores(self, edges: Floats | None, records: float) -> ScoreFigures:
        table = self.counts[BY_SCORE]
        negative, positive = table[:, 0], table[:, 1]
        area = self._find_area(negative, positive, records)
        levels = []
        for place, threshold in enumerate(() if edges is None else edges.tolist(), 1):
            cells = len(negative) - place
            called = [(float(column[place:].sum()), cells * self.variance) for column in (negative, positive)]
            below = [(float(column[:place].sum()), place * self.variance) for column in (negative, positive)]
            levels.append(
                Level(
                    threshold,
                    self._estimate_share(called[1], below[1], FINE_LIMIT, records),
                    self._estimate_share(called[0], below[0], SHARE_LIMIT, records),
                    self._estimate_share(called[1], called[0], FINE_LIMIT, records),
                )
            )
        return ScoreFigures(area, max(0.0, float(positive.sum())), tuple(levels))

    def _find_area(self, negative: Floats, positive: Floats, records: float) -> Figure:
        """Estimate the area under the ROC curve: pairs in different bins are counted, those within a bin follow from a smooth curve."""
        number, noise = (
            np.array([float(negative.sum()), float(positive.sum())]),
            len(negative) * self.variance,
        )
        floor = np.maximum(number, max(1.0, math.sqrt(noise)))
        surely = np.maximum(number - math.sqrt(noise), 1.0).tolist()
        below = (np.cumsum(negative) - negative / 2) / floor[
            0
        ]  # of a positive in each bin: negatives below it
        above = (float(positive.sum()) - np.cumsum(positive) + positive / 2) / floor[1]
        area = float(positive @ below) / floor[1]
        sampling, noise_of = 0.0, 0.0
        for counts, places, size in ((positive, below, surely[1]), (negative, above, surely[0])):
            spread = (np.clip(places, 0, 1) - min(1.0, max(0.0, area))) ** 2
            sampling += self.design * (float(np.maximum(counts, 0) @ spread) + 0.25) / size**2
            noise_of += self.variance * float(spread.sum()) / size**2
        curved = _bulge(negative, positive)
        value = min(1.0, max(0.0, area + curved))
        error = math.sqrt(sampling + noise_of + (curved / 2) ** 2)
        needed = _count_needed(records * sampling, records**2 * noise_of, FINE_LIMIT)
        if (floor > number).any():
            error, needed = math.inf, max(needed, 4 * records)
        return _figure(value, error, FINE_LIMIT, needed, 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class _Bins:
    """The table by confidence, (B,) each.

    Attributes:
        right, number: records that are right, and all.
        middles, width: of the bins.
        gaps: right answers less the sum of confidences.
    """

    right: Floats
    number: Floats
    middles: Floats
    width: float
    gaps: Floats

    @classmethod
    def of_table(cls, table: Floats, answered: int) -> Self:
        """Read the (B, 3) table of a head that predicts so many classes."""
        least = 1 / max(answered, 1)
        width = (1 - least) / len(table)
        middles: Floats = least + width * (np.arange(len(table), dtype=np.float64) + 0.5)
        right, number = table[:, RIGHT], table[:, RIGHT] + table[:, WRONG]
        return cls(right, number, middles, width, right - (middles * number + width * table[:, OFFSET]))

    @property
    def held(self) -> Floats:
        return np.maximum(self.number, 1.0)

    @property
    def confidence(self) -> Floats:
        mean: Floats = (self.right - self.gaps) / self.held
        return np.clip(mean, self.middles - self.width / 2, self.middles + self.width / 2)

    @property
    def accuracy(self) -> Floats:
        return np.clip(self.right / self.held, 0, 1)

    @property
    def soft_accuracy(self) -> Floats:
        """The accuracy with a right and a wrong record more: of few records, all right, the variance is not 0."""
        softened: Floats = (self.accuracy * self.held + 1) / (self.held + 2)
        return softened


_Noisy = tuple[float, float]
"""A count, and the variance of its noise."""


def _combine(tables: Sequence[Floats], variance: float) -> _Noisy:
    """Combine sums over cells of independent noise with least variance."""
    weights = np.array([1 / len(cells) for cells in tables])
    sums = np.array([float(cells.sum()) for cells in tables])
    return float(weights @ sums / weights.sum()), variance / float(weights.sum())


def _solve_share(
    part: float, number: float, sampled: float, noise: float, rest_noise: float, errors: float
) -> tuple[float, float]:
    """Solve (part − p·number)² ≤ errors²·(p(1 − p)·sampled + (1 − p)²·noise + p²·rest_noise) for p in 0…1."""
    square = errors**2
    a = number**2 + square * (sampled - noise - rest_noise)
    b = -2 * number * part - square * (sampled - 2 * noise)
    c = part**2 - square * noise
    root = b * b - 4 * a * c
    if a <= 0 or root < 0:
        return 0.0, 1.0
    low, high = ((-b + sign * math.sqrt(root)) / (2 * a) for sign in (-1, 1))
    return max(0.0, min(1.0, low)), max(0.0, min(1.0, high))


def _count_needed(sampling: float, noise: float, limit: float) -> float:
    """Return N with sampling/N + noise/N² = limit²."""
    return (sampling + math.sqrt(sampling**2 + 4 * limit**2 * noise)) / (2 * limit**2)


def _whole(records: float) -> int:
    """Round a number of records up to two digits."""
    if not records < _NEEDED_MAX:
        return _NEEDED_MAX
    if records < 1:
        return 1
    step = 10 ** max(0, math.floor(math.log10(records)) - 1)
    return int(math.ceil(records / step) * step)


def _figure(value: float, error: float, limit: float, needed: float, low: float, high: float) -> Figure:
    reach = INTERVAL_ERRORS * error
    value, error = float(value), float(error)
    inside = min(high, max(low, value))
    return Figure(inside, max(low, value - reach), min(high, value + reach), error, limit, _whole(needed))


def _bulge(negative: Floats, positive: Floats) -> float:
    """Return the area between the ROC curve and the straight lines between its points.

    The curve joins them by straight lines in normal deviates, as it is for normal scores (Swets 1986). Counts below 0 are taken as 0.
    """
    rates = []
    for counts in (negative, positive):
        held = np.maximum(counts, 0) + 0.5
        rates.append(np.concatenate([[0.0], np.cumsum(held[::-1])]) / held.sum())
    false, true = rates
    straight = float((np.diff(false) * (true[1:] + true[:-1])).sum()) / 2
    x, y = (_normal_deviates(each[1:-1]) for each in rates)
    x, rising = np.maximum.accumulate(x), np.maximum.accumulate(y)
    grid = np.linspace(-6, 6, 1201)
    curve = np.interp(grid, x, rising)
    slope = _slope_beyond(x, rising)
    curve = np.where(grid < x[0], rising[0] + slope * (grid - x[0]), curve)
    curve = np.where(grid > x[-1], rising[-1] + slope * (grid - x[-1]), curve)
    density = np.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi)
    heights = np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in curve])
    return float((heights * density).sum() * (grid[1] - grid[0])) - straight


def _slope_beyond(x: Floats, y: Floats) -> float:
    if len(x) < 2:
        return 1.0
    overall = (y[-1] - y[0]) / max(x[-1] - x[0], 1e-9)
    return float(min(4.0, max(0.25, overall)))


def _normal_deviates(shares: Floats) -> Floats:
    return np.array([_NORMAL.inv_cdf(float(share)) for share in shares])


def expect_tables(shapes: TableShapes, records: float, variance: float, design: float = 1.0) -> JudgedTables:
    """Return the tables that a good head would have over so many records of equal class shares, without noise.

    Their standard errors are those of a run whose noise has this variance, in records squared.
    """
    right = np.array([0.15, 0.85])
    joint = np.zeros(1 << shapes.heads)
    joint[[0, -1]] = records * right
    by_class = np.zeros((shapes.classes + 1, 2))
    by_class[:-1] = records / shapes.classes * right
    weights = (np.arange(shapes.confidence_bins) + 1.0) ** 2
    by_confidence = np.zeros((shapes.confidence_bins, 3))
    by_confidence[:, :2] = records * np.outer(weights / weights.sum(), right)
    counts = {JOINT: joint, BY_CLASS: by_class, BY_CONFIDENCE: by_confidence}
    if shapes.positive is not None:
        # Normal scores whose AUROC is .9, with edges that part an even mixture of the two evenly.
        grid = np.linspace(-5, 5, 2001)
        densities = np.exp(-((grid[:, None] - _SCORES_APART / 2 * np.array([-1, 1])) ** 2) / 2)
        densities /= densities.sum(axis=0)
        level = np.minimum(
            (densities.mean(axis=1).cumsum() * shapes.score_bins).astype(int), shapes.score_bins - 1
        )
        by_score = np.stack([np.bincount(level, each, shapes.score_bins) for each in densities.T], axis=1)
        share = 1 / shapes.classes
        counts[BY_SCORE] = records * by_score * np.array([1 - share, share])
    return JudgedTables(shapes, counts, variance, design)
