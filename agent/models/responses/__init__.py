"""The Responses API of OpenAI, Azure and servers that serve it too."""
