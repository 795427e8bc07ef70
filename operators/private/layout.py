"""MindSpore's layout of a network over the ranks, as far as checks need it."""

from typing import Any

import mindspore as ms
from mindspore import Tensor, nn
from mindspore.communication import GlobalComm, get_group_size, get_rank

from asd.operators.private.names import find

_remembered: dict[str, Any] = {}  # settings of an `AutoParallel` cell; empty where the context holds for all


def remember_division(net: nn.Cell | None) -> None:
    """Stores the layout settings of the `AutoParallel` cell in or around `net`, or forgets them without such a cell.

    MindSpore has these settings in its context only while it compiles, and from the start of `Model.train` on.
    """
    _remembered.clear()
    for _, cell in [] if net is None else net.cells_and_names():
        if type(cell).__name__ == "AutoParallel":
            # From the cell itself: MindSpore's functions for its context would reset what `Model.train` has set.
            mode = "semi_auto_parallel" if getattr(cell, "_parallel_mode", "") == "semi_auto" else "auto_parallel"
            _remembered["parallel_mode"] = "stand_alone" if getattr(cell, "_device_num", 0) == 1 else mode
            _remembered["pipeline_stages"] = getattr(cell, "_pipeline_stages", 1)
            _remembered["dataset_strategy"] = getattr(cell, "_dataset_strategy_config", "data_parallel")
            return


def division(name: str) -> Any:
    """Returns a setting such as `parallel_mode`: of the `AutoParallel` cell, else of the context."""
    return _remembered[name] if _remembered else ms.get_auto_parallel_context(name)


def shares_batches() -> bool:
    """Returns whether some ranks fetch sunk data for others, a slice of the batch, or none as a stage of a pipeline."""
    in_slices = operators_are_divided() and division("dataset_strategy") != "full_batch"
    broadcast = find("enable_data_broadcast")
    return bool(in_slices or is_pipeline() or broadcast is None or broadcast())


def why_layers_are_unchecked() -> str | None:
    """Returns why no tensor inside the network can be checked; None where it can.

    A search for strategies counts the cost of operators. With checks among them it would choose another layout, with
    additional gathers and scatters.
    """
    if operators_are_divided() and find("bprop_getters") is None:
        return "MindSpore no longer accepts a check in the backward pass of a sharded network."
    why = "a search would shard the network differently with checks in it: set its strategies by hand."
    return why if division("parallel_mode") == "auto_parallel" else None


def operators_are_divided() -> bool:
    """Returns whether MindSpore shards operators and tensors over the ranks, by strategies."""
    return division("parallel_mode") in ("semi_auto_parallel", "auto_parallel")


def is_pipeline() -> bool:
    """Returns whether the layers are split into pipeline stages."""
    return bool(division("pipeline_stages") > 1)


def cells_of_other_stages(net: nn.Cell) -> set[int]:
    """Returns the ids of the cells of `net` that run on ranks of other pipeline stages.

    A check there would see nothing on this rank. The table of slots is made of Parameters, and MindSpore cannot send a
    Parameter that several stages use.
    """
    if not (is_pipeline() and GlobalComm.INITED):
        return set()
    own = get_rank() * division("pipeline_stages") // get_group_size()
    stage_of: dict[str, int] = {}
    others = set()
    for path, cell in net.cells_and_names():
        inherited = stage_of.get(path.rpartition(".")[0], own) if path else own
        given = getattr(cell, "pipeline_stage", None)
        stage_of[path] = inherited if given is None or given < 0 else given
        if stage_of[path] != own:
            others.add(id(cell))
    return others


def local(tensor: Any) -> Tensor:
    """Returns this rank's shard of a tensor that may be sharded over the ranks."""
    part = getattr(tensor, "to_local", None)
    return part() if part is not None else tensor
