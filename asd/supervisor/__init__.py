"""Supervisor: starts a job through MindSpore's own launcher, watches it, and restarts it without a bad device.

    begin ──► run ──► end ──► decide ──► done
      ▲                          │  ╲
      └────── start again ◄──────┘   ► give up

`Job` is this picture. `AttemptWatch` watches one attempt, `find_cause` finds why it ended. The fault handler decides
about its device, see `OwnHandler`. `Record` outlives the supervisor.
"""
