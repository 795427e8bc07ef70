"""Real calls of MindSpore written as a dump, by hand and not by the package."""

import json

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops


class Recorder:
    """Runs calls and keeps their description for the dump in `folder`; the task is `tensor` or `statistics`."""

    def __init__(self, folder, task="tensor"):
        self.folder, self.task, self.data = folder, task, {}
        (folder / "dump_tensor_data").mkdir(parents=True)

    def tensor(self, value, name):
        dtype = str(value.dtype)
        array = (value.astype(ms.float32) if dtype == "BFloat16" else value).asnumpy()
        wide = array.astype(np.float32)
        numbers = {"Max": float(wide.max()), "Min": float(wide.min()), "Mean": float(wide.mean()), "Norm": 1.0}
        told = {"type": "mindspore.Tensor", "dtype": dtype, "shape": list(array.shape), **numbers}
        if self.task == "tensor":
            np.save(self.folder / "dump_tensor_data" / f"{name}.npy", array)
            told["data_name"] = f"{name}.npy"
        return told

    def value(self, value, name):
        if isinstance(value, Tensor):
            return self.tensor(value, name)
        if isinstance(value, (list, tuple)):
            return [self.value(item, f"{name}.{index}") for index, item in enumerate(value)]
        if isinstance(value, ms.Type):
            return {"type": "mindspore.dtype", "value": str(value)}
        if isinstance(value, slice):
            return {"type": "slice", "value": [value.start, value.stop, value.step]}
        return None if value is None else {"type": type(value).__name__, "value": value}

    def call(self, name, function, *args, attributes=None, backward=True, output=None, **kwargs):
        """Runs a call and records it, with its backward pass for the gradient of ones."""
        if output is None:
            output = function(*args, **kwargs)
        outputs = output if isinstance(output, (tuple, list)) else (output,)
        forward, back = f"{name}.forward", f"{name}.backward"
        self.data[forward] = {
            "input_args": [self.value(each, f"{forward}.input.{index}") for index, each in enumerate(args)],
            "input_kwargs": {key: self.value(each, f"{forward}.kwargs.{key}") for key, each in kwargs.items()},
            "output": [self.value(each, f"{forward}.output.{index}") for index, each in enumerate(outputs)],
            **({} if attributes is None else {"attributes": attributes}),
        }
        if backward:
            floating = [isinstance(each, Tensor) and "Float" in str(each.dtype) for each in args]
            gradient = ops.ones_like(outputs[0])
            run = lambda *given: function(*given, **kwargs)  # noqa: E731
            found = ops.GradOperation(get_all=True, sens_param=True)(run)(*args, gradient)
            found = iter(found if isinstance(found, tuple) else (found,))
            told = []
            for index, each in enumerate(args):
                grad = next(found) if isinstance(each, Tensor) else None
                told.append(
                    self.value(grad, f"{back}.output.{index}") if grad is not None and floating[index] else None
                )
            self.data[back] = {"input": [self.value(gradient, f"{back}.input.0")], "output": told}

    def write(self):
        """Writes dump.json."""
        path = self.folder / "dump.json"
        path.write_text(json.dumps({"task": self.task, "level": "L1", "framework": "mindspore", "data": self.data}))
        return path
