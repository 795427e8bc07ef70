"""mindformers' Llama for the dry run: two layers of a small one, and few layers of Llama-2 7B, for all are alike."""

from functools import partial

import numpy as np
from mindformers import LlamaConfig, LlamaForCausalLM
from mindformers.modules.transformer import TransformerOpParallelConfig, TransformerRecomputeConfig
from mindspore import Tensor

SMALL = {"hidden_size": 64, "num_heads": 4, "intermediate_size": 128, "multiple_of": 16}
SEVEN = {"hidden_size": 4096, "num_heads": 32, "intermediate_size": 11008, "use_flash_attention": True}


def llama(layout):
    """A pipeline's micro-batches share a graph, or are inlined if the layout says so."""
    sizes = {**SMALL, "use_flash_attention": layout.flash, "fused_rms_norm": False}
    return _llama(layout, 2, 32, 8, 256, **sizes, disable_lazy_inline=layout.inline)


def _seven(layout, layers=1, vocabulary=512):
    """A batch has one row for each rank that has its own."""
    rows = layout.data if layout.parallel == "semi_auto_parallel" else 1
    return _llama(layout, layers, 4096, rows, vocabulary, **SEVEN, fused_rms_norm=True)


def _llama(layout, layers, length, rows, vocabulary, **sizes):
    """The network and a batch."""
    parallel = TransformerOpParallelConfig(
        data_parallel=layout.data if layout.parallel != "data_parallel" else 1,
        model_parallel=layout.tensor,
        pipeline_stage=layout.stages,
        micro_batch_num=layout.micro_batches,
        use_seq_parallel=layout.sequence,
        vocab_emb_dp=layout.tensor == 1,  # as large models have it: the vocabulary is divided like all other weights
        recompute=TransformerRecomputeConfig(recompute=layout.recompute, select_recompute=layout.select),
    )
    types = ("param_init_type", "layernorm_compute_type", "softmax_compute_type", "rotary_dtype")
    config = LlamaConfig(
        batch_size=rows // layout.micro_batches,
        vocab_size=vocabulary,
        num_layers=layers,
        pad_token_id=vocabulary - 1,
        compute_dtype=layout.type,
        use_rope_slice=True,
        parallel_config=parallel,
        **dict.fromkeys(types, "float32"),
        **dict.fromkeys(("seq_length", "max_position_embedding"), length),
        **sizes,
    )
    return LlamaForCausalLM(config=config), Tensor(np.ones((rows, length + 1), np.int32))


one_layer, two_layers, whole_vocabulary = _seven, partial(_seven, layers=2), partial(_seven, vocabulary=32000)
