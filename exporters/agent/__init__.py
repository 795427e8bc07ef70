"""The node agent: reads the files of many ranks and keeps what they add up to."""
