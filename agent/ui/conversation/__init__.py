"""The open session, questions to the user, and the running task: shared by REPL and commands."""
