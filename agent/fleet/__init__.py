"""Many agents: tasks from one manifest, run side by side, with one ledger and one bill. `manifest`
and `ledger` say what is to be done and what was, `checks` looks whether it can be. `attempt` runs
the agent for one task, `runner` decides what starts when, `outages` what keeps all from starting.
`parsl_engine` runs attempts elsewhere, `report` shows what came out."""
