# Completion of ctxagent in fish. The program writes it itself, when it is first needed in a shell.
_CTXAGENT_COMPLETE=fish_source ctxagent 2>/dev/null | source
