"""The codecs of all models: one module for each kind of object."""
