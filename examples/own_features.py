"""A member contributes its own features to the runs of an approved study."""

import argparse

import numpy as np

from veilsum import Identity, Member, Policy, Records

parser = argparse.ArgumentParser(description=__doc__)
for name in ("url", "folder", "admin-key", "approve", "features"):
    parser.add_argument(f"--{name}", required=True)
args = parser.parse_args()

data = np.load(args.features)  # features (n, dim), labels (n,), ids (n,): yours, from any model
records = Records(data["features"], data["labels"], data.get("ids"))

policy = Policy(admin_key=args.admin_key, approved={args.approve})
with Member(args.url, Identity.load(args.folder), policy) as member:
    for result in member.join(records, once=True):  # without `once`, also runs of later periods
        accuracy = result.evaluate(data["features"], data["labels"])
        print(f"{result.record.name}, {result.record.period}: a sum of {len(result.summed)} members")
        print(f"W {result.weights.shape}, accuracy on my own records {accuracy:.3f}")
        print(f"Withheld classes, never predicted: {list(result.record.withheld) or 'none'}")
