"""Records and tables to counts; nothing here draws noise."""
