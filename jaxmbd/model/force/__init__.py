"""Forces: one small law per class, a wrench at each marker, or an effort along a joint's coordinate."""
