"""mindformers' Llama for the dry run, of two layers."""

import numpy as np
from mindformers import LlamaConfig, LlamaForCausalLM
from mindformers.modules.transformer import TransformerOpParallelConfig, TransformerRecomputeConfig
from mindspore import Tensor

LAYERS, BATCH, LENGTH, VOCABULARY = 2, 8, 32, 256


def llama(layout):
    """The network and a batch; a pipeline's micro-batches share a graph, or are inlined if the layout says so."""
    micro_batches = layout.micro_batches
    parallel = TransformerOpParallelConfig(
        data_parallel=layout.data,
        model_parallel=layout.tensor,
        pipeline_stage=layout.stages,
        micro_batch_num=micro_batches,
        use_seq_parallel=layout.sequence,
        recompute=TransformerRecomputeConfig(recompute=layout.recompute, select_recompute=layout.select),
    )
    config = LlamaConfig(
        batch_size=BATCH // micro_batches,
        seq_length=LENGTH,
        vocab_size=VOCABULARY,
        hidden_size=64,
        num_layers=LAYERS,
        num_heads=4,
        intermediate_size=128,
        multiple_of=16,
        max_position_embedding=LENGTH,
        compute_dtype=layout.type,
        param_init_type="float32",
        layernorm_compute_type="float32",
        softmax_compute_type="float32",
        rotary_dtype="float32",
        use_flash_attention=layout.flash,
        fused_rms_norm=False,
        use_rope_slice=True,
        pad_token_id=VOCABULARY - 1,
        disable_lazy_inline=layout.inline,
        parallel_config=parallel,
    )
    return LlamaForCausalLM(config=config), Tensor(np.ones((BATCH, LENGTH + 1), np.int32))
