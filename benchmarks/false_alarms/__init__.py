"""Healthy trainings of many kinds, in which every alarm is a false one."""
