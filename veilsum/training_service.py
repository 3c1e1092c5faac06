"""The last step of a run as the product does it: FFC's sums masked by every member, through a coordinator on this machine.

Class means and LDA follow from the same sums, and the round publishes them beside FFC's head.
"""

import os
import secrets
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from calibration import Head, solve_ffc
from client_sdk import Identity, Member, Policy, Records
from client_sdk import Result as Verified
from client_sdk.operator import Operator
from client_sdk.transport import BlockingDriver
from protocol.errors import Misuse
from protocol.rest import CohortRequest, CohortView, RoundRequest, RoundView
from training import Classifier, accuracy, extractor_digest, per_class_accuracy, with_head
from training.calibrating import Held, calibrate
from training.experiments import Experiment, Finished
from training.results import Calibration, Result, per_class
from veilsum.admin import Draft, create_admin
from veilsum.demo.coordinator import start_coordinator, surroundings
from veilsum.demo.processes import Children

LINEAGE = "training"
FEWEST, MOST = 5, 100
_BESIDE = ("lda", "ncm")  # what a round of FFC publishes beside its head


def through_service(
    experiment: Experiment,
    finished: Finished,
    way: Literal["service", "both"],
    tell: Callable[[str], None],
) -> Result:
    """The run's result with heads from masked sums, beside the plain ones where both are asked for.

    These are FFC's, and class means and LDA where the experiment has them, LDA with the shrinkage that it finds itself.

    Every member is a `client_sdk.Member` with keys of its own; the coordinator is a process of its own, whose data go when the
    round is over. Rare classes are published, as plain sums publish them.

    Raises:
        Misuse: too few members for a secure sum, or more than one machine should play; no cohort was formed.
        DemoError, PeerFault: the coordinator or a member failed; a coordinator that died, within seconds.
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
    beside = [kind for kind in _BESIDE if experiment.calibrate.get(kind) == {}]
    verified = _round(held, digest, beside, bias=bias, tell=tell)
    ridge = verified.record.solution.ridge
    assert ridge is not None  # FFC's head has one
    unit = Classifier(classifier.extractor, classifier.head, normalise=True)

    def masked(kind: str, head: Head, plain: Head, **options: float | bool) -> Calibration:
        own = with_head(unit, head.weights, head.bias, unanswered=verified.unanswered)
        return Calibration(
            kind=kind,
            accuracy=accuracy(own, data.test),
            per_class=per_class(per_class_accuracy(own, data.test)),
            way="masked",
            max_difference=float(np.abs(head.weights - plain.weights).max()),
            upload_bytes=ours.upload_bytes,
            options={**options, "members": len(verified.summed)},
        )

    # At λ of the masked sums: what is compared is the sums, and not how a grid was searched.
    plain = solve_ffc(held.ffc(bias=bias), ridge)
    found = [masked("ffc", verified.calibrated.head, plain, ridge=ridge, bias=bias)]
    found += [masked(kind, verified.head(kind).head, calibrate(kind, held).head) for kind in beside]
    others = [
        each for each in finished.result.calibrations if way == "both" or each.kind not in {"ffc", *beside}
    ]
    return finished.result.model_copy(update={"calibrations": (*found, *others)})


def _round(
    held: Held, digest: bytes, beside: Sequence[str], *, bias: bool, tell: Callable[[str], None]
) -> Verified:
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
                    pool.submit(
                        _member, address.url, own, admin.public, cohort.cohort, opened, z, y, children
                    )
                    for own, (z, y) in zip(identities, held.members(), strict=True)
                ]
                try:
                    cohort = _formed(operator, cohort, children)
                    tell(f"{len(names)} members enrolled at a coordinator at {address.url}")
                    request = RoundRequest(
                        dim=held.dim,
                        classes=held.classes,
                        bias=bias,
                        extractor=digest.hex(),
                        parameters={"publish": ",".join(beside)} if beside else {},
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
    children: Children,
) -> Verified:
    policy = Policy(admin_key=admin_key, publish_rare_classes=True)
    # Nobody starts this coordinator again: whoever would try it once more learns that it is gone.
    driver = BlockingDriver(url, sleep=children.pause)
    with Member(url, identity, None, policy, driver=driver) as member:
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
