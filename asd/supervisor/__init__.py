"""The supervisor: starts a job through MindSpore's own launcher, watches it, and starts it again without a bad device.

    begin ──► run ──► end ──► decide ──► done
      ▲                          │  ╲
      └────── start again ◄──────┘   ► give up

`Job` is this picture. What one attempt was like is seen by `AttemptWatch`, why it ended is found by `find_cause`. What
follows for a device is decided by the fault handler, see `OwnHandler`; `Devices` chooses among those that are left.
What outlives the supervisor itself is in `Record` and in the handler's database.

May import: `counts`, `diagnosis`, `handler`, `rundir`.
"""
