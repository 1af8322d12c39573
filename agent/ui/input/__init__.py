"""Input of the user: keys, completion, history, long pastes, their editor."""
