"""What a warden leaves for its agent: in the folder of the task, and in its own status."""

STATUS = "status"
"""The file with the status of the program, once that has ended. `stdout` and `stderr` are beside it."""

LEASE_ENDED = 254
"""Status of a warden whose lease was not renewed."""
