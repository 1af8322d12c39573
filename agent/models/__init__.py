"""Models behind one protocol: real models over three wire protocols, and a scripted model."""
