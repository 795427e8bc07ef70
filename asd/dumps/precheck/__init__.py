"""The pre-check of APIs without MindSpore: which calls a dump holds, their inputs, the rules, and the tables."""
