"""mindformers' Qwen3 for the dry run, of two layers, dense and with a mixture of experts."""

from functools import partial

import numpy as np
from mindformers import MindFormerConfig
from mindformers.core.context.build_context import MFContextOperator
from mindformers.models.qwen3.configuration_qwen3 import Qwen3Config
from mindformers.models.qwen3.modeling_qwen3_train import TrainingQwen3ForCausalLM
from mindformers.models.qwen3_moe.configuration_qwen3_moe import Qwen3MoeConfig
from mindformers.models.qwen3_moe.modeling_qwen3_moe_train import TrainingQwen3MoeForCausalLM
from mindformers.modules.transformer import TransformerOpParallelConfig, TransformerRecomputeConfig
from mindformers.wrapper.wrapper import (
    DataOrderWrapperCell,
    MFPipelineWithLossScaleCell,
    MFTrainOneStepCell,
    PipelineCellWithMultiOutputs,
)
from mindspore import Tensor, nn
from mindspore.nn.wrap.cell_wrapper import _VirtualDatasetCell

MFContextOperator(MindFormerConfig(use_legacy=False, run_mode="train"))  # these models ask it which kind they are
LAYERS, BATCH, LENGTH, VOCABULARY, EXPERTS = 2, 8, 64, 256, 8


class _Trained(nn.Cell):
    """Computes the loss of a network with the batch as its own answer, which changes no graph."""

    def __init__(self, net):
        super().__init__(auto_prefix=False)
        self.net = net

    def construct(self, ids):
        return self.net(ids, labels=ids)[0]


def qwen(layout):
    """The dense one."""
    return _Trained(TrainingQwen3ForCausalLM(Qwen3Config(**_words(layout)))), _batch()


def qwen_moe(layout):
    """Each layer a mixture of eight experts, two for each token."""
    experts = _experts(EXPERTS, 2, 64)
    return _Trained(TrainingQwen3MoeForCausalLM(Qwen3MoeConfig(**_words(layout), **experts))), _batch()


def _experts(number, used, width):
    how = {"moe_grouped_gemm": True, "moe_token_dispatcher_type": "alltoall", "moe_router_topk_scaling_factor": 1.0}
    return how | {"num_experts": number, "num_experts_per_tok": used, "moe_intermediate_size": width}


def _large(layout, layers=1, vocabulary=512):
    """Layers of Qwen3-30B-A3B, with the sizes that it has; few of them, for all are alike."""
    words = _words(layout) | {"vocab_size": vocabulary, "num_hidden_layers": layers, "batch_size": layout.data}
    words |= {"hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 4096, "seq_length": 4096}
    words |= {"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128}
    experts = _experts(128, 8, 768)
    net = TrainingQwen3MoeForCausalLM(Qwen3MoeConfig(**words, **experts))
    return _Trained(net), Tensor(np.ones((layout.data, 4096), np.int32))


def own_step(net, optimizer, layout):
    """A training step as mindformers' trainer makes it, with a pipeline's stages or without."""
    net, words = net.net, {"scale_sense": 1.0, "use_clip_grad": True, "max_grad_norm": 1.0}
    net = DataOrderWrapperCell(["input_ids", "labels"], net)
    if layout.stages == 1:
        return MFTrainOneStepCell(_VirtualDatasetCell(net), optimizer, **words)
    net = _VirtualDatasetCell(PipelineCellWithMultiOutputs(net, layout.micro_batches))
    return MFPipelineWithLossScaleCell(net, optimizer, micro_batch_num=layout.micro_batches, **words)


def _words(layout):
    parallel = TransformerOpParallelConfig(
        data_parallel=layout.data,
        model_parallel=layout.tensor,
        pipeline_stage=layout.stages,
        expert_parallel=layout.experts,
        use_seq_parallel=layout.sequence,
        micro_batch_num=layout.micro_batches,
        recompute=TransformerRecomputeConfig(recompute=layout.recompute, select_recompute=layout.select),
    )
    heads = {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 16}
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": LAYERS}
    types = ("params_dtype", "layernorm_compute_dtype", "softmax_compute_dtype", "rotary_dtype")
    return {
        **{**heads, **sizes, "batch_size": BATCH // layout.micro_batches},
        **dict.fromkeys(("max_position_embeddings", "seq_length"), LENGTH),
        **dict.fromkeys(types, "float32"),
        **{"compute_dtype": layout.type, "use_flash_attention": layout.flash, "parallel_config": parallel},
    }


def _batch():
    return Tensor(np.ones((BATCH, LENGTH), np.int32))


one_expert_layer, two_expert_layers = _large, partial(_large, layers=2)
experts_with_vocabulary = partial(_large, vocabulary=151936)
