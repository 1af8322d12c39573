"""The context engine as a proxy between another agent and its model."""
