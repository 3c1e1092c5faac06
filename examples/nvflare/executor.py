"""An NVFLARE executor that calibrates: with the task "calibrate", a job takes part in a run of a study.

The job's server sends the trained weights as usual. Each site computes its records' features with your function,
contributes their sums, and answers with the verified head, whose bias is −∞ for classes that are never predicted. The site's
identity, trust and approval come from its own configuration.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from client_sdk.errors import ClientError
from veilsum import Identity, Member, Policy, Records
from veilsum.calibration import CalibrationError
from veilsum.protocol.errors import Misuse, PeerFault

Features = Callable[[dict[str, Any]], tuple[Any, Any]]


class CalibrateExecutor(Executor):  # type: ignore[misc] # NVFLARE is untyped here
    """Contribute a site's statistics.

    Args:
        url: the coordinator's address.
        identity: the folder of this site's identity.
        admin_key: the admin's public key, 64 hexadecimal digits.
        features: "module:function" that maps the task's weights, a dictionary of arrays, to features (n, dim) and labels (n,).
        approve: approval digest of the study that this site takes part in.
        task: the task's name.
    """

    def __init__(
        self, url: str, identity: str, admin_key: str, features: str, approve: str, task: str = "calibrate"
    ) -> None:
        super().__init__()
        self.url, self.identity, self.admin_key = url, identity, admin_key
        self.features, self.approve, self.task = features, approve, task

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Take part in the study's next run."""
        if task_name != self.task:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        if abort_signal.triggered:
            return make_reply(ReturnCode.TASK_ABORTED)
        try:
            module, _, name = self.features.partition(":")
            compute: Features = getattr(import_module(module), name)
            z, y = compute(from_shareable(shareable).data)
            policy = Policy(admin_key=self.admin_key, approved={self.approve})
            with Member(self.url, Identity.load(self.identity), policy) as member:
                result = next(iter(member.join(Records(z, y), once=True)))
        except (CalibrationError, ClientError, Misuse, PeerFault) as error:
            self.log_error(fl_ctx, f"not calibrated: {error}")
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)
        bias = np.zeros(result.weights.shape[1]) if result.bias is None else result.bias.copy()
        bias[list(result.unanswered)] = -np.inf  # withheld, or without rows: never predicted
        head = DXO(DataKind.WEIGHTS, {"weights": result.weights, "bias": bias})
        head.set_meta_prop("head", result.record.head)
        head.set_meta_prop("unanswered", list(result.unanswered))
        head.set_meta_prop("counted", result.counted)
        return head.to_shareable()
