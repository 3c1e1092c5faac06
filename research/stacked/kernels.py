"""MOON's CNN for many models at once: the kernels of `moon_cnn.cu` on a GPU, or compiled as C++ and slow on a CPU, for tests."""

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_SOURCE = Path(__file__).parent / "moon_cnn.cu"
THREADS = 256
Kernel = Callable[..., None]


def kernels(device: torch.device) -> Kernel:
    """Compile, and return a function of a kernel's name, its grid (x, y), its shared bytes, and its arguments."""
    return _on_gpu() if device.type == "cuda" else _on_cpu()


def _on_gpu() -> Kernel:
    import cupy  # noqa: PLC0415  needs a GPU

    module = cupy.RawModule(code=_SOURCE.read_text("utf-8"), options=(f"-DTHREADS={THREADS}", "-std=c++17"))

    def launch(
        name: str, grid: tuple[int, int], shared_bytes: int, *arguments: Tensor | float | None
    ) -> None:
        kernel = module.get_function(name)
        if shared_bytes > kernel.max_dynamic_shared_size_bytes:
            kernel.max_dynamic_shared_size_bytes = shared_bytes
        given = [_plain(each, cupy) for each in arguments]
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            kernel(grid, (THREADS,), tuple(given), shared_mem=shared_bytes)

    return launch


def _plain(argument: Tensor | float | None, cupy: Any) -> Any:
    if argument is None or isinstance(argument, Tensor):
        return cupy.uint64(0 if argument is None else argument.data_ptr())
    return (cupy.int32 if isinstance(argument, int) else cupy.float32)(argument)


def _on_cpu() -> Kernel:
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "moon_cnn.so"
        options = ["-O2", "-shared", "-fPIC", "-w", "-DTHREADS=1", "-x", "c++"]
        subprocess.run(["g++", *options, str(_SOURCE), "-o", str(library)], check=True)
        module = ctypes.CDLL(str(library))

    def launch(
        name: str, grid: tuple[int, int], shared_bytes: int, *arguments: Tensor | float | None
    ) -> None:
        del shared_bytes
        function = getattr(module, name)
        given = [_c_value(each) for each in arguments]
        for x, y in product(range(grid[0]), range(grid[1])):
            module.place(x, y, *grid)
            function(*given)

    return launch


def _c_value(argument: Tensor | float | None) -> Any:
    if argument is None or isinstance(argument, Tensor):
        return ctypes.c_void_p(None if argument is None else argument.data_ptr())
    return ctypes.c_int(argument) if isinstance(argument, int) else ctypes.c_float(argument)
