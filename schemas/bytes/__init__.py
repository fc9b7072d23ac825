"""What the models look like as bytes: one room for each kind of object."""
