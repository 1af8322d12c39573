"""Run many agents on the tasks of one manifest, with one ledger and one budget. `manifest` and
`ledger` record what to do and what was done. `attempt` runs the agent for one task, `runner` checks
the tasks and schedules attempts, `outages` pauses them. `parsl_engine` runs attempts on other
machines, and `report` collects the results.
"""
