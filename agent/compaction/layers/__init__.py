"""The layers, and the rule that decides when their masks pay. `known` lists the layers."""
