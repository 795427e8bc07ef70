"""The demo: a Llama that is trained while a device computes wrongly, alone and as a job; programs to copy."""
