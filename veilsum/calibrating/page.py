"""The report on a head: one self-contained HTML file."""

from collections.abc import Iterator
from html import escape
from importlib.resources import files
from string import Template

import numpy as np

from veilsum import plots
from veilsum.calibrating.fitting import HEADS, Findings
from veilsum.calibration import Reliability

_MANY = 100  # classes that a table shows


def render(found: Findings) -> str:
    """Render the report on a head, as one HTML page that loads nothing else."""
    template = Template(files("veilsum.calibrating").joinpath("report.html").read_text("utf-8"))
    title = HEADS[found.name]
    source = "The sums are of files on this machine" + (
        ", and of a federation's result" if found.personal else ""
    )
    return template.substitute(
        style=files("veilsum.calibrating").joinpath("style.css").read_text("utf-8"),
        title=escape(f"A calibrated head: {found.name}"),
        lead=f"{escape(title[0].upper() + title[1:])}. <strong>{escape(source)}; nothing was sent.</strong>",
        figures="".join(_figures(found)),
        sections="".join((*_ridge(found), *_spectrum(found), *_judged(found))),
        privacy="No noise was added: the head reveals something about the records.",
    )


def _figures(found: Findings) -> Iterator[str]:
    seen = found.judged
    if seen is not None and seen.records:
        yield _figure_of("accuracy", _percent(seen.accuracy), f"on {seen.records:,} held-out records")
        error = _percent(seen.calibration_errors[seen.best])
        yield _figure_of("calibration error", error, f"at temperature {seen.temperature:.3g}")
    yield _figure_of("records", f"{found.records:,}", f"in {found.head.head.classes} classes")
    if found.ridge is not None:
        yield _figure_of(
            "λ", f"{found.ridge:.3g}", f"of {len(found.grid)} tried" if len(found.grid) > 1 else "given"
        )


def _figure_of(name: str, value: str, detail: str) -> str:
    return f"<div><dt>{name}</dt><dd>{escape(value)} <small>{escape(detail)}</small></dd></div>"


def _ridge(found: Findings) -> Iterator[str]:
    shown = np.isfinite(found.errors)
    if np.count_nonzero(shown) < 2 or found.ridge is None:
        return
    image = plots.ridge_curve(found.grid[shown], found.errors[shown], found.ridge)
    yield _section(
        "How λ was chosen",
        _picture(
            image,
            f"Error of generalised cross-validation over {np.count_nonzero(shown)} ridges, smallest near λ = {found.ridge:.3g}.",
            "It follows from the sums alone, without a hold-out set. Of ridges that tie within 0.01 %, the largest is taken.",
        ),
    )


def _spectrum(found: Findings) -> Iterator[str]:
    values = found.eigenvalues
    if values is None:
        return
    caption = (
        "Directions with eigenvalues far below λ add next to nothing to the head; those above it are kept."
    )
    alternative = f"{len(values)} eigenvalues, from {values.max():.3g} down to {max(values.min(), 0):.3g}."
    yield _section(
        "Spectrum of the sums", _picture(plots.eigenvalues(values, found.ridge), alternative, caption)
    )


def _judged(found: Findings) -> Iterator[str]:
    seen = found.judged
    if seen is None or not seen.records:
        yield _section("Accuracy", "<p>There is no hold-out set: pass <code>--held-out</code>.</p>")
        return
    confidence, accuracy, binned = seen.diagram
    tau, counts = f"{seen.temperature:.3g}", seen.confusion.sum(axis=1)
    before = seen.calibration_errors[int(np.abs(np.log(seen.temperatures)).argmin())]
    yield _section(
        "Confidence on the hold-out set",
        _picture(
            plots.reliability_diagram(confidence, accuracy, binned),
            f"Accuracy against confidence in {len(binned)} bins at temperature {tau}.",
            f"Confidence is the largest of softmax(scores / τ), τ = {tau}, at which these records are likeliest. "
            f"At τ = 1 the calibration error would be {_percent(before)}. "
            "τ was chosen on the records that the diagram shows.",
        ),
    )
    yield _section(
        "Accuracy on the hold-out set",
        _picture(
            plots.class_recalls(seen.recalls, counts),
            "Share of each class's records that are predicted correctly; the table below has the numbers.",
            "Least accurate class first.",
        )
        + _table(seen),
    )


def _table(seen: Reliability) -> str:
    confusion = seen.confusion
    counts = confusion.sum(axis=1)
    wrong = confusion - np.diag(np.diagonal(confusion))
    rows = []
    for label in np.flatnonzero(counts)[:_MANY]:
        taken = int(wrong[label].argmax())
        mistaken = f"{taken} ({wrong[label, taken]})" if wrong[label, taken] else "–"
        rows.append(
            f'<tr><th scope="row">{label}</th><td class="number">{counts[label]}</td>'
            f'<td class="number">{_percent(float(seen.recalls[label]))}</td><td class="number">{mistaken}</td></tr>'
        )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Accuracy by class"><table>'
        '<thead><tr><th scope="col">class</th><th scope="col" class="number">records</th>'
        '<th scope="col" class="number">accuracy</th><th scope="col" class="number">most often predicted as</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _section(heading: str, content: str) -> str:
    return f"<section>\n<h2>{escape(heading)}</h2>\n{content}\n</section>\n"


def _picture(image: str, alternative: str, caption: str) -> str:
    return (
        '<figure><div class="panel scroll" tabindex="0" role="region" aria-label="Figure">'
        f'<img src="{image}" alt="{escape(alternative)}"></div><figcaption>{escape(caption)}</figcaption></figure>'
    )


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
