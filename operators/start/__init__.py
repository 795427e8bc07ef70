"""How a training comes under watch: `enable`, the automatic start, and the callbacks of MindSpore and mindformers."""
