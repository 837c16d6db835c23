"""MTEB tasks for every layer, from one extraction a text."""
