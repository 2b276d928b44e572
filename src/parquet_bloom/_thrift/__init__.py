"""Thrift bindings, written by thrift/regenerate and never edited."""
