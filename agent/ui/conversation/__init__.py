"""The open session, questions to the person, and the running task: shared by REPL and commands."""
