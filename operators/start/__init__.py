"""Ways to start the watch over a training: `enable`, automatic start, callbacks of MindSpore and mindformers."""
