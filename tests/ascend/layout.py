"""How a training of the dry run is divided over the ranks, and how it computes."""

from typing import Any, NamedTuple


class Layout(NamedTuple):
    """One of them."""

    parallel: str = "stand_alone"  # MindSpore's parallel mode
    ranks: int = 1  # how many
    rank: int = 0  # which one compiles
    data: int = 1  # into how many parts the batch is divided
    tensor: int = 1  # the same of the weights
    stages: int = 1  # the same of the layers
    experts: int = 1  # into how many parts the experts of a mixture are divided
    sequence: bool = False  # whether norms are divided by the sequence, over the ranks of a tensor
    accumulate: int = 1  # how many micro-batches a step adds the gradients of, without stages
    flash: bool = False  # whether attention is one operator
    optimizer: str = ""  # level of the parallel optimizer, such as `level1`; empty for none
    type: str = "bfloat16"  # what is computed in
    recompute: bool = False  # whether each layer is recomputed in the backward pass
    select: bool = False  # whether some operators of each layer are
    inline: bool = False  # whether each micro-batch has a graph of its own
    # whether mindformers' own cells make the step, with its clipping and loss scale, of its newer models
    own: bool = False
    wrapped: bool = False  # whether an `AutoParallel` cell says how the network is divided, and not the context
    search: str = ""  # how MindSpore searches for strategies in `auto_parallel`
    dynamic_scale: bool = False  # whether there is a dynamic loss scale
    sunk: str = ""  # which graph of a training with sunk data is compiled last, `fetch` or `rerun`; empty without

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
