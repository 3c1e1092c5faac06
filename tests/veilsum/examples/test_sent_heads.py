"""What the examples for Flower and NVFLARE send on, with stand-ins for their frameworks, which are not here."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]
RESULT = SimpleNamespace(
    weights=np.array([[1.0, 0.0, -1.0], [2.0, 0.0, -2.0]]),
    bias=np.array([-3.0, 0.0, -3.0]),  # a score of 0 would win
    unanswered=(1,),
    counted=True,
    record=SimpleNamespace(head="ab" * 32),
    save=lambda _: None,
)
RESULT.bias.flags.writeable = False  # as of a file
WITHOUT_BIAS = SimpleNamespace(**vars(RESULT) | {"bias": None})


class App:
    """An app that registers handlers."""

    def __call__(self) -> "App":
        return self

    def handler(self, *_: object) -> Callable[[Any], Any]:
        return lambda function: function

    train = query = main = handler


class Arrays(list[Any]):
    """As Flower's record of arrays."""

    def to_numpy_ndarrays(self) -> list[Any]:
        return list(self)


class Data:
    """As NVFLARE's DXO."""

    def __init__(self, _kind: object, data: dict[str, Any]) -> None:
        self.data, self.meta = data, dict[str, Any]()

    def set_meta_prop(self, name: str, value: object) -> None:
        self.meta[name] = value

    def to_shareable(self) -> "Data":
        return self

    def get_header(self, name: str) -> str:
        return name


class Site:
    """A member that is told the result."""

    told: Any = RESULT

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def join(self, *_: object, **__: object) -> Any:
        return iter([self.told])


def example(path: str, monkeypatch: pytest.MonkeyPatch, **modules: dict[str, Any]) -> ModuleType:
    """An example's module over stand-ins."""
    for name, contents in modules.items():
        module = ModuleType(name.replace("__", "."))
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    spec = importlib.util.spec_from_file_location("example", ROOT / "examples" / path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    monkeypatch.setattr(found, "Member", Site)
    monkeypatch.setattr(found, "Identity", SimpleNamespace(load=lambda _: None))
    return found


@pytest.fixture(params=[RESULT, WITHOUT_BIAS], ids=["bias", "no bias"])
def told(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(Site, "told", request.param)
    return request.param


def expected(told: Any) -> list[float]:
    return [-3.0, -np.inf, -3.0] if told.bias is not None else [0.0, -np.inf, 0.0]


def test_flower_s_clients_send_no_answer_for_classes_that_are_none(
    told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("ConfigRecord", "Context", "MetricRecord", "RecordDict")
    records: dict[str, Any] = dict.fromkeys(names, dict) | {"ArrayRecord": Arrays}
    records["Message"] = lambda content, reply_to: SimpleNamespace(content=content, to=reply_to)
    apps = example(
        "flower/apps.py",
        monkeypatch,
        flwr={},
        flwr__app=records,
        flwr__clientapp={"ClientApp": App},
        flwr__serverapp={"Grid": object, "ServerApp": App},
        flwr__serverapp__strategy={"FedAvg": object},
    )
    monkeypatch.setattr(apps, "CLASSES", 3)
    np.savez(tmp_path / "data.npz", x=np.ones((2, apps.PIXELS)), y=np.array([0, 2]))
    config = {
        "data": str(tmp_path / "data.npz"),
        "identity": str(tmp_path),
        "admin-key": "ab" * 32,
        "url": "http://127.0.0.1:9",
        "approve": "cd" * 32,
    }
    content = {"arrays": Arrays(apps.new_network(0))}
    answer = apps.calibrate(SimpleNamespace(content=content), SimpleNamespace(node_config=config)).content
    weights, bias = apps.one_head([answer, answer])
    np.testing.assert_array_equal(weights, told.weights)
    np.testing.assert_array_equal(bias, expected(told))


def test_an_nvflare_site_sends_no_answer_for_classes_that_are_none(
    told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = SimpleNamespace(WEIGHTS="weights")
    executor = example(
        "nvflare/executor.py",
        monkeypatch,
        nvflare={},
        nvflare__apis={},
        nvflare__apis__dxo={"DXO": Data, "DataKind": kinds, "from_shareable": lambda task: task},
        nvflare__apis__executor={"Executor": object},
        nvflare__apis__fl_constant={"ReturnCode": SimpleNamespace()},
        nvflare__apis__fl_context={"FLContext": object},
        nvflare__apis__shareable={"Shareable": Data, "make_reply": str},
        nvflare__apis__signal={"Signal": object},
    )
    monkeypatch.setattr(
        executor, "import_module", lambda _: SimpleNamespace(of=lambda _: (np.eye(2), [0, 2]))
    )
    site = executor.CalibrateExecutor("http://127.0.0.1:9", "home", "ab" * 32, "mine:of", "cd" * 32)
    head = site.execute("calibrate", Data(None, {}), None, SimpleNamespace(triggered=False))
    np.testing.assert_array_equal(head.data["weights"], told.weights)
    np.testing.assert_array_equal(head.data["bias"], expected(told))
    assert (head.meta["unanswered"], head.meta["counted"]) == ([1], True)
