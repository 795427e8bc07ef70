"""Compiles one step of a small Llama of mindformers for Ascend, with detection as the environment says.

What is tried is that of a user: `StepMonitor.attach`, then the training step.
"""

import argparse
import os
import sys

import mindspore as ms
import numpy as np
from mindformers import LlamaConfig, LlamaForCausalLM
from mindformers.modules.transformer import TransformerOpParallelConfig, TransformerRecomputeConfig
from mindspore import Tensor, nn
from mindspore.communication import init
from mindspore.nn.wrap.cell_wrapper import _TrainGradAccuStepCell

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--tensor", type=int, default=2)
parser.add_argument("--data", type=int, default=2)
parser.add_argument("--stages", type=int, default=1)
parser.add_argument("--inline", action="store_true", help="each micro-batch in a graph of its own")
parser.add_argument("--recompute", action="store_true")
asked = parser.parse_args()

LAYERS, BATCH, LENGTH, VOCABULARY = 2, 8, 32, 256
micro_batches = 4 if asked.stages > 1 else 1
ms.set_context(mode=ms.GRAPH_MODE, device_target="Ascend", jit_config={"jit_level": "O0"})
init()
ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True, pipeline_stages=asked.stages)
layout = TransformerOpParallelConfig(
    data_parallel=asked.data, model_parallel=asked.tensor, pipeline_stage=asked.stages, micro_batch_num=micro_batches,
    recompute=TransformerRecomputeConfig(recompute=asked.recompute),
)  # fmt: skip
config = LlamaConfig(
    batch_size=BATCH // micro_batches, seq_length=LENGTH, vocab_size=VOCABULARY, hidden_size=64, num_layers=LAYERS,
    num_heads=4, intermediate_size=128, multiple_of=16, max_position_embedding=LENGTH, compute_dtype="bfloat16",
    param_init_type="float32", layernorm_compute_type="float32", softmax_compute_type="float32", rotary_dtype="float32",
    use_flash_attention=False, fused_rms_norm=False, use_rope_slice=True, pad_token_id=VOCABULARY - 1,
    disable_lazy_inline=asked.inline, parallel_config=layout,
)  # fmt: skip
net = LlamaForCausalLM(config=config)
optimizer = nn.AdamWeightDecay(net.trainable_params(), 1e-3)
if asked.stages > 1:
    net = nn.PipelineCell(net, micro_batches)
if os.environ.get("NPU_ASD_ENABLE"):
    from asd.operators import StepMonitor

    StepMonitor().attach(net, optimizer)
step = _TrainGradAccuStepCell(net, optimizer) if asked.stages > 1 else nn.TrainOneStepCell(net, optimizer)
step.set_train()
step(Tensor(np.ones((BATCH, LENGTH + 1), np.int32)))
print("compiled")
# Not the interpreter's end, where MindSpore would give back a device that there never was.
sys.stdout.flush()
os._exit(0)
