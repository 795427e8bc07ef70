"""Layers of Llama-2 7B for the dry run, with the sizes that it has; few of them, for all are alike."""

import numpy as np
from mindformers import LlamaConfig, LlamaForCausalLM
from mindformers.modules.transformer import TransformerOpParallelConfig
from mindspore import Tensor

LENGTH, FEW = 4096, 512


def seven(layout, layers, vocabulary=FEW):
    """The network and a batch of one row for each rank that has its own."""
    parallel = TransformerOpParallelConfig(
        data_parallel=layout.data if layout.parallel != "data_parallel" else 1,
        model_parallel=layout.tensor,
        use_seq_parallel=layout.sequence,
    )
    rows = layout.data if layout.parallel == "semi_auto_parallel" else 1
    config = LlamaConfig(
        batch_size=rows,
        seq_length=LENGTH,
        vocab_size=vocabulary,
        hidden_size=4096,
        num_layers=layers,
        num_heads=32,
        intermediate_size=11008,
        max_position_embedding=LENGTH,
        compute_dtype=layout.type,
        param_init_type="float32",
        layernorm_compute_type="float32",
        softmax_compute_type="float32",
        rotary_dtype="float32",
        use_flash_attention=True,
        fused_rms_norm=True,
        use_rope_slice=True,
        pad_token_id=vocabulary - 1,
        parallel_config=parallel,
    )
    return LlamaForCausalLM(config=config), Tensor(np.ones((rows, LENGTH + 1), np.int32))


def one_layer(layout):
    return seven(layout, 1)


def two_layers(layout):
    return seven(layout, 2)


def whole_vocabulary(layout):
    return seven(layout, 1, vocabulary=32000)
