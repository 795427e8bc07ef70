"""How a training of the dry run is divided over the ranks, and how it computes."""

from typing import Any, NamedTuple


class Layout(NamedTuple):
    """One of them.

    Attributes:
        parallel: MindSpore's parallel mode.
        ranks: How many.
        rank: Which one compiles.
        data, tensor, stages: Into how many parts batch, weights and layers are divided.
        optimizer: Level of the parallel optimizer, such as `level1`; empty for none.
        type: What is computed in.
        experts: Into how many parts the experts of a mixture are divided.
        sequence: Whether norms are divided by the sequence, over the ranks of a tensor.
        accumulate: How many micro-batches a step adds the gradients of, without stages.
        flash: Whether attention is one operator.
        recompute: Whether each layer is recomputed in the backward pass.
        select: Whether some operators of each layer are.
        inline: Whether each micro-batch has a graph of its own.
        own: Whether mindformers' own cells make the step, with its clipping and loss scale, of its newer models.
        wrapped: Whether an `AutoParallel` cell says how the network is divided, and not the context.
        search: How MindSpore searches for strategies in `auto_parallel`.
        dynamic_scale: Whether there is a dynamic loss scale.
        sunk: Which graph of a training with sunk data is compiled last, `fetch` or `rerun`; empty without.
    """

    parallel: str = "stand_alone"
    ranks: int = 1
    rank: int = 0
    data: int = 1
    tensor: int = 1
    stages: int = 1
    experts: int = 1
    sequence: bool = False
    accumulate: int = 1
    flash: bool = False
    optimizer: str = ""
    type: str = "bfloat16"
    recompute: bool = False
    select: bool = False
    inline: bool = False
    own: bool = False
    wrapped: bool = False
    search: str = ""
    dynamic_scale: bool = False
    sunk: str = ""

    @property
    def micro_batches(self) -> int:
        """Of a step."""
        return 4 if self.stages > 1 else self.accumulate

    def context(self) -> dict[str, Any]:
        """What `set_auto_parallel_context` is called with."""
        found: dict[str, Any] = {"parallel_mode": self.parallel}
        if self.parallel == "data_parallel":
            found |= {"gradients_mean": True, "device_num": self.ranks}
        else:
            found |= {"full_batch": True, "pipeline_stages": self.stages}
        if self.search:
            found["search_mode"] = self.search
        if self.optimizer:
            found["enable_parallel_optimizer"] = True
            if self.parallel == "semi_auto_parallel":
                found["parallel_optimizer_config"] = {
                    "parallel_optimizer_threshold": 0,
                    "optimizer_level": self.optimizer,
                }
        return found
