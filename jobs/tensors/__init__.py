"""Tensors between processes: how they are described, passed on in pieces, kept in files, and compared."""
