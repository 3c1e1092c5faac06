"""The last step of a run as the product does it: FFC's sums masked by every member, through a coordinator on this machine."""

import os
import secrets
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from calibration import solve_ffc
from client_sdk import Identity, Member, Policy, Records
from client_sdk import Result as Verified
from client_sdk.operator import Operator
from protocol.errors import Misuse
from protocol.rest import CohortRequest, CohortView, RoundRequest, RoundView
from training import Classifier, accuracy, extractor_digest, per_class_accuracy, with_head
from training.calibrating import Held
from training.experiments import Finished
from training.results import Calibration, Result, per_class
from veilsum.admin import Draft, create_admin
from veilsum.demo.coordinator import start_coordinator, surroundings
from veilsum.demo.processes import Children

LINEAGE = "training"
FEWEST, MOST = 5, 100


def through_service(
    finished: Finished, way: Literal["service", "both"], tell: Callable[[str], None]
) -> Result:
    """The run's result with FFC's head from masked sums; beside the plain one where both are asked for.

    Every member is a `client_sdk.Member` with keys of its own; the coordinator is a process of its own, whose data go when the
    round is over. Rare classes are published, as plain sums publish them.

    Raises:
        Misuse: too few members for a secure sum, or more than one machine should play; no cohort was formed.
        DemoError, PeerFault: the coordinator or a member failed.
    """
    classifier, data = finished.trained.classifier, finished.prepared.data
    held = Held.of(classifier, data.train, finished.prepared.partition, seed=finished.result.seed)
    if not FEWEST <= len(held.features) <= MOST:
        raise Misuse(
            f"--through the service takes {FEWEST} to {MOST} members here, not {len(held.features)}; use --through plain"
        )
    ours = next(each for each in finished.result.calibrations if each.kind == "ffc")
    bias = bool(ours.options.get("bias", False))
    digest = extractor_digest(classifier.extractor, classifier.extractor.config.preprocessing)
    verified = _round(held, digest, bias=bias, tell=tell)
    ridge = verified.record.solution.ridge
    assert ridge is not None  # FFC's head has one
    # At λ of the masked sums: what is compared is the sums, and not how a grid was searched.
    plain = solve_ffc(held.ffc(bias=bias), ridge)
    unit = Classifier(classifier.extractor, classifier.head, normalise=True)
    head = with_head(unit, verified.weights, verified.bias, unanswered=verified.unanswered)
    masked = Calibration(
        kind="ffc",
        accuracy=accuracy(head, data.test),
        per_class=per_class(per_class_accuracy(head, data.test)),
        way="masked",
        max_difference=float(np.abs(verified.weights - plain.weights).max()),
        upload_bytes=ours.upload_bytes,
        options={"ridge": ridge, "members": len(verified.summed), "bias": bias},
    )
    others = [each for each in finished.result.calibrations if way == "both" or each is not ours]
    return finished.result.model_copy(update={"calibrations": (masked, *others)})


def _round(held: Held, digest: bytes, *, bias: bool, tell: Callable[[str], None]) -> Verified:
    os.environ.update({name: surroundings()[name] for name in ("NO_PROXY", "no_proxy")})
    with tempfile.TemporaryDirectory(prefix="veilsum-training-") as temporary, Children() as children:
        folder = Path(temporary)
        address = start_coordinator(children, folder / "coordinator")
        with Operator(address.url, address.token, patience_s=5.0) as operator:
            names = [f"member-{k:02}" for k in range(len(held.features))]
            identities = [Identity.create(folder / name, name) for name in names]
            admin = create_admin(folder / "admin")
            draft = Draft(
                version=1,
                coordinator=operator.coordinator().public_key,
                members={name: own.public.hex() for name, own in zip(names, identities, strict=True)},
                extractors=[digest.hex()],
                withhold=False,
            )
            operator.publish(draft.sign(admin))
            cap = max(map(len, held.labels))
            cohort = operator.open_cohort(admin.public.hex(), CohortRequest(records_cap=cap, enrol_s=600.0))
            opened: Future[str] = Future()
            with ThreadPoolExecutor(len(names)) as pool:
                working = [
                    pool.submit(_member, address.url, own, admin.public, cohort.cohort, opened, z, y)
                    for own, (z, y) in zip(identities, held.members(), strict=True)
                ]
                try:
                    cohort = _formed(operator, cohort, children)
                    tell(f"{len(names)} members enrolled at a coordinator at {address.url}")
                    request = RoundRequest(
                        dim=held.dim, classes=held.classes, bias=bias, extractor=digest.hex()
                    )
                    view: RoundView = operator.open_round(cohort.cohort, request)
                    opened.set_result(view.round)
                except BaseException:
                    opened.cancel()
                    raise
                return [children.during(one.result) for one in working][secrets.randbelow(len(names))]


def _member(
    url: str,
    identity: Identity,
    admin_key: bytes,
    cohort: str,
    opened: "Future[str]",
    features: np.ndarray,
    labels: np.ndarray,
) -> Verified:
    policy = Policy(admin_key=admin_key, publish_rare_classes=True)
    with Member(url, identity, None, policy) as member:
        member.enrol(cohort)
        result = member.contribute(
            opened.result(), Records(features, labels, normalise=True), lineage=LINEAGE
        )
        result.verify(admin_key)
        return result


def _formed(operator: Operator, view: CohortView, children: Children) -> CohortView:
    while view.state == "enrolling":
        view = children.during(partial(operator.cohort, view.cohort, view.version))
    if view.quorum is None:
        raise Misuse(f"the cohort {view.state}: {view.fault.detail if view.fault else 'no reason given'}")
    return view
