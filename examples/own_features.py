"""A member contributes statistics of its own features; run with the arguments that your admin and operator gave you."""

import argparse

import numpy as np

from calibration import FFCStatistics
from client_sdk import Identity, Member, Policy

parser = argparse.ArgumentParser(description=__doc__)
for name in ("url", "folder", "admin-key", "cohort", "round", "features"):
    parser.add_argument(f"--{name}", required=True)
parser.add_argument("--classes", type=int, required=True)
args = parser.parse_args()

data = np.load(args.features)  # features (n, dim), labels (n,): yours, from any model
statistics = FFCStatistics(dim=data["features"].shape[1], classes=args.classes, normalise=True)
statistics.update(data["features"], data["labels"])

policy = Policy(admin_key=args.admin_key, members_min=3)
with Member(args.url, Identity.load(args.folder), None, policy) as member:
    member.enrol(args.cohort)
    result = member.contribute(args.round, statistics, lineage="my-data-2026")
    result.verify()

accuracy = (
    (data["features"] @ result.weights + (0 if result.bias is None else result.bias)).argmax(1)
    == data["labels"]
).mean()
print(f"{len(result.survivors)} members, W {result.weights.shape}, accuracy on my own records {accuracy:.3f}")
