"""Logistic heads: fits on features."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize  # type: ignore[import-untyped]
from sklearn.linear_model import LogisticRegression

from tests.calibration.records import clouds
from veilsum.calibration import CalibrationError
from veilsum.calibration.ccvr_head import fit_logistic, fit_logistic_sgd, measure_cross_entropy


def test_the_minimum_is_scikit_learn_s() -> None:
    rows, labels = clouds(400, 8, 4, noise=2.0)
    theirs = LogisticRegression(C=1 / (400 * 1e-3), tol=1e-10, max_iter=10_000).fit(rows, labels)
    ours = fit_logistic(rows, labels, 4, penalty=1e-3, tolerance=1e-9)
    np.testing.assert_allclose(ours[:-1].T, theirs.coef_, atol=1e-5)
    intercept = theirs.intercept_ - theirs.intercept_.mean()
    np.testing.assert_allclose(ours[-1] - ours[-1].mean(), intercept, atol=1e-5)


def test_the_fit_s_gradient_is_that_of_the_loss() -> None:
    rows, labels = clouds(30, 4, 3)
    parameters = np.random.default_rng(0).standard_normal((5, 3))
    _, gradient = measure_cross_entropy(rows, labels, parameters)
    for index in np.ndindex(5, 3):
        step = np.zeros((5, 3))
        step[index] = 1e-6
        ahead, behind = (measure_cross_entropy(rows, labels, parameters + sign * step)[0] for sign in (1, -1))
        assert gradient[index] == pytest.approx((ahead - behind) / 2e-6, abs=1e-8)


def test_the_descent_takes_about_as_many_steps_as_scipy_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a wrong estimate of the curvature it would still converge, but later."""
    rows, labels = clouds(300, 10, 4, noise=2.0)
    calls = 0

    def counted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        return measure_cross_entropy(*args)

    def objective(flat: Any) -> Any:
        parameters = flat.reshape(11, 4)
        loss, gradient = measure_cross_entropy(rows, labels, parameters)
        gradient[:-1] += 1e-4 * parameters[:-1]
        return loss + 0.5e-4 * (parameters[:-1] ** 2).sum(), gradient.ravel()

    monkeypatch.setattr("veilsum.calibration.ccvr_head.measure_cross_entropy", counted)
    fit_logistic(rows, labels, 4)
    options = {"maxcor": 10, "gtol": 1e-6, "ftol": 0}
    theirs = minimize(objective, np.zeros(44), jac=True, method="L-BFGS-B", options=options)
    assert calls < 1.3 * theirs.nfev


def test_it_stops_after_the_steps_and_where_rounding_hides_any_descent() -> None:
    rows, labels = clouds(50, 4, 2)
    assert not fit_logistic(rows, labels, 2, steps=0).any()
    rough = fit_logistic(rows, labels, 2, tolerance=0.0, penalty=1.0)
    np.testing.assert_allclose(rough, fit_logistic(rows, labels, 2, penalty=1.0, tolerance=1e-8), atol=1e-7)
    rows, labels = clouds(60, 20, 2, noise=2.0)
    rows *= np.logspace(-3, 3, 20)  # badly scaled: several thousand steps would be needed
    assert (fit_logistic(rows, labels, 2) == fit_logistic(rows, labels, 2, steps=1000)).all()
    for records, penalty in ((0, 1.0), (1, 0.0)):
        with pytest.raises(CalibrationError):
            fit_logistic(np.ones((records, 2)), np.zeros(records, np.int64), 2, penalty=penalty)


@pytest.mark.parametrize("settings", [{"epochs": 2, "batch": 4, "rate": 0.5}, {}])
def test_sgd_is_its_update_rule(settings: dict[str, Any]) -> None:
    rows, labels = clouds(150 if not settings else 10, 3, 2)
    start, mirrored = np.ones((4, 2)), np.random.default_rng(0)
    ours = fit_logistic_sgd(rows, labels, 2, np.random.default_rng(0), start=start, **settings)
    parameters, velocity = start, np.zeros((4, 2))
    batch = settings.get("batch", 64)
    for _ in range(settings.get("epochs", 10)):
        order = mirrored.permutation(len(rows))
        while len(order):
            chosen, order = order[:batch], order[batch:]
            gradient = measure_cross_entropy(rows[chosen], labels[chosen], parameters)[1]
            velocity = 0.9 * velocity + gradient + 1e-5 * parameters
            parameters = parameters - settings.get("rate", 0.01) * velocity
    np.testing.assert_allclose(ours, parameters, atol=1e-12)
    assert (start == 1).all()


def test_sgd_parts_classes() -> None:
    rows, labels = clouds(10, 3, 2)
    near = fit_logistic_sgd(rows, labels, 2, np.random.default_rng(0), epochs=300, batch=4, rate=0.5)
    assert ((rows @ near[:-1] + near[-1]).argmax(axis=1) == labels).all()
