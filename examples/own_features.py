"""A member contributes statistics of its own features; run with the arguments that your admin and operator gave you."""

import argparse

import numpy as np

from client_sdk import Identity, Member, Policy, Records

parser = argparse.ArgumentParser(description=__doc__)
for name in ("url", "folder", "admin-key", "cohort", "round", "features"):
    parser.add_argument(f"--{name}", required=True)
args = parser.parse_args()

data = np.load(args.features)  # features (n, dim), labels (n,): yours, from any model
records = Records(data["features"], data["labels"], normalise=True)  # each round gets what it asks for

policy = Policy(admin_key=args.admin_key, members_min=3)
with Member(args.url, Identity.load(args.folder), None, policy) as member:
    member.enrol(args.cohort)
    result = member.contribute(args.round, records, lineage="my-data-2026")
    result.verify(args.admin_key)  # as `contribute` did; what was loaded from a folder is unverified before

accuracy = (result.predict(data["features"]) == data["labels"]).mean()
print(f"{len(result.survivors)} members, W {result.weights.shape}, accuracy on my own records {accuracy:.3f}")
print(f"Classes that few members hold, and that it never answers: {list(result.record.withheld) or 'none'}")
