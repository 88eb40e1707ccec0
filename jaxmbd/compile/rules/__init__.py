"""The rules by which jaxprs become scalar operations, one for each primitive of JAX, for any builder of scalars."""
