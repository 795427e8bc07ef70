"""The pre-check of APIs: each call of a dump is made again and compared with a reference in float64."""
