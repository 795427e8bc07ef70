"""Jobs of several real ranks, one of which runs on a device that computes wrongly now and then."""
