"""Where texts come from: each reader turns one kind of source into a ``RawTable``, columns as found."""
