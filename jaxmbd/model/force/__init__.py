"""Forces: one class per type, each a law for the wrenches at markers or for the effort along a joint coordinate."""
