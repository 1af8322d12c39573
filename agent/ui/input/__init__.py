"""Input of the person: keys, completion, history, long pastes, their editor."""
