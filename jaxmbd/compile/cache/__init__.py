"""The disk cache of compiled analyses and programs: files are read as data and verified before use."""
