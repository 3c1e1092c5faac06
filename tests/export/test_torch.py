"""Small models with the layouts of the libraries, which are not installed here."""

import json
import warnings
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch import Tensor, nn

from client_sdk import Records, Result
from tests.support.cli import records
from veilsum.calibration import FFCStatistics, Solution, solve_ffc
from veilsum.calibration.head_file import Calibrated
from veilsum.calibration.rows import Floats
from veilsum.export import to_torch
from veilsum.export.torch import CalibratedHead, head_inputs, replace_head
from veilsum.protocol.errors import Misuse
from veilsum.protocol.rest import HEAD_METADATA

PIXELS, DIM = 12, 6
pytestmark = pytest.mark.filterwarnings("ignore:this head has no temperature")


def body() -> nn.Sequential:
    return nn.Sequential(nn.Linear(PIXELS, DIM), nn.Tanh())


class ResNetLike(nn.Module):
    """Like torchvision's ResNet: a linear `fc`."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.fc = body(), nn.Linear(DIM, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(self.layers(x))
        return out


class Named(nn.Module):
    """A body, then a classifier, under a library's names."""

    def __init__(self, first: str, last: str, classifier: nn.Module) -> None:
        super().__init__()
        self.names = first, last
        self.add_module(first, body())
        self.add_module(last, classifier)

    def forward(self, x: Tensor) -> Tensor:
        for name in self.names:
            x = self.get_submodule(name)(x)
        return x


def mobilenet() -> Named:
    """Make a model like torchvision's MobileNet and VGG: `classifier` is sequential and ends in the linear layer."""
    return Named("features", "classifier", nn.Sequential(nn.Dropout(0.5), nn.Linear(DIM, 10)))


def vision_transformer() -> Named:
    """Make a model like torchvision's VisionTransformer: `heads.head`."""
    return Named("encoder", "heads", nn.Sequential(OrderedDict(head=nn.Linear(DIM, 10))))


