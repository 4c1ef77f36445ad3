"""`headrace new`: the files of a new event, service, dimension, pipeline or rule."""
