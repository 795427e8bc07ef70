"""ASDBase: an operator of MindSpore with a check on one of its inputs."""

import copy
from typing import Any, ClassVar

import mindspore as ms
from mindspore import Parameter, Tensor
from mindspore.ops import functional as F  # noqa: N812

from asd.config import Config
from asd.errors import ConfigError, UnsupportedError
from asd.operators.gate.site import Site
from asd.operators.gate.slots import table
from asd.operators.gate.tap import make_tap
from asd.operators.private.boundary import report
from asd.operators.private.mixed_precision import read
from asd.operators.sensors.fallback import prepare_compilations

_FLOATS = (ms.float16, ms.float32, ms.float64, ms.bfloat16)


class _CheckOp:
    """`check_op(x, pre_val, min_val, max_val, cnt, loss_scale) -> x`, an identity that reports dL/dx to its site.

    The four Parameters exist for the contract only: rules run on the host and keep their state there. The loss scale
    must be None in user code, as documented: `StepMonitor` knows the scale of a training.
    """

    __ms_class__ = True

    def __init__(self, name: str) -> None:
        self.site: Site = table().new_site(name)
        self.tap = make_tap(self.site)
        self.parameter_type: Any = None  # as `ASDBase.parameter_type`

    def __call__(self, x, pre_val, min_val, max_val, cnt, loss_scale):
        if F.dtype(x) not in _FLOATS:
            raise TypeError("check_op got a tensor that is not a floating-point one: it has no gradient to check.")
        if pre_val is None or min_val is None or max_val is None or cnt is None:
            raise TypeError("check_op got None for one of its four Parameters: take them from generate_params.")
        if loss_scale is not None:
            raise ValueError("check_op takes None as loss_scale: give the loss scale to StepMonitor instead.")
        return self.tap(read(x, self.parameter_type))


class ASDBase:
    """Base class of operators that check the gradient of one of their inputs.

    Derive from it, call `super().__init__` with the operator's class and its arguments, take the Parameters, and call
    `check_op` on the input whose gradient is to be checked:

        class GatherASD(ASDBase):
            def __init__(self, *args, **kwargs):
                super().__init__(P.Gather, *args, **kwargs)
                self.pre_val, self.min_val, self.max_val, self.cnt = self.generate_params()

            def __call__(self, input_params, input_indices, axis):
                if self.enable_check:
                    input_params = self.check_op(
                        input_params, self.pre_val, self.min_val, self.max_val, self.cnt, None)
                    self.cnt += 1
                return self.op(input_params, input_indices, axis)

    Outputs and gradients are those of the bare operator, bit for bit. The operator's own methods, such as `shard` and
    `add_prim_attr`, can be called on the wrapper; where they return the operator, the wrapper returns itself.

    Args:
        cls: Class of the operator, for example `mindspore.ops.operations.Gather`.
        *args: Passed to `cls`.
        **kwargs: Passed to `cls`.

    Raises:
        ConfigError: `cls` is not a class, for example an operator that was already made.

    Attributes:
        op: The operator.
        check_op: `check_op(x, pre_val, min_val, max_val, cnt, None) -> x`.
        enable_check: Whether `NPU_ASD_ENABLE` was on, and a slot free, when the operator was made.
        parameter_type: Type to which a compiled graph casts Parameters in the operator's cell; None if it casts none.
    """

    __ms_class__ = True
    _index: ClassVar[int] = 0
    parameter_type: Any = None

    def __init__(self, cls: type, *args: Any, **kwargs: Any) -> None:
        if not isinstance(cls, type):
            raise ConfigError("cls", type(cls).__name__, "pass the class of an operator, then its arguments")
        self.op = vars(cls).get("original", cls)(*args, **kwargs)  # `enable` replaces classes by our own
        # Level O1 of amp rewrites the source of a network, and needs the source of everything it calls unless its
        # module has no file.
        self.__module__ = "builtins"
        self.name_prefix = "ASD_" + type(self.op).__name__
        prepare_compilations(self)
        self.enable_check = Config.of_process().enabled
        if self.enable_check:
            try:
                self.check_op = _CheckOp(f"{self.name_prefix}_{ASDBase._index}")
            except UnsupportedError:  # the user's network must be built nevertheless
                self.enable_check = False
                report("some check operators check nothing: all slots were in use when they were made")

    def generate_params(self) -> tuple[Parameter, Parameter, Parameter, Parameter]:
        """Returns four untrained scalar Parameters at 0: `pre_val`, `min_val`, `max_val` (float32) and `cnt` (int32).

        Their names end in a number that counts the calls over all operators, from 0.
        """
        index = ASDBase._index
        ASDBase._index += 1
        zeros = {"pre_val": ms.float32, "min_val": ms.float32, "max_val": ms.float32, "cnt": ms.int32}
        pre_val, min_val, max_val, cnt = (
            Parameter(Tensor(0, dtype), name=f"{self.name_prefix}_{name}_{index}", requires_grad=False)
            for name, dtype in zeros.items()
        )
        return pre_val, min_val, max_val, cnt

    def __setattr__(self, name: str, value: Any) -> None:
        # In PyNative `self.cnt += 1` would replace the Parameter by a Tensor, and holders of the Parameter would not
        # see the count.
        old = self.__dict__.get(name)
        if isinstance(old, Parameter) and isinstance(value, Tensor) and not isinstance(value, Parameter):
            old.set_data(value)
        else:
            super().__setattr__(name, value)

    def __deepcopy__(self, memo: Any) -> "ASDBase":
        # Copies of a layer may stand in one graph, which must not have two Parameters of one name.
        made = memo[id(self)] = type(self).__new__(type(self))
        for name, value in vars(self).items():
            is_shared = isinstance(value, Parameter) and value.name.startswith(self.name_prefix)
            vars(made)[name] = value if is_shared else copy.deepcopy(value, memo)
        prepare_compilations(made)
        return made

    def __getattr__(self, name: str) -> Any:
        # Only called for attributes that the wrapper lacks. `copy` and `pickle` ask before `op` exists.
        if name.startswith("__") or "op" not in self.__dict__:
            first = "" if name.startswith("__") else ": its __init__ has to call super().__init__ first, with a class"
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{first}.")
        attribute = getattr(self.op, name)
        if not callable(attribute):
            return attribute

        def forward(*args: Any, **kwargs: Any) -> Any:
            result = attribute(*args, **kwargs)
            return self if result is self.op else result

        return forward

    def __repr__(self) -> str:
        return repr(self.op)
