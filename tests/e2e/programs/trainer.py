"""A training as mindformers users write it: a yaml, the Trainer, no word of detection."""

import sys
from pydoc_data import topics

import mindspore as ms
import numpy as np
from mindformers import MindFormerConfig, Trainer, build_context

config = MindFormerConfig(sys.argv[1])
config.context.mode = int(sys.argv[2])
build_context(config)
text = np.frombuffer("".join(topics.topics.values()).encode(), np.uint8).astype(np.int32)
rows = [(text[i * 65 : (i + 1) * 65],) for i in range(4 * int(sys.argv[3]))]
data = ms.dataset.GeneratorDataset(rows, ["input_ids"], shuffle=False).batch(4, drop_remainder=True)
Trainer(args=config, task="text_generation", train_dataset=data).train()
