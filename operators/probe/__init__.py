"""Work whose answers are known: done between the steps of a training, and by a test of the device."""