class TimmLike(nn.Module):
    """Like timm's models: `num_classes`, and a module around the classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stages, self.num_classes = body(), 10
        self.head = Named("drop", "fc", nn.Linear(DIM, 10))
        self.head.drop = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.stages(x))
        return out


class HuggingFaceLike(nn.Module):
    """Like AutoModelForImageClassification: `classifier`, `config.num_labels`, called by keyword, returns `.logits`."""

    def __init__(self, *, sequential: bool = False) -> None:
        super().__init__()
        self.vit, last = body(), nn.Linear(DIM, 10)
        self.classifier = nn.Sequential(nn.Flatten(), last) if sequential else last
        self.num_labels = 10
        self.config = SimpleNamespace(num_labels=10)

    def forward(self, pixel_values: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.classifier(self.vit(pixel_values)))


LAYOUTS = [
    (ResNetLike, "fc"),
    (mobilenet, "classifier.1"),
    (vision_transformer, "heads.head"),
    (TimmLike, "head.fc"),
    (HuggingFaceLike, "classifier"),
    (lambda: HuggingFaceLike(sequential=True), "classifier.1"),
]


def logits(model: nn.Module, x: Tensor) -> Tensor:
    out = model(x)
    found: Tensor = getattr(out, "logits", out)
    return found


def solution(features: Any, classes: int = 4) -> tuple[Solution, Any]:
    labels = np.random.default_rng(1).integers(0, 3, len(features))  # no member holds the fourth
    statistics = FFCStatistics(DIM, classes, constant=True, normalise=True)
    statistics.update(features, labels)
    return solve_ffc(statistics), labels


@pytest.mark.parametrize(("make", "name"), LAYOUTS, ids=[name for _, name in LAYOUTS[:-1]] + ["sequential"])
def test_the_model_then_answers_as_the_head(make: Any, name: str) -> None:
    torch.manual_seed(0)
    model, x = make().train(), torch.randn(40, PIXELS)
    features = head_inputs(model, [x[:25], x[25:]], at=name)
    assert features.shape == (40, DIM)
    assert model.training
    head, _ = solution(features)
    assert replace_head(model, head, at=name) is model
    assert isinstance(model.get_submodule(name), CalibratedHead)
    found = logits(model.eval(), x).detach()
    assert torch.isneginf(found[:, 3]).all()
    np.testing.assert_allclose(
        found[:, :3].numpy(), head.scores(features, normalise=True)[:, :3], rtol=0, atol=1e-5
    )
    np.testing.assert_array_equal(found.argmax(dim=1).numpy(), head.predict(features, normalise=True))
    assert not model.get_submodule(name).weight.requires_grad
    for holder in (model, getattr(model, "config", None)):
        for count in ("num_classes", "num_labels"):
            assert getattr(holder, count, 4) == 4


def test_a_verified_round_s_result_with_a_temperature_in_half_precision(result: Result) -> None:
    model = ResNetLike().to(torch.bfloat16)
    replace_head(model, result, at="fc", temperature=0.25)
    z = torch.randn(9, DIM)
    found = CalibratedHead.forward(model.fc, z.to(torch.bfloat16)).float().numpy()  # type: ignore[arg-type]
    np.testing.assert_allclose(found, result.scores(z.numpy()) / 0.25, atol=0.1)
    assert model.fc.weight.dtype == torch.bfloat16
    reloaded = ResNetLike()
    replace_head(reloaded, result, at="fc")
    reloaded.load_state_dict(model.float().state_dict())  # another process puts the head in, then loads
    with pytest.raises(Misuse, match="a temperature is above 0, not 0"):
        replace_head(model, result, at="fc", temperature=0)


def test_softmax_of_the_model_s_logits_is_the_result_s_probabilities(result: Result, tmp_path: Path) -> None:
    calibrated = replace(result.calibrated, temperature=0.1)  # as records held out have found it
    path = tmp_path / "head.safetensors"
    save_file(calibrated.arrays, path, {HEAD_METADATA: json.dumps(calibrated.notes)})
    z = 3 * torch.randn(9, DIM)
    expected = result.probabilities(z.numpy(), temperature=0.1)
    for source in (calibrated, path):
        model = replace_head(ResNetLike(), source, at="fc")
        softmax = model.fc(z).softmax(dim=1).numpy()
        np.testing.assert_allclose(softmax, expected, rtol=0, atol=1e-5)
    one = replace_head(ResNetLike(), calibrated, at="fc", temperature=1).fc(z).numpy()
    np.testing.assert_allclose(one, result.scores(z.numpy()), rtol=0, atol=1e-5)


def with_temperature(head: Solution) -> Calibrated:
    return Calibrated(head, temperature=0.2)


def test_a_softmax_without_a_temperature_is_warned_about(result: Result) -> None:
    for act in (lambda: replace_head(ResNetLike(), result, at="fc"), lambda: to_torch(result)):
        with pytest.warns(UserWarning, match="no temperature"):
            act()
    judged = result.judge(Records(*records(np.random.default_rng(1), 30)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = replace_head(ResNetLike(), judged, at="fc")
        layer = to_torch(judged)
    z = torch.randn(50, DIM)
    np.testing.assert_allclose(
        model.fc(z).softmax(dim=1).numpy(), judged.probabilities(z.numpy()), rtol=0, atol=1e-5
    )
    torch.testing.assert_close(layer(z), model.fc(z))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scripted_exported_and_traced_models_answer_alike(dtype: torch.dtype) -> None:
    head, _ = solution(np.random.default_rng(0).normal(size=(30, DIM)))
    model = replace_head(ResNetLike().to(dtype), with_temperature(head), at="fc").eval()
    x = torch.randn(7, PIXELS, dtype=dtype)
    expected = model(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PyTorch's own, of its scripts
        torch.testing.assert_close(torch.jit.script(model)(x), expected)
    torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), expected)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-5), (torch.float32, 1e-5), (torch.bfloat16, 0.1)]
)
def test_a_head_with_a_centre_answers_as_itself(
    dtype: torch.dtype, tolerance: float, centred: Calibrated, around_centre: Floats
) -> None:
    layer = replace_head(nn.Sequential(nn.Linear(DIM, 10)).to(dtype), centred, at="0")
    z = torch.from_numpy(np.vstack([around_centre, np.zeros((1, DIM))])).to(dtype)
    expected = centred.scores(z[:-1].double().numpy()) / 0.2
    assert centred.head.bias is not None
    zeros = np.append(centred.head.bias[:3] / 0.2, -np.inf)  # the bias answers a row of zeros
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PyTorch's own, of its scripts
        forms = layer, torch.jit.script(layer), torch.export.export(layer, (z,)).module()
    for form in forms:
        found = form(z).double().numpy()
        np.testing.assert_allclose(found, np.vstack([expected, zeros]), rtol=0, atol=tolerance)
    if dtype == torch.float32:
        shares = centred.head.probabilities(around_centre, temperature=0.2, normalise=True)
        np.testing.assert_allclose(layer(z[:-1]).softmax(dim=1).numpy(), shares, rtol=0, atol=1e-5)


def test_an_ordinary_layer_refuses_the_state_of_a_head_with_a_centre(centred: Calibrated) -> None:
    state = to_torch(centred).state_dict()
    with pytest.raises(RuntimeError, match="centre"):
        nn.Linear(DIM, 4).load_state_dict(state)
    assert centred.head.centre is not None
    other = to_torch(replace(centred, head=replace(centred.head, centre=-centred.head.centre)))
    other.load_state_dict(state)
    z = torch.randn(9, DIM)
    torch.testing.assert_close(other(z), to_torch(centred)(z))


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_a_model_with_the_head_becomes_onnx(tmp_path: Path, centred: Calibrated, *, centre: bool) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    head, _ = solution(np.random.default_rng(0).normal(size=(30, DIM)))
    model = replace_head(ResNetLike(), centred if centre else with_temperature(head), at="fc").eval()
    x = torch.randn(7, PIXELS)
    torch.onnx.export(model, (x,), tmp_path / "model.onnx", dynamo=True, verbose=False)
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415 - an extra

    loaded = ReferenceEvaluator(onnx.load(tmp_path / "model.onnx"))
    found: Any = loaded.run(None, {loaded.input_names[0]: x.numpy()})
    np.testing.assert_allclose(found[0], model(x).numpy(force=True), atol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_the_state_loads_into_the_model_s_first_classifier(*, bias: bool) -> None:
    """An ordinary linear layer gives the same predictions for features of length 1."""
    features = np.random.default_rng(0).normal(size=(30, DIM))
    statistics = FFCStatistics(DIM, 10, constant=bias, normalise=True)
    statistics.update(features, np.arange(30) % (8 if bias else 10))  # no member holds the last two classes
    model, first = ResNetLike(), ResNetLike()
    model.fc, first.fc = nn.Linear(DIM, 10, bias=bias), nn.Linear(DIM, 10, bias=bias)
    replace_head(model, solve_ffc(statistics), at="fc")
    first.load_state_dict(model.state_dict())
    unit = nn.functional.normalize(torch.randn(9, DIM), dim=1)
    torch.testing.assert_close(first.fc(unit), model.fc(unit))
    assert torch.isneginf(first.fc(unit)).sum() == (18 if bias else 0)


def test_another_name_than_a_linear_layer_s_is_refused() -> None:
    head, _ = solution(np.random.default_rng(0).normal(size=(30, DIM)))
    for model, at, layers in (
        (ResNetLike(), "top", "layers.0, fc"),
        (mobilenet(), "classifier", r"features.0, classifier.1"),
        (nn.Sequential(nn.Conv2d(1, 1, 1)), "0", "none"),
        (nn.Linear(DIM, 3), "", "none"),
    ):
        with pytest.raises(Misuse, match=f"no linear layer '{at}'; its last ones are: {layers}$"):
            replace_head(model, head, at=at)


class TwiceNamed(nn.Module):
    """A model whose classifier is registered under two names, the second of which is called."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.fc = body(), nn.Linear(DIM, 10)
        self.net = nn.Sequential(self.layers, self.fc)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)
        return out


