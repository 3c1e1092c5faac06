"""Settings with which no experiment runs, as `veilsum train digits-fedavg --set` takes them."""

from collections.abc import Iterator

from training.experiments.choices import ConfigError
from training.experiments.config import load_experiment, parse_change

WRONG = """
training.lr=-1
trainin.lr=1
name=x
training.epochs=2
training.algorithm=fedpro
training.algorithm={mu = 1}
training.algorithm={name = "fedprox", nu = 1}
training.algorithm={name = "fednova", nu = 1}
training.algorithm={name = "fedprox", mu = "x"}
training.algorithm={name = "fedprox", mu = -5}
training.algorithm=fedrep
training.also=[{name = "moon", temperature = 0}]
training.also=["fedrs", "x"]
training.also=["fednova"]
training.also=["fedprox", {name = "fedavgm", lr = 0.5}]
training.also=["fedaws"]
training.also=["feddyn"]
training.also=["scaffold"]
training.head={name = "tammes", steps = -3}
training.head=x
training.loss=x
training.schedule={name = "multi-step", milestones = [3], gamma = -1}
training.schedule=x
data.pooled=true
deal=x
deal={name = "dirichlet"}
model.architecture=x
model={architecture = "cnn", options = {depth = 9}}
model={architecture = "mlp", options = {dim = "x"}}
calibrate=1
calibrate.x={}
calibrate.ffc=true
calibrate.ffc.lam=1
calibrate.ffc.ridge="x"
calibrate.ffc.ridge="0.1"
calibrate.ffc.ridge=-1
calibrate.ffc.ridge=2026-11-01
calibrate.ccvr.transform=tuckey
calibrate.ccvr.solver=exct
calibrate.all-data.epochs=1.5
calibrate.rff.size=0
personal.methods.x={}
personal.methods.sgd.lam=1
personal.methods.sgd.epochs=1.5
personal.methods.sgd.epochs=0
personal.methods.fine-tuned.lr=inf
""".strip().splitlines()


def explain_experiments() -> Iterator[str]:
    for change in WRONG:
        try:
            load_experiment("digits-fedavg", None, parse_change(change))
        except ConfigError as error:
            yield f"- {change}: {error}"
