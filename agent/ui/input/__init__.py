"""User input: keys, completion, history, long pastes, and the user's editor."""