@pytest.mark.parametrize("at", ["fc", "net.1"])
def test_a_classifier_of_two_names_is_replaced_under_both(at: str) -> None:
    model, x = TwiceNamed(), torch.randn(8, PIXELS)
    head, _ = solution(head_inputs(model, [x], at=at))
    replace_head(model, head, at=at)
    assert model.fc is model.net[1]
    np.testing.assert_array_equal(
        model(x).argmax(dim=1), head.predict(model.layers(x).numpy(force=True), normalise=True)
    )


@pytest.mark.parametrize("hold", [lambda layer: [layer], lambda layer: {"last": layer}])
def test_a_classifier_that_would_stay_in_use_is_not_replaced(hold: Any) -> None:
    head, _ = solution(np.random.default_rng(0).normal(size=(30, DIM)))
    model = ResNetLike()
    model.stages = hold(model.fc)
    with pytest.raises(Misuse, match="ResNetLike also holds fc in stages"):
        replace_head(model, head, at="fc")
    assert not isinstance(model.fc, CalibratedHead)


def test_another_extractor_s_head_and_unusable_inputs_are_refused() -> None:
    wide = FFCStatistics(DIM + 1, 2, normalise=True)
    wide.update(np.eye(DIM + 1)[:4], np.array([0, 1, 0, 1]))
    with pytest.raises(Misuse, match="fc takes features of length 6, the head of length 7"):
        replace_head(ResNetLike(), solve_ffc(wide), at="fc")
    with pytest.raises(Misuse, match="no batches"):
        head_inputs(ResNetLike(), [], at="fc")
    with pytest.raises(Misuse, match=r"fc is given \(2, 5, 6\), not one vector a record"):
        head_inputs(ResNetLike(), [torch.zeros(2, 5, PIXELS)], at="fc")
