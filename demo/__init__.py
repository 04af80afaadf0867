"""The main job on a bad day: real flights, an exactly-once pipeline, everything killed once, and a verdict."""
