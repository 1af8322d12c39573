"""What a person types: keys, completion, history, long pastes, their editor."""
