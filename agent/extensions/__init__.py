"""Extensions that the project and the user add as files: commands, skills, hooks, plugins,
servers.
"""
