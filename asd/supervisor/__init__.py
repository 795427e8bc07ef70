"""The supervisor: starts a job through MindSpore's own launcher, watches it, and starts it again without a bad device.

    begin ──► run ──► end ──► decide ──► done
      ▲                          │  ╲
      └────── start again ◄──────┘   ► give up

`Job` is this picture. `AttemptWatch` sees what one attempt was like, `find_cause` why it ended. What follows for a
device is decided by the fault handler, see `OwnHandler`. `Record` outlives the supervisor.
"""
