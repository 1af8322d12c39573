"""The Responses API of OpenAI, Azure and compatible servers."""
